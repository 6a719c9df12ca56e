// The requests of a load run: from dataset files in the usual formats, or random. Equal options
// give equal requests and arrival times, on every machine. Pure but for reading the file.
//
//   sharegpt:FILE  JSON list of {"conversations": [{"from", "value"}, …]}: the first turn is the
//                  prompt, the second's length the output length
//   jsonl:FILE     a JSON object a line: {"prompt": text or list of ids} or {"messages": [...]},
//                  with an optional "max_tokens" (or "output_tokens")
//   random         prompts of random tokens
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/json.h"
#include "base/result.h"
#include "recipe/tokenizer.h"

namespace fathom {

// Exactly one of the three prompts is given.
struct LoadRequest {
    std::string text;
    std::vector<TokenId> ids;
    Json messages;  // a conversation, as the API takes it
    std::int64_t max_tokens = 0;
};

struct DatasetOptions {
    std::string dataset = "random";
    std::int64_t count = 0;  // a file with fewer is repeated; with 0 it is taken as it is
    std::uint64_t seed = 0;
    std::int64_t output_tokens = 128;  // where the dataset does not say
    // random: lengths are uniform in [(1 − spread)·n, (1 + spread)·n].
    std::int64_t input_tokens = 512;
    double spread = 0;
    // sharegpt: longer conversations are left out, as other benchmarks do.
    std::int64_t prompt_tokens_max = 1024, total_tokens_max = 2048;
    // Counts tokens and names the ids of random prompts. Without it four bytes count as a token and
    // random prompts are words.
    const Tokenizer* tokenizer = nullptr;
};

// invalid_argument names file, line or entry, field, value and expectation.
Result<std::vector<LoadRequest>> make_workload(const DatasetOptions& options);

// The parsers behind it; `where` starts their messages.
Result<std::vector<LoadRequest>> read_sharegpt(const Json& root, std::string_view where,
                                               const DatasetOptions& options);
Result<std::vector<LoadRequest>> read_jsonl(std::string_view text, std::string_view where,
                                            const DatasetOptions& options);

// When requests are sent, from 0: gaps are gamma-distributed with mean 1/rate and shape
// `burstiness`. 1 is a Poisson process, less is burstier, more is more even.
std::vector<std::int64_t> arrival_times_us(std::int64_t count, double rate, double burstiness,
                                           std::uint64_t seed);

}  // namespace fathom
