// The dispatcher's state as bytes.
#include <algorithm>

#include "policy/prefill_balancer.h"

namespace fathom {

namespace {

constexpr std::string_view kTag = "PFIL";
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kEnginesMax = 1 << 20;
constexpr std::int64_t kCostMax = std::int64_t{1} << 50;
constexpr std::int64_t kNone = -1;
constexpr std::int64_t kMost = std::int64_t{1} << 62;

}  // namespace

std::vector<std::uint8_t> PrefillBalancer::save() const {
    StateWriter out(kTag, kVersion);
    out.add(order_next_).add(rotation_).add(round_end_us_).add(has_divided_);
    out.add(log_.hash()).add(log_.count());
    out.add(std::uint64_t{engines_.size()});
    for (const Engine& engine : engines_) {
        out.add(engine.is_live).add(engine.epoch).add(engine.heard_us).add(engine.backlog_us);
        out.add(std::uint64_t{engine.serves});
        out.add(engine.what.ranks).add(engine.what.blocks_per_rank);
        out.add(engine.what.is_context_parallel).add(engine.what.can_lose_rank);
        engine.correction.save(out);
        out.add(std::uint64_t{engine.granted.size()});
        for (const std::uint64_t id : engine.granted)
            out.add(id);
    }
    std::vector<const Entry*> entries;
    entries_.for_each([&](const Entry& entry) { entries.push_back(&entry); });
    std::sort(entries.begin(), entries.end(),
              [](const Entry* a, const Entry* b) { return a->order < b->order; });
    out.add(std::uint64_t{entries.size()});
    for (const Entry* entry : entries) {
        const PrefillRequest& request = entry->request;
        out.add(request.id).add(request.total_tokens).add(request.hit_tokens);
        out.add(request.is_window_found).add(request.deadline_us).add(request.priority);
        out.add(entry->cost_us).add(entry->since_us).add(entry->order).add(entry->attempt);
        out.add(entry->skips).add(entry->is_front);
        out.add(entry->engine ? static_cast<std::int64_t>(*entry->engine) : kNone);
    }
    for (const Queue& queue : queues_) {
        out.add(queue.arrived_us).add(queue.used_us).add(queue.used_before_us);
        out.add(queue.offered_before_us).add(queue.locked.has_value());
        out.add(queue.locked.value_or(0));
        out.add(queue.aside_engine ? static_cast<std::int64_t>(*queue.aside_engine) : kNone);
        out.add(queue.aside_rank);
    }
    return out.take();
}

Status PrefillBalancer::load(std::span<const std::uint8_t> bytes) {
    StateReader in(bytes, kTag, kVersion);
    PrefillBalancer loaded(settings_);
    loaded.order_next_ = in.u64();
    loaded.rotation_ = in.u64();
    loaded.round_end_us_ = in.i64();
    loaded.has_divided_ = in.flag();
    const std::uint64_t hash = in.u64(), count = in.u64();
    loaded.engines_.resize(in.count(kEnginesMax));
    for (Engine& engine : loaded.engines_) {
        engine.is_live = in.flag();
        engine.epoch = in.i64();
        engine.heard_us = in.i64();
        engine.backlog_us = in.i64();
        engine.serves = static_cast<std::size_t>(in.in_range(0, kPrefillClasses - 1));
        engine.what.ranks = in.in_range(1, 1024);
        engine.what.blocks_per_rank = in.in_range(0, kMost);
        engine.what.is_context_parallel = in.flag();
        engine.what.can_lose_rank = in.flag();
        engine.correction.load(in);
        engine.granted.resize(in.count(bytes.size()));
        for (std::uint64_t& id : engine.granted)
            id = in.u64();
    }
    FATHOM_RETURN_IF_ERROR(loaded.load_entries(in, bytes.size()));
    const auto engines = static_cast<std::int64_t>(loaded.engines_.size());
    for (Queue& queue : loaded.queues_) {
        queue.arrived_us = in.in_range(0, kMost);
        queue.used_us = in.in_range(0, kMost);
        queue.used_before_us = in.in_range(0, kMost);
        queue.offered_before_us = in.in_range(0, kMost);
        const bool is_locked = in.flag();
        const std::uint64_t locked = in.u64();
        if (is_locked) {
            if (!std::binary_search(queue.ids.begin(), queue.ids.end(), locked,
                                    [&](std::uint64_t a, std::uint64_t b) {
                                        const Entry* x = loaded.entries_.find(a);
                                        const Entry* y = loaded.entries_.find(b);
                                        return x != nullptr && y != nullptr &&
                                               loaded.comes_before(*x, *y);
                                    }))
                in.fail(error(StatusCode::data_loss, "state: request {} is locked, not waiting",
                              locked));
            queue.locked = locked;
        }
        const std::int64_t aside = in.in_range(kNone, engines - 1);
        if (aside >= 0) queue.aside_engine = static_cast<std::size_t>(aside);
        queue.aside_rank = in.in_range(0, 1023);
    }
    FATHOM_RETURN_IF_ERROR(in.finish());
    loaded.count_live();
    loaded.served_by_ = serving_classes(loaded.live_.engines);
    loaded.log_ = std::move(log_);
    loaded.log_.resume(hash, count);
    *this = std::move(loaded);
    return {};
}

Status PrefillBalancer::load_entries(StateReader& in, std::size_t limit) {
    const std::size_t count = in.count(limit);
    std::vector<std::uint64_t> waiting;
    std::int64_t granted = 0;
    for (std::size_t i = 0; i < count && in.ok(); ++i) {
        Entry entry;
        PrefillRequest& request = entry.request;
        request.id = in.u64();
        request.total_tokens = in.in_range(-kMost, kContextTokensMax);
        request.hit_tokens = in.i64();
        request.is_window_found = in.flag();
        request.deadline_us = in.i64();
        request.priority = in.i64();
        entry.cost_us = in.in_range(0, kCostMax);
        entry.since_us = in.i64();
        entry.order = in.u64();
        entry.attempt = in.in_range(0, kMost);
        entry.skips = in.in_range(0, kMost);
        entry.is_front = in.flag();
        const std::int64_t engine =
            in.in_range(kNone, static_cast<std::int64_t>(engines_.size()) - 1);
        set_work(entry);
        if (engine >= 0) {
            entry.engine = static_cast<std::size_t>(engine);
            const auto& ids = engines_[*entry.engine].granted;
            if (std::count(ids.begin(), ids.end(), request.id) != 1)
                in.fail(error(StatusCode::data_loss, "state: engine {} does not have request {}",
                              engine, request.id));
            ++granted;
        } else {
            waiting.push_back(request.id);
            if (!entry.is_front) by_admission_.push_back(request.id);
        }
        if (!entries_.insert(request.id, entry))
            in.fail(error(StatusCode::data_loss, "state: request {} twice", request.id));
    }
    std::int64_t listed = 0;
    for (const Engine& engine : engines_)
        listed += static_cast<std::int64_t>(engine.granted.size());
    if (in.ok() && listed != granted)
        in.fail(error(StatusCode::data_loss, "state: {} grants listed, {} found", listed, granted));
    if (!in.ok()) return in.finish();
    granted_ = granted;
    for (const std::uint64_t id : waiting)
        enqueue(id);
    return {};
}

}  // namespace fathom
