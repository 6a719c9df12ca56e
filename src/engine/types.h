// The messages between a request's owner and an engine. A request carries all that decides its
// tokens; events carry tokens with their index, so an owner can append exactly what extends its log
// and drop what it has (serving.md 3.3). Plain values: nothing here is shared between threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "base/sha256.h"
#include "base/traffic_class.h"
#include "engine/block_key.h"
#include "engine/block_tier.h"
#include "engine/window_tier.h"
#include "model/kv_cache.h"
#include "policy/cost_model.h"

namespace fathom {

struct LogitBias {
    TokenId id = 0;
    float bias = 0;  // [-100, 100], added to the token's logit
};
inline constexpr std::size_t kLogitBiasMax = 1024;      // entries
inline constexpr std::size_t kAllowedTokensMax = 4096;  // entries
inline constexpr std::int64_t kTopLogprobsMax = 20;

// How the next token follows from its logits, in this order: allowed tokens and the stop tokens
// that min_tokens forbids, bias, penalties, temperature, then top-k, top-p and min-p, each on the
// tempered distribution, intersected; survivors are renormalised and one is drawn with
// random_uniform(seed, sample_token, position). Temperature 0 is argmax of the biased and penalised
// logits (ties to the lower id). A token survives top-p when the mass strictly before it
// (descending, lower id first among equals) is <= top_p, so the first always survives. sampler.h
// states the arithmetic.
struct SamplingParams {
    double temperature = 1.0;  // [0, 2]
    std::int64_t top_k = 0;    // 0: off
    double top_p = 1.0;        // (0, 1]
    double min_p = 0.0;        // [0, 1]: drop tokens below min_p × the largest probability
    std::uint64_t seed = 0;

    // Of output tokens, as OpenAI has them: subtracted from a token's logit once for every
    // occurrence, and once when it occurred at all.
    double frequency_penalty = 0.0;   // [-2, 2]
    double presence_penalty = 0.0;    // [-2, 2]
    double repetition_penalty = 1.0;  // [0.01, 10]: of tokens in prompt or output, positive logits
                                      // are divided by it and others multiplied
    std::vector<LogitBias> logit_bias = {};
    std::vector<TokenId> allowed_tokens =
        {};                       // empty: all. When nothing is left, the lowest of them
    std::int64_t min_tokens = 0;  // no stop token before so many output tokens, if another is left

