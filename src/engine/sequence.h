// A request inside the engine: what it asked for, which tokens are known, how far they have been
// run and which pages hold them. "Running" means that it has a SequenceState; waiting and preempted
// requests have none and cost nothing but their token ids.
//
// Known tokens are prompt, committed tokens and sampled tokens. Every known token but the last
// sampled one has to be run as a row, in order; running the last known one gives the logits of the
// next.
//
// Where it begins is decided when it first starts, by what the prefix cache has then, and with that
// its history (Anchors::replays) and its decoder floor stand for good. A preempted sequence starts
// again with the tokens it had and to the same bits: at its decoder floor or before, from a
// snapshot or with a replay of its own history, or at row 0, repeating each replay when its rows
// get there.
//
// While a step computes, its sequences are in flight: the model reads and writes their state on
// another thread, so tokens, state and the pages that it sees stand still until advance(). What is
// asked about rows meanwhile is answered as it will be then, with one more token where the step
// samples one; that is how the next step is planned ahead.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/block_key.h"
#include "engine/block_tier.h"
#include "engine/fork.h"
#include "engine/prefix_cache.h"
#include "engine/prefix_lookup.h"
#include "engine/sampler.h"
#include "engine/types.h"
#include "model/config.h"
#include "model/kv_cache.h"
#include "model/model.h"

namespace fathom {

// How much of a prompt runs the decoder half: a pure function of the request, the engine's settings
// and the model.
struct PromptPlan {
    PrefillMode mode = PrefillMode::exact;
    std::int64_t tail = 0;  // its last rows that do; more than a prompt can have: all
};
PromptPlan plan_prompt(const EngineRequest& request, const EngineConfig& config,
                       const KvLayout& layout);
// Anchors::decoder_floor. A tail that would begin before the last replay's rows begins with them:
// they are enough for complete windows from the last prompt row on.
std::int64_t decoder_floor(const PromptPlan& plan, std::int64_t prompt_tokens,
                           const std::vector<std::int64_t>& replays, std::int64_t window);

// How many output tokens a request may have: max_tokens, or what the model's context leaves.
std::int64_t output_limit(const EngineRequest& request, const ModelConfig& model);

// Everything that add() refuses for its content; the message names field, value and limit.
Status check_request(const EngineRequest& request, const EngineConfig& config,
                     const ModelConfig& model, const PagePool& pool);

class Sequence {
  public:
    // The request passed check_request. `order` is its place of arrival.
    Sequence(EngineRequest request, std::shared_ptr<EventSink> sink, std::uint64_t order,
             const EngineConfig& config, const Model& model);

    const EngineRequest& request() const { return request_; }  // without prompt and committed
    EventSink& sink() const { return *sink_; }
    std::shared_ptr<EventSink> shared_sink() const { return sink_; }
    std::uint64_t order() const { return order_; }
    std::int64_t first_row() const { return first_row_; }  // prompt rows before it were never run

    std::int64_t prompt_tokens() const { return prompt_tokens_; }
    std::int64_t known_tokens() const { return static_cast<std::int64_t>(ids().size()); }
    std::int64_t output_tokens() const { return known_tokens() - prompt_tokens_; }
    const std::vector<TokenId>& ids() const { return state_ ? state_->ids : parked_ids_; }

    bool running() const { return state_ != nullptr; }
    bool in_flight() const { return rows_in_flight_ > 0; }
    // Rows at positions below it are run, or in flight.
    std::int64_t rows_done() const;
    std::int64_t rows_left() const;
    // One row a step from here on: the prompt is behind and only the newest token is left to run.
    bool decoding() const { return running() && rows_done() >= prompt_tokens_ && rows_left() == 1; }
    bool samples_in_flight() const {  // the rows in flight bring the next token
        return in_flight() && rows_done() == known_tokens() && committed_end_ == FinishReason::none;
    }
    // The rows in flight are its last, whatever they bring.
    bool ends_in_flight() const;
    // A run longer than this would pass a position where a chunk must end.
    std::int64_t rows_before_chunk_end() const;

    // The chunk that ends where the next one must: for the cost of its rows.
    ChunkRequest next_chunk() const;

    // Pages. `pages()` counts shared ones, which come first.
    std::int64_t pages() const { return static_cast<std::int64_t>(pages_.size()); }
    std::int64_t covered_rows() const { return pages() * kPageTokens; }
    std::int64_t pages_when_preempted() const { return pages_when_preempted_; }  // 0: never was
    void add_page(PageId page) { pages_.push_back(page); }  // the model sees it from launch() on
    void release_unlaunched_pages(PrefixCache& cache);      // what add_page gave since then

    // Finds where it would begin now. The blocks that were found stand until the cache changes.
    void look_up(PrefixCache& cache);
    const PrefixStart& found() const { return found_; }
    // Right after look_up: gives it a state and the pages that were found, and puts it before its
    // first row; or, from a fork that is ready, before the last prompt row, which takes a page of
    // its own.
    void start(PrefixCache& cache);
    // Gives everything back but the tokens.
    void stop(PrefixCache& cache);
    void preempt(PrefixCache& cache) {
        pages_when_preempted_ = pages();
        stop(cache);
    }

