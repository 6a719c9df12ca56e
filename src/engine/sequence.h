// A request inside the engine: what it asked for, which tokens are known, how far they have been
// run and which pages hold them. "Running" means that it has a SequenceState; waiting and preempted
// requests have none and cost nothing but their token ids.
//
// Known tokens are prompt, committed tokens and sampled tokens. Every known token but the last
// sampled one has to be run as a row, in order; running the last known one gives the logits of the
// next. A preempted sequence starts again at first_row, with the tokens it had: the same rows in
// the same mode give the same bits.
//
// While a step computes, its sequences are in flight: the model reads and writes their state on
// another thread, so tokens, state and the pages that it sees stand still until advance(). What is
// asked about rows meanwhile is answered as it will be then, with one more token where the step
// samples one; that is how the next step is planned ahead.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/fork.h"
#include "engine/page_pool.h"
#include "engine/sampler.h"
#include "engine/types.h"
#include "model/config.h"
#include "model/kv_cache.h"
#include "model/model.h"

namespace fathom {

// Where a prompt's run begins and what its rows may see: a pure function of the request, the
// engine's settings and the model.
struct PromptPlan {
    Anchors anchors;
    std::int64_t first_row = 0;  // positions before it are not run
};
PromptPlan plan_prompt(const EngineRequest& request, const EngineConfig& config,
                       const KvLayout& layout);

// How many output tokens a request may have: max_tokens, or what the model's context leaves.
std::int64_t output_limit(const EngineRequest& request, const ModelConfig& model);

// Everything that add() refuses for its content; the message names field, value and limit.
Status check_request(const EngineRequest& request, const EngineConfig& config,
                     const ModelConfig& model, const PagePool& pool);

class Sequence {
  public:
    // The request passed check_request. `order` is its place of arrival.
    Sequence(EngineRequest request, std::shared_ptr<EventSink> sink, std::uint64_t order,
             const EngineConfig& config, const ModelConfig& model, const KvLayout& layout);

    const EngineRequest& request() const { return request_; }  // without prompt and committed
    EventSink& sink() const { return *sink_; }
    std::shared_ptr<EventSink> shared_sink() const { return sink_; }
    std::uint64_t order() const { return order_; }
    const PromptPlan& plan() const { return plan_; }

    std::int64_t prompt_tokens() const { return prompt_tokens_; }
    std::int64_t known_tokens() const { return static_cast<std::int64_t>(ids().size()); }
    std::int64_t output_tokens() const { return known_tokens() - prompt_tokens_; }
    const std::vector<TokenId>& ids() const { return state_ ? state_->ids : parked_ids_; }

    bool running() const { return state_ != nullptr; }
    bool in_flight() const { return rows_in_flight_ > 0; }
    // Rows at positions below it are run, or in flight.
    std::int64_t rows_done() const { return rows_done_ + rows_in_flight_; }
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
    std::int64_t shared_pages() const { return plan_.anchors.hit_tokens / kPageTokens; }
    std::int64_t covered_rows() const { return pages() * kPageTokens; }
    std::int64_t pages_when_preempted() const { return pages_when_preempted_; }  // 0: never was
    void add_page(PageId page) { pages_.push_back(page); }  // the model sees it from launch() on
    void release_unlaunched_pages(PagePool& pool);          // what add_page gave since then

    // Gives it a state and the pages of its prefix, and puts it before first_row; or, from a fork
    // that is ready, before the last prompt row, which takes a page of its own.
    void start(PagePool& pool);
    // Gives everything back but the tokens.
    void stop(PagePool& pool);
    void preempt(PagePool& pool) {
        pages_when_preempted_ = pages();
        stop(pool);
    }
    bool holds_prefix() const { return request_.prefix != nullptr; }
    bool sole_prefix_holder() const { return request_.prefix.use_count() == 1; }
    // Makes the hit a miss. Not while it runs nor once something was reported.
    void drop_prefix(const EngineConfig& config);

    // Choices of one request (fork.h). The one that runs the prompt keeps its end when it is there.
    void join_fork(std::shared_ptr<PromptFork> fork) { fork_ = std::move(fork); }
    bool waits_for_fork() const {
        return fork_ != nullptr && !fork_->ready() && !fork_->runs_prompt(order_);
    }
    bool starts_from_fork() const { return fork_ != nullptr && fork_->ready(); }
    bool keep_prompt_end();  // true when the other choices can start from it
    void leave_fork();       // it then computes the prompt itself

    // Puts the next `count` rows in flight; logits are asked for where they are observed or
    // sampled.
    StepSpan launch(std::int64_t count, const PagePool& pool);
    // Rows of that span whose logits are observed: those at or after this position.
    std::int64_t observe_from() const { return observe_from_; }
    void advance();  // the rows in flight are run
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

    // A prefix at the capture position when the rows end there and it was not captured before.
    std::shared_ptr<const Prefix> capture(const std::shared_ptr<PagePool>& pool);

    EngineEvent event() const;  // ids and anchors filled in, no tokens

    bool reported = false;  // an event or logits went out: its anchors stand
    bool cancel_requested =
        false;                // while in flight: it ends when the step does, without its token
    std::int64_t passes = 0;  // scheduler.h: steps in which younger requests took pages before it
    std::int64_t prompt_rows_counted = 0;  // for statistics: recomputed rows count once

  private:
    void start_from_fork(PagePool& pool);
    void map_page(PageId page, const PagePool& pool);  // held and seen by the model
    FinishReason ends_with(TokenId last) const;
    bool decoder_runs_all() const;

    EngineRequest request_;
    std::shared_ptr<EventSink> sink_;
    std::uint64_t order_;
    const KvLayout& layout_;
    PromptPlan plan_;
    std::int64_t prompt_tokens_ = 0;
    std::int64_t output_limit_ = 0;
    FinishReason committed_end_ = FinishReason::none;
    TokenHistory history_;
    std::vector<TokenId> parked_ids_;  // while not running

    std::unique_ptr<SequenceState> state_;
    std::vector<PageId> pages_;
    std::vector<std::int64_t> chunk_ends_;  // ascending
    std::int64_t rows_done_ = 0;
    std::int64_t rows_in_flight_ = 0;
    std::int64_t observe_from_ = 0;
    std::int64_t pages_when_preempted_ = 0;
    bool captured_ = false;
    std::shared_ptr<PromptFork> fork_;  // shared by its members; null once this one left
};

}  // namespace fathom
