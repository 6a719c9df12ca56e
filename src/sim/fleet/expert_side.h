// The experts of a simulated fleet whose popularity drifts (sim/experts/expert_role.h): one process
// for prefill and one for decode. What steps cost follows the moe_lb that the placements in force
// make of it. Only where `experts.process` is set.
//
// A switch is carried by one engine or group of the role, which is whole when it begins; when that
// one breaks down or goes, the switch is dropped.
#pragma once

#include <array>
#include <cstdint>

#include "sim/experts/expert_role.h"
#include "sim/fleet/decode_side.h"
#include "sim/fleet/fleet_event.h"
#include "sim/fleet/fleet_result.h"
#include "sim/fleet/prefill_side.h"

namespace fathom {

class ExpertSide {
  public:
    // Plans its first events. All must outlive it.
    ExpertSide(const FleetConfig& config, EventQueue& events, PrefillSide& prefill,
               DecodeSide& decode);

    void on_event(const SimEvent& event);
    void count_from_here();
    void add_to(FleetSample& sample);
    // Figures, and the hash of their decisions.
    std::uint64_t finish(FleetResult& result);

  private:
    static constexpr std::size_t kPrefill = 0, kDecode = 1;
    struct Carrier {  // of a switch
        std::size_t unit = 0;
        std::uint32_t epoch = 0;
    };
    struct Counters {  // of a side, where they stood at the last sample
        double rank_steps = 0, sequence_steps = 0;
        std::int64_t step_ns = 0;
    };
    void on_sample(std::size_t role);
    void on_turn(std::size_t role);
    ExpertTraffic prefill_traffic();
    ExpertTraffic decode_traffic();
    bool find_carrier(std::size_t role);
    bool is_carried(std::size_t role) const;
    void push(SimTime after_ns, FleetEvent kind, std::size_t role);

    FleetConfig config_;
    EventQueue& events_;
    PrefillSide& prefill_;
    DecodeSide& decode_;
    std::array<ExpertRole, kExpertRoles> roles_;
    std::array<Carrier, kExpertRoles> carriers_;
    std::array<Counters, kExpertRoles> counters_;
    double decode_rows_ = 0;  // of all ranks and steps
};

}  // namespace fathom