    // Choices of one request (fork.h). The one that runs the prompt keeps its end when it is there.
    void join_fork(std::shared_ptr<PromptFork> fork);
    bool waits_for_fork() const {
        return fork_ != nullptr && !fork_->ready() && !fork_->runs_prompt(order_);
    }
    bool starts_from_fork() const { return fork_ != nullptr && fork_->ready(); }
    // True when the other choices can start from it.
    bool keep_prompt_end(PrefixCache& cache);
    void leave_fork();  // it then computes the prompt itself

    // Blocks of a tier (block_tier.h).
    KeyedTokens keyed_tokens() const;
    const NamespaceId& kv_namespace() const { return namespace_; }
    bool may_replay() const { return plan_.mode == PrefillMode::tail; }
    // Gives the tier those of its blocks that it should have and has not got, or not for long.
    void persist(BlockTier& tier, const PagePool& pool, std::int64_t now_unix_ms);

    // Puts the next `count` rows in flight; logits are asked for where they are observed or
    // sampled.
    StepSpan launch(std::int64_t count, PrefixCache& cache);
    // Rows of that span whose logits are observed: those at or after this position.
    std::int64_t observe_from() const { return observe_from_; }
    // The rows in flight are run: full pages and snapshots go to the cache.
    void advance(PrefixCache& cache);
    // Its rows gave what is no answer: none of its pages is to serve another request.
    void distrust_pages(PrefixCache& cache);
    // True when all known tokens are run and the next one may be sampled.
    bool ready_to_sample() const {
        return rows_left() == 0 && committed_end_ == FinishReason::none;
    }
    // Draws the token that follows from the last row's logits.
    SampledToken sample(std::span<const float> logits, SamplerWorkspace& workspace) const;
    // Adds a sampled token and says whether the request ends with it.
    FinishReason append(TokenId token);

    // The reason by which the committed tokens already end the request, or none.
    FinishReason committed_end() const { return committed_end_; }
    // Nothing has to be run: the committed tokens end it and nobody watches the rows.
    bool complete_at_arrival() const;

    EngineEvent event() const;  // ids and anchors filled in, no tokens

    bool cancel_requested =
        false;             // while in flight: it ends when the step does, without its token
    bool loading = false;  // its blocks are being fetched (block_loader.h): it does not start yet
    std::int64_t passes = 0;  // scheduler.h: steps in which younger requests took pages before it
    std::int64_t prompt_rows_counted = 0;  // for statistics: recomputed rows count once

  private:
    void load_tokens();
    void start_from_fork(PrefixCache& cache);
    void map_page(PageId page, const PagePool& pool);  // held and seen by the model
    bool replay_in_flight() const {                    // the rows in flight end where one begins
        return in_flight() && replays_ahead() &&
               rows_done_ + rows_in_flight_ == anchors_.replays[next_replay_];
    }
    FinishReason ends_with(TokenId last) const;
    bool decoder_runs_all() const;
    bool replays_ahead() const { return next_replay_ < anchors_.replays.size(); }
    PrefixStart find_start(PrefixCache& cache);
    Anchors anchors_of(const PrefixStart& from) const;
    void settle_anchors(PrefixCache& cache);
    std::int64_t rows_to_cut(std::int64_t done, const std::vector<std::int64_t>& replays,
                             std::size_t next_replay) const;
    void begin_replay(std::int64_t at);
    void choose_snapshots(std::int64_t end, PrefixCache& cache);
    bool wants_snapshot_at(std::int64_t position) const;
    void publish(PrefixCache& cache);
    void keep_snapshots(PrefixCache& cache);

    EngineRequest request_;
    std::shared_ptr<EventSink> sink_;
    std::uint64_t order_;
    const KvLayout& layout_;
    const PromptPlan plan_;
    std::int64_t prompt_tokens_ = 0;
    std::int64_t output_limit_ = 0;
    FinishReason committed_end_ = FinishReason::none;
    TokenHistory history_;
    std::vector<TokenId> parked_ids_;  // while not running

    bool settled_ = false;  // it has started once: anchors stand
    Anchors anchors_;
    std::int64_t first_row_ = 0;
    NamespaceId namespace_;
    BlockChain chain_;
    PrefixStart found_;

    std::unique_ptr<SequenceState> state_;
    std::vector<PageId> pages_;
    std::vector<PrefixCache::Block*> blocks_;   // of the leading pages, which the cache holds
    std::size_t next_replay_ = 0;               // in anchors_.replays
    std::vector<WindowSnapshot> snapshots_;     // of the span that runs
    std::deque<std::size_t> output_snapshots_;  // blocks past the prompt where one was left
    std::vector<std::int64_t> chunk_ends_;      // ascending
    std::size_t offered_blocks_ = 0;            // of blocks_, to the tier
    std::int64_t rows_done_ = 0;
    std::int64_t rows_in_flight_ = 0;
    std::int64_t observe_from_ = 0;
    std::int64_t pages_when_preempted_ = 0;
    std::shared_ptr<PromptFork> fork_;  // shared by its members; null once this one left
};

}  // namespace fathom
