// The work of one moe() call: every selected expert with the rows that chose it.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/ops.h"
#include "kernels/x86/packed.h"

namespace fathom::x86 {

// Rows [begin, begin + count) of the lists, all of one expert, at most kProductRowsMax.
struct ExpertRows {
    const Panels* gate_up = nullptr;
    const Panels* down = nullptr;
    std::int64_t begin = 0;
    std::int64_t count = 0;
    bool weighted = false;
};

// Lists by (expert, row), experts ascending, the shared one last, rows of an expert ascending.
// Vectors keep their memory from call to call.
struct MoePlan {
    std::vector<ExpertRows> experts;
    std::vector<std::int32_t> row;        // of x and y
    std::vector<const std::uint16_t*> x;  // inputs, padded to whole tiles
    std::vector<float> weight;
    std::vector<std::uint16_t*> t;  // inner rows
    std::vector<std::uint16_t> t_memory;
    std::vector<std::int64_t> first_panel;  // of each of `experts` among all gate/up panels, and
                                            // their number
    std::vector<std::int64_t> place;        // [n, slots]: where in the lists the parts of row i are
    std::vector<std::int64_t> start;        // of each routed expert in the lists
    std::vector<std::uint16_t> parts;       // outputs of the experts, some columns at a time
    std::int64_t slots = 0;
    bool x_is_moderate = false, t_is_moderate = false;

    // x[i] is row i of args.x_q8.
    void build(const MoeArgs& args, const std::uint16_t* const* inputs);

  private:
    void add(const PackedExpert& expert, std::int64_t begin, std::int64_t end, bool weighted);
};

}  // namespace fathom::x86
