// `fathom make-model DIR --preset NAME`: a made-up checkpoint in the release's format, to measure
// with.
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "cli/commands.h"
#include "cli/interrupts.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "model/memory_plan.h"
#include "model/model_presets.h"
#include "model/random_checkpoint.h"
#include "recipe/engram_token_map.h"
#include "recipe/synthetic_tokenizer.h"
#include "recipe/tokenizer.h"

namespace fathom {
namespace {

struct MakeModel {
    std::string preset;
    std::int64_t seed = 0, threads = 0;
};

const CommandSpec kSpec = {
    .usage = "fathom make-model DIR --preset tiny|mid|wide [options]",
    .summary =
        "Writes a made-up checkpoint in the release's format: random weights with its statistics, "
        "config and tokenizer.\nEqual seeds give equal files. tiny: 11 MB for tests. mid: 8 GB, "
        "the "
        "released 40 layers at hidden 2048 with 64 experts;\na decoded token reads 2.3 GB of "
        "weights, so it is bound by memory as the real model. wide: 5 GB, the released widths\nin "
        "8 "
        "layers. The bytes that a token reads are printed by kind.",
    .tables = {"make_model"},
    .aliases = {{"--preset", "make_model.preset"},
                {"--seed", "make_model.seed"},
                {"--threads", "make_model.threads"}},
    .positional_max = 1};

void print_active(const ActiveBytes& active) {
    fmt::print("weights that one decoded token reads at batch 1:\n");
    for (const ActiveBytes::Item& item : active.items)
        fmt::print("  {:<22} {:>14} bytes  {:>5.1f} %\n", item.kind, item.bytes,
                   100.0 * static_cast<double>(item.bytes) / static_cast<double>(active.total));
    fmt::print("  {:<22} {:>14} bytes  ({})\n", "total", active.total, bytes_text(active.total));
}

Status make_model(const std::string& dir, const MakeModel& settings) {
    const ModelPreset preset = parse_model_preset(settings.preset).value_or(ModelPreset::tiny);
    const std::int64_t vocab_size = preset_vocab_size(preset);
    FATHOM_ASSIGN(const Json tokenizer_json, make_synthetic_tokenizer(vocab_size));
    const std::string tokenizer_text = tokenizer_json.dump();
    FATHOM_ASSIGN(const std::shared_ptr<const Tokenizer> tokenizer,
                  Tokenizer::parse(tokenizer_text, "tokenizer.json"));
    const auto last_id = static_cast<TokenId>(vocab_size - 1);
    const Json config = preset_config(
        preset, {.vocab_size = vocab_size,
                 .compressed_vocab = make_engram_token_map(*tokenizer, vocab_size).distinct,
                 .image_id = tokenizer->added_id(kSyntheticImageToken).value_or(last_id),
                 .noise_id = last_id});
    FATHOM_ASSIGN(const ModelConfig parsed, parse_model_config(config));

    const unsigned processors = std::max(1U, std::thread::hardware_concurrency());
    Interrupts interrupts;
    std::optional<Progress> progress;
    RandomCheckpointOptions options{
        .seed = static_cast<std::uint64_t>(settings.seed),
        .threads = static_cast<int>(settings.threads > 0 ? settings.threads : processors),
        .files = {{"tokenizer.json", tokenizer_text}},
        .on_progress = {}};
    options.on_progress = [&](std::uint64_t done, std::uint64_t total) {
        if (!progress)
            progress.emplace("MiB", static_cast<std::int64_t>(total >> 20), real_clock());
        progress->update(static_cast<std::int64_t>(done >> 20));
        return !interrupts.pending();
    };
    const std::int64_t start_us = real_clock().now_us();
    FATHOM_RETURN_IF_ERROR(write_random_checkpoint(dir, config, options));
    progress.reset();
    fmt::print("{}: preset {}, seed {}, {:.1f} s\n", dir, settings.preset, settings.seed,
               static_cast<double>(real_clock().now_us() - start_us) / 1e6);
    print_active(active_weight_bytes(parsed));
    return {};
}

}  // namespace

int run_make_model(const std::vector<std::string>& args) {
    MakeModel settings;
    settings.preset = "mid";
    ConfigSchema schema;
    schema.add_choice("make_model.preset", &settings.preset, {"tiny", "mid", "wide"},
                      "which model");
    schema.add("make_model.seed", &settings.seed, 0, std::numeric_limits<std::int64_t>::max(),
               "equal seeds give equal files");
    schema.add("make_model.threads", &settings.threads, 0, 4096, "0: every processor");
    const Result<CommandLine> line = parse_command_line(args, schema, kSpec);
    if (!line.ok()) {
        fmt::print(stderr, "fathom make-model: {}\n", line.status().message());
        return kExitUsage;
    }
    if (line->help) {
        fmt::print("{}", help_text(schema, kSpec));
        return kExitOk;
    }
    if (line->positional.empty()) {
        fmt::print(stderr, "fathom make-model: name the folder to write\n");
        return kExitUsage;
    }
    const Status made = make_model(line->positional.front(), settings);
    if (!made.ok()) fmt::print(stderr, "fathom make-model: {}\n", made.message());
    if (made.code() == StatusCode::cancelled) return kExitInterrupted;
    return made.ok() ? kExitOk : kExitFailed;
}

}  // namespace fathom
