// From logits to a token and its log probabilities (SamplingParams in types.h says what is done and
// in which order). Pure: the same logits, parameters, history and position give the same token on
// every machine, in any batch, on any thread.
//
// The numbers, all fp32 unless said otherwise, so that another implementation can repeat them:
//   edit     tokens that are not allowed, and stop tokens within min_tokens, get −inf. The others:
//              bias         x = x + bias, entries of one id in their order
//              repetition   x > 0 ? x / r : x · r, once for a token in prompt or output
//              frequency    x = x − f · count, the product rounded
//              presence     x = x − p
//            each only where it says something, in this order; a result below the normal range is 0
//   mass     m = exp((x − largest) · (1 / temperature)), rounded so that sums in double are exact
//            and need no order (kernels/logits.h). Temperatures below 1e-5 count as 1e-5
//   order    tokens by descending x, the lower id first among equals
//   keep     a prefix of the order: the first top_k, while the mass before a token is
//            <= top_p · Z with Z = Σ m; and of these, those with m >= min_p (the largest m is 1)
//   draw     with S = Σ m of what is kept: the first kept token in ascending order of ids whose
//   mass
//            up to and including it exceeds u · S, u the draw of (seed, sample_token, position,
//            block); the first of the order if rounding lets none exceed it
//   log      raw: (x − largest) − log1p(Z − 1) of the unedited logits with temperature 1;
//            processed: the exponent of m − log1p(S − 1) for what is kept. Everything else, and
//            whatever lies below, has kLogprobFloor. At temperature 0 the processed distribution is
//            the token alone, with log probability 0.
// Damaged logits never crash: NaN counts as −inf, −inf is never drawn, +inf beats everything (the
// lowest such id), and when all are −inf the token is the lowest allowed one. `damaged` tells.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "engine/types.h"

namespace fathom {

// Ranges as stated beside the fields; the message names field, value and range.
Status validate_sampling(const SamplingParams& params);
// The same with ids of bias and allowed tokens checked against the vocabulary.
Status validate_sampling(const SamplingParams& params, std::int64_t vocab);

// What a sequence's earlier tokens mean for its next one. Kept up to date by append(), so that a
// step costs nothing for the length of the sequence; the same tokens give the same history however
// they came (sampled, committed, computed again). Copied when a sequence is forked.
class TokenHistory {
  public:
    TokenHistory(const SamplingParams& params, std::span<const TokenId> prompt);
    void append(TokenId output);

    struct Seen {
        TokenId id = 0;
        std::int64_t outputs = 0;  // occurrences after the prompt
    };
    // Distinct tokens that penalties may concern, in order of first occurrence.
    std::span<const Seen> seen() const { return seen_; }
    std::int64_t output_tokens() const { return output_tokens_; }

  private:
    Seen& entry(TokenId id);

    bool counts_outputs_;
    std::int64_t output_tokens_ = 0;
    std::vector<Seen> seen_;
    std::unordered_map<TokenId, std::size_t> places_;  // in seen_; looked up, never iterated
};

struct SampleInput {
    std::span<const float> logits;  // at least one
    const SamplingParams& params;   // valid for this vocabulary
    const TokenHistory& history;
    std::span<const TokenId> stop_tokens;  // what min_tokens forbids
    std::int64_t position = 0;             // absolute, of the token being drawn
    std::uint32_t block = 0;               // 0 without speculation
};

struct SampledToken {
    TokenId token = 0;
    bool damaged = false;  // the logits hold a NaN
    std::optional<TokenLogprobs> logprobs;
};

// Memory that draws use and leave behind, some 1.5 MB for a vocabulary of 129,280. One a thread.
struct SamplerWorkspace {
    std::vector<float> edited, masses, block_peaks, sorted_peaks;
    std::vector<double> block_masses;
    std::vector<std::uint64_t> keys;
};

SampledToken sample_token(const SampleInput& input, SamplerWorkspace& workspace);

}  // namespace fathom
