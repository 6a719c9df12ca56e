// A whole model through the engine, beside the machine's limits of the same run: decoding against
// the read bandwidth, prefill against peak multiply-adds, tail-only against exact prefill, the gap
// between steps, and the operators that matter most alone (linear_benches.h, row_benches.h).
//
//   engine_bench [--json] [--model DIR] [--backend NAME] [--threads N] [--quick] [--only PART]
//
// `./dev bench engine` runs it on the `mid` model of `fathom make-model`, which is large enough to
// be bound by memory. Limits move with whatever else the machine does, so each ratio is the median
// of pairs: the limit is measured right before and right after the work. --quick takes shorter
// prompts and fewer rounds; --only runs one of the parts decode, prefill, batches, operators.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstring>
#include <limits>
#include <map>

#include "base/clock.h"
#include "bench/invariance.h"
#include "bench/linear_benches.h"
#include "bench/report.h"
#include "bench/row_benches.h"
#include "bench/timed_backend.h"
#include "engine/core.h"
#include "engine/engine.h"
#include "engine/model_shape.h"
#include "model/checkpoint.h"
#include "model/model_presets.h"
#include "recipe/engram_token_map.h"

namespace fathom {
namespace {

constexpr const char* kParts[] = {"decode", "prefill", "batches", "operators"};

struct Options {
    std::string model = "models/tiny";
    std::string backend = "auto";
    std::string only;  // a part; empty: all
    int threads = 0;
    bool json = false;
    bool quick = false;
};

// Counts on the engine's thread, is read by another.
class Counter : public EventSink {
  public:
    void on_event(EngineEvent event) override {
        if (event.finish == FinishReason::error) failed = true;
        if (event.finish != FinishReason::none) ended += 1;
        tokens += static_cast<std::int64_t>(event.tokens.size());
        tokens.notify_all();
    }
    // Waits until so many tokens have come, or no more can.
    void wait_for(std::int64_t count, std::int64_t requests) const {
        for (std::int64_t now = tokens; now < count && ended < requests; now = tokens)
            tokens.wait(now);
    }
    std::atomic<std::int64_t> tokens{0}, ended{0};
    std::atomic<bool> failed{false};
};

double seconds_now() {
    return 1e-6 * static_cast<double>(real_clock().now_us());
}

double middle(std::vector<double> values) {
    if (values.empty()) return 0;
    const auto half = static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), values.begin() + half, values.end());
    return values[static_cast<std::size_t>(half)];
}

// A value beside its limit, pair by pair.
struct Pairs {
    std::vector<double> values, ratios;

    void add(double value, double limit) {
        values.push_back(value);
        ratios.push_back(value / limit);
    }
    void report(bench::Report& report, const std::string& what, const char* unit) const {
        const double value = middle(values);
        report.add(what, value, unit, value / middle(ratios));
    }
};

class EngineBench {
  public:
    EngineBench(const Options& options, bench::Report& report)
        : options_(options), report_(report) {}

    Status open();
    Status decode();
    Status decode_batches();
    Status prefill();
    Status operators();

  private:
    EngineRequest request(const EngineCore& core, std::int64_t prompt, std::int64_t output,
                          PrefillMode mode);
    Result<double> prefill_seconds(PrefillMode mode);
    double peak_flops() {
        return narrow_ ? bench::peak_fp32_flops(*pool_, 8) : bench::peak_bf16_flops(*pool_);
    }

    const Options& options_;
    bench::Report& report_;
    std::shared_ptr<ComputePool> pool_;
    bench::TimedBackend* timed_ = nullptr;
    std::unique_ptr<EngineCore> core_;
    bool narrow_ = false;  // without VDPBF16PS: peak is that of 256-bit fp32 multiply-adds
    double active_bytes_ = 0;
    std::int64_t prompt_tokens_ = 4096;
    std::uint64_t next_id_ = 1;
};

Status EngineBench::open() {
    const CpuTopology topology = CpuTopology::detect();
    pool_ = std::make_shared<ComputePool>(
        ComputePoolOptions{.threads = options_.threads > 0 ? options_.threads : topology.cores,
                           .pin = true,
                           .topology = topology});
    FATHOM_ASSIGN(std::shared_ptr<const Checkpoint> checkpoint, Checkpoint::open(options_.model));
    const ModelConfig& config = checkpoint->config();
    std::vector<std::int32_t> map;
    if (!config.engram_layers.empty()) {
        FATHOM_ASSIGN(std::shared_ptr<const Tokenizer> tokenizer,
                      Tokenizer::load(options_.model + "/tokenizer.json"));
        map = make_engram_token_map(*tokenizer, config.vocab_size).map;
    }
    active_bytes_ = static_cast<double>(active_weight_bytes(config).total);
    FATHOM_ASSIGN(std::unique_ptr<Backend> backend, make_backend(options_.backend, pool_));
    narrow_ = std::string_view(backend->name()) != "x86-avx512";
    auto timed = std::make_unique<bench::TimedBackend>(std::move(backend));
    timed_ = timed.get();
    if (options_.quick) prompt_tokens_ = 512;
    const ModelOptions model_options{.numerics = {}, .rows_max = 2048};
    const double start = seconds_now();
    FATHOM_ASSIGN(std::unique_ptr<Model> model,
                  Model::load(checkpoint, std::move(map), std::move(timed), model_options));
    report_.add("load", seconds_now() - start, "s");
    report_.add("weights.packed", static_cast<double>(model->packed_bytes()) / 1e9, "GB");
    report_.add("weights.active", active_bytes_ / 1e9, "GB/token");
    EngineConfig engine;
    engine.pages = 512;
    engine.step_tokens_max = engine.prefill_chunk_max = 2048;
    engine.tail_tokens = std::max(engine.tail_tokens, config.window + kDraftTokensMax + 1);
    FATHOM_ASSIGN(core_, EngineCore::create(std::move(model), engine, real_clock(), nullptr));
    return {};
}

