// An engine leaves (serving.md 2.4): what it still does ends here, or goes elsewhere, by a
// deadline. Nothing is lost and nothing is done twice: every sequence gets exactly one end.
//
//   decode    notice ───── grace (60 s) ─────▶ freeze ──── 10 s ────▶ exit
//             nothing new is placed here;      all that is left       what nobody adopted is
//             sequences decode on, long        moves at once,         resumed elsewhere from
//             ones are copied ahead            longest first          its tokens
//
//   prefill   notice: stops pulling, hands back what is not started ── grace ──▶ hands back the
//   rest
//
// A drain for which there is no room elsewhere is refused, unless it is forced (the hardware goes
// away): then resumes queue. The owner does what it is told and says what came of it; where things
// go is the decode balancer's decision, on other groups than this one. One owner.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "base/result.h"
#include "policy/decision_log.h"
#include "policy/fleet_planner.h"

namespace fathom {

struct DrainRules {
    std::int64_t grace_us = 60'000'000, adopt_us = 10'000'000;
    // A move should not interrupt a stream for longer than the larger of these.
    std::int64_t pause_steps = 2, pause_us = 200'000;
    std::int64_t copy_ahead_tokens = 8192;  // of a sequence that is worth it
};

struct DrainSequence {
    std::uint64_t id = 0;
    std::int64_t kv_tokens = 0;
    bool is_started = true;  // prefill: false for what only waits here
};

struct DrainWork {
    enum class Kind : std::uint8_t { copy_ahead, move, resume, hand_back, exit };
    Kind kind = Kind::exit;
    std::uint64_t id = 0;
    friend bool operator==(const DrainWork&, const DrainWork&) = default;
};

enum class DrainPhase : std::uint8_t { grace, moving, gone };

// Values are part of the format of logs: append only.
enum class DrainReason : std::uint16_t {
    begun = 1,
    forced = 2,
    frozen = 3,
    done = 4,
    deadline = 5
};

class EngineDrain {
  public:
    // unavailable: no room elsewhere, and not forced.
    static Result<EngineDrain> begin(std::int64_t now_us, std::uint32_t engine, FleetRole role,
                                     const DrainRules& rules, bool has_room, bool is_forced);

    // What to do now. `sequences` are here, not ended and not moving; `arriving` hand-offs were
    // promised before the notice (prefill: are still going out). step_us: of a decode step.
    std::vector<DrainWork> tick(std::int64_t now_us, std::span<const DrainSequence> sequences,
                                std::int64_t arriving, std::int64_t step_us = 0);
    // Of a sequence that was told to move: it has stopped here; it goes on there; or nobody takes
    // it, then it is resumed. False: unknown, its end has been decided (an adoption that comes
    // after a resume must be undone over there).
    bool stopped(std::int64_t now_us, std::uint64_t id);
    bool adopted(std::int64_t now_us, std::uint64_t id);
    bool refused(std::uint64_t id);
    // It was told to move and came to its own end before it stopped.
    bool ended(std::uint64_t id);

    DrainPhase phase() const { return phase_; }
    std::int64_t deadline_us() const { return begun_us_ + rules_.grace_us + rules_.adopt_us; }
    std::int64_t adopted_count() const { return adopted_; }
    std::int64_t resumed_count() const { return resumed_; }
    std::int64_t long_pauses() const { return long_pauses_; }
    DecisionLog& log() { return log_; }

    std::vector<std::uint8_t> save() const;  // without rules and log
    Status load(std::span<const std::uint8_t> bytes);

  private:
    EngineDrain(std::int64_t now_us, std::uint32_t engine, FleetRole role, const DrainRules& rules)
        : engine_(engine), role_(role), rules_(rules), begun_us_(now_us), log_(16) {}
    void tick_prefill(std::int64_t now_us, std::span<const DrainSequence> sequences,
                      std::int64_t arriving, std::vector<DrainWork>& work);
    void tick_decode(std::int64_t now_us, std::span<const DrainSequence> sequences,
                     std::int64_t arriving, std::vector<DrainWork>& work);
    void move_all(std::span<const DrainSequence> sequences, std::vector<DrainWork>& work);
    void leave(std::int64_t now_us, DrainReason reason, std::vector<DrainWork>& work);
    void note(std::int64_t now_us, DrainReason reason, std::uint64_t input = 0);

    std::uint32_t engine_;
    FleetRole role_;
    DrainRules rules_;
    std::int64_t begun_us_;
    DrainPhase phase_ = DrainPhase::grace;
    std::set<std::uint64_t> copied_, refused_;      // ahead; nobody takes them
    std::map<std::uint64_t, std::int64_t> moving_;  // since when it is stopped; -1: not yet
    std::int64_t adopted_ = 0, resumed_ = 0, handed_back_ = 0, long_pauses_ = 0;
    std::int64_t pause_max_us_ = 0;
    DecisionLog log_;
};

}  // namespace fathom
