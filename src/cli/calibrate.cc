// `fathom calibrate`: measures steps of this model on this machine and writes the cost model that
// `engine.cost_model` reads, and the prefill costs that `sim.prefill_costs` reads.
#include "cli/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/machine_limits.h"
#include "base/output_file.h"
#include "cli/commands.h"
#include "cli/interrupts.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/settings.h"
#include "engine/calibration.h"
#include "engine/model_shape.h"
#include "policy/cost_file.h"
#include "policy/prefill_cost_file.h"

namespace fathom {
namespace {

constexpr std::int64_t kSecondUs = 1'000'000;

const CommandSpec kSpec = {
    .usage = "fathom calibrate --model DIR [-o FILE] [--prefill-costs FILE] [options]",
    .summary =
        "Measures how long steps take on this machine, fits the scheduler's cost model and writes "
        "it.\nUse the file with engine.cost_model and the same model, back end and threads. With\n"
        "--prefill-costs the same steps also give what prefill costs by length class, for `fathom "
        "sim`\n(sim.prefill_costs). A fit that misses its gates is not written; it says so and "
        "exits with 1.",
    .tables = {"calibrate", "model", "engine"},
    .aliases = {{"-o", "calibrate.output"},
                {"--output", "calibrate.output"},
                {"--prefill-costs", "calibrate.prefill_costs"},
                {"--json", "calibrate.json"},
                {"--seconds", "calibrate.seconds"},
                {"-m", "model.dir"},
                {"--model", "model.dir"},
                {"--threads", "engine.threads"}},
    .positional_max = 0};

struct Measured {
    std::vector<CostSample> steps;
    std::vector<PrefillSample> prefill;
};

Result<Measured> measure(Model& model, CalibrationOptions options, const Clock& clock) {
    Interrupts interrupts;
    std::optional<Progress> progress;
    Measured measured;
    options.on_progress = [&](std::size_t done, std::size_t total) {
        if (!progress) progress.emplace("steps", static_cast<std::int64_t>(total), real_clock());
        progress->update(static_cast<std::int64_t>(done),
                         fmt::format("{} of prefill", measured.prefill.size()));
        return !interrupts.pending();
    };
    options.on_sample = [&](const CalibrationPoint& point, const CostSample& sample) {
        if (is_prefill(point)) measured.prefill.push_back(prefill_sample(point, sample));
    };
    FATHOM_ASSIGN(measured.steps, measure_steps(model, options, clock));
    return measured;
}

// --- reports

void print_fit(const CostIdentity& identity, const CostFit& fit, const ModelShape& shape) {
    fmt::print("model {}, kernels {}, {} threads\n", identity.model, identity.kernels,
               identity.threads);
    for (std::size_t i = 0; i < kCostFeatures; ++i)
        fmt::print("  {:<16} {:>14.6g} us\n", cost_feature_name(i), fit.model.k_us[i]);
    for (const std::int64_t rows : {1, 128, 512, 2048, 8192}) {
        StepFeatures step(shape);
        step.add({.context = 0, .rows = rows});
        fmt::print("  {:>5} prompt rows   {:>12.1f} ms\n", rows, fit.model.cost_us(step) / 1000);
    }
    fmt::print("gates: {}\n", fit.gates.to_text());
}

void add_gates(const CostGates& gates, Json& report) {
    report.set("passed", gates.passed());
    report.set("monotone", gates.monotone);
    report.set("dropped", static_cast<std::int64_t>(gates.dropped));
}

PrefillCostIdentity prefill_identity(const CostIdentity& identity) {
    return {.model = identity.model,
            .kernels = identity.kernels,
            .ranks = 1,
            .card = fmt::format("{}, {} threads", cpu_name(), identity.threads)};
}

void print_json(const CostIdentity& identity, const CostFit& fit,
                const PrefillCalibration* prefill) {
    Json report = *parse_json(cost_file_text(identity, fit));
    add_gates(fit.gates, report);
    if (prefill != nullptr) {
        Json costs = *parse_json(prefill_cost_file_text(prefill_identity(identity), *prefill));
        costs.set("worst_error", prefill->worst_error);
        add_gates(prefill->gates, costs);
        report.set("prefill_costs", std::move(costs));
    }
    fmt::print("{}\n", report.dump());
}

// --- files

Status check_files(const CalibrateSettings& settings) {
    FATHOM_RETURN_IF_ERROR(check_output_path(settings.output));
    if (settings.prefill_costs.empty()) return {};
    FATHOM_RETURN_IF_ERROR(check_output_path(settings.prefill_costs));
    return check_outputs_differ(std::array{settings.output, settings.prefill_costs});
}

Status check_points(const CalibrateSettings& settings,
                    const std::vector<CalibrationPoint>& points) {
    if (settings.prefill_costs.empty()) return {};
    const auto steps = std::count_if(points.begin(), points.end(), is_prefill);
    if (static_cast<std::size_t>(steps) < kPrefillSamplesMin)
        return invalid_argument(
            "calibrate.prefill_costs: {} steps of prefill fit the model and "
            "engine.step_tokens_max, expected at least {}",
            steps, kPrefillSamplesMin);
    return {};
}

// Writes the file of a fit that passed; else it is one of those that `missed`.
Status write_passed(const std::string& path, const CostGates& gates, const std::string& text,
                    bool is_told, std::vector<std::string>& missed) {
    if (!gates.passed()) {
        missed.push_back(path);
        return {};
    }
    FATHOM_RETURN_IF_ERROR(write_output_file(path, text));
    if (is_told) fmt::print("written: {}\n", path);
    return {};
}

}  // namespace

std::string prefill_fit_text(const PrefillCalibration& calibration) {
    const char* const what = calibration.method == PrefillFitMethod::pooled
                                 ? "one set of coefficients for all lengths"
                             : calibration.method == PrefillFitMethod::by_class
                                 ? "coefficients by length class"
                                 : "a table of slices, since no coefficients fit";
    std::string text = fmt::format(
        "prefill costs: {} from {} steps, off by {:.1f} % in the mean and {:.1f} % at "
        "worst\n",
        what, calibration.gates.used, 100 * calibration.gates.mean_error,
        100 * calibration.worst_error);
    constexpr std::array<const char*, kPrefillClasses> kNames = {"below 16 K", "below 64 K",
                                                                 "below 256 K", "longer"};
    const bool is_one = calibration.method != PrefillFitMethod::by_class;
    for (std::size_t k = 0; k < (is_one ? 1 : kPrefillClasses); ++k) {
        const PrefillCost& cost = calibration.costs[k];
        text +=
            fmt::format("  {:<12} {:g} us a step, ", is_one ? "all" : kNames[k], cost.fixed_us());
        if (cost.table)
            text += fmt::format("{} x {} times of slices, ", cost.table->contexts().size(),
                                cost.table->tokens().size());
        else
            text += fmt::format("{:.4g} us a token, {:.4g} a pair, {:.4g} a slice, ", cost.k1_us,
                                cost.k2_us, cost.k5_us);
        text += fmt::format("{:.4g} a token of context, {:.4g} a tail\n", cost.k3_us, cost.k4_us);
    }
    return text + fmt::format("gates: {}\n", calibration.gates.to_text());
}

Status calibrate(const LoadedModel& loaded, const CalibrateSettings& settings, const Clock& clock) {
    Model& model = *loaded.model;
    CalibrationOptions options;
    options.points = calibration_grid(model, settings.context_max);
    options.time_limit_us = settings.seconds * kSecondUs;
    FATHOM_RETURN_IF_ERROR(check_points(settings, options.points));
    FATHOM_ASSIGN(const Measured measured, measure(model, std::move(options), clock));
    const ModelShape shape = make_model_shape(model.config());
    const CostFit fit = fit_cost_model(measured.steps, shape);
    std::optional<PrefillCalibration> prefill;
    Status unfit;
    if (!settings.prefill_costs.empty()) {
        auto fitted = calibrate_prefill(measured.prefill);
        if (fitted.ok())
            prefill = *std::move(fitted);
        else
            unfit = error(StatusCode::unavailable,
                          "{} is not written: {}; give it more time "
                          "(--seconds) and a quiet machine",
                          settings.prefill_costs, fitted.status().message());
    }
    const bool is_text = !settings.json;
    if (settings.json) print_json(loaded.identity, fit, prefill ? &*prefill : nullptr);
    if (is_text) print_fit(loaded.identity, fit, shape);
    if (is_text && prefill) fmt::print("{}", prefill_fit_text(*prefill));
    std::vector<std::string> missed;
    FATHOM_RETURN_IF_ERROR(write_passed(settings.output, fit.gates,
                                        cost_file_text(loaded.identity, fit), is_text, missed));
    if (prefill)
        FATHOM_RETURN_IF_ERROR(write_passed(
            settings.prefill_costs, prefill->gates,
            prefill_cost_file_text(prefill_identity(loaded.identity), *prefill), is_text, missed));
    if (missed.empty()) return unfit;
    return error(StatusCode::unavailable,
                 "{}: not written, the fit misses its gates; give it more time (--seconds) and a "
                 "quiet machine{}{}",
                 fmt::join(missed, ", "), unfit.ok() ? "" : "; ", unfit.message());
}

int run_calibrate(const std::vector<std::string>& args) {
    Settings settings;
    CalibrateSettings what;
    ConfigSchema schema;
    bind_settings(settings, schema);
    schema.add("calibrate.output", &what.output, "the file to write");
    schema.add("calibrate.prefill_costs", &what.prefill_costs,
               "a second file: what prefill costs by length class, for sim.prefill_costs");
    schema.add("calibrate.seconds", &what.seconds, 1, 86'400,
               "time to measure for; steps that will not fit are left out");
    schema.add("calibrate.context_max", &what.context_max, 0, 1 << 20,
               "longest context to measure behind");
    schema.add("calibrate.json", &what.json, "print one JSON object instead of text");
    const Result<CommandLine> line = parse_command_line(args, schema, kSpec);
    if (!line.ok()) {
        fmt::print(stderr, "fathom calibrate: {}\n", line.status().message());
        return kExitUsage;
    }
    if (line->help) {
        fmt::print("{}", help_text(schema, kSpec));
        return kExitOk;
    }
    const auto run = [&]() -> Status {
        FATHOM_RETURN_IF_ERROR(check_files(what));
        const std::int64_t positions = settings.stack.engine.step_tokens_max + what.context_max;
        FATHOM_ASSIGN(const LoadedModel loaded,
                      load_model(settings.stack, positions / kPageTokens + 2 * kPageTokens));
        return calibrate(loaded, what, real_clock());
    };
    const Status status = run();
    if (!status.ok()) fmt::print(stderr, "fathom calibrate: {}\n", status.message());
    if (status.code() == StatusCode::cancelled) return kExitInterrupted;
    return status.ok() ? kExitOk : kExitFailed;
}

}  // namespace fathom
