#include "cli/sim/plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "base/json.h"
#include "base/output_file.h"
#include "cli/interrupts.h"
#include "cli/print_result.h"
#include "cli/progress.h"
#include "cli/sim/figures.h"
#include "cli/sim/fleet_order.h"
#include "sim/study/sizing.h"

namespace fathom {
namespace {

FleetOrderReader reader() {
    FleetOrderReader reader;
    reader.spec.usage = "fathom sim plan PRESET|CONFIG.toml --cards N [options]";
    reader.spec.summary =
        "Looks for the fleet that serves most of the described traffic within the SLO: how many "
        "prefill and\ndecode cards, in engines of what size. Then takes one thing away after the "
        "other (drafts, the\npool, ...) to tell what each gains. Step curves, prices and traffic "
        "are those of the file or preset.";
    reader.spec.tables = {"plan"};
    reader.spec.aliases = {{"--cards", "plan.cards"},
                           {"--usd-hour", "plan.usd_hour"},
                           {"--csv", "plan.csv"},
                           {"--json", "plan.json"}};
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

Result<SizingQuestion> question_of(const PlanKeys& plan, const FleetConfig& base) {
    SizingQuestion question;
    question.base = base;
    question.base.duration_s = plan.warmup_s + plan.seconds;
    question.base.warmup_s = plan.warmup_s;
    // Copies of a trace that begin together would be one request many times over.
    if (question.base.workload.trace_spread_s <= 0)
        question.base.workload.trace_spread_s = plan.warmup_s;
    question.cards = plan.cards > 0 ? plan.cards : base.cards();
    if (plan.usd_hour > 0) {
        if (plan.cards > 0)
            return invalid_argument(
                "plan.cards: {} and plan.usd_hour: {}, expected one of them: a budget buys cards",
                plan.cards, plan.usd_hour);
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
    return within_memory([&] {
        return size_fleet(question, [&](std::int64_t runs) {
            progress.update(runs);
            return !interrupts.pending();
        });
    });
}

// Where nothing is within the SLO there are no figures of a run at capacity.
Figure at_capacity(const SizingRow& row, double value) {
    return figure_if(row.capacity > 0, value);
}

std::string table(const SizingQuestion& question, const SizingAnswer& answer) {
    std::string text = fmt::format(
        "{} cards, all paid for; capacity: most requests/s with {:.0f} % within the SLO; {} "
        "runs\n\n{:<24}{:>9}"
        "{:>9}{:>11}{:>10}{:>10}{:>9}{:>9}{:>7}\n",
        question.cards, 100 * question.slo_share, answer.runs, "prefill + decode", "bound/s",
        "capac./s", "tokens/s", "USD/M tok", "income/h", "TTFT p99", "TPOT p99", "work %");
    for (const SizingRow& row : answer.candidates) {
        text += fmt::format("{:<24}{:>9.2f}{:>9.2f}", row.name, row.bound, row.capacity);
        const auto cell = [&](double value, int width, int digits) {
            text += figure_cell(at_capacity(row, value), width, digits);
        };
        cell(row.tokens_s, 11, 0);
        cell(row.usd_per_million, 10, 4);
        cell(row.usd_revenue_hour, 10, 2);
        cell(row.ttft_p99_ms, 9, 0);
        cell(row.tpot_p99_ms, 9, 1);
        cell(100 * row.efficiency, 7, 1);
        text += "\n";
    }
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
    return text + "\n" + changes_text(question.base) + "\n" + assumptions_text(question.base);
}

std::string csv(const SizingAnswer& answer) {
    std::string text =
        "row,name,prefill_ep,engines,decode_ep,groups,bound_s,capacity_s,tokens_s,usd_per_million,"
        "usd_revenue_hour,ttft_p99_ms,tpot_p99_ms,hit_share,efficiency\n";
    const auto add = [&](const char* kind, const std::vector<SizingRow>& rows) {
        for (const SizingRow& r : rows) {
            text += fmt::format("{},{},{},{},{},{},{:.6g},{:.6g}", kind, r.name, r.prefill_ranks,
                                r.engines, r.decode_ranks, r.groups, r.bound, r.capacity);
            for (const double value : {r.tokens_s, r.usd_per_million, r.usd_revenue_hour,
                                       r.ttft_p99_ms, r.tpot_p99_ms, r.hit_share, r.efficiency})
                text += "," + figure_csv(at_capacity(r, value));
            text += "\n";
        }
    };
    add("split", answer.candidates);
    add("without", answer.without);
    return text;
}

std::string json(const SizingQuestion& question, const SizingAnswer& answer) {
    const auto rows_json = [](const std::vector<SizingRow>& rows) {
        Json list = Json::array();
        for (const SizingRow& r : rows)
            list.push_back(
                Json::object({{"name", r.name},
                              {"prefill_ep", r.prefill_ranks},
                              {"engines", r.engines},
                              {"decode_ep", r.decode_ranks},
                              {"groups", r.groups},
                              {"bound_s", r.bound},
                              {"capacity_s", r.capacity},
                              {"tokens_s", figure_json(at_capacity(r, r.tokens_s))},
                              {"usd_per_million", figure_json(at_capacity(r, r.usd_per_million))},
                              {"usd_revenue_hour", figure_json(at_capacity(r, r.usd_revenue_hour))},
                              {"ttft_p99_ms", figure_json(at_capacity(r, r.ttft_p99_ms))},
                              {"tpot_p99_ms", figure_json(at_capacity(r, r.tpot_p99_ms))},
                              {"hit_share", figure_json(at_capacity(r, r.hit_share))},
                              {"efficiency", figure_json(at_capacity(r, r.efficiency))}}));
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
                         {"impossible", std::move(impossible)},
                         {"changes", changes_json(question.base)},
                         {"assumptions", assumptions_json(question.base)}})
               .dump() +
           "\n";
}

Status run_plan(const PlanKeys& plan, const SizingQuestion& question) {
    FATHOM_ASSIGN(const SizingAnswer answer, answer_of(question));
    if (answer.candidates.empty() || answer.best().capacity <= 0)
        return error(
            StatusCode::resource_exhausted,
            "no split of {} cards serves {:.0f} % of the requests within the SLO at any "
            "rate that was tried; allow more (slo.tpot_ms, slo.ttft_s_16k …) or give more cards",
            question.cards, 100 * question.slo_share);
    if (!plan.csv.empty()) FATHOM_RETURN_IF_ERROR(write_output_file(plan.csv, csv(answer)));
    return print_result(plan.json ? json(question, answer) : table(question, answer));
}

}  // namespace

int run_sim_plan(const std::vector<std::string>& args) {
    const auto order = reader().read(args);
    if (!order.ok()) return refuse_sim_command("plan", order.status());
    if (!order->help.empty()) return end_sim_command("plan", print_result(order->help));
    const PlanKeys& plan = order->keys.plan;
    const Status outputs_fit = check_sim_outputs({plan.csv}, order->inputs);
    if (!outputs_fit.ok()) return refuse_sim_command("plan", outputs_fit);
    const auto question = question_of(plan, order->config);
    if (!question.ok()) return refuse_sim_command("plan", question.status());
    return end_sim_command("plan", run_plan(plan, *question));
}

}  // namespace fathom
