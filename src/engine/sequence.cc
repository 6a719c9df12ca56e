#include "engine/sequence.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"

namespace fathom {

namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
// A turn that follows needs `tail` rows behind a snapshot, so the newest is not always the one.
constexpr std::int64_t kOutputSnapshots = 3;

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
    return {.mode = mode_of(request, config), .tail = tail_rows(request, config, layout)};
}

std::int64_t decoder_floor(const PromptPlan& plan, std::int64_t prompt_tokens,
                           const std::vector<std::int64_t>& replays, std::int64_t window) {
    const std::int64_t tail_begin =
        plan.tail < prompt_tokens ? prompt_tokens - plan.tail : std::int64_t{0};
    return std::max(tail_begin, replays.empty() ? 0 : replays.back() - window);
}

std::int64_t output_limit(const EngineRequest& request, const ModelConfig& model) {
    return std::min(request.max_tokens,
                    model.max_positions - static_cast<std::int64_t>(request.prompt.size()));
}

namespace {

// How many replays lie at or before a position.
std::size_t replays_before(const std::vector<std::int64_t>& replays, std::int64_t position) {
    return static_cast<std::size_t>(std::upper_bound(replays.begin(), replays.end(), position) -
                                    replays.begin());
}

NamespaceId namespace_of(const EngineRequest& request, const EngineConfig& config,
                         const Model& model) {
    std::vector<NamespaceField> fields = kv_namespace(model.kv_layout(), model.options());
    fields.insert(fields.end(), config.kv_identity.begin(), config.kv_identity.end());
    return tenant_namespace(std::move(fields), request.share_group, request.cache_salt,
                            request.share_secret);
}

}  // namespace

Sequence::Sequence(EngineRequest request, std::shared_ptr<EventSink> sink, std::uint64_t order,
                   const EngineConfig& config, const Model& model)
    : request_(std::move(request)),
      sink_(std::move(sink)),
      order_(order),
      layout_(model.kv_layout()),
      plan_(plan_prompt(request_, config, layout_)),
      prompt_tokens_(static_cast<std::int64_t>(request_.prompt.size())),
      output_limit_(output_limit(request_, model.config())),
      history_(request_.sampling, request_.prompt),
      parked_ids_(std::move(request_.prompt)),
      namespace_(namespace_of(request_, config, model)),
      chain_(root_key(namespace_), {}),
      chunk_ends_(std::move(request_.chunk_ends)),
      observe_from_(request_.logits_begin < 0 ? kNever : request_.logits_begin) {
    request_.prompt.clear();
    parked_ids_.insert(parked_ids_.end(), request_.committed.begin(), request_.committed.end());
    for (const TokenId token : request_.committed)
        history_.append(token);
    if (!request_.committed.empty()) committed_end_ = ends_with(request_.committed.back());
    request_.committed = {};
    request_.use_cache = request_.use_cache && config.prefix_cache;
    anchors_.mode = plan_.mode;
    anchors_.decoder_floor = decoder_floor(plan_, prompt_tokens_, {}, layout_.window);
}

std::int64_t Sequence::rows_done() const {
    return rows_done_ + rows_in_flight_ - (replay_in_flight() ? layout_.window : 0);
}

std::int64_t Sequence::rows_left() const {
    const bool goes_on = samples_in_flight() && !ends_in_flight();
    return known_tokens() + (goes_on ? 1 : 0) - rows_done();
}

bool Sequence::ends_in_flight() const {
    return in_flight() && rows_done() == known_tokens() &&
           (committed_end_ != FinishReason::none || output_tokens() + 1 >= output_limit_);
}

std::int64_t Sequence::rows_to_cut(std::int64_t done, const std::vector<std::int64_t>& replays,
                                   std::size_t next_replay) const {
    const auto chunk_end = std::upper_bound(chunk_ends_.begin(), chunk_ends_.end(), done);
    const std::int64_t left = chunk_end == chunk_ends_.end() ? kNever : *chunk_end - done;
    return next_replay == replays.size() ? left : std::min(left, replays[next_replay] - done);
}

std::int64_t Sequence::rows_before_chunk_end() const {
    return rows_to_cut(rows_done(), anchors_.replays, next_replay_ + (replay_in_flight() ? 1 : 0));
}

