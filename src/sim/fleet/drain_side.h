// How the units of a simulated fleet leave (serving.md 2.4): by the rules that live services use
// (policy/fleet_drain.h). This asks them every half second, and every 20 ms once sequences move,
// and does what they say on the fleet's engines, groups and links.
//
//   copy ahead   whole blocks go through the sequence's own link to the pool; behind the freeze the
//                new rank reads them there, and only the rest comes from the old one
//   move         at the end of the step in work the sequence stops, is placed by the balancer like
//                any other and goes on when its KV has arrived: that is its pause
//   resume       its prompt with what it generated is computed again, from what the pool has
//   hand back    into the queue of its class again
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "policy/decision_log.h"
#include "policy/fleet_drain.h"
#include "sim/event_queue.h"
#include "sim/fleet/decode_side.h"
#include "sim/fleet/fleet_config.h"
#include "sim/fleet/fleet_result.h"
#include "sim/fleet/prefill_side.h"

namespace fathom {

class DrainSide {
  public:
    class Host {
      public:
        virtual ~Host() = default;
        // So many tokens of its KV go to the pool from where it decodes; when they are there.
        virtual SimTime copy_ahead(std::uint32_t slot, std::int64_t tokens) = 0;
        // It left its group and nobody has adopted it: wherever it is, it is resumed.
        virtual void resume_moving(std::uint32_t slot) = 0;
        // A prompt is in its queue again; so many of its tokens were not computed.
        virtual void handed_back(std::uint64_t id, std::int64_t left_tokens) = 0;
        // The engine goes although decode has not taken all its finished prompts.
        virtual void drop_finished(std::size_t engine) = 0;
    };
    DrainSide(const FleetConfig& config, EventQueue& events, PrefillSide& prefill,
              DecodeSide& decode, Host& host);

    // A unit as in lifecycle.h. False: refused, since nobody has room for its work.
    bool begin(std::size_t unit);
    // True: nothing is left of it, and it may be stopped.
    bool tick(std::size_t unit);
    double wait_s(std::size_t unit) const;  // until the next tick
    void broke(std::size_t unit);           // if it was draining

    // What became of a sequence that was told to move from a group. False: its drain is over.
    bool stopped(std::size_t group, std::uint32_t slot);
    bool adopted(std::size_t group, std::uint32_t slot);
    bool refused(std::size_t group, std::uint32_t slot);
    void stayed(std::size_t group, std::uint32_t slot);  // it ended before
    // Of a sequence that leaves the group: what the pool has of its KV.
    std::int64_t copied_tokens(std::size_t group, std::uint32_t slot) const;

    const DrainFigures& figures() const { return figures_; }
    bool has_drained() const { return has_drained_; }
    std::uint64_t decision_hash();

  private:
    struct Copied {
        std::int64_t tokens = 0;
        SimTime there_ns = 0;
    };
    struct Drain {
        EngineDrain rules;
        std::map<std::uint32_t, Copied> copied;
        std::set<std::uint32_t> moving;  // stopped, and not adopted
        SimTime frozen_ns = -1, adopted_ns = -1;
    };
    bool is_engine(std::size_t unit) const {
        return unit < static_cast<std::size_t>(config_.prefill.engines);
    }
    std::size_t group_of(std::size_t unit) const {
        return unit - static_cast<std::size_t>(config_.prefill.engines);
    }
    Drain* of_group(std::size_t group);
    void carry_out(std::size_t unit, Drain& drain, const DrainWork& work);
    void close(Drain& drain);

    FleetConfig config_;
    EventQueue& events_;
    PrefillSide& prefill_;
    DecodeSide& decode_;
    Host& host_;
    std::map<std::size_t, Drain> drains_;  // by unit
    std::vector<DrainSequence> sequences_;
    bool has_drained_ = false;
    DrainFigures figures_;
    Digest hash_;
};

}  // namespace fathom
