#include "pool/shared_core.h"

#include <algorithm>

#include "base/check.h"
#include "pool/class_life.h"

namespace fathom {

namespace {

constexpr std::int64_t kLookUs = 50'000, kIdleUs = 500'000;
constexpr double kRenewBurstSeconds = 2;

}  // namespace

SharedCore::SharedCore(const SharedParts& options, const SlotGeometry& geometry, FileLayer& files,
                       EmbeddedStore& own, StoreMailbox<std::function<void(SharedCore&)>>& mailbox,
                       SharedMetrics& metrics, std::atomic<std::size_t>& peer_blocks)
    : options_(options),
      geometry_(geometry),
      clock_(options.embedded.clock != nullptr ? *options.embedded.clock : real_clock()),
      files_(files),
      own_(own),
      mailbox_(mailbox),
      metrics_(metrics),
      peer_blocks_(peer_blocks),
      buffers_(geometry.slot_bytes, options.embedded.io_depth) {
    for (int i = 0; i < options.embedded.io_depth; ++i)
        read_buffers_.push_back(buffers_.piece(i));
    finishes_.resize(read_buffers_.size());
    for (std::size_t i = finishes_.size(); i-- > 0;)
        free_tags_.push_back(static_cast<std::uint32_t>(i));
}

SharedCore::~SharedCore() {
    for (auto& [handle, segment] : segments_)
        if (segment.file >= 0) files_.close(segment.file);
}

Status SharedCore::refusal(Deadline deadline) const {
    if (closing_) {
        return error(StatusCode::unavailable, "{}: the pool is being closed",
                     options_.embedded.directory);
    }
    if (deadline.at_us > clock_.now_us()) return {};
    return Status(StatusCode::deadline_exceeded, "the deadline had passed when the call came");
}

void SharedCore::watch(const std::shared_ptr<SharedCall>& call) {
    call->timer = deadlines_.emplace(call->deadline.at_us, call);
}

void SharedCore::end(SharedCall& call) {
    call.finished = true;
    call.own.reset();
    if (call.timer) deadlines_.erase(*call.timer);
    call.timer.reset();
    --running_;
}

void SharedCore::run_deadlines() {
    const std::int64_t now_us = clock_.now_us();
    while (!deadlines_.empty() && deadlines_.begin()->first <= now_us) {
        const std::shared_ptr<SharedCall> call = deadlines_.begin()->second;
        metrics_.deadline_exceeded.add();
        call->give_up(*this, false);
        FATHOM_CHECK(call->finished);
    }
}

void SharedCore::cancel(const std::shared_ptr<SharedCall>& call) {
    if (call->finished || call->cancelled) return;
    call->cancelled = true;
    if (call->own != nullptr) return call->own->cancel();
    if (call->timer) call->give_up(*this, true);
}

// The clock may be a test's, which nobody hears move: while something is to fall due no wait is
// long.
std::int64_t SharedCore::idle_us() const {
    if (sweep_shard_ < BlockIndex::kShards || on_closed_) return 1'000;
    if (deadlines_.empty()) return kIdleUs;
    return std::clamp<std::int64_t>(deadlines_.begin()->first - clock_.now_us(), 100, kLookUs);
}

void SharedCore::turn() {
    const std::int64_t now_us = clock_.now_us();
    const auto renew_rate = static_cast<double>(options_.embedded.renew_bytes_per_s);
    const double passed_s = turned_us_ == 0 ? 1 : static_cast<double>(now_us - turned_us_) * 1e-6;
    renew_tokens_ =
        std::min(renew_tokens_ + passed_s * renew_rate, renew_rate * kRenewBurstSeconds);
    turned_us_ = now_us;
    run_deadlines();
    pump();
    sweep();
    peer_blocks_.store(index_.size(), std::memory_order_release);
    metrics_.index_entries.set(static_cast<double>(index_.size()));
    metrics_.index_bytes.set(static_cast<double>(index_.memory_bytes()));
    if (on_closed_) finish_closing();
}

void SharedCore::wait(bool may_sleep) {
    done_.clear();
    files_.wait(done_, may_sleep ? idle_us() : 0);
    for (const IoDone& done : done_) {
        const IoFinish finish = std::move(finishes_[done.tag]);
        free_tags_.push_back(static_cast<std::uint32_t>(done.tag));
        finish(done.result);
    }
}

void SharedCore::begin_close(Deadline deadline) {
    closing_ = true;
    close_deadline_ = deadline;
}

void SharedCore::end_close(std::function<void()> closed) {
    closing_ = true;
    on_closed_ = std::move(closed);
}

void SharedCore::finish_closing() {
    while (!deadlines_.empty()) {
        // Nobody works on a drop any more; a read may still come in time.
        const bool late = clock_.now_us() >= close_deadline_.at_us;
        const auto at = std::find_if(deadlines_.begin(), deadlines_.end(), [&](const auto& item) {
            return late || dynamic_cast<const SharedDrop*>(item.second.get()) != nullptr;
        });
        if (at == deadlines_.end()) return;
        const std::shared_ptr<SharedCall> call = at->second;
        call->give_up(*this, true);
    }
    const bool quiet = running_ == 0 && free_tags_.size() == finishes_.size();
    if (quiet) std::exchange(on_closed_, {})();
}

void SharedCore::begin(const std::shared_ptr<SharedGet>& call) {
    const std::size_t n = call->requests.size();
    call->open.assign(n, false);
    ++running_;
    if (closing_) {
        call->result = {.blocks = std::vector<GetStatus>(n, GetStatus::miss),
                        .status = refusal(call->deadline)};
        return finish(*call);
    }
    call->page_users = 1;
    call->own = own_.get(
        call->requests, call->deadline,
        {.done =
             [this, call](GetResult result) {
                 (void)mailbox_.post([call, result = std::move(result)](SharedCore& core) mutable {
                     core.take_own(call, std::move(result));
                 });
             },
         .released =
             [this, call] {
                 (void)mailbox_.post([call](SharedCore& core) { core.release(*call); });
             }});
}

// What the own store did not give, the others may have.
void SharedCore::take_own(const std::shared_ptr<SharedGet>& call, GetResult result) {
    call->own.reset();
    call->result = std::move(result);
    call->result.expiry_unix_ms.resize(call->requests.size());
    const StatusCode code = call->result.status.code();
    const bool ended = code == StatusCode::cancelled || code == StatusCode::deadline_exceeded ||
                       code == StatusCode::resource_exhausted;
    if (ended) return finish(*call);
    for (std::size_t i = 0; i < call->requests.size(); ++i) {
        if (call->result.blocks[i] == GetStatus::hit || !has(call->requests[i].name.key)) continue;
        call->open[i] = true;
        ++call->unsettled;
    }
    if (call->unsettled == 0) return finish(*call);
    watch(call);
    if (call->cancelled) return call->give_up(*this, true);
    for (std::size_t i = 0; i < call->requests.size(); ++i)
        if (call->open[i]) read_queue_.push_back({call, i, 0});
}

void SharedGet::give_up(SharedCore& core, bool cancelled_by_user) {
    for (std::size_t i = 0; i < open.size(); ++i) {
        if (!open[i]) continue;
        result.blocks[i] = cancelled_by_user ? GetStatus::cancelled : GetStatus::timeout;
        core.metrics_.get_blocks[static_cast<std::size_t>(result.blocks[i])]->add();
    }
    result.status = cancelled_by_user ? Status(StatusCode::cancelled, "the get was cancelled")
                                      : Status(StatusCode::deadline_exceeded,
                                               "the deadline came before all blocks did");
    core.finish(*this);
}

void SharedCore::finish(SharedGet& call) {
    ++call.page_users;  // this function, until `done` has run
    ++running_;         // …
    end(call);
    GetResult& result = call.result;
    result.leading_hits = 0;
    while (result.leading_hits < result.blocks.size() &&
           result.blocks[result.leading_hits] == GetStatus::hit)
        ++result.leading_hits;
    const auto done = std::move(call.calls.done);
    done(std::move(result));
    release(call);
}

// The last user of the pages gives them back, and with that the call has gone.
void SharedCore::release(SharedGet& call) {
    if (--call.page_users > 0 || !call.finished) return;
    --running_;
    if (call.calls.released) std::exchange(call.calls.released, {})();
}

void SharedCore::begin(const std::shared_ptr<SharedPut>& call) {
    const std::size_t n = call->requests.size();
    ++running_;
    call->result.blocks.assign(n, closing_ ? PutOutcome::failed : PutOutcome::exists);
    if (closing_) call->result.status = refusal(call->deadline);
    std::vector<PutRequest> pass_on;
    for (std::size_t i = 0; i < n && !closing_; ++i)
        if (passes_on(*call, i)) pass_on.push_back(call->requests[i]);
    metrics_.dedup_blocks.add(closing_ ? 0 : n - pass_on.size());
    if (pass_on.empty()) {
        end(*call);
        const auto calls = std::move(call->calls);
        calls.done(std::move(call->result));
        if (calls.released) calls.released();
        return;
    }
    call->own = own_.put(
        std::move(pass_on), call->options, call->deadline,
        {.done =
             [this, call](PutResult result) {
                 (void)mailbox_.post([call, result = std::move(result)](SharedCore& core) mutable {
                     core.take_own(*call, std::move(result));
                 });
             },
         .released =
             [this, call] {
                 (void)mailbox_.post([call](SharedCore&) {
                     if (call->calls.released) std::exchange(call->calls.released, {})();
                 });
             }});
}

// Whether the own store is to have the block: nobody else has it, or not for long.
bool SharedCore::passes_on(SharedPut& call, std::size_t at) {
    BlockPlace place;
    const PeerSegment* segment = find(call.requests[at].name.key, place);
    const std::int64_t wall_ms = clock_.wall_unix_ms();
    bool renewal = false;
    if (segment != nullptr && refusal(call.deadline).ok()) {
        const ClassLife& life =
            options_.embedded.lives[static_cast<std::size_t>(call.options.traffic_class)];
        const bool old = segment->expiry_ms - wall_ms < call.options.renew_before_ms;
        const bool longer =
            bucket_expiry_ms(life, bucket_start_ms(life, wall_ms)) > segment->expiry_ms;
        const auto cost = static_cast<double>(geometry_.slot_bytes);
        renewal = old && longer && renew_tokens_ >= cost;
        if (!renewal) return false;
        renew_tokens_ -= cost;
    }
    call.passed_on.push_back(at);
    call.renewal.push_back(renewal);
    return true;
}

void SharedCore::take_own(SharedPut& call, PutResult result) {
    for (std::size_t i = 0; i < call.passed_on.size(); ++i) {
        const bool renewed = call.renewal[i] && result.blocks[i] == PutOutcome::stored;
        call.result.blocks[call.passed_on[i]] = renewed ? PutOutcome::renewed : result.blocks[i];
    }
    call.result.status = std::move(result.status);
    end(call);
    const auto done = std::move(call.calls.done);
    done(std::move(call.result));
}

void SharedPut::give_up(SharedCore&, bool) {}

// When the own store was too late, what the others have is known all the same.
void SharedCore::take_own(SharedExists& call, std::vector<bool> present, Status status) {
    const bool known = status.ok() || status.code() == StatusCode::deadline_exceeded;
    present.resize(call.keys.size());
    for (std::size_t i = 0; i < call.keys.size() && known; ++i)
        if (!present[i]) present[i] = has(call.keys[i]);
    const auto done = std::move(call.done);
    done(std::move(present), std::move(status));
}

bool SharedCore::begin(const std::shared_ptr<SharedDrop>& call) {
    ++running_;
    Status refused = refusal(call->deadline);
    watch(call);
    if (refused.ok()) return true;
    end_drop(*call, std::move(refused));
    return false;
}

void SharedDrop::give_up(SharedCore& core, bool cancelled_by_user) {
    const std::string rest = waits_for.empty() ? "" : " for " + waits_for;
    core.end_drop(*this, cancelled_by_user
                             ? Status(StatusCode::cancelled,
                                      "the call was cancelled; the drop goes on" + rest)
                             : Status(StatusCode::deadline_exceeded,
                                      "the deadline came first; the drop goes on" + rest));
}

void SharedCore::end_drop(SharedDrop& call, Status status) {
    if (call.finished) return;
    end(call);
    const auto done = std::move(call.done);
    done(std::move(status));
}

}  // namespace fathom