ChunkRequest Sequence::next_chunk() const {
    ChunkRequest chunk;
    if (!running() && starts_from_fork()) {
        chunk.context = chunk.decoder_begin = prompt_tokens_ - 1;
        chunk.remaining = 1;
        return chunk;
    }
    const Anchors anchors = running() || settled_ ? anchors_ : anchors_of(found_);
    const std::int64_t first = running() ? first_row_ : found_.first_row;
    std::int64_t left = rows_left();
    std::size_t next_replay = next_replay_ + (replay_in_flight() ? 1 : 0);
    chunk.context = rows_done();
    if (!running()) {
        chunk.context = first;
        left = known_tokens() - first;
        next_replay = replays_before(anchors.replays, found_.tokens);
    }
    chunk.remaining = std::min(left, rows_to_cut(chunk.context, anchors.replays, next_replay));
    const bool encoder_only = next_replay < anchors.replays.size();
    chunk.decoder_begin = encoder_only         ? chunk.context + chunk.remaining
                          : decoder_runs_all() ? chunk.context
                                               : anchors.decoder_floor;
    chunk.encoder_floor = anchors.encoder_floor;
    chunk.decoder_floor = anchors.decoder_floor;
    chunk.first = chunk.context == first;
    chunk.samples =
        !encoder_only && chunk.remaining == left && committed_end_ == FinishReason::none;
    return chunk;
}

void Sequence::release_unlaunched_pages(PrefixCache& cache) {
    if (!running()) return;
    for (; pages_.size() > state_->pages.size(); pages_.pop_back())
        cache.pool().release(pages_.back());
}

KeyedTokens Sequence::keyed_tokens() const {
    return {.ids = ids(),
            .in_image = request_.in_image,
            .embeddings = request_.embeddings,
            .image_digests = request_.image_digests};
}

PrefixStart Sequence::find_start(PrefixCache& cache) {
    if (starts_from_fork()) return {.replays = {}, .blocks = {}};
    if (!request_.use_cache)
        return {.replays = settled_ ? anchors_.replays
                                    : request_.replays.value_or(std::vector<std::int64_t>()),
                .blocks = {}};
    cache.expire();
    if (!settled_ && !request_.replays.has_value())
        return find_prefix(cache, chain_, keyed_tokens(),
                           {.prompt = prompt_tokens_,
                            .window = layout_.window,
                            .tail = plan_.tail,
                            .may_replay = plan_.mode == PrefillMode::tail});
    if (!settled_ && chain_.replays() != *request_.replays)
        chain_ = BlockChain(chain_.key(keyed_tokens(), 0), *request_.replays);
    return fathom::find_start(
        cache, chain_, keyed_tokens(), layout_.window,
        decoder_floor(plan_, prompt_tokens_, chain_.replays(), layout_.window));
}

void Sequence::look_up(PrefixCache& cache) {
    found_ = find_start(cache);
}

Anchors Sequence::anchors_of(const PrefixStart& from) const {
    Anchors anchors;
    anchors.mode = plan_.mode;
    anchors.replays = from.replays;
    anchors.hit_tokens = from.tokens;
    if (from.tokens > 0) anchors.window_source = from.snapshot ? "snapshot" : "replay";
    if (!from.replays.empty()) anchors.encoder_floor = from.replays.back() - layout_.window;
    anchors.decoder_floor = decoder_floor(plan_, prompt_tokens_, from.replays, layout_.window);
    return anchors;
}

// At the first start.
void Sequence::settle_anchors(PrefixCache& cache) {
    settled_ = true;
    first_row_ = found_.first_row;
    anchors_ = anchors_of(found_);
    if (!request_.use_cache) return;
    if (chain_.replays() != anchors_.replays)
        chain_ = BlockChain(chain_.key(keyed_tokens(), 0), anchors_.replays);
    cache.count_query(prompt_tokens_, first_row_, found_.snapshot,
                      found_.tokens > 0 && !found_.snapshot);
}

void Sequence::load_tokens() {
    state_->ids = std::exchange(parked_ids_, {});
    state_->in_image = request_.in_image;
    if (!state_->in_image.empty()) state_->in_image.resize(state_->ids.size(), 0);
    state_->embeddings = request_.embeddings;
}

void Sequence::start(PrefixCache& cache) {
    FATHOM_CHECK(!running());
    if (starts_from_fork()) return start_from_fork(cache);
    blocks_ = std::exchange(found_.blocks, {});
    for (PrefixCache::Block* block : blocks_)
        cache.use(*block);
    if (!settled_) settle_anchors(cache);
    state_ = std::make_unique<SequenceState>(layout_);
    load_tokens();
    state_->decoder_floor = anchors_.decoder_floor;
    for (const PrefixCache::Block* block : blocks_)
        map_page(block->page(), cache.pool());

    const bool replays_now = found_.tokens > 0 && !found_.snapshot;
    next_replay_ = replays_before(anchors_.replays, found_.tokens) - (replays_now ? 1 : 0);
    if (next_replay_ > 0)
        state_->encoder_floor = anchors_.replays[next_replay_ - 1] - layout_.window;
    rows_done_ = state_->store_floor = found_.tokens;
    if (replays_now) {
        begin_replay(found_.tokens);
    } else if (found_.snapshot) {
        restore_encoder_windows(*blocks_.back()->snapshot(), *state_);
        cache.use_snapshot(*blocks_.back());
    }
}

