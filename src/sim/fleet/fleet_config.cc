#include "sim/fleet/fleet_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace fathom {
namespace {

// A calling program's sessions: long, quick, and cut back when their context is full.
SessionConfig agent_sessions() {
    SessionConfig agent;
    agent.share = 0.7;
    agent.prefix_tokens = 12'000;
    agent.first_tokens = 3'000;
    agent.first_sigma = 1.0;
    agent.added_tokens = 900;
    agent.added_sigma = 1.0;
    agent.output_tokens = 1'200;
    agent.output_sigma = 1.0;
    agent.calls_median = 40;
    agent.calls_sigma = 0.8;
    agent.calls_max = 400;
    agent.gap_s = 8;
    agent.gap_sigma = 1.2;
    agent.pause_share = 0.012;
    agent.pause_s = 1'500;
    agent.pause_sigma = 1.6;
    agent.compact_tokens = 80'000;
    agent.compacted_tokens = 16'000;
    return agent;
}

// People: few turns, and some come back after days.
SessionConfig chat_sessions() {
    SessionConfig chat;
    chat.share = 0.3;
    chat.prefix_tokens = 2'500;
    chat.first_tokens = 300;
    chat.first_sigma = 1.2;
    chat.added_tokens = 100;
    chat.added_sigma = 1.2;
    chat.output_tokens = 500;
    chat.output_sigma = 0.8;
    chat.calls_median = 5;
    chat.calls_sigma = 0.9;
    chat.calls_max = 30;
    chat.gap_s = 60;
    chat.gap_sigma = 1.2;
    chat.pause_share = 0.1;
    chat.pause_s = 72'000;
    chat.pause_sigma = 1.5;
    return chat;
}

// The expected maximum of n normal numbers, between powers of two.
double expected_maximum(double n) {
    constexpr double kMaxima[] = {0, 0.564, 1.029, 1.424, 1.766, 2.070, 2.390, 2.650, 2.896};
    const double at = std::clamp(std::log2(std::max(1.0, n)), 0.0, 8.0);
    const auto low = std::min<std::size_t>(static_cast<std::size_t>(at), 7);
    return kMaxima[low] + (at - static_cast<double>(low)) * (kMaxima[low + 1] - kMaxima[low]);
}

double moe_balance_of(double balance, std::int64_t from, std::int64_t to) {
    const double before = expected_maximum(static_cast<double>(from));
    if (before <= 0) return balance;
    return 1 + (balance - 1) * expected_maximum(static_cast<double>(to)) / before;
}

double expert_read_us(const HardwareConfig& hardware, std::int64_t ranks) {
    return hardware.expert_gb / hardware.read_gb_s * 1e6 / static_cast<double>(ranks);
}

// What any card may be said to hold and a step to take.
constexpr double kBlocksMax = 1LL << 32, kStepUsMax = 1e9;

Result<std::int64_t> kv_blocks(const FleetConfig& config, const char* key, std::int64_t ranks) {
    const HardwareConfig& hardware = config.hardware;
    const double weights_gb = hardware.other_gb + hardware.expert_gb / static_cast<double>(ranks);
    const double block_gb = 128e-9 * static_cast<double>(config.network.token_bytes);
    const double left_gb = (hardware.card_gb - weights_gb) * hardware.kv_share;
    const std::int64_t least = 2 * ((config.workload.context_tokens_max + 127) / 128);
    if (left_gb < block_gb * static_cast<double>(least))
        return error(
            StatusCode::resource_exhausted,
            "{}: {} cards hold {:.1f} GB of weights each, of hardware.card_gb {:g}, and no "
            "KV of workload.context_tokens_max",
            key, ranks, weights_gb, hardware.card_gb);
    return static_cast<std::int64_t>(std::min(left_gb / block_gb, kBlocksMax));
}

// 60,000 tokens a second and card without hits, 1.5 million with: the public figures.
PrefillCost public_prefill_cost() {
    PrefillCost cost;
    cost.k0_us = 6'000;
    cost.k1_us = 15;
    cost.k2_us = 2e-5;
    cost.k3_us = 0.6;
    cost.k4_us = 1'500;
    cost.k5_us = 200;
    cost.sync_us = 500;
    cost.moe_share = 0.4;
    cost.moe_balance = 1.032;
    return cost;
}

// A step that grows by 0.15 % a row, which the public table of variable-length verification is
// consistent with; 10 ms at small batches, which gives a card the 26,000 to 28,000 output tokens a
// second that the public totals imply. Of a row's 15 us, 6 are the experts'.
void set_public_decode(DecodeSideConfig& decode) {
    DecodeCost& cost = decode.policy.cost;
    cost.c0_us = 8'500;
    cost.a0_us = 250;
    cost.a2_us = 1e-4;
    cost.verify_us = 9;
    cost.moe_us = 6.0 / static_cast<double>(decode.ranks);
    cost.moe_balance = 1.09;
    decode.speculation = {{.sequences = 16, .rows = 5.40, .accepted = 3.256},
                          {.sequences = 32, .rows = 4.77, .accepted = 3.256},
                          {.sequences = 60, .rows = 4.39, .accepted = 3.174},
                          {.sequences = 96, .rows = 4.07, .accepted = 3.107}};
}

struct Preset {
    const char* name;
    std::int64_t engines, ranks, groups, group_ranks;
    double duration_s, warmup_s;
};
// 6500 cards is what the public figures of storage imply, 10000 what a cell should bear.
// The sizes that the public figures were given for.
constexpr std::int64_t kPublicPrefillRanks = 4, kPublicDecodeRanks = 64;
constexpr Preset kPresets[] = {
    {"one-box", 1, 4, 1, 4, 600, 120},          {"16-cards", 2, 4, 1, 8, 600, 120},
    {"64+64", 16, 4, 1, 64, 600, 120},          {"6500-cards", 815, 4, 51, 64, 300, 60},
    {"10000-cards", 1'250, 4, 78, 64, 300, 60},
};

Status check_drafts(const DecodeSideConfig& decode) {
    if (!decode.drafts.is_modelled()) return {};
    const std::int64_t sequences = decode.groups * decode.ranks * decode.sequences_max;
    if (sequences > kDraftedSequencesMax)
        return invalid_argument(
            "decode.verification: \"{}\" draws the drafts of each sequence, and decode.groups x "
            "decode.ranks x decode.sequences_max are {}, expected at most {}",
            verification_name(decode.drafts.verification), sequences, kDraftedSequencesMax);
    const double fixed_us = decode.policy.cost.c0_us + decode.policy.cost.a0_us;
    if (decode.drafts.draft_us > fixed_us)
        return invalid_argument(
            "drafts.draft_us: {:g}, expected at most decode.step_us + decode.rank_us, {:g}",
            decode.drafts.draft_us, fixed_us);
    return {};
}

Status check_sessions(const WorkloadConfig& workload) {
    double shares = 0;
    for (std::size_t i = 0; i < workload.sessions.size(); ++i) {
        const SessionConfig& session = workload.sessions[i];
        shares += session.share;
        if (session.compact_tokens > 0 && session.compacted_tokens >= session.compact_tokens)
            return invalid_argument(
                "{0}.compacted_tokens: {1}, expected less than {0}.compact_tokens, {2}",
                traffic_name(static_cast<Traffic>(i)), session.compacted_tokens,
                session.compact_tokens);
    }
    if (!(shares > 0))
        return invalid_argument("agent.share and chat.share are both 0: there is no traffic");
    return {};
}

}  // namespace

double RateShape::at(double seconds) const {
    const double swing = (day_ratio - 1) / (day_ratio + 1);
    double factor = 1 + swing * std::sin(2 * std::numbers::pi * seconds / day_s);
    if (crowd_factor > 1 && seconds >= crowd_at_s) {
        const double into = seconds - crowd_at_s;
        const double edge = std::max(crowd_ramp_s, 1e-9);
        const double height = std::min({into / edge, 1.0, (crowd_s - into) / edge});
        factor *= 1 + (crowd_factor - 1) * std::max(0.0, height);
    }
    return factor;
}

double RateShape::most() const {
    return (1 + (day_ratio - 1) / (day_ratio + 1)) * std::max(1.0, crowd_factor);
}

std::string_view traffic_name(Traffic traffic) {
    constexpr std::string_view kNames[kTrafficKinds] = {"agent", "chat", "other"};
    return kNames[static_cast<std::size_t>(traffic)];
}

std::vector<std::string> fleet_preset_names() {
    std::vector<std::string> names;
    for (const Preset& preset : kPresets)
        names.emplace_back(preset.name);
    return names;
}

Result<FleetConfig> fleet_preset(const std::string& name) {
    for (const Preset& preset : kPresets) {
        if (name != preset.name) continue;
        FleetConfig config;
        config.preset = name;
        config.duration_s = preset.duration_s;
        config.warmup_s = preset.warmup_s;
        config.prefill.engines = preset.engines;
        config.prefill.ranks = kPublicPrefillRanks;
        config.prefill.policy.costs.fill(public_prefill_cost());
        config.decode.groups = preset.groups;
        config.decode.ranks = kPublicDecodeRanks;
        config.decode.sequences_max = 192;
        set_public_decode(config.decode);
        config.workload.sessions = {agent_sessions(), chat_sessions()};
        FATHOM_RETURN_IF_ERROR(set_prefill_ranks(config, preset.ranks));
        FATHOM_RETURN_IF_ERROR(set_decode_ranks(config, preset.group_ranks));
        return config;
    }
    return error(StatusCode::not_found, "sim.preset: \"{}\" is not known; there are {}", name,
                 fmt::join(fleet_preset_names(), ", "));
}

// Prefill is bound by arithmetic, behind which it reads its experts.
Status set_prefill_ranks(FleetConfig& config, std::int64_t ranks) {
    FATHOM_ASSIGN(config.prefill.blocks_per_rank, kv_blocks(config, "prefill.ranks", ranks));
    for (PrefillCost& cost : config.prefill.policy.costs)
        cost.moe_balance = moe_balance_of(cost.moe_balance, config.prefill.ranks, ranks);
    config.prefill.ranks = ranks;
    return {};
}

Status set_decode_ranks(FleetConfig& config, std::int64_t ranks) {
    FATHOM_ASSIGN(config.decode.blocks_per_rank, kv_blocks(config, "decode.ranks", ranks));
    DecodeCost& cost = config.decode.policy.cost;
    const std::int64_t before = config.decode.ranks;
    const double read_us = expert_read_us(config.hardware, std::min(ranks, before));
    if (!(read_us <= kStepUsMax))
        return invalid_argument(
            "hardware.read_gb_s: {}, at which a card of {} reads its experts in {:.3g} us, "
            "expected "
            "at most {:g} us",
            config.hardware.read_gb_s, std::min(ranks, before), read_us, kStepUsMax);
    cost.c0_us = std::clamp(cost.c0_us + expert_read_us(config.hardware, ranks) -
                                expert_read_us(config.hardware, before),
                            0.0, kStepUsMax);
    cost.moe_us *= static_cast<double>(before) / static_cast<double>(ranks);
    cost.moe_balance = moe_balance_of(cost.moe_balance, before, ranks);
    config.decode.ranks = ranks;
    return {};
}

Status check_fleet(const FleetConfig& config) {
    FATHOM_RETURN_IF_ERROR(config.prefill.policy.check());
    FATHOM_RETURN_IF_ERROR(config.decode.policy.check());
    // A card takes about a kilobyte.
    if (config.cards() > kFleetCardsMax)
        return invalid_argument(
            "prefill.engines x prefill.ranks + decode.groups x decode.ranks: {} x {} + {} x {} "
            "cards, expected at most {}",
            config.prefill.engines, config.prefill.ranks, config.decode.groups, config.decode.ranks,
            kFleetCardsMax);
    FATHOM_RETURN_IF_ERROR(config.experts.check(config.prefill.ranks, config.decode.ranks));
    if (!(config.warmup_s < config.duration_s))
        return invalid_argument("sim.warmup_s: {}, expected less than sim.duration_s, {}",
                                config.warmup_s, config.duration_s);
    const double mtbf_h = config.failures.card_mtbf_h;
    if (mtbf_h > 0 && mtbf_h < kCardMtbfLeastH)
        return invalid_argument("failures.card_mtbf_h: {}, expected 0 for never, or at least {}",
                                mtbf_h, kCardMtbfLeastH);
    for (const auto& [key, at_s] : {std::pair("drain.at_s", config.drain.at_s),
                                    std::pair("failures.at_s", config.failures.at_s)}) {
        if (at_s >= config.duration_s)
            return invalid_argument("{}: {}, expected less than sim.duration_s, {}", key, at_s,
                                    config.duration_s);
    }
    const WorkloadConfig& workload = config.workload;
    if (workload.source == WorkloadSource::trace) {
        if (workload.trace.empty())
            return invalid_argument("workload.trace: empty, expected a file for this source");
    } else {
        FATHOM_RETURN_IF_ERROR(check_sessions(workload));
        if (config.runs_out && config.pool.is_enabled && workload.rate < 0)
            return invalid_argument("workload.rate: {}, expected at least 0", workload.rate);
    }
    if (config.scaling.prefill_begin > config.prefill.engines ||
        config.scaling.prefill_min > config.prefill.engines)
        return invalid_argument(
            "scaling.prefill_begin, scaling.prefill_min: {}, {}, expected at most prefill.engines, "
            "{}",
            config.scaling.prefill_begin, config.scaling.prefill_min, config.prefill.engines);
    if (config.scaling.decode_begin > config.decode.groups ||
        config.scaling.decode_min > config.decode.groups)
        return invalid_argument(
            "scaling.decode_begin, scaling.decode_min: {}, {}, expected at most decode.groups, {}",
            config.scaling.decode_begin, config.scaling.decode_min, config.decode.groups);
    const std::int64_t most_blocks = (workload.context_tokens_max + 127) / 128;
    if (config.prefill.blocks_per_rank < most_blocks)
        return invalid_argument(
            "prefill.blocks_per_rank: {}, expected at least {}, for a prompt of "
            "workload.context_tokens_max",
            config.prefill.blocks_per_rank, most_blocks);
    if (config.decode.blocks_per_rank < 2 * most_blocks)
        return invalid_argument(
            "decode.blocks_per_rank: {}, expected at least {}, for a prompt and an answer of "
            "workload.context_tokens_max",
            config.decode.blocks_per_rank, 2 * most_blocks);
    FATHOM_RETURN_IF_ERROR(check_drafts(config.decode));
    if (config.decode.is_per_sequence && config.decode_cards() > 8)
        return invalid_argument(
            "decode.per_sequence: {} decode cards, expected at most 8: this mode is for validation",
            config.decode_cards());
    return {};
}

namespace {

std::string moe_balance_text(const ExpertConfig& experts, const ExpertRoleConfig& role,
                             double constant) {
    if (!experts.is_process) return fmt::format("{:g}", constant);
    const std::string plans =
        experts.is_balanced ? fmt::format("a plan every {:g} s", role.period_s) : "no plans";
    return fmt::format("of popularities with sigma {:g}, drift {:g} in {:g} s, kappa {:g}; {}",
                       experts.popularity_sigma, role.drift_sigma, experts.drift_time_s,
                       role.dispersion, plans);
}

std::string prefill_token_text(const PrefillCosts& costs) {
    constexpr std::int64_t kSlice = 2048;
    const auto token_us = [](const PrefillCost& cost) {
        return cost.table ? cost.table->work_us(kSlice, 0) / kSlice : cost.k1_us;
    };
    const char* const table =
        costs[0].table ? ", by a table of slices, without context in one of 2,048" : "";
    if (is_same_for_all(costs))
        return fmt::format("{:g} us on a card{}", token_us(costs[0]), table);
    std::string text;
    for (const PrefillCost& cost : costs)
        text += fmt::format("{}{:g}", text.empty() ? "" : " / ", token_us(cost));
    return text + fmt::format(" us on a card, by length class{}", table);
}

// As they are for a preset; where others are configured the sources are not these.
std::vector<Assumption> assumptions_of(const FleetConfig& config) {
    const PrefillCost& prefill = config.prefill.policy.costs[0];
    const DecodeCost& decode = config.decode.policy.cost;
    const char* const public_figures = "public figures of the vendor, not verified";
    std::vector<Assumption> list = {
        {"prefill, a token", prefill_token_text(config.prefill.policy.costs), public_figures},
        {"prefill, a token of context that was hit", fmt::format("{:g} us", prefill.k3_us),
         "hits at 1.5 M tokens/s and card; if that figure is the rate at 96 % hits, it is near 0"},
        {"prefill, fixed cost of a step", fmt::format("{:g} us", prefill.fixed_us()), "assumed"},
        {"prefill, moe_lb",
         moe_balance_text(config.experts, config.experts.prefill, prefill.moe_balance),
         public_figures},
        {"decode, fixed cost of a step", fmt::format("{:g} us", decode.c0_us + decode.a0_us),
         "assumed: 10 ms at small batches, for 26,000 to 28,000 output tokens/s and card"},
        {"decode, weights",
         fmt::format("{:g} GB of experts read at {:g} GB/s and card",
                     config.hardware.expert_gb / static_cast<double>(config.decode.ranks),
                     config.hardware.read_gb_s),
         "part of the fixed cost; from the size of the checkpoint, the card's is assumed"},
        {"decode, a row",
         fmt::format("{:g} us",
                     decode.verify_us + decode.moe_us * static_cast<double>(config.decode.ranks)),
         "fits the public table of variable-length verification"},
        {"decode, a token of KV", fmt::format("{:g} us", decode.a2_us), "assumed"},
        {"decode, moe_lb",
         moe_balance_text(config.experts, config.experts.decode, decode.moe_balance),
         public_figures},
        {"KV of a token", fmt::format("{} B", config.network.token_bytes),
         "the format of blocks in this repository", true},
        {"price of a card-hour", fmt::format("{:g} USD", config.money.card_hour), "assumed"},
        {"prices of a million tokens",
         fmt::format("{:g} / {:g} / {:g} USD hit / miss / output", config.money.hit_price,
                     config.money.miss_price, config.money.output_price),
         "the vendor's public off-peak prices"},
    };
    if (config.workload.source == WorkloadSource::trace)
        list.push_back({"traffic", config.workload.trace, "a recorded trace", true});
    else
        list.push_back({"traffic", "generated sessions",
                        "fitted to 96 % hits and outputs of 4 to 5 % of all tokens"});
    return list;
}

}  // namespace

std::vector<Assumption> fleet_assumptions(const FleetConfig& config) {
    const auto holds = [](const std::vector<std::string>& tables, std::string_view table) {
        return std::find(tables.begin(), tables.end(), table) != tables.end();
    };
    const auto is_measured = [&](std::string_view table) { return holds(config.measured, table); };
    std::vector<Assumption> list = assumptions_of(config);
    const Result<FleetConfig> preset = fleet_preset(config.preset);
    const std::vector<Assumption> usual = preset.ok() ? assumptions_of(*preset) : list;
    for (std::size_t i = 0; i < list.size(); ++i) {
        Assumption& assumption = list[i];
        const std::string table = assumption.what.substr(0, assumption.what.find(','));
        const bool is_traffic = table == "traffic";
        const bool is_other =
            assumption.value != usual[i].value ||
            (is_traffic && preset.ok() && config.workload.sessions != preset->workload.sessions);
        const bool is_generated = is_traffic && config.workload.source != WorkloadSource::trace;
        if (is_measured(is_traffic ? std::string_view("workload") : table)) {
            assumption.is_measured = true;
            assumption.source = "measured, says the configuration";
        } else if (is_other && (!is_traffic || is_generated)) {
            assumption.is_measured = false;
            assumption.source = holds(config.derived, table) ? "derived from the preset's"
                                                             : "set by the configuration";
        }
    }
    const auto tell = [&](const char* side, std::int64_t ranks, std::int64_t usual_ranks) {
        if (ranks == usual_ranks || is_measured(side)) return;
        if (holds(config.derived, side))
            list.push_back(
                {fmt::format("{}, engines of {} cards", side, ranks),
                 "step costs and memory are derived",
                 fmt::format("from [hardware] and those of engines of {} cards", usual_ranks)});
        else
            list.push_back({fmt::format("{}, engines of {} cards", side, ranks),
                            "step costs and memory are not derived",
                            "costs of this side are configured; what is not set is of engines of " +
                                fmt::format("{} cards", usual_ranks)});
    };
    if (const DraftConfig& drafts = config.decode.drafts; drafts.is_modelled()) {
        list.push_back(
            {"decode, drafts",
             fmt::format("{} of a sequence; logits of {:g}, {:g} between sequences, {:g} between "
                         "drafts, persistence {:g}",
                         drafts.count, drafts.logit_mean, drafts.logit_spread, drafts.logit_noise,
                         drafts.persistence),
             "fits the public table of variable-length verification"});
        list.push_back({"decode, lengths that vary", fmt::format("{:g} us a step", drafts.path_us),
                        "fits the same table, with a step of 10 ms"});
        list.push_back({"decode, drafting", fmt::format("{:g} us of a step", drafts.draft_us),
                        "assumed; only steps without drafts save it"});
    }
    if (preset.ok()) {
        tell("prefill", config.prefill.ranks, preset->prefill.ranks);
        tell("decode", config.decode.ranks, preset->decode.ranks);
    }
    return list;
}

}  // namespace fathom
