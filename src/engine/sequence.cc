#include "engine/sequence.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"

namespace fathom {

namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

PrefillMode mode_of(const EngineRequest& request, const EngineConfig& config) {
    return request.override_prefill ? request.prefill : config.prefill;
}

// Rows of a prompt that run the decoder half (model.md 2.2).
std::int64_t tail_rows(const EngineRequest& request, const EngineConfig& config,
                       const KvLayout& layout) {
    switch (mode_of(request, config)) {
        case PrefillMode::exact:
            break;
        case PrefillMode::tail:
        case PrefillMode::masked:
            return request.override_prefill ? request.tail_tokens : config.tail_tokens;
        case PrefillMode::halo:
            return layout.window + (layout.layers - layout.encoder_layers - 1) *
                                       std::max<std::int64_t>(layout.window - 1, 0);
    }
    return kNever;
}

}  // namespace

PromptPlan plan_prompt(const EngineRequest& request, const EngineConfig& config,
                       const KvLayout& layout) {
    PromptPlan plan;
    const auto prompt = static_cast<std::int64_t>(request.prompt.size());
    plan.anchors.mode = mode_of(request, config);
    if (request.prefix != nullptr) {
        const std::int64_t hit = request.prefix->tokens();
        plan.anchors.hit_tokens = hit;
        if (request.use_snapshot && request.prefix->snapshot().has_value() &&
            prompt - hit >= layout.window) {
            plan.anchors.window_source = "snapshot";
            plan.first_row = hit;
        } else {
            plan.anchors.window_source = "replay";
            plan.first_row = std::max<std::int64_t>(0, hit - layout.window);
            plan.anchors.encoder_floor = plan.first_row;
        }
    }
    // A tail that would begin before the first row begins with it: window + rows after the hit are
    // enough for complete windows from the last prompt row on.
    const std::int64_t tail = tail_rows(request, config, layout);
    if (tail < prompt) plan.anchors.decoder_floor = std::max(prompt - tail, plan.first_row);
    if (plan.first_row > 0)
        plan.anchors.decoder_floor = std::max(plan.anchors.decoder_floor, plan.first_row);
    return plan;
}

std::int64_t output_limit(const EngineRequest& request, const ModelConfig& model) {
    return std::min(request.max_tokens,
                    model.max_positions - static_cast<std::int64_t>(request.prompt.size()));
}

Sequence::Sequence(EngineRequest request, std::shared_ptr<EventSink> sink, std::uint64_t order,
                   const EngineConfig& config, const ModelConfig& model, const KvLayout& layout)
    : request_(std::move(request)),
      sink_(std::move(sink)),
      order_(order),
      layout_(layout),
      plan_(plan_prompt(request_, config, layout)),
      prompt_tokens_(static_cast<std::int64_t>(request_.prompt.size())),
      output_limit_(output_limit(request_, model)),
      history_(request_.sampling, request_.prompt),
      parked_ids_(std::move(request_.prompt)),
      chunk_ends_(std::move(request_.chunk_ends)),
      rows_done_(plan_.first_row),
      observe_from_(request_.logits_begin < 0 ? kNever : request_.logits_begin) {
    request_.prompt.clear();
    parked_ids_.insert(parked_ids_.end(), request_.committed.begin(), request_.committed.end());
    for (const TokenId token : request_.committed)
        history_.append(token);
    if (!request_.committed.empty()) committed_end_ = ends_with(request_.committed.back());
    request_.committed = {};
    if (request_.capture_prefix_at > 0)
        chunk_ends_.insert(
            std::lower_bound(chunk_ends_.begin(), chunk_ends_.end(), request_.capture_prefix_at),
            request_.capture_prefix_at);
}

std::int64_t Sequence::rows_left() const {
    const bool goes_on = samples_in_flight() && !ends_in_flight();
    return known_tokens() + (goes_on ? 1 : 0) - rows_done();
}

bool Sequence::ends_in_flight() const {
    return in_flight() && rows_done() == known_tokens() &&
           (committed_end_ != FinishReason::none || output_tokens() + 1 >= output_limit_);
}

std::int64_t Sequence::rows_before_chunk_end() const {
    const auto next = std::upper_bound(chunk_ends_.begin(), chunk_ends_.end(), rows_done());
    return next == chunk_ends_.end() ? kNever : *next - rows_done();
}

ChunkRequest Sequence::next_chunk() const {
    ChunkRequest chunk;
    if (!running() && starts_from_fork()) {
        chunk.context = chunk.decoder_begin = prompt_tokens_ - 1;
        chunk.remaining = 1;
        return chunk;
    }
    chunk.context = rows_done();
    chunk.remaining = std::min(rows_left(), rows_before_chunk_end());
    chunk.decoder_begin = decoder_runs_all() ? rows_done() : plan_.anchors.decoder_floor;
    chunk.encoder_floor = plan_.anchors.encoder_floor;
    chunk.decoder_floor = plan_.anchors.decoder_floor;
    chunk.first = rows_done() == plan_.first_row;
    chunk.samples = chunk.remaining == rows_left() && committed_end_ == FinishReason::none;
    return chunk;
}

void Sequence::release_unlaunched_pages(PagePool& pool) {
    if (!running()) return;
    for (; pages_.size() > state_->pages.size(); pages_.pop_back())
        pool.release(pages_.back());
}

