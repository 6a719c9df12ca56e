#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/log.h"
#include "pool/ec_core.h"

namespace fathom {

namespace {

constexpr std::int64_t kNapUs = 50'000;
constexpr std::int64_t kBucketGraceMs = 5'000;   // writes of a bucket may end after it
constexpr std::int64_t kExpiryGraceMs = 60'000;  // devices remove what is expired themselves
constexpr int kFailuresMax = 3;                  // of work on a stripe; then it stays as it is
constexpr Deadline kNever{std::numeric_limits<std::int64_t>::max()};

std::vector<std::uint64_t> tags_of(const std::vector<FooterEntry>& entries) {
    std::set<std::uint64_t> tags;
    for (const FooterEntry& entry : entries)
        if ((entry.flags & kFooterPresent) != 0) tags.insert(entry.ns_tag);
    return {tags.begin(), tags.end()};
}

}  // namespace

EcMetrics::EcMetrics(MetricsRegistry& r)
    : degraded_reads(r.counter("kvpool_degraded_reads_total",
                               "Blocks served by rebuilding them from other devices.")),
      failed_rebuilds(r.counter("kvpool_failed_rebuilds_total",
                                "Blocks that could not be rebuilt: too little is left of them.")),
      repair_blocks(r.counter("kvpool_repair_blocks_total", "Slots and rows of parity mended.")),
      stripes_built(r.counter("kvpool_stripes_built_total", "Stripes made.")),
      scrub_bytes(r.counter("kvpool_parity_scrub_bytes_total", "Bytes of parity looked through.")),
      devices_open(r.gauge("kvpool_ec_devices", "Devices by state.", {{"state", "open"}})),
      devices_lost(r.gauge("kvpool_ec_devices", "Devices by state.", {{"state", "lost"}})),
      stripes(r.gauge("kvpool_stripes", "Stripes that protect segments.")),
      parity_bytes(r.gauge("kvpool_parity_bytes", "Bytes of parity files.")),
      unprotected_segments(r.gauge("kvpool_unprotected_segments", "Sealed segments of no stripe.")),
      lost_blocks(r.gauge("kvpool_lost_blocks", "Blocks that only rebuilding finds.")),
      repairs_left(r.gauge("kvpool_repairs_left", "Files and rows that wait to be rebuilt.")) {}

std::int64_t EcCore::parity_file_bytes(const EcStripe& stripe) const {
    return parity_head_bytes(stripe) + row_offset(geometry_, stripe.rows);
}

// What devices tell.

void EcCore::segment_sealed(int device, const SealedSegment& segment) {
    devices_[static_cast<std::size_t>(device)].segments[segment.id] = segment;
    const auto at = member_of_.find({device, segment.id});
    if (at == member_of_.end()) {
        pending_[{segment.traffic_class, segment.bucket_start_ms}].emplace_back(device, segment.id);
        naps_.try_push(true);
        return;
    }
    const auto [stripe, member] = at->second;
    stripes_.at(stripe).lost[static_cast<std::size_t>(member)] = false;
    forget_lost(stripe, member);
    ++returned_;
}

void EcCore::segment_changed(int device, std::uint64_t id, bool protect_again) {
    if (building_) {
        for (const EcMember& member : building_->members)
            build_spoiled_ =
                build_spoiled_ ||
                (member.device == static_cast<std::uint32_t>(device) && member.segment == id);
    }
    if (const auto at = member_of_.find({device, id}); at != member_of_.end())
        dissolve(at->second.first, protect_again);
}

// What shares a stripe with a segment that is old, or in the way, goes soon as well.
void EcCore::segment_removed(int device, std::uint64_t id, bool dropped) {
    segment_changed(device, id, dropped);
    Device& of = devices_[static_cast<std::size_t>(device)];
    const auto at = of.segments.find(id);
    if (at == of.segments.end()) return;
    const auto bucket = pending_.find({at->second.traffic_class, at->second.bucket_start_ms});
    if (bucket != pending_.end()) {
        std::erase(bucket->second, std::pair(device, id));
        if (bucket->second.empty()) pending_.erase(bucket);
    }
    of.segments.erase(at);
}

void EcCore::block_damaged(int device, const BlockKey& key, std::uint64_t id, std::uint32_t slot) {
    const auto at = member_of_.find({device, id});
    if (at == member_of_.end()) return;
    const auto [stripe, member] = at->second;
    lost_.put(key,
              {.segment = lost_handle(stripe, member), .slot = static_cast<std::uint16_t>(slot)});
    damaged_[at->second][slot + 1] = key;
    naps_.try_push(true);
}

// Stripes.

std::uint32_t EcCore::lost_handle(std::uint64_t stripe, int member) {
    const auto [at, fresh] = lost_handles_.try_emplace(
        {stripe, member}, static_cast<std::uint32_t>(lost_segments_.size()));
    if (fresh) lost_segments_.push_back({.stripe = stripe, .member = member});
    return at->second;
}

void EcCore::forget_lost(std::uint64_t stripe, int member) {
    damaged_.erase({stripe, member});
    const auto at = lost_handles_.find({stripe, member});
    if (at == lost_handles_.end()) return;
    lost_segments_[at->second].gone = true;
    lost_handles_.erase(at);
    for (std::size_t shard = 0; shard < BlockIndex::kShards; ++shard) {
        (void)lost_.sweep(
            shard, [this](const BlockPlace& place) { return lost_segments_[place.segment].gone; });
    }
}

void EcCore::install(std::shared_ptr<const EcStripe> info, std::vector<bool> parity,
                     const std::map<int, std::vector<FooterEntry>>& lost) {
    Stripe stripe;
    stripe.info = info;
    stripe.parity = std::move(parity);
    stripe.lost.assign(info->members.size(), false);
    stripe.tags.resize(info->members.size());
    stripe.scrubbed_ms = clock_.wall_unix_ms();
    for (std::size_t i = 0; i < info->members.size(); ++i) {
        const EcMember& member = info->members[i];
        const int device = static_cast<int>(member.device);
        member_of_[{device, member.segment}] = {info->id, static_cast<int>(i)};
        const auto bucket = pending_.find({info->traffic_class, info->bucket_start_unix_ms});
        if (bucket == pending_.end()) continue;
        std::erase(bucket->second, std::pair(device, member.segment));
        if (bucket->second.empty()) pending_.erase(bucket);
    }
    for (const auto& [member, entries] : lost) {
        const std::uint32_t handle = lost_handle(info->id, member);
        stripe.lost[static_cast<std::size_t>(member)] = true;
        stripe.tags[static_cast<std::size_t>(member)] = tags_of(entries);
        for (std::size_t slot = 0; slot < entries.size(); ++slot) {
            if ((entries[slot].flags & kFooterPresent) == 0) continue;
            lost_.put(entries[slot].key,
                      {.segment = handle, .slot = static_cast<std::uint16_t>(slot)});
        }
    }
    for (std::size_t j = 0; j < stripe.parity.size(); ++j)
        if (stripe.parity[j])
            devices_[info->parity_devices[j]].parity_bytes += parity_file_bytes(*info);
    stripes_.emplace(info->id, std::move(stripe));
}

// Its parity goes. What is left of its segments is protected anew when it is worth it.
void EcCore::dissolve(std::uint64_t id, bool protect_again) {
    const auto at = stripes_.find(id);
    if (at == stripes_.end()) return;
    const Stripe stripe = std::move(at->second);
    stripes_.erase(at);
    const EcStripe& info = *stripe.info;
    for (std::size_t i = 0; i < info.members.size(); ++i) {
        const int device = static_cast<int>(info.members[i].device);
        const std::uint64_t segment = info.members[i].segment;
        member_of_.erase({device, segment});
        forget_lost(id, static_cast<int>(i));
        const bool there = devices_[static_cast<std::size_t>(device)].segments.contains(segment) &&
                           !stripe.lost[i];
        if (there && protect_again)
            pending_[{info.traffic_class, info.bucket_start_unix_ms}].emplace_back(device, segment);
    }
    for (std::size_t j = 0; j < stripe.parity.size(); ++j)
        if (stripe.parity[j])
            devices_[info.parity_devices[j]].parity_bytes -= parity_file_bytes(info);
    removals_.push_back(stripe.info);
    // What a reader or the keeper has begun for it comes to nothing.
    reader_.post([this, info = stripe.info] { reader_disk_->forget(*info); });
    naps_.try_push(true);
}

// What the keeper does next. One job at a time; each ends on this thread and comes back here.

void EcCore::run(std::function<std::function<void()>()> job) {
    working_ = true;
    worker_.post([this, job = std::move(job)] {
        thread_.post([this, then = job()] {
            working_ = false;
            then();
            work();
        });
    });
}

void EcCore::work() {
    if (working_ || stopped_) return;
    remove_expired();
    show();
    if (work_on_removal()) return;
    run_drops();
    if (!dropping_) {
        if (work_on_build()) return;
        if (!closing_ && (work_on_rows() || work_on_files() || work_on_scrub())) return;
        end_settled();
        if (close_buckets_ && on_protected_) std::exchange(on_protected_, {})();
    }
    run([this] {
        (void)naps_.pop(kNapUs);
        return [] {};
    });
}

bool EcCore::work_on_removal() {
    if (removals_.empty()) return false;
    const std::shared_ptr<const EcStripe> stripe = removals_.front();
    removals_.pop_front();
    run([this, stripe] {
        Status status = keeper_->remove(*stripe);
        return [this, status = std::move(status)] {
            if (status.ok()) return;
            log_warning("pool: {}", status.message());
            removal_failure_ = status;
        };
    });
    return true;
}

// The next stripe: full ones first, then what is left of buckets that are over.
std::optional<EcStripe> EcCore::plan(bool any_length) const {
    const int open = open_devices_count();
    const int full = std::min(options_.shape.k, open - options_.shape.m);
    if (full < 1) return std::nullopt;
    const std::int64_t now_ms = clock_.wall_unix_ms();
    const std::int64_t budget_bytes =
        options_.capacity_bytes / options_.shape.shards() * options_.shape.m;
    for (const auto& [bucket, segments] : pending_) {
        const ClassLife& life = lives_[static_cast<std::size_t>(bucket.first)];
        const bool over = now_ms >= bucket.second + life.bucket_ms + kBucketGraceMs;
        const std::int64_t expiry_ms = bucket_expiry_ms(life, bucket.second);
        if (expiry_ms <= now_ms + kExpiryGraceMs) continue;
        std::map<int, std::vector<std::uint64_t>> of;
        for (const auto& [device, segment] : segments)
            of[device].push_back(segment);
        const int most = std::min(full, static_cast<int>(of.size()));
        if (most < full && !(any_length && (over || close_buckets_))) continue;
        // From the devices with the most, so that few are left over.
        std::vector<std::pair<std::size_t, int>> by_count;
        for (const auto& [device, ids] : of)
            by_count.emplace_back(ids.size(), device);
        std::stable_sort(by_count.begin(), by_count.end(),
                         [](const auto& a, const auto& b) { return a.first > b.first; });
        EcStripe stripe;
        stripe.set = set_.set;
        stripe.shape = options_.shape;
        stripe.id = set_.attempt << 32 | (stripes_made_ + 1);
        stripe.traffic_class = bucket.first;
        stripe.bucket_start_unix_ms = bucket.second;
        stripe.payload_bytes = static_cast<std::uint32_t>(geometry_.payload_bytes);
        std::set<int> taken;
        for (int i = 0; i < most; ++i) {
            const int device = by_count[static_cast<std::size_t>(i)].second;
            const SealedSegment& segment =
                devices_[static_cast<std::size_t>(device)].segments.at(of[device].front());
            stripe.members.push_back({.device = static_cast<std::uint32_t>(device),
                                      .rows = segment.slots + 1,
                                      .segment = segment.id});
            stripe.rows = std::max(stripe.rows, segment.slots + 1);
            stripe.expiry_unix_ms = segment.expiry_ms;
            taken.insert(device);
        }
        std::vector<std::pair<std::int64_t, int>> holders;
        for (std::size_t i = 0; i < devices_.size(); ++i) {
            const int device = static_cast<int>(i);
            if (is_open(device) && !taken.contains(device))
                holders.emplace_back(devices_[i].parity_bytes, device);
        }
        std::sort(holders.begin(), holders.end());
        for (int j = 0; j < options_.shape.m; ++j)
            stripe.parity_devices.push_back(
                static_cast<std::uint32_t>(holders[static_cast<std::size_t>(j)].second));
        const std::int64_t most_bytes =
            holders[static_cast<std::size_t>(options_.shape.m - 1)].first;
        if (most_bytes + parity_file_bytes(stripe) <= budget_bytes) return stripe;
    }
    return std::nullopt;
}

bool EcCore::work_on_build() {
    std::optional<EcStripe> planned = plan(false);
    if (!planned) planned = plan(true);
    if (!planned) return false;
    ++stripes_made_;
    building_ = planned;
    build_spoiled_ = false;
    const auto stripe = std::make_shared<EcStripe>(std::move(*planned));
    run([this, stripe] {
        Status status = keeper_->build(*stripe);
        return [this, stripe, status = std::move(status)] { take_build(stripe, status); };
    });
    return true;
}

void EcCore::take_build(std::shared_ptr<EcStripe> info, const Status& status) {
    building_.reset();
    if (status.ok() && !build_spoiled_) {
        metrics_.stripes_built.add();
        return install(std::move(info),
                       std::vector<bool>(static_cast<std::size_t>(info->shape.m), true), {});
    }
    if (status.ok()) {
        removals_.push_back(std::move(info));
        return;
    }
    if (status.code() == StatusCode::cancelled) return;
    // Not again and again: these segments stay unprotected.
    log_warning("pool: a stripe cannot be made: {}", status.message());
    const auto bucket = pending_.find({info->traffic_class, info->bucket_start_unix_ms});
    if (bucket == pending_.end()) return;
    for (const EcMember& member : info->members)
        std::erase(bucket->second, std::pair(static_cast<int>(member.device), member.segment));
    if (bucket->second.empty()) pending_.erase(bucket);
}

// Damaged slots of segments that are there.
bool EcCore::work_on_rows() {
    if (damaged_.empty()) return false;
    const auto [of, rows] = std::move(*damaged_.begin());
    damaged_.erase(damaged_.begin());
    const auto at = stripes_.find(of.first);
    if (at == stripes_.end()) return true;
    const std::shared_ptr<const EcStripe> stripe = at->second.info;
    run([this, stripe, shard = of.second, rows = rows] {
        std::vector<std::uint32_t> numbers;
        for (const auto& [row, key] : rows)
            numbers.push_back(row);
        EcKeeper::Mended mended = keeper_->mend(*stripe, shard, numbers);
        return [this, id = stripe->id, shard, rows, mended = std::move(mended)] {
            take_mended(id, shard, rows, mended);
        };
    });
    return true;
}

void EcCore::take_mended(std::uint64_t stripe, int shard,
                         const std::map<std::uint32_t, BlockKey>& rows,
                         const EcKeeper::Mended& mended) {
    metrics_.repair_blocks.add(static_cast<std::uint64_t>(mended.rebuilt));
    if (!mended.status.ok())
        log_warning("pool: a damaged slot cannot be mended: {}", mended.status.message());
    const auto at = stripes_.find(stripe);
    if (at == stripes_.end()) return;
    const EcMember& member = at->second.info->members[static_cast<std::size_t>(shard)];
    for (const std::uint32_t row : mended.good) {
        const auto key = rows.find(row);
        if (key == rows.end()) continue;
        const BlockPlace place{.segment = lost_handle(stripe, shard),
                               .slot = static_cast<std::uint16_t>(row - 1)};
        EmbeddedStore* device = devices_[member.device].store.get();
        if (device == nullptr) continue;
        ++restoring_;
        (void)device->restore(key->second, member.segment, row - 1, kNever,
                              [this, key = key->second, place](const Status& status) {
                                  thread_.post([this, key, place, good = status.ok()] {
                                      --restoring_;
                                      if (good && lost_.erase_if_at(key, place)) ++returned_;
                                      if (restoring_ == 0) naps_.try_push(true);
                                  });
                              });
    }
}

// Whole files: parity that is missing, segments of a device that was replaced. What lives longest
// comes first, and what expires before its turn is passed over.
bool EcCore::work_on_files() {
    const std::int64_t now_ms = clock_.wall_unix_ms();
    const Stripe* best = nullptr;
    int best_shard = 0;
    for (const auto& [id, stripe] : stripes_) {
        const EcStripe& info = *stripe.info;
        const std::int64_t bytes = parity_file_bytes(info) * (info.shape.k + 2);
        const std::int64_t needs_ms =
            options_.work_bytes_per_s > 0 ? bytes * 1'000 / options_.work_bytes_per_s : 0;
        if (stripe.failures >= kFailuresMax || info.expiry_unix_ms <= now_ms + needs_ms) continue;
        if (best != nullptr && best->info->expiry_unix_ms >= info.expiry_unix_ms) continue;
        for (int shard = 0; shard < info.shape.shards(); ++shard) {
            const auto member = static_cast<std::size_t>(shard);
            const auto parity = static_cast<std::size_t>(shard - info.shape.k);
            const bool data = shard < info.shape.k;
            if (data && (member >= info.members.size() || !stripe.lost[member])) continue;
            if (!data && stripe.parity[parity]) continue;
            const std::uint32_t device =
                data ? info.members[member].device : info.parity_devices[parity];
            if (!is_open(static_cast<int>(device))) continue;
            best = &stripe;
            best_shard = shard;
            break;
        }
    }
    if (best == nullptr) return false;
    run([this, stripe = best->info, shard = best_shard] {
        EcKeeper::Mended mended = keeper_->rebuild(*stripe, shard);
        return [this, id = stripe->id, shard, mended = std::move(mended)] {
            take_rebuilt_file(id, shard, mended);
        };
    });
    return true;
}

void EcCore::take_rebuilt_file(std::uint64_t id, int shard, const EcKeeper::Mended& mended) {
    const auto at = stripes_.find(id);
    if (at == stripes_.end()) return;
    Stripe& stripe = at->second;
    const EcStripe& info = *stripe.info;
    if (!mended.status.ok()) {
        if (mended.status.code() == StatusCode::cancelled) return;
        ++stripe.failures;
        log_warning("pool: {}", mended.status.message());
        return;
    }
    metrics_.repair_blocks.add(static_cast<std::uint64_t>(mended.rebuilt));
    if (shard >= info.shape.k) {
        const auto parity = static_cast<std::size_t>(shard - info.shape.k);
        stripe.parity[parity] = true;
        devices_[info.parity_devices[parity]].parity_bytes += parity_file_bytes(info);
        return;
    }
    // Its store says that it has it (segment_sealed) before this is done.
    const EcMember& member = info.members[static_cast<std::size_t>(shard)];
    working_ = true;
    (void)devices_[member.device].store->adopt(
        info.traffic_class, info.bucket_start_unix_ms, member.segment, kNever,
        [this, id](const Status& status) {
            thread_.post([this, id, status] {
                working_ = false;
                const auto of = stripes_.find(id);
                if (!status.ok() && of != stripes_.end()) ++of->second.failures;
                if (!status.ok()) log_warning("pool: {}", status.message());
                work();
            });
        });
}

// Parity is looked through as often as segments are (kvpool.md 7).
bool EcCore::work_on_scrub() {
    const std::int64_t now_ms = clock_.wall_unix_ms();
    for (auto& [id, stripe] : stripes_) {
        const ClassLife& life = lives_[static_cast<std::size_t>(stripe.info->traffic_class)];
        if (now_ms - stripe.scrubbed_ms < life.ttl_ms / 2) continue;
        stripe.scrubbed_ms = now_ms;
        run([this, info = stripe.info] {
            const std::int64_t before = keeper_->bytes_scrubbed();
            std::map<int, std::vector<std::uint32_t>> bad;
            for (const auto& [shard, row] : keeper_->scrub(*info))
                bad[shard].push_back(row);
            std::int64_t rebuilt = 0;
            for (const auto& [shard, rows] : bad)
                rebuilt += keeper_->mend(*info, shard, rows).rebuilt;
            const std::int64_t bytes = keeper_->bytes_scrubbed() - before;
            return [this, rebuilt, bytes] {
                metrics_.repair_blocks.add(static_cast<std::uint64_t>(rebuilt));
                metrics_.scrub_bytes.add(static_cast<std::uint64_t>(bytes));
            };
        });
        return true;
    }
    return false;
}

// Members of devices that are not there are removed by nobody else.
void EcCore::remove_expired() {
    const std::int64_t now_ms = clock_.wall_unix_ms();
    std::vector<std::uint64_t> gone;
    for (const auto& [id, stripe] : stripes_) {
        const bool all_lost =
            std::all_of(stripe.lost.begin(), stripe.lost.end(), [](bool lost) { return lost; });
        if (all_lost && stripe.info->expiry_unix_ms + kExpiryGraceMs <= now_ms) gone.push_back(id);
    }
    for (const std::uint64_t id : gone)
        dissolve(id, false);
}

// Drops. While one runs nothing is built or mended: what is wiped must not be written again. It is
// done when no parity is left that could give a dropped block.

StoreOpPtr EcCore::begin_drop(const NamespaceId& ns, Deadline deadline,
                              std::function<void(Status)> done) {
    const auto call = std::make_shared<EcTask>();
    call->done = std::move(done);
    return post_call(call, deadline, [this, call, ns] {
        const Status refused = refusal(call->deadline);
        watch(call);
        if (!refused.ok()) return finish(*call, refused);
        drops_.emplace_back(call, ns);
        pace_.hold(true);
        naps_.try_push(true);
    });
}

// Called between two jobs.
void EcCore::run_drops() {
    if (drops_.empty()) return;
    if (!dropping_) {
        dropping_ = true;
        drop_sent_ = false;
        drop_status_ = {};
        removal_failure_ = {};
        start_drop();
    } else if (drop_sent_) {
        finish_drop();
    }
}

void EcCore::start_drop() {
    const NamespaceId ns = drops_.front().second;
    const auto left = std::make_shared<int>(open_devices_count());
    for (Device& device : devices_) {
        if (device.store == nullptr) continue;
        (void)device.store->drop_namespace(ns, kNever, [this, left, ns](Status status) {
            thread_.post([this, left, ns, status = std::move(status)] {
                if (drop_status_.ok()) drop_status_ = status;
                if (--*left > 0) return;
                const std::uint64_t tag = namespace_tag(ns);
                std::vector<std::uint64_t> touched;
                for (const auto& [id, stripe] : stripes_) {
                    const bool has =
                        std::any_of(stripe.tags.begin(), stripe.tags.end(), [&](const auto& tags) {
                            return std::find(tags.begin(), tags.end(), tag) != tags.end();
                        });
                    // A member whose footer nobody could read may have anything.
                    bool unknown = false;
                    for (std::size_t i = 0; i < stripe.lost.size(); ++i)
                        unknown = unknown || (stripe.lost[i] && stripe.tags[i].empty());
                    if (has || unknown) touched.push_back(id);
                }
                for (const std::uint64_t id : touched)
                    dissolve(id, true);
                drop_sent_ = true;
                naps_.try_push(true);
            });
        });
    }
}

// Removals come first, so there are none left.
void EcCore::finish_drop() {
    const std::shared_ptr<EcTask> call = drops_.front().first;
    drops_.pop_front();
    dropping_ = false;
    Status status = drop_status_.ok() ? removal_failure_ : drop_status_;
    pace_.hold(!drops_.empty());
    finish(*call, std::move(status));
}

// Scrubs and who waits for the work to be done.

StoreOpPtr EcCore::begin_scrub(Deadline deadline, std::function<void(Status)> done) {
    const auto call = std::make_shared<EcTask>();
    call->done = std::move(done);
    return post_call(call, deadline, [this, call] {
        const Status refused = refusal(call->deadline);
        watch(call);
        if (!refused.ok()) return finish(*call, refused);
        const auto left = std::make_shared<int>(open_devices_count());
        for (Device& device : devices_) {
            if (device.store == nullptr) continue;
            (void)device.store->scrub(call->deadline,
                                      [this, call, left](const ScrubReport&, const Status&) {
                                          thread_.post([this, call, left] {
                                              if (--*left > 0) return;
                                              for (auto& [id, stripe] : stripes_)
                                                  stripe.scrubbed_ms = 0;
                                              settles_.push_back(call);
                                              naps_.try_push(true);
                                          });
                                      });
        }
    });
}

StoreOpPtr EcCore::begin_settle(Deadline deadline, std::function<void(Status)> done) {
    const auto call = std::make_shared<EcTask>();
    call->done = std::move(done);
    return post_call(call, deadline, [this, call] {
        const Status refused = refusal(call->deadline);
        watch(call);
        if (!refused.ok()) return finish(*call, refused);
        settles_.push_back(call);
        naps_.try_push(true);
    });
}

void EcCore::end_settled() {
    if (settles_.empty() || !removals_.empty() || !drops_.empty() || restoring_ > 0) return;
    for (const std::shared_ptr<EcTask>& call : std::exchange(settles_, {}))
        finish(*call, {});
}

void EcCore::show() {
    EcUsage usage;
    usage.devices = static_cast<std::int64_t>(devices_.size());
    usage.devices_open = open_devices_count();
    usage.stripes = static_cast<std::int64_t>(stripes_.size());
    for (const Device& device : devices_) {
        usage.parity_bytes += device.parity_bytes;
        usage.unprotected_segments += static_cast<std::int64_t>(device.segments.size());
    }
    for (const auto& [id, stripe] : stripes_) {
        const EcStripe& info = *stripe.info;
        for (std::size_t i = 0; i < stripe.lost.size(); ++i) {
            if (!stripe.lost[i]) --usage.unprotected_segments;
            if (stripe.lost[i] && is_open(static_cast<int>(info.members[i].device)))
                ++usage.repairs_left;
        }
        for (std::size_t j = 0; j < stripe.parity.size(); ++j)
            if (!stripe.parity[j] && is_open(static_cast<int>(info.parity_devices[j])))
                ++usage.repairs_left;
    }
    for (const auto& [of, rows] : damaged_)
        usage.repairs_left += static_cast<std::int64_t>(rows.size());
    usage.lost_blocks = static_cast<std::int64_t>(lost_.size());
    usage.repaired_blocks = static_cast<std::int64_t>(metrics_.repair_blocks.value());
    usage_.set(usage);
    metrics_.devices_open.set(static_cast<double>(usage.devices_open));
    metrics_.devices_lost.set(static_cast<double>(usage.devices - usage.devices_open));
    metrics_.stripes.set(static_cast<double>(usage.stripes));
    metrics_.parity_bytes.set(static_cast<double>(usage.parity_bytes));
    metrics_.unprotected_segments.set(static_cast<double>(usage.unprotected_segments));
    metrics_.lost_blocks.set(static_cast<double>(usage.lost_blocks));
    metrics_.repairs_left.set(static_cast<double>(usage.repairs_left));
}

}  // namespace fathom