EngineRequest EngineBench::request(const EngineCore& core, std::int64_t prompt, std::int64_t output,
                                   PrefillMode mode) {
    EngineRequest request;
    request.id = next_id_++;
    request.sampling.temperature = 0;
    request.max_tokens = output;
    request.override_prefill = true;
    request.prefill = mode;
    request.tail_tokens = core.config().tail_tokens;
    const std::int64_t vocab = core.model().config().vocab_size;
    for (std::int64_t i = 0; i < prompt; ++i)
        request.prompt.push_back(static_cast<TokenId>(
            (i * 7919 + static_cast<std::int64_t>(request.id) * 104'729) % vocab));
    return request;
}

// One sequence: each step beside the bandwidth right before and after it.
Status EngineBench::decode() {
    const int rounds = options_.quick ? 8 : 60;
    auto sink = std::make_shared<Counter>();
    FATHOM_RETURN_IF_ERROR(core_->add(request(*core_, 640, rounds + 8, PrefillMode::tail), sink));
    while (sink->tokens < 4 && core_->step()) {
    }
    timed_->reset();
    bench::ReadProbe probe(*pool_);
    Pairs pairs;
    double before = probe.bytes_per_second(), busy = 0;
    for (int round = 0; round < rounds; ++round) {
        const double start = seconds_now();
        core_->step();
        const double seconds = seconds_now() - start;
        const double after = probe.bytes_per_second();
        pairs.add(active_bytes_ / seconds / 1e9, 0.5 * (before + after) / 1e9);
        before = after;
        busy += seconds;
    }
    pairs.report(report_, "decode.step.b1", "GB/s");
    std::vector<double> best = pairs.ratios;
    std::sort(best.begin(), best.end());
    report_.add("decode.step.b1.p90", best[best.size() * 9 / 10], "of read");
    for (const auto& [what, seconds] : timed_->seconds())
        report_.add("decode.time." + what, 1e6 * seconds / rounds, "us/step", 1e6 * busy / rounds);
    while (core_->step()) {
    }
    return sink->failed ? Status(StatusCode::internal, "a request failed") : Status();
}

// Tokens per second of sequences that decode together, and the time between their steps, through
// the engine with its threads. The core is the engine's from here on.
Status EngineBench::decode_batches() {
    const EngineCore& core = *core_;
    Engine engine(std::move(core_));
    for (const int batch : {1, 8, 64}) {
        const std::int64_t steps = batch == 64 ? 4 : options_.quick ? 8 : 32;
        auto sink = std::make_shared<Counter>();
        for (int i = 0; i < batch; ++i)
            FATHOM_RETURN_IF_ERROR(
                engine.submit(request(core, 16, steps + 8, PrefillMode::tail), sink));
        sink->wait_for(batch * 4, batch);
        const EngineStats from = engine.stats();
        const std::int64_t tokens = sink->tokens;
        const double start = seconds_now();
        sink->wait_for(tokens + batch * steps, batch);
        const double seconds = seconds_now() - start;
        const EngineStats to = engine.stats();
        report_.add(fmt::format("decode.tokens.b{}", batch),
                    static_cast<double>(sink->tokens - tokens) / seconds, "tokens/s");
        report_.add(batch == 1 ? "step.gap" : fmt::format("step.gap.b{}", batch),
                    static_cast<double>(to.step_gap_us - from.step_gap_us), "us",
                    static_cast<double>(to.step_us - from.step_us));
        sink->wait_for(std::numeric_limits<std::int64_t>::max(), batch);
        if (sink->failed) return {StatusCode::internal, "a request failed"};
    }
    return {};
}

Result<double> EngineBench::prefill_seconds(PrefillMode mode) {
    auto sink = std::make_shared<Counter>();
    EngineRequest prompt = request(*core_, prompt_tokens_, 1, mode);
    const double start = seconds_now();
    FATHOM_RETURN_IF_ERROR(core_->add(std::move(prompt), sink));
    while (core_->step()) {
    }
    if (sink->failed || sink->tokens != 1) return Status(StatusCode::internal, "a request failed");
    return seconds_now() - start;
}

Status EngineBench::prefill() {
    const ModelShape shape = make_model_shape(core_->model().config());
    const double useful = useful_flops(
        shape, {.rows = prompt_tokens_, .decoder_rows = prompt_tokens_, .logits_rows = 1});
    Pairs exact;
    std::vector<double> speedups;
    double linear_share = 0;
    const int rounds = options_.quick ? 1 : 2;
    double before = peak_flops();
    for (int round = 0; round < rounds; ++round) {
        timed_->reset();
        FATHOM_ASSIGN(const double seconds, prefill_seconds(PrefillMode::exact));
        const double after = peak_flops();
        exact.add(useful / seconds / 1e9, 0.5 * (before + after) / 1e9);
        before = after;
        if (round == 0) {
            double linears = 0;
            for (const auto& [what, spent] : timed_->seconds()) {
                report_.add("prefill.time." + what, spent, "s", seconds);
                if (what == "linear" || what == "grouped_linear" || what == "moe") linears += spent;
            }
            linear_share = linears / seconds;
        }
        FATHOM_ASSIGN(const double tail, prefill_seconds(PrefillMode::tail));
        speedups.push_back(seconds / tail);
        if (round == 0)
            report_.add("prefill.tokens.tail", static_cast<double>(prompt_tokens_) / tail,
                        "tokens/s");
    }
    exact.report(report_, "prefill.chunk2048", "GFLOP/s");
    report_.add("prefill.tail_speedup", middle(speedups), "x");
    const bench::InvarianceCost cost = bench::invariance_cost();
    report_.add("invariance.kernel", 100 * cost.share, "% of a product's time");
    report_.add("invariance.cost", 100 * cost.share * linear_share, "% of prefill");
    return {};
}

// The operators with a limit of their own, on one thread (paired.h).
Status EngineBench::operators() {
    FATHOM_ASSIGN(const std::unique_ptr<Backend> backend,
                  make_backend(options_.backend, std::make_shared<ComputePool>(1)));
    bench::Paired paired(bench::arithmetic_of(*backend));
    for (const char* row : {"linear.fp4.m1", "linear.fp8.m1"})
        bench::bench_linears(*backend, paired, report_, row);
    for (const char* row : {"attention.640", "topk.262144"})
        bench::bench_rows(*backend, paired, report_, row);
    return {};
}

Result<Options> parse_options(int argc, char** argv) {
    Options options;
    for (int i = 1; i < argc; ++i) {
        const std::string_view word = argv[i];
        const bool has_value = i + 1 < argc;
        if (word == "--json" || word == "--quick") {
            (word == "--json" ? options.json : options.quick) = true;
        } else if (word == "--model" && has_value) {
            options.model = argv[++i];
        } else if (word == "--backend" && has_value) {
            options.backend = argv[++i];
        } else if (word == "--only" && has_value) {
            options.only = argv[++i];
            if (std::find(std::begin(kParts), std::end(kParts), options.only) == std::end(kParts))
                return invalid_argument("--only: \"{}\" is none of {}", options.only,
                                        fmt::join(kParts, ", "));
        } else if (word == "--threads" && has_value) {
            const char* text = argv[++i];
            const auto [end, failure] =
                std::from_chars(text, text + std::strlen(text), options.threads);
            if (failure != std::errc{} || *end != 0 || options.threads < 1 ||
                options.threads > 4096)
                return invalid_argument("--threads: \"{}\" is outside 1..4096", text);
        } else {
            return invalid_argument(
                "\"{}\" is unknown; usage: engine_bench [--json] [--model DIR] [--backend NAME] "
                "[--threads N] [--quick] [--only PART]",
                word);
        }
    }
    return options;
}

Status run(const Options& options) {
    bench::Report report("engine");
    EngineBench bench(options, report);
    FATHOM_RETURN_IF_ERROR(bench.open());
    using Part = Status (EngineBench::*)();
    constexpr Part kRuns[] = {&EngineBench::decode, &EngineBench::prefill,
                              &EngineBench::decode_batches, &EngineBench::operators};
    for (std::size_t i = 0; i < std::size(kParts); ++i)
        if (options.only.empty() || options.only == kParts[i])
            FATHOM_RETURN_IF_ERROR((bench.*kRuns[i])());
    fmt::print("{}", report.table());
    if (options.json) fmt::print("{}\n", report.json());
    return {};
}

}  // namespace
}  // namespace fathom

int main(int argc, char** argv) {
    const auto options = fathom::parse_options(argc, argv);
    if (!options.ok()) {
        fmt::print(stderr, "engine_bench: {}\n", options.status().message());
        return 2;
    }
    const fathom::Status status = fathom::run(*options);
    if (status.ok()) return 0;
    fmt::print(stderr, "engine_bench: {}\n", status.message());
    return 1;
}