void Sequence::start(PagePool& pool) {
    FATHOM_CHECK(!running());
    state_ = std::make_unique<SequenceState>(layout_);
    state_->ids = std::exchange(parked_ids_, {});
    state_->in_image = request_.in_image;
    if (!state_->in_image.empty()) state_->in_image.resize(state_->ids.size(), 0);
    state_->embeddings = request_.embeddings;
    state_->encoder_floor = plan_.anchors.encoder_floor;
    state_->store_floor = plan_.anchors.hit_tokens;
    state_->decoder_floor = plan_.anchors.decoder_floor;
    if (starts_from_fork()) return start_from_fork(pool);
    if (request_.prefix != nullptr) {
        for (const PageId page : request_.prefix->pages()) {
            pool.retain(page);
            map_page(page, pool);
        }
        if (plan_.first_row == plan_.anchors.hit_tokens)
            restore_encoder_windows(*request_.prefix->snapshot(), *state_);
    }
    rows_done_ = plan_.first_row;
}

void Sequence::start_from_fork(PagePool& pool) {
    for (const PageId page : fork_->shared_pages()) {
        pool.retain(page);
        map_page(page, pool);
    }
    const std::optional<PageId> last = pool.take();
    FATHOM_CHECK(last.has_value());
    map_page(*last, pool);
    fork_->restore(pool.memory(*last), *state_);
    rows_done_ = prompt_tokens_ - 1;
    prompt_rows_counted = prompt_tokens_;
    leave_fork();
}

void Sequence::map_page(PageId page, const PagePool& pool) {
    pages_.push_back(page);
    state_->pages.push_back(pool.memory(page));
}

bool Sequence::keep_prompt_end() {
    if (fork_ == nullptr || rows_done_ != prompt_tokens_) return false;
    const std::shared_ptr<PromptFork> fork = fork_;
    leave_fork();
    fork->capture(*state_, pages_, prompt_tokens_);
    return true;
}

void Sequence::leave_fork() {
    if (fork_ == nullptr) return;
    fork_->leave(order_);
    fork_.reset();
}

void Sequence::stop(PagePool& pool) {
    if (!running()) return;
    FATHOM_CHECK(!in_flight());
    parked_ids_ = std::move(state_->ids);
    state_.reset();
    for (const PageId page : pages_)
        pool.release(page);
    pages_.clear();
    rows_done_ = plan_.first_row;
}

void Sequence::drop_prefix(const EngineConfig& config) {
    FATHOM_CHECK(!running() && !reported);
    request_.prefix.reset();
    request_.prompt.assign(parked_ids_.begin(), parked_ids_.begin() + prompt_tokens_);
    plan_ = plan_prompt(request_, config, layout_);
    request_.prompt = {};
    rows_done_ = plan_.first_row;
    pages_when_preempted_ = 0;
}

bool Sequence::decoder_runs_all() const {
    return plan_.anchors.mode == PrefillMode::exact || plan_.anchors.mode == PrefillMode::masked;
}

StepSpan Sequence::launch(std::int64_t count, const PagePool& pool) {
    FATHOM_CHECK(!in_flight() && count >= 1 && count <= rows_left());
    const std::int64_t end = rows_done_ + count;
    FATHOM_CHECK(end <= covered_rows());
    for (std::size_t i = state_->pages.size(); i < pages_.size(); ++i)
        state_->pages.push_back(pool.memory(pages_[i]));
    StepSpan span;
    span.sequence = state_.get();
    span.start = rows_done_;
    span.count = count;
    span.decoder_begin =
        decoder_runs_all() ? span.start : std::clamp(plan_.anchors.decoder_floor, span.start, end);
    const bool samples = end == known_tokens() && committed_end_ == FinishReason::none;
    const std::int64_t wanted = std::min(observe_from_, samples ? end - 1 : end);
    span.logits_begin = std::clamp(wanted, span.decoder_begin, end);
    rows_in_flight_ = count;
    return span;
}

void Sequence::advance() {
    rows_done_ += std::exchange(rows_in_flight_, 0);
    if (observe_from_ != kNever) observe_from_ = std::max(observe_from_, rows_done_);
}

FinishReason Sequence::ends_with(TokenId last) const {
    const auto& stops = request_.stop_tokens;
    if (std::find(stops.begin(), stops.end(), last) != stops.end()) return FinishReason::stop_token;
    return output_tokens() >= output_limit_ ? FinishReason::length : FinishReason::none;
}

SampledToken Sequence::sample(std::span<const float> logits, SamplerWorkspace& workspace) const {
    return sample_token({.logits = logits,
                         .params = request_.sampling,
                         .history = history_,
                         .stop_tokens = request_.stop_tokens,
                         .position = known_tokens()},
                        workspace);
}

FinishReason Sequence::append(TokenId token) {
    history_.append(token);
    state_->ids.push_back(token);
    if (!state_->in_image.empty()) state_->in_image.push_back(0);
    return ends_with(token);
}

bool Sequence::complete_at_arrival() const {
    return committed_end_ != FinishReason::none && request_.logits_begin < 0 &&
           request_.capture_prefix_at == 0;
}

std::shared_ptr<const Prefix> Sequence::capture(const std::shared_ptr<PagePool>& pool) {
    const std::int64_t end = request_.capture_prefix_at;
    if (captured_ || end == 0 || rows_done_ != end) return nullptr;
    captured_ = true;
    const auto first = [end](const auto& all) {
        return std::decay_t<decltype(all)>(all.begin(), all.begin() + end);
    };
    std::vector<PageId> pages(pages_.begin(), pages_.begin() + end / kPageTokens);
    return std::make_shared<const Prefix>(
        pool, first(state_->ids),
        state_->in_image.empty() ? std::vector<std::uint8_t>() : first(state_->in_image),
        std::move(pages), save_encoder_windows(*state_, end));
}

EngineEvent Sequence::event() const {
    EngineEvent event;
    event.id = request_.id;
    event.attempt = request_.attempt;
    event.first_index = output_tokens();
    event.cached_tokens = plan_.first_row;
    event.anchors = plan_.anchors;
    return event;
}

}  // namespace fathom
