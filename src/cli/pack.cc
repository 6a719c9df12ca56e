// `fathom pack DIR [-o FILE]`: the weights of a checkpoint as the kernels read them, in a file that
// later starts map instead of packing again.
#include <fmt/core.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "cli/commands.h"
#include "cli/interrupts.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/stack.h"
#include "model/memory_plan.h"
#include "model/packed_file.h"

namespace fathom {
namespace {

const CommandSpec kSpec = {
    .usage = "fathom pack DIR [options]",
    .summary =
        "Writes the weights of a checkpoint as this machine's kernels read them. Commands that "
        "load\n"
        "the checkpoint use the file instead of packing again, which takes minutes for the\n"
        "released model. It is found under its default name; model.packed_file names another.",
    .tables = {"pack"},
    .aliases = {{"--output", "pack.output"},
                {"-o", "pack.output"},
                {"--backend", "pack.backend"},
                {"--threads", "pack.threads"}},
    .positional_max = 1};

struct Pack {
    std::string output, backend = "auto";
    std::int64_t threads = 0;
};

Status pack(const std::string& dir, const Pack& settings) {
    FATHOM_ASSIGN(const std::shared_ptr<const Checkpoint> checkpoint, Checkpoint::open(dir));
    const int threads =
        settings.threads > 0 ? static_cast<int>(settings.threads) : CpuTopology::detect().cores;
    FATHOM_ASSIGN(const std::unique_ptr<Backend> backend,
                  make_backend(settings.backend, std::make_shared<ComputePool>(threads)));
    const std::string path = settings.output.empty() ? default_packed_file(dir) : settings.output;
    Interrupts interrupts;
    std::optional<Progress> progress;
    const std::int64_t start_us = real_clock().now_us();
    std::int64_t bytes = 0;
    FATHOM_RETURN_IF_ERROR(write_packed_file(
        path, *checkpoint, *backend, {.on_progress = [&](std::int64_t done, std::int64_t total) {
            bytes = total;
            if (!progress) progress.emplace("MiB", total >> 20, real_clock());
            progress->update(done >> 20);
            return !interrupts.pending();
        }}));
    progress.reset();
    fmt::print("{}: {} of packed weights, {:.1f} s\n", path, bytes_text(bytes),
               static_cast<double>(real_clock().now_us() - start_us) / 1e6);
    return {};
}

}  // namespace

int run_pack(const std::vector<std::string>& args) {
    Pack settings;
    ConfigSchema schema;
    schema.add("pack.output", &settings.output, "file to write; DIR/model.packed when empty");
    schema.add("pack.backend", &settings.backend, "kernels to pack for: auto, x86");
    schema.add("pack.threads", &settings.threads, 0, 256, "0: one per physical core");
    const Result<CommandLine> line = parse_command_line(args, schema, kSpec);
    if (!line.ok()) {
        fmt::print(stderr, "fathom pack: {}\n", line.status().message());
        return kExitUsage;
    }
    if (line->help) {
        fmt::print("{}", help_text(schema, kSpec));
        return kExitOk;
    }
    if (line->positional.empty()) {
        fmt::print(stderr, "fathom pack: name the checkpoint's folder\n");
        return kExitUsage;
    }
    const Status packed = pack(line->positional.front(), settings);
    if (!packed.ok()) fmt::print(stderr, "fathom pack: {}\n", packed.message());
    if (packed.code() == StatusCode::cancelled) return kExitInterrupted;
    return packed.ok() ? kExitOk : kExitFailed;
}

}  // namespace fathom