// The rows before `at` run once more, for their windows alone.
void Sequence::begin_replay(std::int64_t at) {
    ++next_replay_;
    rows_done_ = at - layout_.window;
    state_->encoder_floor = rows_done_;
    state_->store_floor = at;
}

// Choices hand pages to each other through the cache. What nobody else may find, or cannot be
// named, goes by a name that only they know.
void Sequence::join_fork(std::shared_ptr<PromptFork> fork) {
    fork_ = std::move(fork);
    const bool named = request_.embeddings.size() == request_.image_digests.size();
    if (fork_ == nullptr || (request_.use_cache && named)) return;
    request_.use_cache = true;
    request_.image_digests.resize(request_.embeddings.size());
    request_.persist = false;
    const NamespaceField own{NamespaceTag::one_request, fmt::format("{}", fork_->id())};
    namespace_ = namespace_id({&own, 1}, {});
    chain_ = BlockChain(root_key(namespace_), {});
}

void Sequence::start_from_fork(PrefixCache& cache) {
    state_ = std::make_unique<SequenceState>(layout_);
    load_tokens();
    for (PrefixCache::Block* block : fork_->blocks()) {
        cache.use(*block);
        blocks_.push_back(block);
        map_page(block->page(), cache.pool());
    }
    const std::optional<PageId> last = cache.take_page();
    FATHOM_CHECK(last.has_value());
    map_page(*last, cache.pool());
    fork_->restore(cache.pool().memory(*last), *state_);
    settled_ = true;
    anchors_ = fork_->anchors();
    first_row_ = fork_->first_row();
    next_replay_ = anchors_.replays.size();
    if (chain_.replays() != anchors_.replays)
        chain_ = BlockChain(chain_.key(keyed_tokens(), 0), anchors_.replays);
    rows_done_ = prompt_tokens_ - 1;
    prompt_rows_counted = prompt_tokens_;
    leave_fork();
}

void Sequence::map_page(PageId page, const PagePool& pool) {
    pages_.push_back(page);
    state_->pages.push_back(pool.memory(page));
}

bool Sequence::keep_prompt_end(PrefixCache& cache) {
    if (fork_ == nullptr || rows_done_ != prompt_tokens_) return false;
    const std::shared_ptr<PromptFork> fork = fork_;
    leave_fork();
    const auto shared = static_cast<std::size_t>((prompt_tokens_ - 1) / kPageTokens);
    FATHOM_CHECK(shared <= blocks_.size());
    fork->capture(*state_, std::span(blocks_).first(shared), cache.pool().memory(pages_[shared]),
                  anchors_, first_row_);
    return true;
}

void Sequence::leave_fork() {
    if (fork_ == nullptr) return;
    fork_->leave(order_);
    fork_.reset();
}

void Sequence::stop(PrefixCache& cache) {
    if (!running()) return;
    FATHOM_CHECK(!in_flight());
    parked_ids_ = std::move(state_->ids);
    state_.reset();
    // The last ones first (prefix_cache.h).
    for (; pages_.size() > blocks_.size(); pages_.pop_back())
        cache.pool().release(pages_.back());
    for (; !blocks_.empty(); blocks_.pop_back())
        cache.leave(*blocks_.back());
    pages_.clear();
    output_snapshots_.clear();
    offered_blocks_ = 0;
    rows_done_ = 0;
}

bool Sequence::decoder_runs_all() const {
    return plan_.mode == PrefillMode::exact || plan_.mode == PrefillMode::masked;
}

StepSpan Sequence::launch(std::int64_t count, PrefixCache& cache) {
    FATHOM_CHECK(!in_flight() && count >= 1 && count <= rows_left());
    const std::int64_t end = rows_done_ + count;
    FATHOM_CHECK(end <= covered_rows());
    for (std::size_t i = state_->pages.size(); i < pages_.size(); ++i)
        state_->pages.push_back(cache.pool().memory(pages_[i]));
    StepSpan span;
    span.sequence = state_.get();
    span.start = rows_done_;
    span.count = count;
    // Rows that a replay runs again need no decoder half before.
    span.decoder_begin = replays_ahead()      ? end
                         : decoder_runs_all() ? span.start
                                              : std::clamp(anchors_.decoder_floor, span.start, end);
    const bool samples = end == known_tokens() && committed_end_ == FinishReason::none;
    const std::int64_t wanted = std::min(observe_from_, samples ? end - 1 : end);
    span.logits_begin = std::clamp(wanted, span.decoder_begin, end);
    choose_snapshots(end, cache);
    span.snapshots = snapshots_;
    rows_in_flight_ = count;
    return span;
}

