#include "pool/pool_tier.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/huge_memory.h"
#include "base/log.h"
#include "base/queue.h"
#include "pool/slot.h"

namespace fathom {

namespace {

constexpr std::uint64_t kBlockTokens = 128;
constexpr std::size_t kLossCauses = 6;
constexpr std::int64_t kLookupLogUs = 60'000'000;  // between two lines about lookups that failed

std::int64_t whole_pages(std::int64_t bytes) {
    return (bytes + kPoolPageBytes - 1) / kPoolPageBytes * kPoolPageBytes;
}

constexpr std::size_t kRefusalsMax = 4'096;

TierLoss loss_of_lookup(const Status& status) {
    switch (status.code()) {
        case StatusCode::ok:
            return TierLoss::absent;
        case StatusCode::deadline_exceeded:
            return TierLoss::timeout;
        case StatusCode::unavailable:
            return TierLoss::breaker;
        default:
            return TierLoss::io_error;
    }
}

}  // namespace

// Outlives the tier while the store has a slot.
struct PoolTier::Shared {
    Shared(BlockStore& block_store, const PoolTierOptions& given, const Clock& the_clock,
           MetricsRegistry& registry)
        : store(block_store),
          options(given),
          clock(the_clock),
          slot_bytes(whole_pages(store.payload_bytes() + kTrailerBytes)),
          slots(std::max<std::int64_t>(given.staging_bytes / slot_bytes, 1)),
          memory(map_huge_memory(slots * slot_bytes)),
          free(static_cast<std::size_t>(slots)),
          hit_tokens(registry.counter("kvpool_hit_tokens_total",
                                      "Prompt tokens whose blocks came from the pool.")),
          dropped(registry.counter("kvpool_put_dropped_total",
                                   "Blocks that were not stored, by cause.",
                                   {{"cause", "staging"}})),
          refused(registry.counter("kvpool_put_dropped_total",
                                   "Blocks that were not stored, by cause.", {{"cause", "store"}})),
          lookup_seconds(registry.histogram(
              "kvpool_lookup_seconds", "Time of a lookup.",
              {0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.1, 1})),
          staged(registry.gauge("kvpool_put_queue_depth", "Blocks that wait to be stored.")) {
        FATHOM_CHECK(memory != nullptr, "staging_bytes of address space");
        constexpr std::array<std::string_view, 6> kResults = {"hit",     "partial",  "miss",
                                                              "timeout", "io_error", "breaker"};
        for (std::size_t i = 0; i < lookups.size(); ++i)
            lookups[i] = &registry.counter("kvpool_lookup_total", "Lookups of chains, by result.",
                                           {{"result", std::string(kResults[i])}});
        constexpr std::array<std::string_view, kLossCauses> kCauses = {
            "hole", "corrupt", "timeout", "io_error", "cancelled", "breaker"};
        for (std::size_t i = 0; i < losses.size(); ++i)
            losses[i] = &registry.counter("kvpool_miss_tokens_total",
                                          "Prompt tokens that the pool did not give, by cause.",
                                          {{"cause", std::string(kCauses[i])}});
        for (std::int64_t slot = 0; slot < slots; ++slot)
            FATHOM_CHECK(free.try_push(std::int64_t{slot}));
    }

    std::uint8_t* slot_memory(std::int64_t slot) const {
        return reinterpret_cast<std::uint8_t*>(memory.get()) + slot * slot_bytes;
    }
    // What came of a chain of so many keys.
    TierFound count_lookup(std::size_t keys, std::size_t blocks, const Status& status,
                           std::int64_t begun_us) {
        lookup_seconds.observe(static_cast<double>(clock.now_us() - begun_us) * 1e-6);
        const TierLoss loss = loss_of_lookup(status);
        if (blocks == keys || loss == TierLoss::absent) {
            lookups[blocks == keys ? 0 : blocks > 0 ? 1 : 2]->add();
        } else {
            lookups[2 + static_cast<std::size_t>(loss)]->add();
            log_failed_lookup(status);
        }
        return {.blocks = blocks, .loss = loss};
    }
    // A line a minute is enough to know why prompts are computed again.
    void log_failed_lookup(const Status& status) {
        const std::int64_t now_us = clock.now_us();
        const std::uint64_t failed = lookups_failed.fetch_add(1) + 1;
        std::int64_t due_us = log_due_us.load();
        if (now_us < due_us || !log_due_us.compare_exchange_strong(due_us, now_us + kLookupLogUs))
            return;
        lookups_failed.fetch_sub(failed);
        log_warning("pool: a lookup failed and its prompt is computed: {} ({} since the last line)",
                    status.message(), failed);
    }
    // Blocks behind the first that did not come are of no use: they count under their own cause,
    // and as behind a hole when they came.
    void count_losses(const GetResult& result) {
        const bool not_asked = result.status.code() == StatusCode::unavailable;
        for (std::size_t i = result.leading_hits; i < result.blocks.size(); ++i)
            losses[loss_of(result.blocks[i], not_asked)]->add(kBlockTokens);
    }
    static std::size_t loss_of(GetStatus status, bool not_asked) {
        switch (status) {
            case GetStatus::hit:
                return 0;
            case GetStatus::miss:
                return not_asked ? 5 : 0;
            case GetStatus::corrupt:
                return 1;
            case GetStatus::timeout:
                return 2;
            case GetStatus::io_error:
                return 3;
            case GetStatus::cancelled:
                return 4;
        }
        return 0;
    }
    void give_back(std::int64_t slot) {
        FATHOM_CHECK(free.try_push(std::move(slot)));
        count_staged();
    }
    void count_staged() {
        staged.set(static_cast<double>(slots - static_cast<std::int64_t>(free.size())));
    }

