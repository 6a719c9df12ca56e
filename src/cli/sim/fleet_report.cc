#include "cli/sim/fleet_report.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/json.h"
#include "cli/sim/figures.h"

namespace fathom {
namespace {

constexpr const char* kClassNames[kPrefillClasses] = {"< 16 K", "16-64 K", "64-256 K", ">= 256 K"};

std::string percent_text(std::int64_t part, std::int64_t whole) {
    const Figure share = share_of(part, whole);
    return share ? fmt::format("{:.2f} %", 100 * *share) : "-";
}

double percent(double part, double whole) {
    return whole > 0 ? 100 * part / whole : 0;
}

Figure lock_step(const FleetTotals& counted) {
    return figure_if(counted.decode_max_us > 0,
                     counted.decode_rank_us / std::max(counted.decode_max_us, 1e-9));
}

Json figures_json(const RequestFigures& figures) {
    const auto spread = [](const LogHistogram& histogram) {
        return Json::object({{"mean", figure_json(mean_of(histogram))},
                             {"p50", figure_json(percentile_of(histogram, 0.5))},
                             {"p90", figure_json(percentile_of(histogram, 0.9))},
                             {"p99", figure_json(percentile_of(histogram, 0.99))}});
    };
    return Json::object({{"finished", figures.finished},
                         {"within_slo", figures.within_slo},
                         {"ttft_ms", spread(figures.ttft_ms)},
                         {"tpot_ms", spread(figures.tpot_ms)},
                         {"e2e_ms", spread(figures.e2e_ms)},
                         {"queue_ms", spread(figures.queue_ms)}});
}

Json ledger_json(const FleetResult& result, const CardLedger& ledger) {
    Json::Object parts;
    for (std::size_t i = 0; i < result.card_times(); ++i)
        parts.emplace_back(card_time_name(static_cast<CardTime>(i)),
                           ledger.share(static_cast<CardTime>(i)));
    return Json::object({{"card_seconds", static_cast<double>(ledger.total_ns) / 1e9},
                         {"shares", Json::object(std::move(parts))}});
}

constexpr const char* kRoleNames[kExpertRoles] = {"prefill", "decode"};

double gigabytes(const FleetResult& result, std::int64_t experts) {
    return static_cast<double>(experts) * static_cast<double>(result.config.experts.expert_bytes) /
           1e9;
}

Json experts_json(const FleetResult& result) {
    Json roles = Json::object();
    for (std::size_t i = 0; i < kExpertRoles; ++i) {
        const ExpertFigures& f = result.experts[i];
        roles.set(kRoleNames[i], Json::object({{"moe_lb", f.realised.ratio()},
                                               {"planned_before", f.before.ratio()},
                                               {"planned_after", f.after.ratio()},
                                               {"plans", f.plans},
                                               {"plans_gated", f.gated},
                                               {"plans_deferred", f.deferred},
                                               {"layers_passed", f.layers_passed},
                                               {"layers_held", f.layers_held},
                                               {"switches_completed", f.switches.completed},
                                               {"switches_aborted", f.switches.aborted},
                                               {"switch_s_mean", f.switches.mean_s()},
                                               {"switch_s_max", f.switches.longest_s},
                                               {"gb_moved", gigabytes(result, f.switches.fetched)},
                                               {"gb_held", gigabytes(result, f.slots_held)}}));
    }
    return roles;
}

constexpr const char* kReasonNames[kVerifyReasons] = {"no requests", "no curve",  "scheduled",
                                                      "plain",       "no drafts", "probe"};

Figure draft_goodput(const FleetResult& result) {
    return figure_if(result.measured_s > 0,
                     static_cast<double>(result.drafts.tokens) / std::max(result.measured_s, 1e-9));
}

Json drafts_json(const FleetResult& result) {
    const DraftFigures& drafts = result.drafts;
    const bool has_steps = drafts.sequence_steps > 0;
    Json reasons = Json::object();
    for (std::size_t i = 0; i < kVerifyReasons; ++i)
        reasons.set(kReasonNames[i], figure_json(figure_if(has_steps, drafts.share(i))));
    return Json::object(
        {{"verification", verification_name(result.config.decode.drafts.verification)},
         {"rows", figure_json(figure_if(has_steps, drafts.rows_each()))},
         {"accepted_tokens", figure_json(figure_if(has_steps, drafts.tokens_each()))},
         {"rows_of_rank", figure_json(figure_if(has_steps, drafts.rows_of_rank()))},
         {"tokens_s", figure_json(draft_goodput(result))},
         {"reasons", std::move(reasons)}});
}

std::string figures_row(const std::string& name, const RequestFigures& f) {
    std::string text = fmt::format("{:<10}{:>10}", name, f.finished);
    for (const double share : {0.5, 0.9, 0.99})
        text += figure_cell(percentile_of(f.ttft_ms, share), 9, 0);
    for (const double share : {0.5, 0.9, 0.99})
        text += figure_cell(percentile_of(f.tpot_ms, share), 9, 1);
    const Figure e2e_ms = percentile_of(f.e2e_ms, 0.5), within = share_of(f.within_slo, f.finished);
    text += figure_cell(figure_if(e2e_ms.has_value(), e2e_ms.value_or(0) / 1000), 10, 1);
    return text + figure_cell(figure_if(within.has_value(), 100 * within.value_or(0)), 9, 1) + "\n";
}

Json scaling_json(const FleetResult& result) {
    return Json::object(
        {{"started", result.scaling.started},
         {"drains", result.scaling.drains},
         {"turns_prefill", result.scaling.turns[0]},
         {"turns_decode", result.scaling.turns[1]},
         {"refused", result.drains.refused},
         {"short_chats", result.totals.short_chats},
         {"short_chats_ended", result.totals.short_chats_ended},
         {"copied_ahead", result.drains.copied_ahead},
         {"adopted", result.drains.adopted},
         {"resumed", result.drains.resumed},
         {"handed_back", result.drains.handed_back},
         {"move_ms_p99", figure_json(percentile_of(result.move_ms, 0.99))},
         {"long_pauses", result.drains.long_pauses},
         {"moves_ms_p99", figure_json(percentile_of(result.drains.moves_ms, 0.99))}});
}

Json resumed_json(const FleetResult& result) {
    return Json::object({{"requests", result.totals.resumed},
                         {"gap_ms_p99", figure_json(percentile_of(result.gap_ms, 0.99))},
                         {"computed_tokens_max", result.recomputed_tokens_max},
                         {"beyond_tail_and_128", result.replays_beyond_block}});
}

// Of drains and failures.
std::vector<ReportLine> leaving_lines(const FleetResult& result) {
    const DrainFigures& drains = result.drains;
    const FleetTotals& totals = result.totals;
    return {
        {"drains", fmt::format("{} drains, {} refused, {} starts; changes of direction {} and {}",
                               result.scaling.drains, drains.refused, result.scaling.started,
                               result.scaling.turns[0], result.scaling.turns[1])},
        {"drained",
         fmt::format("{} copied ahead, {} moved (pause p99 {}, {} too long; a "
                     "drain's moves p99 {}), {} resumed, {} handed back",
                     drains.copied_ahead, drains.adopted,
                     figure_text(percentile_of(result.move_ms, 0.99), 0, " ms"), drains.long_pauses,
                     figure_text(percentile_of(drains.moves_ms, 0.99), 0, " ms"), drains.resumed,
                     drains.handed_back)},
        {"resumed",
         fmt::format("{} in all; gap p99 {}; at most {} tokens computed for one, "
                     "more than its tail and 128 for {}",
                     totals.resumed, figure_text(percentile_of(result.gap_ms, 0.99), 0, " ms"),
                     result.recomputed_tokens_max, result.replays_beyond_block)},
        {"short chats",
         totals.short_chats > 0
             ? fmt::format("{} of {} on draining groups ended within {:g} s",
                           percent_text(totals.short_chats_ended, totals.short_chats),
                           totals.short_chats, result.config.drain.grace_s)
             : "none on draining groups"},
    };
}

}  // namespace

std::vector<ReportLine> fleet_headline(const FleetResult& result) {
    const FleetConfig& config = result.config;
    const FleetTotals& counted = result.counted;
    const ServedTokens& served = result.served;
    const double seconds = result.measured_s;
    const auto cards = static_cast<double>(config.cards());
    const auto rate = [&](std::int64_t count) {
        return seconds > 0 ? static_cast<double>(count) / seconds : 0;
    };
    const auto busy = [](const CardLedger& ledger) {
        return 100 * (1 - ledger.share(CardTime::idle) - ledger.share(CardTime::failed) -
                      ledger.share(CardTime::kv_wait) - ledger.share(CardTime::blocked));
    };
    std::vector<ReportLine> lines = {
        {"fleet", fmt::format("{}: {} prefill cards ({} engines), {} decode cards ({} groups)",
                              config.preset, config.prefill_cards(), config.prefill.engines,
                              config.decode_cards(), config.decode.groups)},
        {"traffic", fmt::format("{:.2f} requests/s, {:.0f} s measured behind {:.0f} s of warm-up",
                                result.rate, result.measured_s, config.warmup_s)},
        {"efficiency",
         fmt::format("{:.1f} % of the balanced bound (prefill {:.1f} %, decode "
                     "{:.1f} %)",
                     100 * result.efficiency(), 100 * result.prefill.share(CardTime::work),
                     100 * result.decode.share(CardTime::work))},
        {"busy", fmt::format("prefill {:.1f} %, decode {:.1f} %", busy(result.prefill),
                             busy(result.decode))},
        {"decode lock step",
         fmt::format("{} mean over slowest rank, {:.1f} sequences a card",
                     figure_text(lock_step(counted), 3, ""),
                     counted.decode_rank_steps > 0
                         ? counted.decode_sequence_steps / counted.decode_rank_steps
                         : 0)},
        {"hits", fmt::format("{} of input tokens, windows {} of requests with a hit",
                             percent_text(counted.hit_tokens, counted.input_tokens),
                             percent_text(counted.window_hits, counted.window_wanted))},
        {"tokens",
         fmt::format("{:.0f} input/s, {:.0f} output/s; {:.0f} and {:.0f} a card",
                     rate(served.input_tokens), rate(served.output_tokens),
                     rate(served.input_tokens) / cards, rate(served.output_tokens) / cards)},
        {"pool", fmt::format("{:.3f} GiB/s read, {:.3f} GiB/s written",
                             rate(counted.pool_read_bytes) / (1 << 30),
                             rate(counted.pool_written_bytes) / (1 << 30))},
        {"within SLO", fmt::format("{} of the {} that finished; {} are under way at the end",
                                   percent_text(result.all.within_slo, result.all.finished),
                                   result.all.finished, result.totals.in_flight)},
        {"rejected", fmt::format("{} rejected, {} closed unstarted, {} resumed", counted.rejected,
                                 counted.closed, counted.resumed)},
    };
    for (const ReportLine& line : leaving_lines(result))
        lines.push_back(line);
    lines.push_back(
        {"cost", served.output_tokens > 0
                     ? fmt::format("{:.4f} USD a million tokens served, at {:.2f} USD a card-hour",
                                   result.cost_per_million(), config.money.card_hour)
                     : std::string("nothing was served")});
    lines.push_back(
        {"revenue",
         fmt::format("{:.2f} USD a card-hour for what was served, at the configured prices",
                     result.revenue_per_card_hour())});
    return lines;
}

std::vector<ExpertReportRow> expert_rows(const FleetResult& result) {
    std::vector<ExpertReportRow> rows;
    if (!result.config.experts.is_process) return rows;
    const auto add = [&](const char* name, const auto& text) {
        rows.push_back({name, text(result.experts[0]), text(result.experts[1])});
    };
    const auto count = [](std::int64_t value) { return fmt::format("{}", value); };
    using Figures = ExpertFigures;
    add("moe_lb, realised",
        [](const Figures& f) { return fmt::format("{:.3f}", f.realised.ratio()); });
    add("expected by plans",
        [](const Figures& f) { return fmt::format("{:.3f}", f.after.ratio()); });
    add("without them", [](const Figures& f) { return fmt::format("{:.3f}", f.before.ratio()); });
    add("plans", [&](const Figures& f) { return count(f.plans); });
    add("wholly gated", [&](const Figures& f) { return count(f.gated); });
    add("switches done", [&](const Figures& f) { return count(f.switches.completed); });
    add("switches aborted", [&](const Figures& f) { return count(f.switches.aborted); });
    add("layers passed", [&](const Figures& f) { return count(f.layers_passed); });
    add("layers held", [&](const Figures& f) { return count(f.layers_held); });
    add("GB moved", [&](const Figures& f) {
        return fmt::format("{:.1f}", gigabytes(result, f.switches.fetched));
    });
    add("GB the gate held",
        [&](const Figures& f) { return fmt::format("{:.1f}", gigabytes(result, f.slots_held)); });
    add("a switch, s", [](const Figures& f) { return fmt::format("{:.2f}", f.switches.mean_s()); });
    add("the longest, s",
        [](const Figures& f) { return fmt::format("{:.2f}", f.switches.longest_s); });
    return rows;
}

std::vector<ReportLine> draft_lines(const FleetResult& result) {
    const DraftConfig& config = result.config.decode.drafts;
    if (!config.is_modelled()) return {};
    const DraftFigures& drafts = result.drafts;
    const bool has_steps = drafts.sequence_steps > 0;
    const auto number = [](Figure figure, int digits) { return figure_cell(figure, 0, digits); };
    std::vector<ReportLine> lines = {
        {"verification",
         config.verification == Verification::all
             ? fmt::format("all of {} drafts", config.count)
             : fmt::format("by a budget of {}, from survivals {} steps old",
                           config.is_group_wide ? "the group" : "each rank", config.age_steps)},
        {"rows", number(figure_if(has_steps, drafts.rows_each()), 2) + " of a sequence and step, " +
                     number(figure_if(has_steps, drafts.rows_of_rank()), 1) + " of a rank"},
        {"accepted tokens", number(figure_if(has_steps, drafts.tokens_each()), 3) +
                                " of a sequence and step, " + number(draft_goodput(result), 0) +
                                " a second"},
    };
    std::string shares;
    for (std::size_t i = 0; i < kVerifyReasons; ++i)
        if (drafts.rank_steps[i] > 0)
            shares += fmt::format("{}{} {:.2f} %", shares.empty() ? "" : ", ", kReasonNames[i],
                                  100 * drafts.share(i));
    lines.push_back({"steps of ranks", shares.empty() ? "none" : shares});
    return lines;
}

bool is_noise_negative(const FleetResult& result) {
    return result.prefill.share(CardTime::noise) < 0 || result.decode.share(CardTime::noise) < 0;
}

std::string fleet_table(const FleetResult& result) {
    std::string text;
    for (const ReportLine& line : fleet_headline(result))
        text += fmt::format("{:<18}{}\n", line.name, line.value);
    text += fmt::format("\n{:<10}{:>10}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>10}{:>9}\n", "requests",
                        "finished", "TTFT p50", "p90", "p99 ms", "TPOT p50", "p90", "p99 ms",
                        "E2E p50 s", "SLO %");
    for (std::size_t i = 0; i < kPrefillClasses; ++i)
        text += figures_row(kClassNames[i], result.by_class[i]);
    for (std::size_t i = 0; i < kTrafficKinds; ++i)
        text +=
            figures_row(std::string(traffic_name(static_cast<Traffic>(i))), result.by_traffic[i]);
    text += figures_row("all", result.all);
    text += fmt::format("\n{:<18}{:>10}{:>10}\n", "card-time, %", "prefill", "decode");
    for (std::size_t i = 0; i < result.card_times(); ++i) {
        const auto kind = static_cast<CardTime>(i);
        text += fmt::format("{:<18}{:>10.2f}{:>10.2f}\n", card_time_name(kind),
                            100 * result.prefill.share(kind), 100 * result.decode.share(kind));
    }
    text += fmt::format("{:<18}{:>10.2f}{:>10.2f}\n\n", "sum",
                        percent(static_cast<double>(result.prefill.sum_ns()),
                                static_cast<double>(result.prefill.total_ns)),
                        percent(static_cast<double>(result.decode.sum_ns()),
                                static_cast<double>(result.decode.total_ns)));
    const std::vector<ExpertReportRow> experts = expert_rows(result);
    if (!experts.empty())
        text += fmt::format("{:<18}{:>10}{:>10}\n", "experts", kRoleNames[0], kRoleNames[1]);
    for (const ExpertReportRow& row : experts)
        text += fmt::format("{:<18}{:>10}{:>10}\n", row.name, row.prefill, row.decode);
    if (!experts.empty()) text += "\n";
    const std::vector<ReportLine> drafts = draft_lines(result);
    for (const ReportLine& line : drafts)
        text += fmt::format("{:<18}{}\n", line.name, line.value);
    if (!drafts.empty()) text += "\n";
    if (is_noise_negative(result)) text += fmt::format("{}\n\n", kNoiseMeaning);
    text += changes_text(result.config) + "\n" + assumptions_text(result.config);
    text += fmt::format("\nseed {}, {} events, hash {:016x}\n", result.config.seed,
                        result.totals.events, result.hash);
    for (const std::string& violation : result.violations)
        text += fmt::format("VIOLATED {}\n", violation);
    return text;
}

std::string fleet_csv(const FleetResult& result) {
    const bool has_experts = result.config.experts.is_process;
    std::string text =
        "at_s,prefill_use,decode_use,hit_share,ttft_p50_ms,ttft_p99_ms,input_tokens_s,"
        "output_tokens_s,waiting,decoding,prefill_ready,decode_ready";
    const bool has_drafts = result.config.decode.drafts.is_modelled();
    text += has_experts ? ",prefill_moe_lb,decode_moe_lb" : "";
    text += has_drafts ? ",draft_rows,draft_tokens\n" : "\n";
    for (const FleetSample& s : result.series) {
        text += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{}", s.at_s, s.prefill_use,
                            s.decode_use, figure_csv(figure_if(s.input_tokens > 0, s.hit_share)),
                            figure_csv(figure_if(s.first_tokens > 0, s.ttft_p50_ms)),
                            figure_csv(figure_if(s.first_tokens > 0, s.ttft_p99_ms)), s.tokens_in_s,
                            s.tokens_out_s, s.waiting, s.decoding, s.prefill_ready, s.decode_ready);
        if (has_experts) text += fmt::format(",{},{}", s.moe_balance[0], s.moe_balance[1]);
        if (has_drafts)
            text += fmt::format(",{},{}", figure_csv(figure_if(s.draft_rows > 0, s.draft_rows)),
                                figure_csv(figure_if(s.draft_rows > 0, s.draft_tokens)));
        text += "\n";
    }
    return text;
}

