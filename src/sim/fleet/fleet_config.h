// What a simulated fleet is: one cell of prefill engines, decode groups, a pool and their network
// (serving.md 4.2), and the traffic that it gets. Times are microseconds here, nanoseconds in the
// simulation. Everything has a default that is one of the presets' values; which of them were
// measured and which are assumed is told by `assumptions()`.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "policy/decode_balancer.h"
#include "policy/prefill_balancer.h"
#include "sim/experts/expert_config.h"
#include "sim/fleet/draft_config.h"

namespace fathom {

// Traffic of different habits, told apart in reports and by the pool's times to live.
enum class Traffic : std::uint8_t { agent, chat, other };
inline constexpr std::size_t kTrafficKinds = 3;
std::string_view traffic_name(Traffic traffic);

struct PrefillSideConfig {
    std::int64_t engines = 1;
    std::int64_t ranks = 4;                  // of an engine
    std::int64_t blocks_per_rank = 400'000;  // of 128 tokens
    PrefillSettings policy;                  // with the costs of a step
    bool is_adaptive = true;                 // B* instead of τ
    double noise_sigma = 0.02;               // of a step, logarithmic
    double stall_share = 0.0005;             // of steps
    double stall_us = 100e3;
};

// Rows and accepted tokens of a sequence and step, by sequences on its rank; linear between.
struct SpeculationPoint {
    double sequences = 0, rows = 1, accepted = 1;
};

struct DecodeSideConfig {
    std::int64_t groups = 1;
    std::int64_t ranks = 4;  // of a group
    std::int64_t sequences_max = 96;
    std::int64_t blocks_per_rank = 1'300'000;
    DecodeSettings policy;  // with the costs of a step
    std::vector<SpeculationPoint> speculation;
    double accepted_sigma = 1.5;  // of one sequence and step
    double noise_sigma = 0.02;
    std::int64_t report_age_steps = 1;  // how old the balancer's view is
    bool is_per_sequence = false;       // for validation: acceptance drawn for each sequence
    DraftConfig drafts;                 // instead of `speculation`, where they are modelled
};

struct NetworkConfig {
    double link_gbit_s = 400;  // of a card
    double latency_us = 20;
    std::int64_t token_bytes = 890;
    std::int64_t bundle_bytes = 4'000'000;  // what is not block KV
};

struct PoolConfig {
    bool is_enabled = true;
    std::array<double, kTrafficKinds> ttl_s = {3 * 86400.0, 7 * 86400.0, 7 * 86400.0};
    double capacity_gib = 0;  // 0: what the times to live need
    double window_ttl_s = 180;
    double read_us = 1500;           // before the first byte
    double read_gib_s_per_card = 2;  // what the store gives, all readers together
    bool is_output_persisted = true;
    // With a life of 0 s traffic finds nothing, common prefixes included, and leaves nothing.
    bool keeps(Traffic traffic) const {
        return is_enabled && ttl_s[static_cast<std::size_t>(traffic)] > 0;
    }
};

// Sessions of the generator: prompts that grow with every call.
struct SessionConfig {
    double share = 0;          // of requests
    double prefix_tokens = 0;  // common to all sessions of a product: always in the pool
    double first_tokens = 0, first_sigma = 0;  // medians and deviations of logarithms
    double added_tokens = 0, added_sigma = 0;  // a call, behind the last answer
    double output_tokens = 0, output_sigma = 0;
    double calls_median = 1, calls_sigma = 0;
    std::int64_t calls_max = 1;
    double gap_s = 0, gap_sigma = 0;
    // A part of the gaps is of another kind: somebody comes back later.
    double pause_share = 0, pause_s = 0, pause_sigma = 0;
    double compact_tokens = 0;  // a context that reaches this is cut to `compacted_tokens`
    double compacted_tokens = 0;
    friend bool operator==(const SessionConfig&, const SessionConfig&) = default;
};

enum class WorkloadSource : std::uint8_t {
    sessions,  // open loop: requests come whatever becomes of others
    clients,   // closed loop: a client sends its next request when it has its answer
    trace,
};

// What the rate of an open loop does over time: a day that swings, and a crowd.
struct RateShape {
    double day_s = 86'400, day_ratio = 1;  // most over least; the day begins at its mean, rising
    double crowd_at_s = 0, crowd_factor = 1, crowd_ramp_s = 60, crowd_s = 600;
    double at(double seconds) const;  // factor on the mean rate
    double most() const;
};

struct WorkloadConfig {
    WorkloadSource source = WorkloadSource::sessions;
    // sessions: requests a second; 0: what makes `load` of the fleet's balanced bound.
    double rate = 0, load = 0.85;
    double burst = 1;     // rate of busy seconds over the mean
    double burst_s = 30;  // mean length of a busy or a quiet time
    RateShape shape;
    std::array<SessionConfig, 2> sessions;  // agent, chat
    // clients: how many, in what time they begin, how long a refused one waits, and beyond which
    // pause a session is given up for a new one
    std::int64_t clients = 64;
    double clients_begin_s = 60, retry_s = 5, think_max_s = 600;
    std::int64_t context_tokens_max = 1 << 20;
    // trace
    std::string trace;
    std::int64_t trace_clones = 1;  // copies with other beginnings and other prefixes
    double trace_spread_s = 0;      // in which conversations, or copies, begin
    Traffic trace_traffic = Traffic::other;
};

struct MoneyConfig {
    double card_hour = 2.0;                                            // what a card costs
    double hit_price = 0.003, miss_price = 0.15, output_price = 0.60;  // a million tokens
};

struct SloConfig {
    std::array<double, kPrefillClasses> ttft_s = {2, 4, 10, 30};
    double tpot_ms = 50;
};

struct FailureConfig {
    double card_mtbf_h = 0;  // of a card; 0: none
    double repair_s = 300;
    // Beside these, so many engines and groups at one time; 0: none.
    double at_s = 0;
    std::int64_t groups = 1, engines = 0;
};

// One planned drain. The times are of every drain, also the autoscaler's.
struct DrainConfig {
    double at_s = 0;  // 0: none
    std::int64_t groups = 1, engines = 0;
    double grace_s = 60;
    double adopt_s = 10;     // behind it, until what nobody adopted is resumed
    bool is_forced = false;  // also without room elsewhere
};

// `prefill.engines` and `decode.groups` are then the most that there can be.
struct ScalingConfig {
    bool is_enabled = false;
    std::int64_t prefill_begin = 0, decode_begin = 0;  // 0: all
    std::int64_t prefill_min = 1, decode_min = 1;
    double use = 0.8;  // of a unit's capacity that is wanted
    double start_s = 60;
    double window_s = 300, margin = 0.05;  // of shrinking (policy/fleet_planner.h)
    double load_share = -1;                // of decode; below 0: by the cost of its steps
};

// What a card must hold and read: from it follows what another size of engine costs.
struct HardwareConfig {
    double card_gb = 141;
    double read_gb_s = 4'800;
    double expert_gb = 289;  // shared out among the cards of an engine
    double other_gb = 25;    // on each card
    double kv_share = 0.9;   // of what is left, for KV
    friend bool operator==(const HardwareConfig&, const HardwareConfig&) = default;
};

// Tables of values that can be called measured.
inline constexpr std::array<std::string_view, 3> kMeasurable = {"prefill", "decode", "workload"};

struct FleetChange {
    std::string key, value, usual;  // values as TOML writes them; usual: the preset's
    std::string source;             // a file and line, a flag, a calibration, a derivation
};

inline constexpr std::int64_t kFleetCardsMax = 1'000'000;
inline constexpr double kCardMtbfLeastH = 1e-4;  // more failures than this are no fleet

struct FleetConfig {
    std::string preset = "one-box";
    std::uint64_t seed = 1;
    double duration_s = 600;
    double warmup_s = 120;  // not counted in any figure
    bool runs_out = false;  // goes on after `duration_s` until all requests are done
    PrefillSideConfig prefill;
    DecodeSideConfig decode;
    NetworkConfig network;
    PoolConfig pool;
    WorkloadConfig workload;
    MoneyConfig money;
    SloConfig slo;
    FailureConfig failures;
    DrainConfig drain;
    ScalingConfig scaling;
    HardwareConfig hardware;
    ExpertConfig experts;
    // Of kMeasurable, those whose values somebody measured.
    std::vector<std::string> measured;
    // For reports: the sides (prefill, decode) whose costs and memory were derived for engines of
    // other sizes than the preset's, and each key that is not as in the preset.
    std::vector<std::string> derived;
    std::vector<FleetChange> changes;

    std::int64_t prefill_cards() const { return prefill.engines * prefill.ranks; }
    std::int64_t decode_cards() const { return decode.groups * decode.ranks; }
    std::int64_t cards() const { return prefill_cards() + decode_cards(); }
};

std::vector<std::string> fleet_preset_names();
// not_found names the presets.
Result<FleetConfig> fleet_preset(const std::string& name);
// What goes together; ranges of single fields are the schema's. Names field, value and limit.
Status check_fleet(const FleetConfig& config);

// Engines or groups of another size, with what follows: memory for KV, the time in which a card
// reads its experts, and moe_lb, which grows as the expected maximum of so many normal numbers.
// resource_exhausted when the weights do not fit.
Status set_prefill_ranks(FleetConfig& config, std::int64_t ranks);
Status set_decode_ranks(FleetConfig& config, std::int64_t ranks);

struct Assumption {
    std::string what, value, source;
    bool is_measured = false;
};
std::vector<Assumption> fleet_assumptions(const FleetConfig& config);

}  // namespace fathom