    BlockStore& store;
    const PoolTierOptions options;
    const Clock& clock;
    const std::int64_t slot_bytes;
    const std::int64_t slots;
    std::shared_ptr<std::byte> memory;
    BoundedQueue<std::int64_t> free;
    // For the engine to hear of; what has no room is offered when it is due, as if it were stored.
    BoundedQueue<BlockKey> refusals{kRefusalsMax};
    Counter &hit_tokens, &dropped, &refused;
    std::array<Counter*, 6> lookups{};
    std::atomic<std::int64_t> log_due_us{std::numeric_limits<std::int64_t>::min()};
    std::atomic<std::uint64_t> lookups_failed{0};  // that no line has told of
    std::array<Counter*, kLossCauses> losses{};
    Histogram& lookup_seconds;
    Gauge& staged;
};

PoolTier::PoolTier(BlockStore& store, const PoolTierOptions& options, const Clock& clock,
                   MetricsRegistry& metrics)
    : shared_(std::make_shared<Shared>(store, options, clock, metrics)) {}

PoolTier::~PoolTier() = default;

void PoolTier::close(Deadline deadline) {
    for (std::int64_t slot = 0; slot < shared_->slots; ++slot) {
        const std::int64_t left_us = deadline.at_us - shared_->clock.now_us();
        if (!shared_->free.pop(std::max<std::int64_t>(left_us, 0))) return;
    }
}

void PoolTier::find(std::vector<BlockKey> chain, std::int64_t deadline_us,
                    std::function<void(TierFound found)> done) {
    const std::size_t keys = chain.size();
    shared_->store.longest_prefix(
        std::move(chain), Deadline{deadline_us},
        [shared = shared_, keys, begun_us = shared_->clock.now_us(), done = std::move(done)](
            std::size_t blocks, const Status& status) {
            done(shared->count_lookup(keys, blocks, status, begun_us));
        });
}

std::function<void()> PoolTier::load(std::vector<BlockName> names, std::vector<std::uint8_t*> pages,
                                     std::int64_t deadline_us, LoadCalls calls) {
    FATHOM_CHECK(names.size() == pages.size());
    std::vector<GetRequest> requests;
    requests.reserve(names.size());
    for (std::size_t i = 0; i < names.size(); ++i)
        requests.push_back({.name = names[i], .destination = {.page = pages[i]}});
    const StoreOpPtr op = shared_->store.get(
        std::move(requests), Deadline{deadline_us},
        {.done =
             [shared = shared_, done = std::move(calls.done)](const GetResult& result) {
                 TierLoaded loaded{.leading = result.leading_hits, .due_unix_ms = {}};
                 loaded.due_unix_ms.resize(loaded.leading);
                 // Of what life is left the last share is for storing it again. Without a known
                 // end it is offered at once, and a store that needs no copy says so.
                 const std::int64_t now_ms = shared->clock.wall_unix_ms();
                 for (std::size_t i = 0; i < loaded.leading; ++i) {
                     const bool known = i < result.expiry_unix_ms.size();
                     const std::int64_t end_ms = known ? result.expiry_unix_ms[i] : 0;
                     const double left_ms =
                         static_cast<double>(std::max<std::int64_t>(end_ms - now_ms, 0));
                     loaded.due_unix_ms[i] =
                         end_ms - static_cast<std::int64_t>(shared->options.renew_share * left_ms);
                 }
                 shared->hit_tokens.add(kBlockTokens * loaded.leading);
                 shared->count_losses(result);
                 done(std::move(loaded));
             },
         .released = std::move(calls.released)});
    return [op] { op->cancel(); };
}

std::int64_t PoolTier::persist(const BlockName& name, const std::uint8_t* page,
                               TrafficClass traffic_class) {
    const std::optional<std::int64_t> slot = shared_->free.try_pop();
    if (!slot) {
        shared_->dropped.add();
        return 0;
    }
    shared_->count_staged();
    const std::int64_t bytes = shared_->store.payload_bytes();
    std::uint8_t* copy = shared_->slot_memory(*slot);
    PutRequest request{
        .name = name, .page = copy, .digest = payload_digest(page, bytes), .has_digest = true};
    std::memcpy(copy, page, static_cast<std::size_t>(bytes));
    const std::int64_t life_ms = shared_->options.life_ms[static_cast<std::size_t>(traffic_class)];
    const auto renew_ms =
        static_cast<std::int64_t>(shared_->options.renew_share * static_cast<double>(life_ms));
    shared_->store.put(
        {request}, {.traffic_class = traffic_class, .renew_before_ms = renew_ms},
        Deadline{shared_->clock.now_us() + shared_->options.put_deadline_us},
        {.done =
             [shared = shared_, key = name.key](const PutResult& result) {
                 const PutOutcome outcome = result.blocks.at(0);
                 if (outcome == PutOutcome::stored || outcome == PutOutcome::exists ||
                     outcome == PutOutcome::renewed || outcome == PutOutcome::in_flight)
                     return;
                 shared->refused.add();
                 (void)shared->refusals.try_push(BlockKey(key));
             },
         .released = [shared = shared_, at = *slot] { shared->give_back(at); }});
    return shared_->clock.wall_unix_ms() + life_ms - renew_ms;
}

std::optional<BlockKey> PoolTier::next_refused() {
    return shared_->refusals.try_pop();
}

}  // namespace fathom