// Where windows are kept: at the last block of the prompt, for conversations that go on; at the
// last one that a repeated prompt can continue from; where the request says so; and at the newest
// blocks of the output.
bool Sequence::wants_snapshot_at(std::int64_t position) const {
    const auto last_block = [](std::int64_t rows) { return rows / kPageTokens * kPageTokens; };
    if (position > prompt_tokens_)
        return position + kOutputSnapshots * kPageTokens > known_tokens();
    if (std::binary_search(chunk_ends_.begin(), chunk_ends_.end(), position)) return true;
    return position == last_block(prompt_tokens_) ||
           (plan_.tail < prompt_tokens_ && position == last_block(prompt_tokens_ - plan_.tail));
}

void Sequence::choose_snapshots(std::int64_t end, PrefixCache& cache) {
    snapshots_.clear();
    if (!request_.use_cache || !cache.wants_snapshots(window_snapshot_bytes(layout_))) return;
    const KeyedTokens tokens = keyed_tokens();
    end = std::min(end, nameable_blocks(tokens) * kPageTokens);
    std::int64_t position = std::max(rows_done_, state_->store_floor) / kPageTokens * kPageTokens;
    while ((position += kPageTokens) <= end) {
        if (!wants_snapshot_at(position)) continue;
        const PrefixCache::Block* block = cache.find(chain_.key(tokens, position / kPageTokens));
        if (block == nullptr || !block->snapshot())
            snapshots_.push_back(make_window_snapshot(layout_, position));
    }
}

void Sequence::advance(PrefixCache& cache) {
    rows_done_ += std::exchange(rows_in_flight_, 0);
    if (request_.use_cache) {
        publish(cache);
        keep_snapshots(cache);
    }
    if (!replays_ahead()) {
        if (observe_from_ != kNever) observe_from_ = std::max(observe_from_, rows_done_);
    } else if (rows_done_ == anchors_.replays[next_replay_]) {
        begin_replay(rows_done_);
    }
}

void Sequence::publish(PrefixCache& cache) {
    const KeyedTokens tokens = keyed_tokens();
    const std::int64_t full = std::min(rows_done_ / kPageTokens, nameable_blocks(tokens));
    for (std::size_t i = blocks_.size(); i < static_cast<std::size_t>(full); ++i) {
        const auto index = static_cast<std::int64_t>(i) + 1;
        PrefixCache::Block& block =
            cache.publish(chain_.key(tokens, index), i == 0 ? nullptr : blocks_.back(),
                          chain_.replayed_before(index), pages_[i]);
        blocks_.push_back(&block);
        pages_[i] = block.page();
        state_->pages[i] = cache.pool().memory(block.page());
    }
}

void Sequence::persist(BlockTier& tier, const PagePool& pool, std::int64_t now_unix_ms) {
    if (!request_.use_cache || !request_.persist) return;
    const KeyedTokens tokens = keyed_tokens();
    const std::int64_t last = request_.persist_output ? known_tokens() : prompt_tokens_;
    const auto end = std::min(blocks_.size(), static_cast<std::size_t>(last / kPageTokens));
    for (; offered_blocks_ < end; ++offered_blocks_) {
        PrefixCache::Block& block = *blocks_[offered_blocks_];
        if (block.store_due_ms() > now_unix_ms) continue;
        const auto index = static_cast<std::int64_t>(offered_blocks_) + 1;
        const BlockName name = block_name(namespace_, chain_.key(tokens, index - 1),
                                          chain_.key(tokens, index), tokens, index);
        block.set_store_due_ms(
            tier.persist(name, pool.memory(block.page()), request_.traffic_class));
    }
}

void Sequence::distrust_pages(PrefixCache& cache) {
    for (PrefixCache::Block* block : blocks_)
        cache.distrust(*block);
}

void Sequence::keep_snapshots(PrefixCache& cache) {
    for (WindowSnapshot& snapshot : snapshots_) {
        const auto index = static_cast<std::size_t>(snapshot.position / kPageTokens - 1);
        if (snapshot.position > prompt_tokens_) output_snapshots_.push_back(index);
        cache.keep_snapshot(*blocks_[index], std::move(snapshot));
    }
    snapshots_.clear();
    for (; output_snapshots_.size() > kOutputSnapshots; output_snapshots_.pop_front())
        cache.drop_unused_snapshot(*blocks_[output_snapshots_.front()]);
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
    return committed_end_ != FinishReason::none && request_.logits_begin < 0;
}

EngineEvent Sequence::event() const {
    EngineEvent event;
    event.id = request_.id;
    event.attempt = request_.attempt;
    event.first_index = output_tokens();
    event.cached_tokens = first_row_;
    event.anchors = anchors_;
    return event;
}

}  // namespace fathom
