#include "cli/sim/plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "base/json.h"
#include "base/output_file.h"
#include "cli/commands.h"
#include "cli/interrupts.h"
#include "cli/progress.h"
#include "cli/sim/fleet_order.h"
#include "sim/study/sizing.h"

namespace fathom {
namespace {

struct Plan {
    std::int64_t cards = 0;
    double usd_hour = 0, seconds = 150, warmup_s = 60, slo_share = 0.95;
    std::int64_t candidates = 6;
    std::vector<std::string> prefill_ep, decode_ep;
    std::string csv;
    bool json = false;
};

FleetOrderReader reader(Plan& plan) {
    FleetOrderReader reader;
    reader.spec.usage = "fathom sim plan PRESET|CONFIG.toml --cards N [options]";
    reader.spec.summary =
        "Looks for the fleet that serves most of the described traffic within the SLO: how many "
        "prefill and\ndecode cards, in engines of what size. Then takes one thing away after the "
        "other (drafts, the\npool, ...) to tell what each gains. Step curves, prices and traffic "
        "are "
        "those of the file or preset.";
    reader.spec.tables = {"plan"};
    reader.spec.aliases = {{"--cards", "plan.cards"},
                           {"--usd-hour", "plan.usd_hour"},
                           {"--csv", "plan.csv"},
                           {"--json", "plan.json"}};
    reader.bind_own = [&plan](ConfigSchema& schema) {
        plan = {};
        schema.add("plan.cards", &plan.cards, 0, 1'000'000,
                   "cards to plan for; 0: those of the preset, or of plan.usd_hour");
        schema.add("plan.usd_hour", &plan.usd_hour, 0.0, 1e9,
                   "budget instead of cards, at money.card_hour");
        schema.add("plan.prefill_ep", &plan.prefill_ep,
                   "sizes of prefill engines to try; repeated; by default 2, 4 and 8");
        schema.add("plan.decode_ep", &plan.decode_ep,
                   "sizes of decode groups to try; by default 2, 4, 8, 16, 32 and 64");
        schema.add("plan.slo_share", &plan.slo_share, 0.01, 1.0,
                   "of requests that must be within the SLO");
        schema.add("plan.candidates", &plan.candidates, 1, 100, "pairs of sizes that are run");
        schema.add("plan.seconds", &plan.seconds, 10.0, 86'400.0, "measured time of each run");
        schema.add("plan.warmup_s", &plan.warmup_s, 0.0, 86'400.0,
                   "and before it; copies of a trace begin within it, unless "
                   "workload.trace_spread_s says when");
        schema.add("plan.csv", &plan.csv, "file for the rows");
        schema.add("plan.json", &plan.json, "JSON on standard output instead of tables");
    };
    return reader;
}

Result<std::vector<std::int64_t>> sizes(const char* key, const std::vector<std::string>& words,
                                        std::vector<std::int64_t> otherwise) {
    if (words.empty()) return otherwise;
    std::vector<std::int64_t> sizes;
    for (const std::string& word : words) {
        const auto number = fleet_number(word);
        if (!number || *number < 1 || *number > 1024 || *number != std::floor(*number))
            return invalid_argument("{}: \"{}\", expected a number from 1 to 1024", key, word);
        sizes.push_back(static_cast<std::int64_t>(*number));
    }
    return sizes;
}

Result<SizingQuestion> question_of(const Plan& plan, const FleetConfig& base) {
    SizingQuestion question;
    question.base = base;
    question.base.duration_s = plan.warmup_s + plan.seconds;
    question.base.warmup_s = plan.warmup_s;
    // Copies of a trace that begin together would be one request many times over.
    if (question.base.workload.trace_spread_s <= 0)
        question.base.workload.trace_spread_s = plan.warmup_s;
    question.cards = plan.cards > 0 ? plan.cards : base.cards();
    if (plan.usd_hour > 0) {
        if (!(base.money.card_hour > 0))
            return invalid_argument("money.card_hour: {}, expected more than 0 for plan.usd_hour",
                                    base.money.card_hour);
        question.cards = static_cast<std::int64_t>(plan.usd_hour / base.money.card_hour);
    }
    if (question.cards < 2)
        return invalid_argument("plan.cards: {}, expected at least 2: one for each side",
                                question.cards);
    if (base.workload.source == WorkloadSource::clients)
        return invalid_argument(
            "workload.source: clients, expected sessions or trace: clients that wait for answers "
            "bring what the fleet bears");
    FATHOM_ASSIGN(question.prefill_ranks, sizes("plan.prefill_ep", plan.prefill_ep, {2, 4, 8}));
    FATHOM_ASSIGN(question.decode_ranks,
                  sizes("plan.decode_ep", plan.decode_ep, {2, 4, 8, 16, 32, 64}));
    question.slo_share = plan.slo_share;
    question.candidates = plan.candidates;
    return question;
}

Result<SizingAnswer> answer_of(const SizingQuestion& question) {
    const Interrupts interrupts;
    Progress progress("runs", 0, real_clock());
    return size_fleet(question, [&](std::int64_t runs) {
        progress.update(runs);
        return !interrupts.pending();
    });
}

std::string table(const SizingQuestion& question, const SizingAnswer& answer) {
    std::string text = fmt::format(
        "{} cards, all paid for; capacity: most requests/s with {:.0f} % within the SLO; {} "
        "runs\n\n{:<24}{:>9}"
        "{:>9}{:>11}{:>10}{:>10}{:>9}{:>9}{:>7}\n",
        question.cards, 100 * question.slo_share, answer.runs, "prefill + decode", "bound/s",
        "capac./s", "tokens/s", "USD/M tok", "income/h", "TTFT p99", "TPOT p99", "work %");
    for (const SizingRow& row : answer.candidates)
        text += fmt::format(
            "{:<24}{:>9.2f}{:>9.2f}{:>11.0f}{:>10.4f}{:>10.2f}{:>9.0f}{:>9.1f}{:>7.1f}\n", row.name,
            row.bound, row.capacity, row.tokens_s, row.usd_per_million, row.usd_revenue_hour,
            row.ttft_p99_ms, row.tpot_p99_ms, 100 * row.efficiency);
    for (const std::string& why : answer.impossible)
        text += fmt::format("not possible: {}\n", why);
    const SizingRow& best = answer.best();
    text += fmt::format("\nwhat the best one gains by having\n");
    for (const SizingRow& row : answer.without)
        text += row.capacity > 0
                    ? fmt::format("{:<24}{:>+9.1f} %   ({:.2f}/s without)\n", row.name,
                                  100 * (best.capacity / row.capacity - 1), row.capacity)
                    : fmt::format("{:<24}{:>11}   (nothing within the SLO without)\n", row.name,
                                  "everything");
    const auto best_of = [&](bool is_prefill) {
        std::vector<std::int64_t> seen;
        for (const SizingRow& row : answer.candidates) {
            const std::int64_t ranks = is_prefill ? row.prefill_ranks : row.decode_ranks;
            if (std::find(seen.begin(), seen.end(), ranks) != seen.end() || row.capacity <= 0)
                continue;
            seen.push_back(ranks);
            text += fmt::format("{} EP{:<3} at best {:>9.2f}/s, {:+.1f} % of the best\n",
                                is_prefill ? "prefill" : "decode ", ranks, row.capacity,
                                100 * (row.capacity / best.capacity - 1));
        }
    };
    text += "\nsizes of engines, of those that were run\n";
    best_of(true);
    best_of(false);
    text += "\n";
    for (const Assumption& assumption : fleet_assumptions(question.base))
        text += fmt::format("{:<9} {}: {} ({})\n", assumption.is_measured ? "measured" : "assumed",
                            assumption.what, assumption.value, assumption.source);
    return text;
}

std::string csv(const SizingAnswer& answer) {
    std::string text =
        "row,name,prefill_ep,engines,decode_ep,groups,bound_s,capacity_s,tokens_s,usd_per_million,"
        "usd_revenue_hour,ttft_p99_ms,tpot_p99_ms,hit_share,efficiency\n";
    const auto add = [&](const char* kind, const std::vector<SizingRow>& rows) {
        for (const SizingRow& r : rows)
            text += fmt::format(
                "{},{},{},{},{},{},{:.6g},{:.6g},{:.6g},{:.6g},{:.6g},{:.6g},{:.6g},"
                "{:.6g},{:.6g}\n",
                kind, r.name, r.prefill_ranks, r.engines, r.decode_ranks, r.groups, r.bound,
                r.capacity, r.tokens_s, r.usd_per_million, r.usd_revenue_hour, r.ttft_p99_ms,
                r.tpot_p99_ms, r.hit_share, r.efficiency);
    };
    add("split", answer.candidates);
    add("without", answer.without);
    return text;
}

std::string json(const SizingQuestion& question, const SizingAnswer& answer) {
    const auto rows_json = [](const std::vector<SizingRow>& rows) {
        Json list = Json::array();
        for (const SizingRow& r : rows)
            list.push_back(Json::object({{"name", r.name},
                                         {"prefill_ep", r.prefill_ranks},
                                         {"engines", r.engines},
                                         {"decode_ep", r.decode_ranks},
                                         {"groups", r.groups},
                                         {"bound_s", r.bound},
                                         {"capacity_s", r.capacity},
                                         {"tokens_s", r.tokens_s},
                                         {"usd_per_million", r.usd_per_million},
                                         {"usd_revenue_hour", r.usd_revenue_hour},
                                         {"ttft_p99_ms", r.ttft_p99_ms},
                                         {"tpot_p99_ms", r.tpot_p99_ms},
                                         {"hit_share", r.hit_share},
                                         {"efficiency", r.efficiency}}));
        return list;
    };
    Json impossible = Json::array();
    for (const std::string& why : answer.impossible)
        impossible.push_back(why);
    return Json::object({{"cards", question.cards},
                         {"slo_share", question.slo_share},
                         {"runs", answer.runs},
                         {"splits", rows_json(answer.candidates)},
                         {"without", rows_json(answer.without)},
                         {"impossible", std::move(impossible)}})
               .dump() +
           "\n";
}

Status run_plan(const Plan& plan, const FleetOrder& order) {
    FATHOM_RETURN_IF_ERROR(check_sim_outputs({plan.csv}, order.inputs));
    FATHOM_ASSIGN(const SizingQuestion question, question_of(plan, order.config));
    FATHOM_ASSIGN(const SizingAnswer answer, answer_of(question));
    if (answer.candidates.empty() || answer.best().capacity <= 0)
        return error(
            StatusCode::resource_exhausted,
            "no split of {} cards serves {:.0f} % of the requests within the SLO at any "
            "rate that was tried; allow more (slo.tpot_ms, slo.ttft_s_16k …) or give more cards",
            question.cards, 100 * question.slo_share);
    if (!plan.csv.empty()) FATHOM_RETURN_IF_ERROR(write_output_file(plan.csv, csv(answer)));
    fmt::print("{}", plan.json ? json(question, answer) : table(question, answer));
    return {};
}

}  // namespace

int run_sim_plan(const std::vector<std::string>& args) {
    Plan plan;
    const auto order = reader(plan).read(args);
    if (!order.ok()) return fail_sim_command("plan", order.status());
    if (order->help) return kExitOk;
    const Status status = run_plan(plan, *order);
    return status.ok() ? kExitOk : fail_sim_command("plan", status);
}

}  // namespace fathom
