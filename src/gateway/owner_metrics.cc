#include "gateway/owner_metrics.h"

#include <algorithm>
#include <vector>

namespace fathom {

namespace {

// 1 ms to 2560 s (serving.md 7.3), in steps of about 2 to 2.5.
const std::vector<double>& request_seconds() {
    static const std::vector<double> kBounds = {0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16,
                                                0.32,  0.64,   1.25,  2.5,  5,    10,   20,   40,
                                                80,    160,    320,   640,  1280, 2560};
    return kBounds;
}

const std::vector<double>& token_seconds() {
    static const std::vector<double> kBounds = {0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08,
                                                0.16,  0.32,   0.64,  1.25, 2.5,  5,    10};
    return kBounds;
}

double seconds(std::int64_t us) {
    return static_cast<double>(us) * 1e-6;
}

Counter& success(MetricsRegistry& registry, const std::string& model, const char* reason) {
    return registry.counter("vllm:request_success_total", "Finished requests by finish reason.",
                            {{"model_name", model}, {"finished_reason", reason}});
}

}  // namespace

OwnerMetrics::OwnerMetrics(MetricsRegistry& registry, const std::string& model_name)
    : first_token_(registry.histogram("vllm:time_to_first_token_seconds",
                                      "From a request's admission to its first committed token.",
                                      request_seconds(), {{"model_name", model_name}})),
      inter_token_(registry.histogram("vllm:inter_token_latency_seconds",
                                      "Between two commits, divided by the tokens of the later.",
                                      token_seconds(), {{"model_name", model_name}})),
      token_(registry.histogram("vllm:request_time_per_output_token_seconds",
                                "Mean time between the tokens of a finished request.",
                                token_seconds(), {{"model_name", model_name}})),
      total_(registry.histogram("vllm:e2e_request_latency_seconds",
                                "From a request's admission to its end.", request_seconds(),
                                {{"model_name", model_name}})),
      stop_(success(registry, model_name, "stop")),
      length_(success(registry, model_name, "length")),
      abort_(success(registry, model_name, "abort")),
      error_(success(registry, model_name, "error")),
      resumed_(registry.counter("fathom_resume_total",
                                "Attempts after the first, each from the committed log.",
                                {{"model_name", model_name}})),
      prompt_(registry.counter("vllm:prefix_cache_queries_total",
                               "Prompt tokens of finished requests.",
                               {{"model_name", model_name}})),
      cached_(registry.counter("vllm:prefix_cache_hits_total",
                               "Prompt tokens of finished requests that were not computed.",
                               {{"model_name", model_name}})) {}

void OwnerMetrics::first_token(std::int64_t elapsed_us) {
    first_token_.observe(seconds(elapsed_us));
}

void OwnerMetrics::inter_token(std::int64_t elapsed_us, std::size_t tokens) {
    const double each = seconds(elapsed_us) / static_cast<double>(tokens);
    for (std::size_t i = 0; i < tokens; ++i)
        inter_token_.observe(each);
}

void OwnerMetrics::finished(const GenerationResult& result) {
    total_.observe(seconds(result.total_us));
    // Choices run beside each other: each has its share of the tokens.
    const double tokens = static_cast<double>(result.usage.completion_tokens) /
                          static_cast<double>(std::max<std::size_t>(result.choices.size(), 1));
    if (tokens > 1)
        token_.observe(seconds(result.total_us - result.time_to_first_us) / (tokens - 1));
    prompt_.add(static_cast<std::uint64_t>(result.usage.prompt_tokens));
    cached_.add(static_cast<std::uint64_t>(std::max<std::int64_t>(0, result.usage.cached_tokens)));
    switch (result.finish) {
        case GenerationFinish::stop:
            return stop_.add();
        case GenerationFinish::length:
            return length_.add();
        case GenerationFinish::cancelled:
            return abort_.add();
        case GenerationFinish::deadline:
        case GenerationFinish::error:
            return error_.add();
    }
}

}  // namespace fathom
