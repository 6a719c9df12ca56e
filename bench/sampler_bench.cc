// One draw of a token from a row of 129,280 logits, on one thread, and a copy of the row's bytes
// beside each: a draw must read the row, so that is what a row stands beside as its limit.
//
//   sampler_bench [--json]
//
// "peaked" is shaped like a language model's logits: few likely tokens over a broad rest. "flat" is
// a plain normal distribution, as a model with random weights has it: cutting by mass must then
// look at almost every token.
#include <fmt/core.h>

#include <cstring>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "bench/report.h"
#include "engine/sampler.h"

namespace fathom {
namespace {

constexpr std::size_t kVocab = 129'280;
constexpr int kRepeats = 200;

std::vector<float> make_logits(bool peaked) {
    RandomStream random(7);
    std::vector<float> logits(kVocab);
    for (float& x : logits)
        x = static_cast<float>(random.next_normal());
    if (peaked) {
        for (float& x : logits)
            x *= 2.5f;
        for (int i = 0; i < 12; ++i)
            logits[random.next_below(kVocab)] = 22.0f - static_cast<float>(i);
    }
    return logits;
}

struct Case {
    const char* name;
    SamplingParams params;
};

std::vector<Case> cases() {
    const auto with = [](auto change) {
        SamplingParams params;
        change(params);
        return params;
    };
    return {{"greedy", with([](SamplingParams& p) { p.temperature = 0; })},
            {"full", {}},
            {"top_k50", with([](SamplingParams& p) { p.top_k = 50; })},
            {"top_p95", with([](SamplingParams& p) { p.top_p = 0.95; })},
            {"min_p05", with([](SamplingParams& p) { p.min_p = 0.05; })},
            {"penalties", with([](SamplingParams& p) { p.repetition_penalty = 1.1; })},
            {"top_logprobs20", with([](SamplingParams& p) { p.logprobs = 20; })}};
}

void measure(bench::Report& report) {
    std::vector<TokenId> prompt;
    for (TokenId id = 0; id < 2000; ++id)
        prompt.push_back(id * 17 % 5000);
    SamplerWorkspace workspace;
    for (const bool peaked : {true, false}) {
        const std::vector<float> logits = make_logits(peaked);
        std::vector<float> copy(logits.size());
        const double limit = bench::best_seconds(kRepeats, [&] {
            std::memcpy(copy.data(), logits.data(), logits.size() * sizeof(float));
        });
        for (const Case& one : cases()) {
            const TokenHistory history(one.params, prompt);
            std::int64_t position = 0;
            const double seconds = bench::best_seconds(kRepeats, [&] {
                sample_token({.logits = logits,
                              .params = one.params,
                              .history = history,
                              .stop_tokens = {},
                              .position = position++},
                             workspace);
            });
            report.add(fmt::format("sample.{}.{}", one.name, peaked ? "peaked" : "flat"),
                       seconds * 1e6, "us", limit * 1e6);
        }
    }
}

}  // namespace
}  // namespace fathom

int main(int argc, char** argv) {
    bool json = false;
    for (int i = 1; i < argc; ++i) {
        if (std::string_view(argv[i]) != "--json") {
            fmt::print(stderr, "usage: sampler_bench [--json]\n");
            return 2;
        }
        json = true;
    }
    fathom::bench::Report report("sampler");
    fathom::measure(report);
    fmt::print("{}", report.table());
    if (json) fmt::print("{}\n", report.json());
    return 0;
}