    // Log probabilities (natural) that come with each token: its own and those of this many most
    // probable ones, at most kTopLogprobsMax; -1: none. They are of the raw distribution, softmax
    // of the logits as the model gave them, or of the processed one that the token was drawn from.
    std::int64_t logprobs = -1;
    bool logprobs_processed = false;
};

// The seed that choice i of a request with several draws with: the request's own for choice 0, else
// the upper 63 bits of the first two words of random_bits(seed, choice_seed, i). So every choice
// can be had alone, as a request with that seed.
std::uint64_t choice_seed(std::uint64_t seed, std::int64_t choice);

struct TopLogprob {
    TokenId id = 0;
    float logprob = 0;  // at least kLogprobFloor, which also stands for probability 0
};
inline constexpr float kLogprobFloor = -9999.0f;

// The token's own, and the most probable ones in descending order (lower id first among equals),
// which need not contain it.
struct TokenLogprobs {
    float logprob = 0;
    std::vector<TopLogprob> top = {};
};

// Which rows of a prompt run the decoder half (model.md 2.2).
enum class PrefillMode {
    exact,   // all rows: the oracle
    tail,    // the last tail_tokens rows only: what production does
    masked,  // all rows, but the last tail_tokens see the windows that `tail` would give them;
             // bit-equal to tail on those rows
    halo,  // tail with window + (decoder layers − 1)(window − 1) rows: the last row equals exact
};
const char* prefill_mode_name(PrefillMode mode);
Result<PrefillMode> parse_prefill_mode(const std::string& name);

// A further choice of a request: the same prompt and settings with a seed of its own.
struct Branch {
    std::uint64_t id = 0;    // as EngineRequest::id
    std::uint64_t seed = 0;  // choice_seed
};
inline constexpr std::size_t kChoicesMax = 16;  // of one request, its first included

struct EngineRequest {
    std::uint64_t id = 0;         // unique among live requests of one engine; chosen by the owner
    std::uint32_t attempt = 0;    // strictly increasing per request; echoed in events
    std::vector<TokenId> prompt;  // at least one token; shorter than the model's max_positions
    // Tokens already committed (a resumed or teacher-forced request): they are fed instead of
    // sampled and not reported again. Output indices count them. When they already end the request
    // (max_tokens reached, or a stop token last) it finishes without running, unless logits are
    // observed.
    std::vector<TokenId> committed;
    SamplingParams sampling;
    // Output tokens, `committed` included. Prompt and output together never exceed max_positions: a
    // larger value means up to there, and the request then ends with `length` all the same.
    std::int64_t max_tokens = 16;
    std::vector<TokenId> stop_tokens;  // finish with stop_token; the token itself is reported
    std::int64_t deadline_us = 0;      // on the engine's clock; 0: none
    // From the end of the prompt on, each branch is a request of its own: cancelled, preempted and
    // ended by itself, its events under its id at the same sink. Until then they wait for whichever
    // of them is first: the prompt is computed once, its full pages are shared, and what the
    // sequences will write is copied (fork.h). Tokens are those of a request alone with that seed.
    // Not with `committed`; observed logits are the first choice's alone.
    std::vector<Branch> branches;

    // For checking; a plain request leaves them alone.
    PrefillMode prefill = PrefillMode::tail;
    bool override_prefill = false;       // false: the engine's configured mode and tail length
    std::int64_t tail_tokens = 0;        // with override_prefill, modes tail and masked: at least 1
    std::int64_t logits_begin = -1;      // observe logits from this position on; −1: none
    std::vector<std::uint8_t> in_image;  // beside prompt, or empty
    std::vector<EmbeddingSpan> embeddings;  // ascending; borrowed rows must outlive the request
    // Positions in the prompt where a chunk must end, ascending. At block boundaries encoder
    // windows are kept there (prefix_cache.h).
    std::vector<std::int64_t> chunk_ends;
    // SHA-256 of what each span shows, beside `embeddings`, or empty: blocks from the first span on
    // are then not shared, since their ids alone do not say what they hold.
    std::vector<Sha256Digest> image_digests;

