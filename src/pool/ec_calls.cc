#include <algorithm>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "pool/call_end.h"
#include "pool/ec_core.h"
#include "pool/prefix_search.h"
#include "pool/slot_buffers.h"
#include "pool/slot_keys.h"

namespace fathom {

namespace {

constexpr std::int64_t kQueuedBlocksMax = 65'536;
constexpr int kFailuresMax = 4;  // writes of a device, in a row
constexpr std::int64_t kSuspectUs = 30'000'000;
// Devices have the same deadline and know what came by then; they get to say so first.
constexpr std::int64_t kGraceUs = 2'000;

std::uint64_t mix(std::uint64_t x) {
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9U;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebU;
    return x ^ (x >> 31);
}

Deadline after(Deadline deadline, std::int64_t us) {
    return {deadline.at_us > std::numeric_limits<std::int64_t>::max() - us ? deadline.at_us
                                                                           : deadline.at_us + us};
}

struct EcHandle : StoreOp {
    EcHandle(std::shared_ptr<EcCore> of, std::function<void()> with)
        : core(std::move(of)), run(std::move(with)) {}
    void cancel() override { run(); }
    std::shared_ptr<EcCore> core;
    std::function<void()> run;
};

}  // namespace

StoreOpPtr EcCore::post_call(const std::shared_ptr<EcCall>& call, Deadline deadline,
                             std::function<void()> begin) {
    call->deadline = deadline;
    thread_.post(std::move(begin));
    return std::make_shared<EcHandle>(shared_from_this(), [this, call] {
        thread_.post([this, call] {
            if (call->finished) return;
            for (const StoreOpPtr& op : call->ops)
                op->cancel();
            call->give_up(*this, true);
        });
    });
}

Status EcCore::refusal(Deadline deadline) const {
    if (closing_) return call_end_status(CallEnd::closed);
    if (deadline.at_us > clock_.now_us()) return {};
    return Status(StatusCode::deadline_exceeded, "the deadline had passed when the call came");
}

void EcCore::watch(const std::shared_ptr<EcCall>& call) {
    queued_blocks_ += call->blocks;
    calls_.emplace(call->deadline.at_us, call);
    if (call->deadline.at_us == std::numeric_limits<std::int64_t>::max()) return;
    const std::int64_t at_us = after(call->deadline, kGraceUs).at_us;
    call->timer = thread_.at(at_us, [this, call] {
        if (!call->finished) call->give_up(*this, false);
    });
}

void EcCore::end(EcCall& call) {
    call.finished = true;
    queued_blocks_ -= call.blocks;
    if (call.timer) thread_.cancel(*call.timer);
    call.ops.clear();
    const auto [first, last] = calls_.equal_range(call.deadline.at_us);
    for (auto at = first; at != last; ++at) {
        if (at->second.get() != &call) continue;
        calls_.erase(at);
        break;
    }
    if (calls_.empty() && on_calls_ended_) std::exchange(on_calls_ended_, {})();
}

void EcCore::release(EcCall& call) {
    if (call.finished && call.holds == 0 && call.released) std::exchange(call.released, {})();
}

int EcCore::open_devices_count() const {
    return static_cast<int>(
        std::count_if(devices_.begin(), devices_.end(),
                      [](const Device& device) { return device.store != nullptr; }));
}

// The highest of what key and device make together: when a device goes, only its keys move.
int EcCore::home(const BlockKey& key) const {
    std::uint64_t bits = 0;
    std::memcpy(&bits, key.bytes.data() + 8, sizeof(bits));
    const std::int64_t now_us = scattered_ ? clock_.now_us() : 0;
    int best = -1, fallback = -1;
    std::uint64_t best_score = 0, fallback_score = 0;
    for (std::size_t i = 0; i < devices_.size(); ++i) {
        if (devices_[i].store == nullptr) continue;
        const std::uint64_t score = mix(bits + (i + 1) * 0x9e3779b97f4a7c15U);
        if (fallback < 0 || score > fallback_score) {
            fallback = static_cast<int>(i);
            fallback_score = score;
        }
        if (devices_[i].suspect_until_us > now_us) continue;
        if (best < 0 || score > best_score) {
            best = static_cast<int>(i);
            best_score = score;
        }
    }
    return best >= 0 ? best : fallback;
}

std::optional<BlockPlace> EcCore::find_lost(const BlockKey& key, std::int64_t* expiry_ms) const {
    const auto place = lost_.find(key);
    if (!place) return std::nullopt;
    const LostSegment& segment = lost_segments_[place->segment];
    const auto stripe = stripes_.find(segment.stripe);
    if (segment.gone || stripe == stripes_.end()) return std::nullopt;
    *expiry_ms = stripe->second.info->expiry_unix_ms;
    if (clock_.wall_unix_ms() >= *expiry_ms) return std::nullopt;
    return place;
}

void EcCore::ask(std::vector<BlockKey> keys, std::vector<int> devices, Deadline deadline,
                 Answer answer) {
    const auto question = std::make_shared<Question>();
    question->found.assign(keys.size(), -1);
    question->waiting = devices.size();
    if (devices.empty()) return answer(question->found);
    for (const int device : devices) {
        (void)devices_[static_cast<std::size_t>(device)].store->exists(
            keys, deadline,
            [this, question, device, answer](std::vector<bool> present, const Status&) {
                thread_.post([question, device, answer, present = std::move(present)] {
                    for (std::size_t i = 0; i < present.size(); ++i)
                        if (present[i]) question->found[i] = device;
                    if (--question->waiting == 0) answer(question->found);
                });
            });
    }
}

// At home first; only where blocks may lie elsewhere the others are asked for the rest.
void EcCore::find(const std::vector<BlockKey>& keys, Deadline deadline, Answer answer) {
    const auto found = std::make_shared<std::vector<int>>(keys.size(), -1);
    const auto left = std::make_shared<std::size_t>(1);
    const auto ended = [this, keys, deadline, found, left, answer = std::move(answer)] {
        if (--*left > 0) return;
        std::vector<BlockKey> rest;
        std::vector<std::size_t> at;
        for (std::size_t i = 0; i < keys.size(); ++i) {
            if ((*found)[i] >= 0) continue;
            rest.push_back(keys[i]);
            at.push_back(i);
        }
        if (rest.empty() || !scattered_) return answer(*found);
        std::vector<int> others;
        for (std::size_t i = 0; i < devices_.size(); ++i)
            if (devices_[i].store != nullptr) others.push_back(static_cast<int>(i));
        ask(std::move(rest), std::move(others), deadline,
            [found, at, answer](const std::vector<int>& devices) {
                for (std::size_t i = 0; i < at.size(); ++i)
                    (*found)[at[i]] = devices[i];
                answer(*found);
            });
    };
    std::map<int, std::vector<std::size_t>> homes;
    for (std::size_t i = 0; i < keys.size(); ++i)
        homes[home(keys[i])].push_back(i);
    *left += homes.size();
    for (const auto& [device, at] : homes) {
        std::vector<BlockKey> of;
        for (const std::size_t i : at)
            of.push_back(keys[i]);
        ask(std::move(of), {device}, deadline,
            [found, at = at, ended](const std::vector<int>& devices) {
                for (std::size_t i = 0; i < at.size(); ++i)
                    (*found)[at[i]] = devices[i];
                ended();
            });
    }
    ended();
}

StoreOpPtr EcCore::begin_exists(std::vector<BlockKey> keys, Deadline deadline,
                                BlockStore::ExistsDone done) {
    const auto call = std::make_shared<EcTask>();
    const auto present = std::make_shared<std::vector<bool>>(keys.size());
    call->done = [present, done = std::move(done)](Status status) {
        done(*present, std::move(status));
    };
    return post_call(call, deadline, [this, call, present, keys = std::move(keys)] {
        const Status refused = refusal(call->deadline);
        watch(call);
        if (!refused.ok()) return finish(*call, refused);
        look(call, present, keys);
    });
}

void EcCore::look(const std::shared_ptr<EcTask>& call,
                  const std::shared_ptr<std::vector<bool>>& present,
                  const std::vector<BlockKey>& keys) {
    call->returned = returned_;
    find(keys, call->deadline, [this, call, present, keys](const std::vector<int>& devices) {
        if (call->finished) return;
        bool all = true;
        for (std::size_t i = 0; i < keys.size(); ++i) {
            std::int64_t expiry_ms = 0;
            (*present)[i] = devices[i] >= 0 || find_lost(keys[i], &expiry_ms).has_value();
            all = all && (*present)[i];
        }
        if (!all && call->returned != returned_) return look(call, present, keys);
        finish(*call, {});
    });
}

void EcTask::give_up(EcCore& core, bool cancelled) {
    core.finish(*this, cancelled ? Status(StatusCode::cancelled, "the call was cancelled")
                                 : Status(StatusCode::deadline_exceeded,
                                          "the deadline came first; the work goes on"));
}

void EcCore::finish(EcTask& call, Status status) {
    if (call.finished) return;
    const auto done = std::exchange(call.done, {});
    end(call);
    done(std::move(status));
}

// Gets.

StoreOpPtr EcCore::begin(const std::shared_ptr<EcGet>& call, Deadline deadline) {
    return post_call(call, deadline, [this, call] { start(call); });
}

void EcCore::start(const std::shared_ptr<EcGet>& call) {
    const std::size_t n = call->requests.size();
    call->result.blocks.assign(n, GetStatus::miss);
    call->result.expiry_unix_ms.assign(n, 0);
    call->settled.assign(n, false);
    call->unsettled = n;
    if (closing_) call->trouble = refusal(call->deadline);
    const std::int64_t queued = queued_blocks_ + static_cast<std::int64_t>(n);
    if (call->trouble.ok() && queued > kQueuedBlocksMax) {
        call->trouble = error(StatusCode::resource_exhausted,
                              "{} blocks are asked for at a time, {} are possible; ask again later",
                              queued, kQueuedBlocksMax);
    }
    const bool refused = !call->trouble.ok();
    call->blocks = refused ? 0 : static_cast<std::int64_t>(n);
    watch(call);
    if (refused || n == 0) return finish(*call);
    if (call->deadline.at_us <= clock_.now_us()) return call->give_up(*this, false);
    std::vector<std::size_t> all(n);
    for (std::size_t i = 0; i < n; ++i)
        all[i] = i;
    ask_homes(call, all);
}

void EcCore::ask_homes(const std::shared_ptr<EcGet>& call, const std::vector<std::size_t>& at) {
    std::map<int, std::vector<std::size_t>> homes;
    for (const std::size_t i : at)
        homes[home(call->requests[i].name.key)].push_back(i);
    for (auto& [device, some] : homes)
        send_get(call, device, std::move(some), true);
}

void EcCore::send_get(const std::shared_ptr<EcGet>& call, int device, std::vector<std::size_t> at,
                      bool first) {
    std::vector<GetRequest> requests;
    for (const std::size_t i : at)
        requests.push_back(call->requests[i]);
    ++call->holds;
    call->ops.push_back(devices_[static_cast<std::size_t>(device)].store->get(
        std::move(requests), call->deadline,
        {.done =
             [this, call, at = std::move(at), first, asked = returned_](const GetResult& result) {
                 thread_.post([this, call, at, result, first, asked] {
                     if (!call->finished) take_got(call, at, result, first, asked);
                 });
             },
         .released =
             [this, call] {
                 thread_.post([this, call] {
                     --call->holds;
                     release(*call);
                 });
             }}));
}

void EcCore::take_got(const std::shared_ptr<EcGet>& call, const std::vector<std::size_t>& at,
                      const GetResult& got, bool first, std::uint64_t asked) {
    if (call->trouble.ok()) call->trouble = got.status;
    std::vector<std::size_t> absent, again;
    for (std::size_t i = 0; i < at.size() && !call->finished; ++i) {
        const GetStatus status = got.blocks[i];
        const bool doubtful = status == GetStatus::miss || status == GetStatus::corrupt ||
                              status == GetStatus::io_error;
        if (status == GetStatus::hit) {
            settle(call, at[i], status, got.expiry_unix_ms[i]);
        } else if (doubtful && rebuild(call, at[i], status)) {
            continue;
        } else if (doubtful && asked != returned_) {
            again.push_back(at[i]);
        } else if (doubtful && first && scattered_) {
            absent.push_back(at[i]);
        } else {
            settle(call, at[i], status);
        }
    }
    if (!again.empty() && !call->finished) ask_homes(call, again);
    if (!absent.empty() && !call->finished) look_elsewhere(call, std::move(absent));
}

void EcCore::look_elsewhere(const std::shared_ptr<EcGet>& call, std::vector<std::size_t> at) {
    std::vector<BlockKey> keys;
    for (const std::size_t i : at)
        keys.push_back(call->requests[i].name.key);
    std::vector<int> others;
    for (std::size_t i = 0; i < devices_.size(); ++i)
        if (devices_[i].store != nullptr) others.push_back(static_cast<int>(i));
    ask(std::move(keys), std::move(others), call->deadline,
        [this, call, at = std::move(at)](const std::vector<int>& devices) {
            if (call->finished) return;
            std::map<int, std::vector<std::size_t>> where;
            for (std::size_t i = 0; i < at.size(); ++i)
                where[devices[i]].push_back(at[i]);
            for (auto& [device, some] : where) {
                if (device >= 0) {
                    send_get(call, device, std::move(some), false);
                    continue;
                }
                for (const std::size_t i : some)
                    settle(call, i, GetStatus::miss);
            }
        });
}

// From other devices, if it is a block that only they can give.
bool EcCore::rebuild(const std::shared_ptr<EcGet>& call, std::size_t at, GetStatus otherwise) {
    std::int64_t expiry_ms = 0;
    const auto place = find_lost(call->requests[at].name.key, &expiry_ms);
    if (!place) return false;
    const LostSegment& segment = lost_segments_[place->segment];
    const std::shared_ptr<const EcStripe> stripe = stripes_.at(segment.stripe).info;
    const EcMember& member = stripe->members[static_cast<std::size_t>(segment.member)];
    const SlotPlace expected{pool_low_bytes(set_.devices[member.device].pool), member.segment,
                             place->slot};
    reader_.post([this, call, at, place = *place, stripe, expected, otherwise, expiry_ms,
                  shard = segment.member] {
        if (call->finished) return;
        const auto slot = aligned_bytes(geometry_.slot_bytes);
        SlotTrailer trailer;
        GetStatus status = GetStatus::io_error;
        if (reader_disk_->rebuild_row(*stripe, shard, expected.slot + 1U, slot.get())) {
            const SlotFault fault = open_slot(
                {slot.get(), static_cast<std::size_t>(geometry_.slot_bytes)}, geometry_, expected,
                call->requests[at].name, {reader_keys_.get(), encrypted_only_}, trailer);
            // Of another name, or without its key: the bytes are good, but not for who asks.
            const bool other = fault == SlotFault::collision || fault == SlotFault::tag;
            status = fault == SlotFault::none ? GetStatus::hit
                     : other                  ? GetStatus::miss
                                              : GetStatus::corrupt;
        }
        thread_.post([this, call, at, place, status, otherwise, slot, expiry_ms] {
            take_rebuilt(call, at, place, status, otherwise, slot.get(), expiry_ms);
        });
    });
    return true;
}

void EcCore::take_rebuilt(const std::shared_ptr<EcGet>& call, std::size_t at,
                          const BlockPlace& place, GetStatus status, GetStatus otherwise,
                          const std::uint8_t* slot, std::int64_t expiry_ms) {
    const GetRequest& request = call->requests[at];
    if (status == GetStatus::hit) {
        metrics_.degraded_reads.add();
    } else if (status != GetStatus::miss) {
        // Too little is left of it: it is not there any more.
        metrics_.failed_rebuilds.add();
        lost_.erase_if_at(request.name.key, place);
        status = otherwise;
    }
    if (call->finished) return;
    if (status == GetStatus::hit) {
        std::memcpy(request.destination.page, slot,
                    static_cast<std::size_t>(geometry_.payload_bytes));
    }
    settle(call, at, status, status == GetStatus::hit ? expiry_ms : 0);
}

void EcCore::settle(const std::shared_ptr<EcGet>& call, std::size_t at, GetStatus status,
                    std::int64_t expiry_ms) {
    if (call->finished) return;
    call->result.blocks[at] = status;
    call->result.expiry_unix_ms[at] = expiry_ms;
    call->settled[at] = true;
    if (--call->unsettled == 0) finish(*call);
}

void EcGet::give_up(EcCore& core, bool cancelled) {
    const CallEnd why = cancelled ? CallEnd::cancelled : CallEnd::deadline;
    for (std::size_t i = 0; i < settled.size(); ++i)
        if (!settled[i]) result.blocks[i] = unread_block(why);
    trouble = call_end_status(why);
    core.finish(*this);
}

void EcCore::finish(EcGet& call) {
    GetResult& result = call.result;
    while (result.leading_hits < result.blocks.size() &&
           result.blocks[result.leading_hits] == GetStatus::hit)
        ++result.leading_hits;
    const bool all = result.leading_hits == result.blocks.size() && !result.blocks.empty();
    if (!all) result.status = call.trouble;
    const auto done = std::exchange(call.done, {});
    end(call);
    done(std::move(result));
    release(call);
}

// Puts.

StoreOpPtr EcCore::begin(const std::shared_ptr<EcPut>& call, Deadline deadline) {
    return post_call(call, deadline, [this, call] { start(call); });
}

void EcCore::start(const std::shared_ptr<EcPut>& call) {
    const std::size_t n = call->requests.size();
    call->settled.assign(n, false);
    call->unsettled = n;
    PutOutcome refused = PutOutcome::failed;
    Status& status = call->result.status;
    if (closing_) status = refusal(call->deadline);
    const std::int64_t queued = queued_blocks_ + static_cast<std::int64_t>(n);
    if (status.ok() && queued > kQueuedBlocksMax) {
        refused = PutOutcome::busy;
        status = error(StatusCode::resource_exhausted,
                       "{} blocks are on their way at a time, {} are possible", queued,
                       kQueuedBlocksMax);
    }
    call->result.blocks.assign(n, refused);
    call->blocks = status.ok() ? static_cast<std::int64_t>(n) : 0;
    watch(call);
    if (!status.ok() || n == 0) return finish(*call);
    if (call->deadline.at_us <= clock_.now_us()) return call->give_up(*this, false);
    const std::int64_t now_ms = clock_.wall_unix_ms();
    std::vector<BlockKey> keys;
    std::vector<std::size_t> at;
    for (std::size_t i = 0; i < n; ++i) {
        const BlockKey& key = call->requests[i].name.key;
        std::int64_t expiry_ms = 0;
        const bool lost = find_lost(key, &expiry_ms).has_value();
        if (lost && expiry_ms - now_ms >= call->options.renew_before_ms) {
            settle(call, i, PutOutcome::exists);
        } else if (!writing_.insert(key).second) {
            settle(call, i, PutOutcome::in_flight);
        } else {
            keys.push_back(key);
            at.push_back(i);
        }
    }
    const auto send = [this, call, keys, at](const std::vector<int>& found) {
        std::map<int, std::vector<std::size_t>> where;
        for (std::size_t i = 0; i < at.size(); ++i)
            where[found[i] >= 0 ? found[i] : home(keys[i])].push_back(at[i]);
        for (auto& [device, some] : where)
            send_put(call, device, std::move(some));
    };
    if (keys.empty()) return;
    if (!scattered_) return send(std::vector<int>(keys.size(), -1));
    ++call->holds;
    find(keys, call->deadline, [this, call, send](const std::vector<int>& found) {
        --call->holds;
        send(found);  // also of a call that was given up: what it reserved is given back
    });
}

void EcCore::send_put(const std::shared_ptr<EcPut>& call, int device, std::vector<std::size_t> at) {
    const auto give_back = [this, call, at] {
        for (const std::size_t i : at)
            writing_.erase(call->requests[i].name.key);
    };
    if (call->finished) {
        give_back();
        return release(*call);
    }
    std::vector<PutRequest> requests;
    for (const std::size_t i : at)
        requests.push_back(call->requests[i]);
    ++call->holds;
    call->ops.push_back(devices_[static_cast<std::size_t>(device)].store->put(
        std::move(requests), call->options, call->deadline,
        {.done =
             [this, call, device, at, give_back](const PutResult& result) {
                 thread_.post([this, call, device, at, result, give_back] {
                     give_back();
                     Device& of = devices_[static_cast<std::size_t>(device)];
                     if (call->result.status.ok() && !call->finished)
                         call->result.status = result.status;
                     for (std::size_t i = 0; i < at.size(); ++i) {
                         const PutOutcome outcome = result.blocks[i];
                         const bool stored =
                             outcome == PutOutcome::stored || outcome == PutOutcome::renewed;
                         if (stored) (void)lost_.erase(call->requests[at[i]].name.key);
                         if (stored) of.failures = 0;
                         const bool fault = outcome == PutOutcome::failed && drops_.empty() &&
                                            result.status.code() == StatusCode::unavailable;
                         if (fault && ++of.failures >= kFailuresMax) {
                             of.failures = 0;
                             of.suspect_until_us = clock_.now_us() + kSuspectUs;
                             scattered_ = true;
                         }
                         settle(call, at[i], outcome);
                     }
                 });
             },
         .released =
             [this, call] {
                 thread_.post([this, call] {
                     --call->holds;
                     release(*call);
                 });
             }}));
}

void EcCore::settle(const std::shared_ptr<EcPut>& call, std::size_t at, PutOutcome outcome) {
    if (call->finished) return;
    call->result.blocks[at] = outcome;
    call->settled[at] = true;
    if (--call->unsettled == 0) finish(*call);
}

void EcPut::give_up(EcCore& core, bool cancelled) {
    const CallEnd why = cancelled ? CallEnd::cancelled : CallEnd::deadline;
    for (std::size_t i = 0; i < settled.size(); ++i)
        if (!settled[i]) result.blocks[i] = unwritten_block(why);
    result.status = call_end_status(why);
    core.finish(*this);
}

void EcCore::finish(EcPut& call) {
    const auto done = std::exchange(call.done, {});
    end(call);
    done(std::move(call.result));
    release(call);
}

}  // namespace fathom
