// `fathom calibrate`: measures steps of this model on this machine and writes the cost model that
// `engine.cost_model` reads.
#include <fmt/core.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "base/output_file.h"
#include "cli/commands.h"
#include "cli/interrupts.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/settings.h"
#include "cli/stack.h"
#include "engine/calibration.h"
#include "engine/model_shape.h"
#include "policy/cost_file.h"

namespace fathom {
namespace {

constexpr std::int64_t kSecondUs = 1'000'000;

struct Calibrate {
    std::string output = "cost_model.json";
    std::int64_t seconds = 300, context_max = 65'536;
    bool json = false;
};

const CommandSpec kSpec = {
    .usage = "fathom calibrate --model DIR [-o FILE] [options]",
    .summary =
        "Measures how long steps take on this machine, fits the scheduler's cost model and writes "
        "it.\nUse the file with engine.cost_model and the same model, back end and threads. A fit "
        "that misses\nits gates is not written; it says so and exits with 1.",
    .tables = {"calibrate", "model", "engine"},
    .aliases = {{"-o", "calibrate.output"},
                {"--output", "calibrate.output"},
                {"--json", "calibrate.json"},
                {"--seconds", "calibrate.seconds"},
                {"-m", "model.dir"},
                {"--model", "model.dir"},
                {"--threads", "engine.threads"}},
    .positional_max = 0};

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

void print_json(const CostIdentity& identity, const CostFit& fit) {
    Json report = *parse_json(cost_file_text(identity, fit));
    report.set("passed", fit.gates.passed());
    report.set("monotone", fit.gates.monotone);
    report.set("dropped", static_cast<std::int64_t>(fit.gates.dropped));
    fmt::print("{}\n", report.dump());
}

Status calibrate(const Settings& settings, const Calibrate& what) {
    FATHOM_RETURN_IF_ERROR(check_output_path(what.output));
    const std::int64_t positions = settings.stack.engine.step_tokens_max + what.context_max;
    FATHOM_ASSIGN(LoadedModel loaded,
                  load_model(settings.stack, positions / kPageTokens + 2 * kPageTokens));
    Model& model = *loaded.model;
    Interrupts interrupts;
    std::optional<Progress> progress;
    CalibrationOptions options;
    options.points = calibration_grid(model, what.context_max);
    options.time_limit_us = what.seconds * kSecondUs;
    options.on_progress = [&](std::size_t done, std::size_t total) {
        if (!progress) progress.emplace("steps", static_cast<std::int64_t>(total), real_clock());
        progress->update(static_cast<std::int64_t>(done));
        return !interrupts.pending();
    };
    FATHOM_ASSIGN(const std::vector<CostSample> samples,
                  measure_steps(model, options, real_clock()));
    progress.reset();
    const ModelShape shape = make_model_shape(model.config());
    const CostFit fit = fit_cost_model(samples, shape);
    if (what.json)
        print_json(loaded.identity, fit);
    else
        print_fit(loaded.identity, fit, shape);
    if (!fit.gates.passed())
        return error(StatusCode::unavailable,
                     "the fit misses its gates, {} is not written; give it more time (--seconds) "
                     "and a quiet machine",
                     what.output);
    FATHOM_RETURN_IF_ERROR(write_output_file(what.output, cost_file_text(loaded.identity, fit)));
    if (!what.json) fmt::print("written: {}\n", what.output);
    return {};
}

}  // namespace

int run_calibrate(const std::vector<std::string>& args) {
    Settings settings;
    Calibrate what;
    ConfigSchema schema;
    bind_settings(settings, schema);
    schema.add("calibrate.output", &what.output, "the file to write");
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
    const Status status = calibrate(settings, what);
    if (!status.ok()) fmt::print(stderr, "fathom calibrate: {}\n", status.message());
    if (status.code() == StatusCode::cancelled) return kExitInterrupted;
    return status.ok() ? kExitOk : kExitFailed;
}

}  // namespace fathom