    // Prefix reuse (prefix_cache.h).
    bool use_cache = true;   // false: no page is looked for and none is left behind
    std::string cache_salt;  // only requests of equal salt share pages; at most kCacheSaltMax bytes
    // Who shares pages at all: a tenant's name, and a secret without which names of its pages
    // cannot be computed (kvpool.md 10). Both empty: everybody.
    std::string share_group, share_secret;
    // What a tier behind the prefix cache (block_tier.h) is given of it.
    bool persist = true;
    bool persist_output = true;  // false: blocks of the prompt alone
    TrafficClass traffic_class = TrafficClass::agent;
    // Anchors::replays of this run, for modes tail and masked. Without a value: what saves most
    // with the pages that are there. With one: exactly these, so that a run is repeated or
    // continued with the same bits; pages and snapshots are then used only where that makes no
    // difference. Empty: the bits of a run that found nothing.
    std::optional<std::vector<std::int64_t>> replays;
};

enum class FinishReason { none, stop_token, length, cancelled, deadline, error };
const char* finish_reason_name(FinishReason reason);

inline constexpr std::size_t kCacheSaltMax = 256;

// What makes a run repeatable. Of two runs of a request with equal numerics, equal mode, replays
// and decoder_floor give equal bits; the other members say how this one came by its pages, which
// changes none: a continuation from a snapshot is the cold run, only begun later.
//
// A replay at H (a multiple of 128) means: rows [H − window, H) ran again with the older window
// keys absent, and wrote no global rows. Everything after depends on it, so what is left behind for
// others carries it too, and `replays` lists all of a run's past: those that pages it found were
// computed with, then its own.
struct Anchors {
    std::int64_t hit_tokens = 0;  // prompt tokens whose pages were found
    std::int64_t encoder_floor =
        0;  // the last replay's first row: older window keys were absent there
    std::int64_t decoder_floor = 0;  // rows from here on see decoder window keys from here on only
    const char* window_source = "none";  // none | replay | snapshot: of the windows at the hit
    PrefillMode mode = PrefillMode::exact;
    std::vector<std::int64_t> replays;  // ascending
};

struct EngineEvent {
    std::uint64_t id = 0;
    std::uint32_t attempt = 0;
    std::int64_t first_index = 0;  // output index of tokens[0]
    std::vector<TokenId> tokens;
    std::vector<TokenLogprobs> logprobs;       // beside tokens, or empty when none were asked for
    FinishReason finish = FinishReason::none;  // != none: the last event of the request
    Status status;                             // set when finish == error
    std::int64_t cached_tokens = 0;            // prompt tokens that were not computed
    Anchors anchors;
};

// Where events of one request go. Called on the engine's thread; must not block (post to an
// executor). add() and cancel() of the core may be called from inside.
class EventSink {
  public:
    virtual ~EventSink() = default;
    virtual void on_event(EngineEvent event) = 0;
    // Observed logits of one row (only with logits_begin >= 0): the logits that predict position
    // + 1.
    virtual void on_logits(std::uint64_t /*id*/, std::int64_t /*position*/,
                           std::span<const float> /*logits*/) {}
};

struct EngineConfig {
    std::int64_t pages = 0;                 // KV pages in the arena
    std::int64_t sequences_max = 64;        // live sequences
    std::int64_t step_tokens_max = 2048;    // rows in a step, decode rows included
    std::int64_t prefill_chunk_max = 2048;  // rows of one prompt in a step
    std::int64_t waiting_max = 1024;  // queued requests; more are refused with resource_exhausted
    PrefillMode prefill = PrefillMode::tail;
    std::int64_t tail_tokens = 140;  // floor: window + γ + 1
    // How long a step with prompts should take, by `cost`; one that would pay more for its fixed
    // part than for its rows takes twice the fixed part. Without a known cost, rows alone limit it.
    std::int64_t step_budget_us = 250'000;
    CostModel cost;
    bool prefix_cache = true;  // pages outlive their sequences and are found by others
    std::int64_t snapshot_bytes_max = 64 << 20;   // of encoder windows at block ends; 0: none
    std::int64_t snapshot_life_us = 180'000'000;  // since their last use
    // Keeps copies of snapshots beyond the engine (window_tier.h); null: none. Outlives the engine.
    WindowTier* windows = nullptr;
    // What else decides stored rows and is not the model's shape: fields of the namespace that
    // tell the weights, the tokenizer and so on apart. Needed where pages outlive the process.
    std::vector<NamespaceField> kv_identity;
    // Where pages come from and go to beyond the prefix cache; null: nowhere. Outlives the engine.
    BlockTier* tier = nullptr;
    TierBudget tier_budget;
};

struct EngineStats {
    std::int64_t running = 0, waiting = 0;
    std::int64_t pages_total = 0;
    std::int64_t pages_used = 0;    // by sequences
    std::int64_t pages_cached = 0;  // named and shared, those in use included
    std::uint64_t prefix_query_tokens = 0, prefix_hit_tokens = 0;
    std::uint64_t steps = 0, prompt_tokens = 0, output_tokens = 0, preemptions = 0;
    // Sums: computing steps, sampling included; and from the end of a step to the beginning of the
    // next while there was work.
    std::uint64_t step_us = 0, step_gap_us = 0;
};

}  // namespace fathom
