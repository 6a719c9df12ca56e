#include "engine/block_loader.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "engine/block_key.h"

namespace fathom {

namespace {

constexpr int kTierHistoriesMax = 64;  // replays that are followed
constexpr std::int64_t kCloseWaitUs = 100'000;
constexpr double kShareOfComputing = 0.25;

}  // namespace

// Outlives the loader while callbacks are on their way.
struct BlockLoader::Inbox {
    explicit Inbox(std::size_t capacity) : messages(capacity) {}

    void push(Message message) {
        FATHOM_CHECK(messages.try_push(std::move(message)), "three messages a job at most");
        if (wake) wake();
    }

    BoundedQueue<Message> messages;
    std::function<void()> wake;  // set before the first job
};

struct BlockLoader::Counters {
    explicit Counters(MetricsRegistry* given)
        : own(given == nullptr ? std::make_unique<MetricsRegistry>() : nullptr),
          registry(given == nullptr ? *own : *given),
          not_found{&tokens("absent"), &tokens("timeout"), &tokens("io_error"), &tokens("breaker")},
          pages_returned(registry.counter("kvpool_load_pages_returned_total",
                                          "KV pages taken for loads that brought nothing there.")),
          whole(loads("whole")),
          partial(loads("partial")),
          late(loads("late")),
          failed(loads("failed")),
          cancelled(loads("cancelled")) {}
    Counter& tokens(const char* cause) const {  // in the order of TierLoss
        return registry.counter("kvpool_miss_tokens_total",
                                "Prompt tokens that the pool did not give, by cause.",
                                {{"cause", cause}});
    }
    Counter& loads(const char* outcome) const {
        return registry.counter("kvpool_loads_total", "Loads of requests' blocks, by outcome.",
                                {{"outcome", outcome}});
    }
    const std::unique_ptr<MetricsRegistry> own;
    MetricsRegistry& registry;
    const std::array<Counter*, kTierLosses> not_found;
    Counter &pages_returned, &whole, &partial, &late, &failed, &cancelled;
};

BlockLoader::BlockLoader(BlockTier& tier, PrefixCache& cache, const Clock& clock,
                         const TierBudget& budget, double row_cost_us, std::int64_t jobs_max,
                         MetricsRegistry* metrics)
    : tier_(tier),
      cache_(cache),
      clock_(clock),
      budget_(budget),
      row_cost_us_(row_cost_us),
      jobs_max_(jobs_max),
      inbox_(std::make_shared<Inbox>(static_cast<std::size_t>(3 * jobs_max))),
      counters_(std::make_unique<Counters>(metrics)) {}

BlockLoader::~BlockLoader() {
    for (auto& [id, job] : jobs_) {
        job.sequence = nullptr;
        if (job.cancel) job.cancel();
    }
    while (std::any_of(jobs_.begin(), jobs_.end(),
                       [](const auto& entry) { return entry.second.calls_due > 0; }))
        wait(kCloseWaitUs);
    for (auto& [id, job] : jobs_)
        leave_blocks(job);
}

void BlockLoader::set_waker(std::function<void()> wake) {
    FATHOM_CHECK(jobs_.empty());
    inbox_->wake = std::move(wake);
}

void BlockLoader::begin(Sequence& sequence) {
    const EngineRequest& request = sequence.request();
    const bool named_history = request.replays.has_value();
    if (!request.use_cache || static_cast<std::int64_t>(jobs_.size()) >= jobs_max_) return;
    if (named_history ? request.replays->empty() : !sequence.may_replay()) return;
    const KeyedTokens tokens = sequence.keyed_tokens();
    std::int64_t limit = std::min(nameable_blocks(tokens), sequence.prompt_tokens() / kPageTokens);
    if (named_history) limit = std::min(limit, request.replays->back() / kPageTokens);
    sequence.look_up(cache_);
    // A hit of one block saves nothing, and what is here may be as good as it gets.
    if (limit < 2 || sequence.found().tokens >= limit * kPageTokens) return;

    const std::uint64_t id = next_job_++;
    Job& job = jobs_[id];
    job.sequence = &sequence;
    job.limit = limit;
    job.one_history = named_history;
    BlockChain chain(root_key(sequence.kv_namespace()),
                     named_history ? *request.replays : std::vector<std::int64_t>());
    for (std::int64_t index = 1; index <= limit; ++index)
        job.asked.push_back(chain.key(tokens, index));
    job.deadline_us = clock_.now_us() + budget_.find_us;
    by_order_[sequence.order()] = id;
    sequence.loading = true;
    ++loading_;
    ask(id, job);
}

void BlockLoader::ask(std::uint64_t id, Job& job) {
    ++job.calls_due;
    tier_.find(job.asked, job.deadline_us, [inbox = inbox_, id](TierFound found) {
        inbox->push({.job = id, .kind = Message::Kind::found, .found = found, .loaded = {}});
    });
}

void BlockLoader::on_found(std::uint64_t id, Job& job, const TierFound& answer) {
    if (job.sequence == nullptr) return;
    const std::size_t blocks = std::min(answer.blocks, job.asked.size());
    job.loss = blocks == job.asked.size() ? TierLoss::absent : answer.loss;
    const KeyedTokens tokens = job.sequence->keyed_tokens();
    const std::vector<std::int64_t> none;
    const std::vector<std::int64_t>& named =
        job.one_history ? *job.sequence->request().replays : none;
    for (std::size_t i = 0; i < blocks; ++i) {
        const auto begin = static_cast<std::int64_t>(job.found.size()) * kPageTokens;
        const bool replayed = job.one_history
                                  ? std::binary_search(named.begin(), named.end(), begin)
                                  : i == 0 && job.asked_replayed;
        job.found.push_back({.key = job.asked[i], .replayed = replayed});
    }
    const auto found = static_cast<std::int64_t>(job.found.size());
    if (std::exchange(job.probing, false) && blocks == 1 && found < job.limit) {
        job.asked.clear();
        job.asked_replayed = false;
        BlockKey key = job.found.back().key;
        for (std::int64_t index = found + 1; index <= job.limit; ++index)
            job.asked.push_back(key = next_key(key, tokens, index, false));
        return ask(id, job);
    }
    const bool more = blocks > 0 && job.loss == TierLoss::absent && found < job.limit &&
                      !job.one_history && job.histories < kTierHistoriesMax &&
                      clock_.now_us() < job.deadline_us;
    if (more) return try_history(id, job);
    start_load(id, job);
}

// Whether a run that replayed at the end of what was found has left more.
void BlockLoader::try_history(std::uint64_t id, Job& job) {
    ++job.histories;
    job.probing = job.asked_replayed = true;
    const auto next = static_cast<std::int64_t>(job.found.size()) + 1;
    job.asked = {next_key(job.found.back().key, job.sequence->keyed_tokens(), next, true)};
    ask(id, job);
}

std::int64_t BlockLoader::load_budget_us(std::int64_t blocks) const {
    const std::int64_t tokens = blocks * kPageTokens;
    std::int64_t budget_us =
        budget_.load_us + budget_.load_us_per_1k_tokens * ((tokens + 999) / 1000);
    if (row_cost_us_ > 0) {
        const double computing_us = row_cost_us_ * static_cast<double>(tokens);
        budget_us =
            std::min(budget_us, static_cast<std::int64_t>(kShareOfComputing * computing_us));
    }
    return budget_us;
}

void BlockLoader::start_load(std::uint64_t id, Job& job) {
    counters_->not_found[static_cast<std::size_t>(job.loss)]->add(static_cast<std::uint64_t>(
        (job.limit - static_cast<std::int64_t>(job.found.size())) * kPageTokens));
    if (job.found.size() < 2) job.found.clear();
    const std::int64_t total = cache_.pool().total();
    const std::int64_t pages_max = held_pages_ == 0 ? total : total / 2;
    const bool nobody_runs = cache_.available_pages() == total;
    const std::int64_t kept_free = nobody_runs ? 0 : total / 8;
    const NamespaceId& ns = job.sequence->kv_namespace();
    const KeyedTokens tokens = job.sequence->keyed_tokens();
    std::vector<BlockName> names;
    std::vector<std::uint8_t*> pages;
    for (std::size_t i = 0; i < job.found.size(); ++i) {
        Slot& slot = job.found[i];
        slot.block = cache_.find(slot.key);
        if (held_pages_ < pages_max && slot.block != nullptr) {
            cache_.use(*slot.block);
            ++held_pages_;
            continue;
        }
        const bool may_take = held_pages_ < pages_max && cache_.available_pages() > kept_free;
        const std::optional<PageId> page = may_take ? cache_.take_page() : std::nullopt;
        if (!page) {
            job.found.resize(i);
            break;
        }
        ++held_pages_;
        slot.load_index = static_cast<std::int64_t>(job.pages.size());
        job.pages.push_back(*page);
        pages.push_back(cache_.pool().memory(*page));
        const BlockKey parent = i == 0 ? root_key(ns) : job.found[i - 1].key;
        names.push_back(block_name(ns, parent, slot.key, tokens, static_cast<std::int64_t>(i) + 1));
    }
    if (names.empty()) return finish(job);
    job.calls_due += 2;
    BlockTier::LoadCalls calls;
    calls.done = [inbox = inbox_, id](TierLoaded loaded) {
        inbox->push(
            {.job = id, .kind = Message::Kind::loaded, .found = {}, .loaded = std::move(loaded)});
    };
    calls.released = [inbox = inbox_, id] {
        inbox->push({.job = id, .kind = Message::Kind::released, .found = {}, .loaded = {}});
    };
    job.deadline_us = clock_.now_us() + load_budget_us(static_cast<std::int64_t>(names.size()));
    job.cancel = tier_.load(std::move(names), std::move(pages), job.deadline_us, std::move(calls));
}

void BlockLoader::count_load(const Job& job, std::size_t leading) {
    if (job.sequence == nullptr) return counters_->cancelled.add();
    if (leading == job.pages.size()) return counters_->whole.add();
    if (leading > 0) return counters_->partial.add();
    (clock_.now_us() >= job.deadline_us ? counters_->late : counters_->failed).add();
}

// Pages that came become blocks; those behind a hole are of no use to this request.
void BlockLoader::on_loaded(Job& job, const TierLoaded& loaded) {
    FATHOM_CHECK(loaded.leading <= job.pages.size() && loaded.due_unix_ms.size() >= loaded.leading);
    count_load(job, loaded.leading);
    const auto came = static_cast<std::int64_t>(loaded.leading);
    std::size_t good = 0;
    for (; good < job.found.size(); ++good) {
        Slot& slot = job.found[good];
        if (slot.block != nullptr) continue;
        if (job.sequence == nullptr || slot.load_index >= came) break;
        slot.block =
            &cache_.publish(slot.key, good == 0 ? nullptr : job.found[good - 1].block,
                            slot.replayed, job.pages[static_cast<std::size_t>(slot.load_index)]);
        const auto at = static_cast<std::size_t>(slot.load_index);
        slot.block->set_store_due_ms(loaded.due_unix_ms[at]);
        slot.load_index = -1;
    }
    // Pages that did not become blocks wait for the tier.
    std::vector<PageId> left;
    for (const Slot& slot : job.found) {
        if (slot.load_index >= 0)
            left.push_back(job.pages[static_cast<std::size_t>(slot.load_index)]);
    }
    counters_->pages_returned.add(left.size());
    job.pages = std::move(left);
    leave_blocks(job, good);
    finish(job);
}

void BlockLoader::finish(Job& job) {
    job.done = true;
    if (job.sequence == nullptr || !job.sequence->loading) return;
    job.sequence->loading = false;
    --loading_;
}

// The last ones first (prefix_cache.h).
void BlockLoader::leave_blocks(Job& job, std::size_t keep) {
    for (; job.found.size() > keep; job.found.pop_back()) {
        if (job.found.back().block == nullptr) continue;
        cache_.leave(*job.found.back().block);
        --held_pages_;
    }
}

bool BlockLoader::handle(Message message) {
    Job& job = jobs_.at(message.job);
    --job.calls_due;
    const bool waited = job.sequence != nullptr && job.sequence->loading;
    switch (message.kind) {
        case Message::Kind::found:
            on_found(message.job, job, message.found);
            break;
        case Message::Kind::loaded:
            on_loaded(job, message.loaded);
            break;
        case Message::Kind::released:
            FATHOM_CHECK(job.done, "released after done");
            for (const PageId page : std::exchange(job.pages, {})) {
                cache_.pool().release(page);
                --held_pages_;
            }
            break;
    }
    const bool goes_on = waited && !job.sequence->loading;
    drop_if_over(message.job);
    return goes_on;
}

void BlockLoader::drop_if_over(std::uint64_t id) {
    const auto at = jobs_.find(id);
    if (at->second.sequence != nullptr || at->second.calls_due > 0) return;
    leave_blocks(at->second);
    jobs_.erase(at);
}

bool BlockLoader::poll() {
    bool goes_on = false;
    while (std::optional<Message> message = inbox_->messages.try_pop())
        goes_on = handle(std::move(*message)) || goes_on;
    return goes_on;
}

bool BlockLoader::wait(std::int64_t timeout_us) {
    bool goes_on = false;
    if (std::optional<Message> message = inbox_->messages.pop(timeout_us))
        goes_on = handle(std::move(*message));
    return poll() || goes_on;
}

void BlockLoader::forget(const Sequence& sequence) {
    const auto at = by_order_.find(sequence.order());
    if (at == by_order_.end()) return;
    const auto entry = jobs_.find(at->second);
    by_order_.erase(at);
    Job& job = entry->second;
    if (job.sequence->loading) {
        job.sequence->loading = false;
        --loading_;
    }
    job.sequence = nullptr;
    if (!job.done && job.cancel) job.cancel();
    // While a load runs, the blocks around it stand.
    if (job.done) leave_blocks(job);
    drop_if_over(entry->first);
}

void BlockLoader::release_started() {
    std::vector<const Sequence*> started;
    for (const auto& [order, id] : by_order_) {
        const Sequence* sequence = jobs_.at(id).sequence;
        if (sequence->running()) started.push_back(sequence);
    }
    for (const Sequence* sequence : started)
        forget(*sequence);
}

bool BlockLoader::give_back() {
    bool any = false;
    for (const auto& [order, id] : by_order_) {
        Job& job = jobs_.at(id);
        if (!job.done || job.found.empty()) continue;
        leave_blocks(job);
        any = true;
    }
    return any;
}

}  // namespace fathom
