#include <algorithm>
#include <cerrno>

#include "pool/rados_core.h"

namespace fathom {

namespace {

constexpr std::int64_t kRemovalsInFlight = 8;
constexpr std::int64_t kListsAtATime = 256;
constexpr std::int64_t kReadBytes = 16384 * kRadosEntryBytes;
constexpr std::int64_t kClaimMs = 10 * kMinuteMs;  // a sweep that takes longer may be helped
constexpr std::int64_t kQuietMs = 10 * kMinuteMs;  // after a bucket nobody writes to its lists
constexpr std::int64_t kEvictEveryUs = 1'000'000;
constexpr const char* kClaim = "claim";

}  // namespace

void RadosCore::begin_collect(const std::shared_ptr<RadosTask>& call) {
    if (!admit(call, 0)) return;
    const auto walk = std::make_shared<Walk>();
    walk->calls.push_back(call);
    begin_walk(walk);
}

void RadosCore::sweep_later() {
    // Processes that were started together do not sweep together.
    constexpr std::uint64_t kSteps = 1024;
    const double spread = static_cast<double>(writer_ % kSteps) / static_cast<double>(kSteps);
    const auto wait_us =
        static_cast<std::int64_t>(static_cast<double>(options_.sweep_interval_us) * (0.5 + spread));
    thread_.at(now_us() + wait_us, [this] {
        if (closing_) return;
        if (!sweeping_) {
            sweeping_ = true;
            const auto walk = std::make_shared<Walk>();
            walk->paced = true;
            begin_walk(walk);
        }
        sweep_later();
    });
}

// Room is made by the list that ends first of those that nobody writes any more.
void RadosCore::evict() {
    if (evicting_ || closing_ || now_us() < evict_after_us_) return;
    evicting_ = true;
    const auto walk = std::make_shared<Walk>();
    walk->kind = Walk::Kind::evict;
    begin_walk(walk);
}

void RadosCore::begin_drop(const std::shared_ptr<RadosTask>& call, const NamespaceId& ns) {
    if (!admit(call, 0)) return;
    const std::uint64_t tag = namespace_tag(ns);
    // First of all: what cannot be removed below does not open any more.
    if (options_.keys != nullptr) call->status = options_.keys->destroy(ns);
    const auto found = drops_.find(tag);
    if (found == drops_.end()) {
        begin_drop_walk(tag, {call});
    } else if (found->second.begun) {
        // Others may have stored what this one's walk has passed.
        found->second.after.push_back(call);
    } else {
        found->second.walk->calls.push_back(call);
    }
}

void RadosCore::begin_drop_walk(std::uint64_t ns_tag,
                                std::vector<std::shared_ptr<RadosTask>> calls) {
    const auto walk = std::make_shared<Walk>();
    walk->kind = Walk::Kind::drop;
    walk->ns_tag = ns_tag;
    walk->calls = std::move(calls);
    drops_[ns_tag] = {.walk = walk, .begun = false, .after = {}};
    begin_waiting_drop(ns_tag);
}

// A drop begins when no write of the namespace is in flight; new ones are refused meanwhile.
void RadosCore::begin_waiting_drop(std::uint64_t ns_tag) {
    const auto found = drops_.find(ns_tag);
    if (found == drops_.end() || found->second.begun) return;
    for (const auto& [key, tag] : writing_)
        if (tag == ns_tag) return;
    found->second.begun = true;
    begin_walk(found->second.walk);
}

void RadosCore::begin_walk(const WalkPtr& walk) {
    walks_.insert(walk);
    walk->refilled_us = now_us();
    load_lists(walk);
}

void RadosCore::end_walk(const WalkPtr& walk) {
    walks_.erase(walk);
    if (walk->kind == Walk::Kind::evict) {
        evicting_ = false;
        evict_after_us_ = now_us() + kEvictEveryUs;
    }
    if (walk->paced) sweeping_ = false;
    Counter& removed = walk->kind == Walk::Kind::sweep   ? metrics_.swept
                       : walk->kind == Walk::Kind::evict ? metrics_.evicted
                                                         : metrics_.dropped;
    removed.add(static_cast<std::uint64_t>(walk->removed));
    if (walk->kind == Walk::Kind::drop) {
        const auto found = drops_.find(walk->ns_tag);
        auto after = std::move(found->second.after);
        drops_.erase(found);
        if (!after.empty()) begin_drop_walk(walk->ns_tag, std::move(after));
    }
    for (const std::shared_ptr<RadosTask>& call : walk->calls) {
        if (call->finished) continue;
        if (call->status.ok()) call->status = walk->status;
        call->finish(*this, CallEnd::complete);
    }
}

// What a walk does next, whenever something it started has ended.
void RadosCore::step(const WalkPtr& walk) {
    if (closing_) {
        walk->entries.clear();
        if (walk->in_flight == 0 && walks_.contains(walk)) {
            walk->status = call_end_status(CallEnd::closed);
            end_walk(walk);
        }
        return;
    }
    if (walk->list) {
        while (!walk->entries.empty() && walk->in_flight < kRemovalsInFlight) {
            if (walk->paced && wait_for_pace(walk)) return;
            const RadosEntry entry = walk->entries.front();
            walk->entries.pop_front();
            if (walk->kind != Walk::Kind::drop || entry.ns_tag == walk->ns_tag)
                remove_entry(walk, entry);
        }
        if (walk->in_flight > 0) return;
        return walk->whole_list_read ? leave_list(walk) : load_entries(walk);
    }
    if (walk->in_flight > 0) return;
    if (!walk->lists.empty()) {
        walk->list = walk->lists.front();
        walk->lists.pop_front();
        walk->offset = 0;
        walk->whole_list_read = walk->list_failed = false;
        return walk->paced ? claim(walk) : load_entries(walk);
    }
    if (walk->more) return load_lists(walk);
    if (walk->set + 1 < kRadosListSets) {
        ++walk->set;
        walk->after.clear();
        return load_lists(walk);
    }
    if (!walk->earliest) return end_walk(walk);
    walk->lists.push_back(*std::exchange(walk->earliest, std::nullopt));
    step(walk);
}

bool RadosCore::wait_for_pace(const WalkPtr& walk) {
    const std::int64_t now = now_us();
    const double rate = options_.sweep_blocks_per_s;
    walk->tokens =
        std::min(rate, walk->tokens + rate * 1e-6 * static_cast<double>(now - walk->refilled_us));
    walk->refilled_us = now;
    if (walk->tokens >= 1) {
        walk->tokens -= 1;
        return false;
    }
    ++walk->in_flight;
    thread_.at(now + static_cast<std::int64_t>((1 - walk->tokens) / rate * 1e6) + 1, [this, walk] {
        --walk->in_flight;
        step(walk);
    });
    return true;
}

void RadosCore::load_lists(const WalkPtr& walk) {
    ++walk->in_flight;
    read({.pool = RadosPool::lists,
          .object = rados_list_set(walk->set),
          .keys = kListsAtATime,
          .keys_after = walk->after},
         [this, walk](const std::shared_ptr<RadosAnswer>& answer) {
             --walk->in_flight;
             take_lists(walk, *answer);
             step(walk);
         });
}

void RadosCore::take_lists(const WalkPtr& walk, const RadosAnswer& answer) {
    walk->more = answer.result == 0 && answer.more_keys && !answer.keys.empty();
    if (!answer.keys.empty()) walk->after = answer.keys.back();
    if (answer.result < 0 && answer.result != -ENOENT)
        walk->status = failure(answer.result, rados_list_set(walk->set));
    for (const std::string& key : answer.keys) {
        const auto list = parse_rados_list_object(key);
        if (!list) continue;
        if (walk->kind == Walk::Kind::drop) {
            walk->lists.push_back(*list);
        } else if (walk->kind == Walk::Kind::sweep) {
            if (list->expiry_unix_ms > wall_ms()) {
                walk->more = false;  // those behind it end later
                break;
            }
            walk->lists.push_back(*list);
        } else if (written_no_more(*list)) {
            if (!walk->earliest || list->expiry_unix_ms < walk->earliest->expiry_unix_ms)
                walk->earliest = *list;
            walk->more = false;
            break;
        }
    }
}

bool RadosCore::written_no_more(const RadosListName& list) const {
    const ClassLife& life = options_.lives[static_cast<std::size_t>(list.traffic_class)];
    return list.expiry_unix_ms - life.ttl_ms + kQuietMs < wall_ms();
}

// Of several processes that sweep, one takes a list; should it die, another one may later.
void RadosCore::claim(const WalkPtr& walk) {
    ++walk->in_flight;
    const auto now_ms = static_cast<std::uint64_t>(wall_ms());
    write({.pool = RadosPool::lists,
           .object = rados_list_object(*walk->list),
           .must_exist = true,
           .guards = {{.attribute = kClaim,
                       .test = RadosGuard::Test::at_least,
                       .value = rados_number(now_ms - std::min<std::uint64_t>(now_ms, kClaimMs))}},
           .attributes = {{kClaim, rados_number(now_ms)}}},
          [this, walk](int result) {
              --walk->in_flight;
              if (result == 0 || result == -ENOENT) return load_entries(walk);
              walk->list.reset();
              step(walk);
          });
}

void RadosCore::load_entries(const WalkPtr& walk) {
    ++walk->in_flight;
    const std::string object = rados_list_object(*walk->list);
    read({.pool = RadosPool::lists, .object = object, .offset = walk->offset, .bytes = kReadBytes},
         [this, walk, object](const std::shared_ptr<RadosAnswer>& answer) {
             --walk->in_flight;
             const auto bytes = static_cast<std::int64_t>(answer->bytes);
             walk->whole_list_read = answer->result < 0 || bytes < kReadBytes;
             walk->offset += bytes;
             if (answer->result == 0) {
                 for (RadosEntry& entry : read_rados_entries({answer->data.get(), answer->bytes}))
                     walk->entries.push_back(std::move(entry));
             } else if (answer->result != -ENOENT) {
                 walk->list_failed = true;
                 walk->status = failure(answer->result, object);
             }
             step(walk);
         });
}

void RadosCore::remove_entry(const WalkPtr& walk, const RadosEntry& entry) {
    using Test = RadosGuard::Test;
    RadosGuard guard{.attribute = kRadosEnd, .test = Test::at_least, .value = {}};
    switch (walk->kind) {
        case Walk::Kind::sweep:
            guard.value = rados_number(static_cast<std::uint64_t>(wall_ms()));
            break;
        case Walk::Kind::evict:
            guard.value = rados_number(static_cast<std::uint64_t>(walk->list->expiry_unix_ms));
            break;
        case Walk::Kind::drop:
            guard = {.attribute = kRadosNamespace,
                     .test = Test::equal,
                     .value = rados_number(entry.ns_tag)};
            break;
    }
    ++walk->in_flight;
    const std::string object = rados_block_object(entry.key);
    write({.object = object, .must_exist = true, .guards = {guard}, .remove = true},
          [this, walk, object](int result) {
              --walk->in_flight;
              if (result == 0) {
                  ++walk->removed;
              } else if (result != -ENOENT && result != -ECANCELED) {
                  walk->list_failed = true;
                  walk->status = failure(result, object);
              }
              step(walk);
          });
}

// A list goes when all its blocks have, or live on in other lists.
void RadosCore::leave_list(const WalkPtr& walk) {
    if (walk->kind == Walk::Kind::drop || walk->list_failed) {
        walk->list.reset();
        return step(walk);
    }
    ++walk->in_flight;
    write({.pool = RadosPool::lists, .object = rados_list_object(*walk->list), .remove = true},
          [this, walk](int result) {
              --walk->in_flight;
              if (result == 0 || result == -ENOENT) return forget_list(walk);
              walk->status = failure(result, rados_list_object(*walk->list));
              walk->list.reset();
              step(walk);
          });
}

void RadosCore::forget_list(const WalkPtr& walk) {
    ++walk->in_flight;
    write({.pool = RadosPool::lists,
           .object = rados_list_set_of(*walk->list),
           .dropped_keys = {rados_list_object(*walk->list)}},
          [this, walk](int) {
              --walk->in_flight;
              walk->list.reset();
              step(walk);
          });
}

}  // namespace fathom
