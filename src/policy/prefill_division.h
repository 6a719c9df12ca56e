// Which engines serve which length class in the next round (serving.md 2.1.6): in proportion to
// demand, at least one for every class that has any, and only few changes a round.
#pragma once

#include <array>
#include <cstdint>

#include "policy/prefill_cost.h"

namespace fathom {

using ClassCounts = std::array<std::int64_t, kPrefillClasses>;

struct DivisionInput {
    ClassCounts demand_us{};  // arrived in the last round plus backlog; >= 0
    ClassCounts previous{};   // engines by class, of those that live
    std::int64_t engines = 0;
    bool is_limited = true;  // hysteresis: at most max(1, 10 %) change
};
struct Division {
    ClassCounts engines{};
    // The class whose engines serve class k: k itself where it has engines. With fewer engines than
    // classes the least demand joins the next longer class.
    std::array<std::size_t, kPrefillClasses> served_by{};
};
Division divide_engines(const DivisionInput& input);

// Only served_by, for the counts as they are.
std::array<std::size_t, kPrefillClasses> serving_classes(const ClassCounts& engines);

}  // namespace fathom
