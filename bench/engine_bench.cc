// Tokens per second of a whole model through the engine: decoding at several batch sizes and
// prefill, on the back end that `serve` would take.
//
//   engine_bench [--json] [--model DIR] [--threads N]     default: models/tiny, all processors
//
// Decoding is bound by reading weights: its rows stand beside the read bandwidth that was measured
// in the same run, with the weight bytes that one step of one sequence needs. Prefill stands beside
// the fp32 peak.
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <thread>

#include "bench/report.h"
#include "engine/core.h"
#include "model/checkpoint.h"
#include "recipe/engram_token_map.h"

namespace fathom {
namespace {

struct Options {
    std::string model = "models/tiny";
    int threads = 0;
    bool json = false;
};

class Counter : public EventSink {
  public:
    void on_event(EngineEvent event) override {
        tokens += static_cast<std::int64_t>(event.tokens.size());
        failed |= event.finish == FinishReason::error;
    }
    std::int64_t tokens = 0;
    bool failed = false;
};

struct ActiveWeights {
    double bytes = 0;          // read once for a token that is decoded alone
    double multiply_adds = 0;  // of the linears, per token
};

ActiveWeights active_weights(const ModelConfig& config) {
    ActiveWeights active;
    for (const ExpectedTensor& tensor : expected_tensors(config)) {
        const std::string& name = tensor.name;
        const bool backbone = name.rfind("layers.", 0) == 0 || name.rfind("head.", 0) == 0;
        if (!backbone || name.find("engram.embed") != std::string::npos) continue;
        double elements = 1;
        for (const std::int64_t extent : tensor.shape)
            elements *= static_cast<double>(extent);
        const bool routed = name.find(".ffn.experts.") != std::string::npos;
        const double share = routed ? static_cast<double>(config.experts_per_token) /
                                          static_cast<double>(config.experts)
                                    : 1.0;
        active.bytes += share * elements * static_cast<double>(tensor_type_bytes(tensor.type));
        // Packed FP4 holds two weights a byte; scales and vectors are no products.
        const double weights = tensor.type == TensorType::i8 ? 2 * elements : elements;
        if (tensor.shape.size() == 2 && tensor.type != TensorType::f8_e8m0)
            active.multiply_adds += share * weights;
    }
    return active;
}

double seconds_now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

Result<std::unique_ptr<EngineCore>> make_core(const Options& options,
                                              std::shared_ptr<ComputePool> pool) {
    FATHOM_ASSIGN(std::shared_ptr<const Checkpoint> checkpoint, Checkpoint::open(options.model));
    std::vector<std::int32_t> map;
    if (!checkpoint->config().engram_layers.empty()) {
        FATHOM_ASSIGN(std::shared_ptr<const Tokenizer> tokenizer,
                      Tokenizer::load(options.model + "/tokenizer.json"));
        map = make_engram_token_map(*tokenizer, checkpoint->config().vocab_size).map;
    }
    FATHOM_ASSIGN(std::unique_ptr<Backend> backend, make_backend("auto", std::move(pool)));
    ModelOptions model_options;
    FATHOM_ASSIGN(std::unique_ptr<Model> model,
                  Model::load(checkpoint, std::move(map), std::move(backend), model_options));
    EngineConfig engine;
    engine.pages = 256;
    engine.tail_tokens =
        std::max(engine.tail_tokens, checkpoint->config().window + kDraftTokensMax + 1);
    return EngineCore::create(std::move(model), engine, real_clock(), nullptr);
}

EngineRequest make_request(const EngineCore& core, std::uint64_t id, std::int64_t prompt,
                           std::int64_t output) {
    EngineRequest request;
    request.id = id;
    request.sampling.temperature = 0;
    request.max_tokens = output;
    const std::int64_t vocab = core.model().config().vocab_size;
    for (std::int64_t i = 0; i < prompt; ++i)
        request.prompt.push_back(
            static_cast<TokenId>((i * 37 + static_cast<std::int64_t>(id)) % vocab));
    return request;
}

// Tokens per second of `batch` sequences that decode together, prompts already done.
Result<double> decode_rate(EngineCore& core, std::uint64_t& next_id, int batch,
                           std::int64_t steps) {
    auto sink = std::make_shared<Counter>();
    for (int i = 0; i < batch; ++i)
        FATHOM_RETURN_IF_ERROR(core.add(make_request(core, next_id++, 16, steps + 8), sink));
    while (sink->tokens < batch * 4 && core.step()) {
    }
    const std::int64_t before = sink->tokens;
    const double start = seconds_now();
    while (sink->tokens < batch * (steps + 4) && core.step()) {
    }
    const double seconds = seconds_now() - start;
    const double rate = static_cast<double>(sink->tokens - before) / seconds;
    while (core.step()) {
    }
    if (sink->failed) return Status(StatusCode::internal, "a request failed");
    return rate;
}

Result<double> prefill_rate(EngineCore& core, std::uint64_t& next_id, PrefillMode mode,
                            std::int64_t tokens) {
    auto sink = std::make_shared<Counter>();
    EngineRequest request = make_request(core, next_id++, tokens, 1);
    request.override_prefill = true;
    request.prefill = mode;
    request.tail_tokens = core.config().tail_tokens;
    const double start = seconds_now();
    FATHOM_RETURN_IF_ERROR(core.add(std::move(request), sink));
    while (core.step()) {
    }
    if (sink->failed || sink->tokens != 1) return Status(StatusCode::internal, "a request failed");
    return static_cast<double>(tokens) / (seconds_now() - start);
}

Status measure(const Options& options) {
    const int threads = options.threads > 0 ? options.threads
                                            : static_cast<int>(std::thread::hardware_concurrency());
    auto pool = std::make_shared<ComputePool>(threads);
    FATHOM_ASSIGN(std::unique_ptr<EngineCore> core, make_core(options, pool));
    const ActiveWeights active = active_weights(core->model().config());
    const double bandwidth = bench::read_bandwidth(*pool);
    const double peak = bench::peak_fp32_flops(*pool);
    bench::Report report("engine");
    std::uint64_t next_id = 1;
    for (const int batch : {1, 8, 64}) {
        FATHOM_ASSIGN(const double rate, decode_rate(*core, next_id, batch, batch == 64 ? 16 : 64));
        report.add(fmt::format("decode.tokens.b{}", batch), rate, "tokens/s");
        if (batch == 1)
            report.add("decode.step.b1", rate * active.bytes / 1e9, "GB/s", bandwidth / 1e9);
    }
    for (const auto& [name, mode] :
         {std::pair{"exact", PrefillMode::exact}, std::pair{"tail", PrefillMode::tail}}) {
        FATHOM_ASSIGN(const double rate, prefill_rate(*core, next_id, mode, 2048));
        report.add(fmt::format("prefill.tokens.{}", name), rate, "tokens/s");
        if (mode == PrefillMode::exact)
            report.add("prefill.exact2048", rate * 2 * active.multiply_adds / 1e9, "GFLOP/s",
                       peak / 1e9);
    }
    fmt::print("{}", report.table());
    if (options.json) fmt::print("{}\n", report.json());
    return {};
}

}  // namespace
}  // namespace fathom

int main(int argc, char** argv) {
    fathom::Options options;
    for (int i = 1; i < argc; ++i) {
        const std::string_view word = argv[i];
        const bool has_value = i + 1 < argc;
        if (word == "--json") {
            options.json = true;
        } else if (word == "--model" && has_value) {
            options.model = argv[++i];
        } else if (word == "--threads" && has_value) {
            const char* text = argv[++i];
            const auto [end, failure] =
                std::from_chars(text, text + std::strlen(text), options.threads);
            if (failure != std::errc{} || *end != 0 || options.threads < 1 ||
                options.threads > 4096) {
                fmt::print(stderr, "engine_bench: --threads: \"{}\" is outside 1..4096\n", text);
                return 2;
            }
        } else {
            fmt::print(stderr, "usage: engine_bench [--json] [--model DIR] [--threads N]\n");
            return 2;
        }
    }
    const fathom::Status status = fathom::measure(options);
    if (status.ok()) return 0;
    fmt::print(stderr, "engine_bench: {}\n", status.message());
    return 1;
}
