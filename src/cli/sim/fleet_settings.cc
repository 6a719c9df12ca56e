#include "cli/sim/fleet_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>

#include "policy/expert_load.h"

namespace fathom {
namespace {

constexpr double kTokensMax = 1 << 20;
constexpr double kSecondsMax = 400 * 86'400.0;
constexpr double kUsMax = kCostUsMax;

// Of a step's cost; `is_tabled`: a table stands in its place.
struct PrefillKey {
    const char* key;
    double PrefillCost::*value;
    double min, max;
    const char* help;
    bool is_tabled = false;
};
constexpr PrefillKey kPrefillKeys[] = {
    {"prefill.step_us", &PrefillCost::k0_us, 0, kUsMax, "k0: fixed cost of a step"},
    {"prefill.token_us", &PrefillCost::k1_us, 0, kUsMax, "k1: a token", true},
    {"prefill.pair_us", &PrefillCost::k2_us, 0, kUsMax, "k2: a pair of a token and one before it",
     true},
    {"prefill.context_us", &PrefillCost::k3_us, 0, kUsMax,
     "k3: a token of context that was hit, once a request"},
    {"prefill.tail_us", &PrefillCost::k4_us, 0, kUsMax,
     "k4: decoder half of the last tokens, and sampling"},
    {"prefill.slice_us", &PrefillCost::k5_us, 0, kUsMax, "k5: a slice", true},
    {"prefill.sync_us", &PrefillCost::sync_us, 0, kUsMax, "ranks waiting for each other"},
    {"prefill.moe_share", &PrefillCost::moe_share, 0, 1, "of a step's time in experts"},
    {"prefill.moe_lb", &PrefillCost::moe_balance, 1, 100, "slowest expert rank over their mean"}};

const char* rule_text(DecodeRule rule) {
    switch (rule) {
        case DecodeRule::marginal:
            return "marginal";
        case DecodeRule::split:
            return "split";
        case DecodeRule::round_robin:
            return "round_robin";
        default:
            return "joint";
    }
}

Status check_measured(const std::vector<std::string>& tables) {
    const std::vector<std::string> known(kMeasurable.begin(), kMeasurable.end());
    for (const std::string& table : tables) {
        if (std::find(known.begin(), known.end(), table) != known.end()) continue;
        const std::string nearest = nearest_word(table, known);
        return invalid_argument(
            "sim.measured: \"{}\", expected of {}{}", table, fmt::join(known, ", "),
            nearest.empty() ? "" : fmt::format("; did you mean \"{}\"?", nearest));
    }
    return {};
}

}  // namespace

std::optional<double> fleet_number(std::string_view text) {
    double value = 0;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (failed != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
        return std::nullopt;
    return value;
}

Result<std::vector<SpeculationPoint>> parse_speculation(const std::vector<std::string>& points) {
    std::vector<SpeculationPoint> parsed;
    if (points.size() == 1 && (points[0].empty() || points[0] == "none")) return parsed;
    for (const std::string& text : points) {
        const std::size_t first = text.find(':');
        const std::size_t second = first == std::string::npos ? first : text.find(':', first + 1);
        std::optional<double> n, rows, accepted;
        if (second != std::string::npos) {
            const std::string_view view = text;
            n = fleet_number(view.substr(0, first));
            rows = fleet_number(view.substr(first + 1, second - first - 1));
            accepted = fleet_number(view.substr(second + 1));
        }
        if (!n || !rows || !accepted || *n < 0 || *accepted < 1 || *rows < *accepted || *rows > 64)
            return invalid_argument(
                "decode.speculation: \"{}\", expected SEQUENCES:ROWS:ACCEPTED with "
                "1 <= ACCEPTED <= ROWS <= 64, or none",
                text);
        if (!parsed.empty() && *n <= parsed.back().sequences)
            return invalid_argument("decode.speculation: \"{}\", expected more than {} sequences",
                                    text, parsed.back().sequences);
        parsed.push_back({*n, *rows, *accepted});
    }
    return parsed;
}

FleetSettings::FleetSettings(const FleetConfig& preset) : config_(preset) {
    seed_ = static_cast<std::int64_t>(preset.seed);
    source_ = preset.workload.source == WorkloadSource::trace     ? "trace"
              : preset.workload.source == WorkloadSource::clients ? "clients"
                                                                  : "sessions";
    trace_traffic_ = traffic_name(preset.workload.trace_traffic);
    rule_ = rule_text(preset.decode.policy.rule);
    verification_ = verification_name(preset.decode.drafts.verification);
    scope_ = preset.decode.drafts.is_group_wide ? "group" : "rank";
    for (const SpeculationPoint& point : preset.decode.speculation)
        speculation_.push_back(
            fmt::format("{:g}:{:g}:{:g}", point.sequences, point.rows, point.accepted));
    cost_ = preset.prefill.policy.costs[0];
    bind_run();
    bind_lifecycle();
    bind_prefill();
    bind_decode();
    bind_drafts();
    bind_kv();
    bind_experts();
    bind_workload();
}

const std::vector<std::string>& FleetSettings::tables() {
    static const std::vector<std::string> kTables = {
        "sim", "prefill", "decode",   "network", "pool",    "workload", "agent",   "chat",
        "slo", "money",   "failures", "drain",   "scaling", "hardware", "experts", "drafts"};
    return kTables;
}

void FleetSettings::bind_run() {
    schema_.add_choice("sim.preset", &config_.preset, fleet_preset_names(),
                       "where all other values begin");
    schema_.add("sim.seed", &seed_, 0, std::int64_t{1} << 62, "of everything random");
    schema_.add("sim.duration_s", &config_.duration_s, 1.0, 30 * 86'400.0,
                "in which requests arrive");
    schema_.add("sim.warmup_s", &config_.warmup_s, 0.0, 30 * 86'400.0,
                "at the beginning that no figure counts");
    schema_.add("sim.runs_out", &config_.runs_out,
                "go on until all requests are done, instead of stopping at duration_s");
    schema_.add("sim.calibration", &calibration_,
                "file of `fathom calibrate`: what steps cost, on engines of one card; keys of "
                "[prefill] and [decode] win over it");
    schema_.add(
        "sim.prefill_costs", &prefill_costs_,
        "file of `fathom calibrate --prefill-costs`: what prefill costs by length class, on "
        "engines of its size; wins over sim.calibration, keys of [prefill] over it");
    schema_.add("sim.model", &model_, "folder of the checkpoint that they measured");
    schema_.add(
        "sim.measured", &config_.measured,
        "tables whose values were measured: prefill, decode, workload; the rest is assumed");
    const auto hardware = [&](const char* key, double* value, double max, const char* help) {
        schema_.add(std::string("hardware.") + key, value, 1e-3, max, help);
    };
    hardware("card_gb", &config_.hardware.card_gb, 1e6,
             "memory of a card; engines of other sizes than the preset's follow from these");
    hardware("read_gb_s", &config_.hardware.read_gb_s, 1e6, "at which it is read");
    hardware("expert_gb", &config_.hardware.expert_gb, 1e6,
             "weights that an engine's cards share out");
    hardware("other_gb", &config_.hardware.other_gb, 1e6, "weights on each card");
    hardware("kv_share", &config_.hardware.kv_share, 1.0, "of what is left, for KV");
    schema_.add("slo.ttft_s_16k", &config_.slo.ttft_s[0], 0.001, kSecondsMax,
                "time to first token of prompts below 16 K tokens");
    schema_.add("slo.ttft_s_64k", &config_.slo.ttft_s[1], 0.001, kSecondsMax, "below 64 K");
    schema_.add("slo.ttft_s_256k", &config_.slo.ttft_s[2], 0.001, kSecondsMax, "below 256 K");
    schema_.add("slo.ttft_s_longer", &config_.slo.ttft_s[3], 0.001, kSecondsMax, "longer ones");
    schema_.add("slo.tpot_ms", &config_.slo.tpot_ms, 0.01, 1e6,
                "time of an output token, mean of a request");
    schema_.add("money.card_hour", &config_.money.card_hour, 0.0, 1e6, "cost of a card, USD");
    schema_.add("money.hit_price", &config_.money.hit_price, 0.0, 1e6,
                "of a million input tokens that were hit, USD");
    schema_.add("money.miss_price", &config_.money.miss_price, 0.0, 1e6, "that were not");
    schema_.add("money.output_price", &config_.money.output_price, 0.0, 1e6,
                "of a million output tokens");
}

void FleetSettings::bind_lifecycle() {
    schema_.add("failures.card_mtbf_h", &config_.failures.card_mtbf_h, 0.0, 1e9,
                "mean hours between failures of a card, which stop its engine; 0: none");
    schema_.add("failures.repair_s", &config_.failures.repair_s, 0.001, kSecondsMax,
                "until the engine is back");
    schema_.add("failures.at_s", &config_.failures.at_s, 0.0, kSecondsMax,
                "when some fail together, beside that; 0: never");
    schema_.add("failures.groups", &config_.failures.groups, 0, 100'000, "decode groups that do");
    schema_.add("failures.engines", &config_.failures.engines, 0, 100'000,
                "prefill engines that do");
    schema_.add("drain.at_s", &config_.drain.at_s, 0.0, kSecondsMax,
                "when some are drained for good; 0: never");
    schema_.add("drain.groups", &config_.drain.groups, 0, 100'000, "decode groups, all but one");
    schema_.add("drain.engines", &config_.drain.engines, 0, 100'000,
                "prefill engines, all but one");
    schema_.add("drain.grace_s", &config_.drain.grace_s, 0.0, kSecondsMax,
                "until a draining group hands over what still runs");
    schema_.add("drain.adopt_s", &config_.drain.adopt_s, 0.0, kSecondsMax,
                "until what no other group has adopted then is resumed from its tokens");
    schema_.add("drain.forced", &config_.drain.is_forced,
                "drain although nobody has room for the work");
    ScalingConfig& scaling = config_.scaling;
    schema_.add("scaling.enabled", &scaling.is_enabled,
                "engines and groups come and go, up to prefill.engines and decode.groups");
    schema_.add("scaling.prefill_begin", &scaling.prefill_begin, 0, 100'000,
                "engines at the start; 0: all");
    schema_.add("scaling.decode_begin", &scaling.decode_begin, 0, 100'000,
                "groups at the start; 0: all");
    schema_.add("scaling.prefill_min", &scaling.prefill_min, 1, 100'000, "engines that stay");
    schema_.add("scaling.decode_min", &scaling.decode_min, 1, 100'000, "groups that stay");
    schema_.add("scaling.use", &scaling.use, 0.01, 1.0, "of an engine's capacity that is wanted");
    schema_.add("scaling.window_s", &scaling.window_s, 10.0, 3600.0,
                "shrinking follows the maximum of so long");
    schema_.add("scaling.margin", &scaling.margin, 0.0, 1.0, "and leaves so much above it");
    schema_.add("scaling.load_share", &scaling.load_share, -1.0, 0.99,
                "of a decode step at the wanted load, what grows with its requests: with fewer "
                "groups more run at a time; 0: not counted, below 0: by the cost of steps");
    schema_.add("scaling.start_s", &scaling.start_s, 0.0, kSecondsMax, "until a new one works");
}

void FleetSettings::bind_prefill() {
    PrefillSideConfig& prefill = config_.prefill;
    schema_.add("prefill.engines", &prefill.engines, 1, 100'000, "engines");
    schema_.add("prefill.ranks", &prefill.ranks, 1, kRanksMax, "cards of an engine");
    schema_.add("prefill.blocks_per_rank", &prefill.blocks_per_rank, 1, std::int64_t{1} << 32,
                "KV blocks of 128 tokens on a card");
    for (const PrefillKey& one : kPrefillKeys)
        schema_.add(one.key, &(cost_.*one.value), one.min, one.max, one.help);
    schema_.add("prefill.adaptive", &prefill.is_adaptive,
                "cut steps where it pays for all ranks (B*), not at a fixed time");
    schema_.add("prefill.noise", &prefill.noise_sigma, 0.0, 2.0,
                "of a step's time, deviation of its logarithm");
    schema_.add("prefill.stall_share", &prefill.stall_share, 0.0, 1.0, "steps that stall");
    schema_.add("prefill.stall_us", &prefill.stall_us, 0.0, kUsMax, "how long they do");
}

void FleetSettings::bind_decode() {
    DecodeSideConfig& decode = config_.decode;
    DecodeCost& cost = decode.policy.cost;
    schema_.add("decode.groups", &decode.groups, 1, 1 << 16, "groups in lock step");
    schema_.add("decode.ranks", &decode.ranks, 1, kRanksMax, "cards of a group");
    schema_.add("decode.sequences_max", &decode.sequences_max, 1, 65'536, "of a card");
    schema_.add("decode.blocks_per_rank", &decode.blocks_per_rank, 1, std::int64_t{1} << 32,
                "KV blocks of 128 tokens on a card");
    schema_.add("decode.step_us", &cost.c0_us, 0.0, kUsMax, "c0: fixed cost of a step");
    schema_.add("decode.rank_us", &cost.a0_us, 0.0, kUsMax, "a0: fixed cost of a card");
    schema_.add("decode.sequence_us", &cost.a1_us, 0.0, kUsMax, "a1: a sequence");
    schema_.add("decode.kv_token_us", &cost.a2_us, 0.0, kUsMax, "a2: a token of KV");
    schema_.add("decode.row_us", &cost.verify_us, 0.0, kUsMax,
                "s: a row of the card with most rows");
    schema_.add("decode.moe_row_us", &cost.moe_us, 0.0, kUsMax, "m: a row of any card");
    schema_.add("decode.moe_lb", &cost.moe_balance, 1.0, 100.0,
                "slowest expert rank over their mean");
    schema_.add(
        "decode.speculation", &speculation_,
        "SEQUENCES:ROWS:ACCEPTED a sequence and step, by sequences on the card; none: no drafts");
    schema_.add("decode.accepted_sigma", &decode.accepted_sigma, 0.0, 64.0,
                "deviation of the tokens that a sequence accepts in a step");
    schema_.add_choice("decode.rule", &rule_, {"joint", "marginal", "split", "round_robin"},
                       "of placement; round_robin to compare with");
    schema_.add("decode.report_age_steps", &decode.report_age_steps, 0, 1000,
                "how old the balancer's view is");
    schema_.add("decode.noise", &decode.noise_sigma, 0.0, 2.0,
                "of a step's time, deviation of its logarithm");
    schema_.add("decode.per_sequence", &decode.is_per_sequence,
                "draw acceptance for each sequence (at most 8 cards), for validation");
}

void FleetSettings::bind_drafts() {
    DraftConfig& drafts = config_.decode.drafts;
    schema_.add_choice("decode.verification", &verification_, {"table", "all", "budget"},
                       "rows and accepted tokens of decode.speculation; or drafts of each sequence "
                       "(small fleets), all verified, or as many as the live scheduler says");
    schema_.add("drafts.count", &drafts.count, 0, 16,
                "of a sequence and step, where they are not a table");
    schema_.add("drafts.logit", &drafts.logit_mean, -30.0, 30.0,
                "of the probability that a draft is accepted if those before it are, mean");
    schema_.add("drafts.spread", &drafts.logit_spread, 0.0, 30.0, "of it between sequences");
    schema_.add("drafts.noise", &drafts.logit_noise, 0.0, 30.0, "of it between drafts");
    schema_.add("drafts.persistence", &drafts.persistence, 0.0, 1.0,
                "correlation of a sequence's part of it from step to step");
    schema_.add_choice("drafts.scope", &scope_, {"rank", "group"},
                       "who has a budget of its own: each card, or the cards of a group together");
    schema_.add("drafts.age_steps", &drafts.age_steps, 0, 8,
                "how old the survivals are that choose the budget; 0: of the step itself");
    schema_.add(
        "drafts.patience", &drafts.patience, 0, 1'000'000,
        "decisions of one opinion before the way changes; 0: always scheduled, as deployed");
    schema_.add("drafts.probe_every", &drafts.probe_every, 16, 1'000'000,
                "decisions without drafts, before one with all of them");
    schema_.add("drafts.gain_min", &drafts.gain_min, 0.0, 10.0,
                "by which scheduling must beat verifying all, 0.01: 1 %");
    schema_.add("drafts.path_us", &drafts.path_us, 0.0, kUsMax,
                "that a step of lengths that vary takes longer");
    schema_.add("drafts.draft_us", &drafts.draft_us, 0.0, kUsMax,
                "of the fixed cost, saved where no card drafts");
    schema_.add("drafts.fail_at_s", &drafts.fail_at_s, 0.0, 30 * 86'400.0,
                "from when on no draft is accepted");
    schema_.add("drafts.fail_s", &drafts.fail_s, 0.0, 30 * 86'400.0, "how long; 0: never");
}

void FleetSettings::bind_kv() {
    schema_.add("network.link_gbit_s", &config_.network.link_gbit_s, 0.001, 1e6, "of a card");
    schema_.add("network.latency_us", &config_.network.latency_us, 0.0, kUsMax, "of a transfer");
    schema_.add("network.token_bytes", &config_.network.token_bytes, 1, 1 << 20,
                "block KV of a token");
    schema_.add("network.bundle_bytes", &config_.network.bundle_bytes, 0, std::int64_t{1} << 40,
                "handed over beside block KV");
    PoolConfig& pool = config_.pool;
    schema_.add("pool.enabled", &pool.is_enabled, "whether KV outlives its request");
    schema_.add("pool.ttl_agent_s", &pool.ttl_s[0], 0.0, kSecondsMax,
                "life from the last use; 0: nothing is kept");
    schema_.add("pool.ttl_chat_s", &pool.ttl_s[1], 0.0, kSecondsMax, "of chat");
    schema_.add("pool.ttl_other_s", &pool.ttl_s[2], 0.0, kSecondsMax, "of other traffic");
    schema_.add("pool.capacity_gib", &pool.capacity_gib, 0.0, 1e12,
                "0: as much as the times to live need");
    schema_.add("pool.window_ttl_s", &pool.window_ttl_s, 0.0, kSecondsMax,
                "life of the sliding-window state, without which 128 tokens are replayed");
    schema_.add("pool.read_us", &pool.read_us, 0.0, kUsMax, "until the first byte");
    schema_.add("pool.read_gib_s_per_card", &pool.read_gib_s_per_card, 1e-6, 1e6,
                "what the store gives, a card of the fleet");
    schema_.add("pool.persists_output", &pool.is_output_persisted, "answers are kept as well");
}

void FleetSettings::bind_experts() {
    ExpertConfig& experts = config_.experts;
    schema_.add("experts.process", &experts.is_process,
                "moe_lb follows from popularities that drift and the live balancer, in place of "
                "prefill.moe_lb and decode.moe_lb");
    schema_.add("experts.balanced", &experts.is_balanced,
                "run the balancer; off: experts in order for good");
    schema_.add("experts.priced_moves", &experts.is_move_priced,
                "a plan must be worth what it moves; off: only surely better");
    schema_.add("experts.horizon_s", &experts.horizon_s, 0.0, kSecondsMax,
                "in which a plan must earn what it moves; 0: until the next plan");
    schema_.add("experts.count", &experts.experts, 1, kExpertsMax, "routed experts of a layer");
    schema_.add("experts.per_token", &experts.experts_per_token, 1, kExpertsMax,
                "experts that a token goes to");
    schema_.add("experts.layers", &experts.layers, 1, 256,
                "layers with experts; fewer are cheaper to simulate, and their moe_lb is noisier");
    schema_.add("experts.sigma", &experts.popularity_sigma, 0.0, 5.0,
                "of an expert's popularity in the long run, deviation of its logarithm");
    schema_.add("experts.drift_time_s", &experts.drift_time_s, 0.001, kSecondsMax,
                "in which drift forgets where it was");
    schema_.add("experts.topics", &experts.topics, 0, 256,
                "topics whose shares of the tokens vary; 0: none");
    schema_.add("experts.topic_sigma", &experts.topic_sigma, 0.0, 5.0,
                "of what a topic likes, deviation of its logarithm");
    schema_.add("experts.topic_drift", &experts.topic_drift, 0.0, 5.0,
                "of a topic's share, deviation of its logarithm");
    schema_.add("experts.topic_time_s", &experts.topic_time_s, 0.001, kSecondsMax,
                "in which shares forget where they were");
    const auto role = [&](const std::string& name, ExpertRoleConfig& config) {
        schema_.add("experts." + name + "_spare_slots", &config.spare_slots, 0, 1024,
                    "of a rank and layer, for copies");
        schema_.add("experts." + name + "_period_s", &config.period_s, 0.1, kSecondsMax,
                    "between two plans");
        schema_.add("experts." + name + "_drift", &config.drift_sigma, 0.0, 5.0,
                    "of popularity around its long run, deviation of its logarithm");
        schema_.add("experts." + name + "_dispersion", &config.dispersion, 0.0, 1000.0,
                    "variance of an expert's tokens in a step over their mean");
    };
    role("prefill", experts.prefill);
    role("decode", experts.decode);
    schema_.add("experts.first_s", &experts.first_s, 0.0, kSecondsMax,
                "when the first plan is made");
    schema_.add("experts.window_steps", &experts.window_steps, 1, kWindowStepsMax,
                "recorded steps that a plan looks at");
    schema_.add("experts.sample_s", &experts.sample_s, 0.001, kSecondsMax,
                "from one recorded step to the next; moe_lb is that of the last one");
    schema_.add("experts.bytes", &experts.expert_bytes, 1, std::int64_t{1} << 40,
                "weights of one expert");
    schema_.add("experts.link_gb_s", &experts.link_gb_s, 1e-6, 1e6, "of a card, for moves");
    schema_.add("experts.link_part", &experts.link_part, 1e-6, 1.0, "of it that moves may take");
    schema_.add("experts.interference", &experts.interference, 0.0, 1.0,
                "of the time of moves that a plan counts as lost");
}

void FleetSettings::bind_workload() {
    WorkloadConfig& workload = config_.workload;
    schema_.add_choice("workload.source", &source_, {"sessions", "clients", "trace"},
                       "generated sessions (tables agent and chat) in an open loop, the same by "
                       "clients that wait for their answers, or a recorded trace");
    schema_.add("workload.rate", &workload.rate, 0.0, 1e9,
                "sessions: requests a second; 0: what makes `load`");
    schema_.add("workload.load", &workload.load, 0.001, 10.0,
                "sessions: part of the balanced bound of the busier side");
    schema_.add("workload.burst", &workload.burst, 1.0, 2.0,
                "sessions: rate of busy times over the mean; 1: Poisson");
    schema_.add("workload.burst_s", &workload.burst_s, 0.001, kSecondsMax,
                "mean length of a busy or a quiet time");
    RateShape& shape = workload.shape;
    schema_.add("workload.day_ratio", &shape.day_ratio, 1.0, 100.0,
                "sessions: most over least rate of a day; 1: always the same");
    schema_.add("workload.day_s", &shape.day_s, 1.0, kSecondsMax, "length of a day");
    schema_.add("workload.crowd_factor", &shape.crowd_factor, 1.0, 100.0,
                "sessions: by how much a crowd raises the rate; 1: none");
    schema_.add("workload.crowd_at_s", &shape.crowd_at_s, 0.0, kSecondsMax, "when it begins");
    schema_.add("workload.crowd_ramp_s", &shape.crowd_ramp_s, 0.001, kSecondsMax,
                "in which it grows and goes");
    schema_.add("workload.crowd_s", &shape.crowd_s, 0.001, kSecondsMax, "how long it lasts");
    schema_.add("workload.clients", &workload.clients, 1, 10'000'000, "clients: how many");
    schema_.add("workload.clients_begin_s", &workload.clients_begin_s, 0.0, kSecondsMax,
                "clients: in which they begin");
    schema_.add("workload.retry_s", &workload.retry_s, 0.001, kSecondsMax,
                "clients: until a refused one comes again, and between sessions, mean");
    schema_.add("workload.think_max_s", &workload.think_max_s, 0.001, kSecondsMax,
                "clients: a session with a longer pause is given up for a new one");
    schema_.add("workload.context_tokens_max", &workload.context_tokens_max, 256, 1 << 20,
                "sessions: of a prompt");
    schema_.add("workload.trace", &workload.trace, "file of Mooncake's or the agentic format");
    schema_.add("workload.trace_clones", &workload.trace_clones, 1, 10'000,
                "copies of the trace that share nothing");
    schema_.add("workload.trace_spread_s", &workload.trace_spread_s, 0.0, kSecondsMax,
                "in which copies, or conversations, begin");
    schema_.add_choice("workload.trace_traffic", &trace_traffic_, {"agent", "chat", "other"},
                       "what the trace counts as");
    bind_sessions("agent", workload.sessions[0]);
    bind_sessions("chat", workload.sessions[1]);
}

void FleetSettings::bind_sessions(const std::string& table, SessionConfig& session) {
    const auto tokens = [&](const char* name, double* value, const char* help) {
        schema_.add(table + "." + name, value, 0.0, kTokensMax, help);
    };
    const auto sigma = [&](const char* name, double* value) {
        schema_.add(table + "." + name, value, 0.0, 5.0, "deviation of its logarithm");
    };
    schema_.add(table + ".share", &session.share, 0.0, 1e6,
                "of requests, in proportion to the other table's");
    tokens("prefix_tokens", &session.prefix_tokens, "that all sessions begin with");
    tokens("first_tokens", &session.first_tokens, "of the first call behind it, median");
    sigma("first_sigma", &session.first_sigma);
    tokens("added_tokens", &session.added_tokens, "that a call adds, median");
    sigma("added_sigma", &session.added_sigma);
    tokens("output_tokens", &session.output_tokens, "of an answer, median");
    sigma("output_sigma", &session.output_sigma);
    schema_.add(table + ".calls", &session.calls_median, 1.0, 1e5, "of a session, median");
    sigma("calls_sigma", &session.calls_sigma);
    schema_.add(table + ".calls_max", &session.calls_max, 1, 100'000, "of a session");
    schema_.add(table + ".gap_s", &session.gap_s, 0.0, kSecondsMax, "between calls, median");
    sigma("gap_sigma", &session.gap_sigma);
    schema_.add(table + ".pause_share", &session.pause_share, 0.0, 1.0, "of gaps that are pauses");
    schema_.add(table + ".pause_s", &session.pause_s, 0.0, kSecondsMax, "pauses, median");
    sigma("pause_sigma", &session.pause_sigma);
    tokens("compact_tokens", &session.compact_tokens,
           "of context, at which a session cuts it back; 0: never");
    tokens("compacted_tokens", &session.compacted_tokens, "of context behind that");
}

Result<FleetConfig> FleetSettings::config() const {
    FleetConfig config = config_;
    config.seed = static_cast<std::uint64_t>(seed_);
    config.workload.source = source_ == "trace"     ? WorkloadSource::trace
                             : source_ == "clients" ? WorkloadSource::clients
                                                    : WorkloadSource::sessions;
    config.workload.trace_traffic = trace_traffic_ == "agent"  ? Traffic::agent
                                    : trace_traffic_ == "chat" ? Traffic::chat
                                                               : Traffic::other;
    for (const DecodeRule rule :
         {DecodeRule::joint, DecodeRule::marginal, DecodeRule::split, DecodeRule::round_robin})
        if (rule_ == rule_text(rule)) config.decode.policy.rule = rule;
    config.decode.drafts.verification = verification_ == "budget" ? Verification::budget
                                        : verification_ == "all"  ? Verification::all
                                                                  : Verification::table;
    config.decode.drafts.is_group_wide = scope_ == "group";
    FATHOM_ASSIGN(config.decode.speculation, parse_speculation(speculation_));
    FATHOM_RETURN_IF_ERROR(check_measured(config.measured));
    FATHOM_RETURN_IF_ERROR(set_prefill_costs(config));
    FATHOM_RETURN_IF_ERROR(check_fleet(config));
    return config;
}

// What was measured by class stays so where no key says otherwise.
Status FleetSettings::set_prefill_costs(FleetConfig& config) const {
    std::vector<const PrefillKey*> given;
    for (const ConfigSchema::Origin& one : schema_.effective())
        for (const PrefillKey& key : kPrefillKeys)
            if (one.key == key.key && one.origin != "default") given.push_back(&key);
    const auto tabled = std::count_if(given.begin(), given.end(),
                                      [](const PrefillKey* key) { return key->is_tabled; });
    constexpr std::int64_t kAllTabled = 3;
    for (PrefillCost& cost : config.prefill.policy.costs) {
        if (cost.table && tabled > 0 && tabled < kAllTabled)
            return invalid_argument(
                "prefill.token_us, prefill.pair_us, prefill.slice_us: {} of them given, expected "
                "all or none: {} has a table in their place",
                tabled, prefill_costs_);
        if (tabled == kAllTabled) cost.table = nullptr;
        for (const PrefillKey* key : given)
            cost.*key->value = cost_.*key->value;
    }
    return {};
}

}  // namespace fathom