std::string fleet_json(const FleetResult& result) {
    const FleetConfig& config = result.config;
    const FleetTotals& counted = result.counted;
    Json by_class = Json::object(), by_traffic = Json::object();
    for (std::size_t i = 0; i < kPrefillClasses; ++i)
        by_class.set(kClassNames[i], figures_json(result.by_class[i]));
    for (std::size_t i = 0; i < kTrafficKinds; ++i)
        by_traffic.set(traffic_name(static_cast<Traffic>(i)), figures_json(result.by_traffic[i]));
    Json violations = Json::array();
    for (const std::string& violation : result.violations)
        violations.push_back(violation);
    Json report = Json::object({
        {"preset", config.preset},
        {"seed", config.seed},
        {"hash", fmt::format("{:016x}", result.hash)},
        {"prefill_cards", config.prefill_cards()},
        {"decode_cards", config.decode_cards()},
        {"requests_s", result.rate},
        {"measured_s", result.measured_s},
        {"efficiency", result.efficiency()},
        {"hit_share", figure_json(share_of(counted.hit_tokens, counted.input_tokens))},
        {"cost_per_million_tokens",
         result.served.output_tokens > 0 ? Json(result.cost_per_million()) : Json()},
        {"revenue_per_card_hour", result.revenue_per_card_hour()},
        {"events", result.totals.events},
        {"requests", Json::object({{"arrived", counted.arrived},
                                   {"finished", counted.finished},
                                   {"rejected", counted.rejected},
                                   {"closed", counted.closed},
                                   {"resumed", counted.resumed},
                                   {"moved", counted.moved},
                                   {"retried", result.totals.retried}})},
        {"scaling", scaling_json(result)},
        {"resumed", resumed_json(result)},
        {"tokens", Json::object({{"input", counted.input_tokens},
                                 {"hit", counted.hit_tokens},
                                 {"computed", counted.computed_tokens},
                                 {"replayed", counted.replayed_tokens},
                                 {"output", counted.output_tokens}})},
        {"served", Json::object({{"input", result.served.input_tokens},
                                 {"hit", result.served.hit_tokens},
                                 {"output", result.served.output_tokens}})},
        {"bytes", Json::object({{"pool_read", counted.pool_read_bytes},
                                {"pool_written", counted.pool_written_bytes},
                                {"handed_over", counted.handoff_bytes}})},
        {"windows",
         Json::object({{"wanted", counted.window_wanted}, {"found", counted.window_hits}})},
        {"decode_lock_step", figure_json(lock_step(counted))},
        {"card_time", Json::object({{"prefill", ledger_json(result, result.prefill)},
                                    {"decode", ledger_json(result, result.decode)}})},
        {"all", figures_json(result.all)},
        {"by_class", std::move(by_class)},
        {"by_traffic", std::move(by_traffic)},
        {"changes", changes_json(config)},
        {"assumptions", assumptions_json(config)},
        {"violations", std::move(violations)},
    });
    if (config.experts.is_process) report.set("experts", experts_json(result));
    if (config.decode.drafts.is_modelled()) report.set("drafts", drafts_json(result));
    return report.dump() + "\n";
}

}  // namespace fathom
