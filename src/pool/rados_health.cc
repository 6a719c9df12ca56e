#include <algorithm>
#include <cerrno>

#include "base/log.h"
#include "pool/rados_core.h"

namespace fathom {

namespace {

constexpr std::int64_t kTroubledBeatUs = 1'000'000;
constexpr std::uint64_t kBeatObjects = 64;  // spread over placement groups; none of them exists

}  // namespace

void RadosCore::note(RadosPool pool, const std::string& object, int result) {
    if (result == -ETIMEDOUT) {
        metrics_.timeouts.add();
        const bool news = !trouble_;
        trouble_ = {pool, object};
        if (news) {
            probe_->ask(pool, object);
            show_health();
        }
    } else if (trouble_ && trouble_->first == pool && trouble_->second == object &&
               !cancelled_all_) {
        trouble_.reset();
        stopped_.clear();
        show_health();
    }
}

// Looks at the cluster also when nobody asks it for blocks: at what timed out, or at any place.
void RadosCore::beat() {
    if (closing_) return;
    thread_.at(
        now_us() + (trouble_ ? std::min(kTroubledBeatUs, options_.beat_us) : options_.beat_us),
        [this] { beat(); });
    const auto [pool, object] =
        trouble_ ? *trouble_
                 : std::pair(RadosPool::blocks, "beat." + std::to_string(beats_++ % kBeatObjects));
    probe_->ask(pool, object);
    if (std::exchange(beating_, true)) return;
    read({.pool = pool, .object = object, .attributes = true},
         [this](const std::shared_ptr<RadosAnswer>&) { beating_ = false; });
}

void RadosCore::take_finding(const RadosFinding& finding) {
    monitor_ = finding.monitor;
    if (finding.monitor.ok()) stopped_ = trouble_ ? finding.stopped : "";
    show_health();
}

void RadosCore::show_health() {
    StoreHealth health;
    const char* kind = "";
    if (trouble_ && !monitor_.ok()) {
        kind = "nobody answers";
        health = {.state = StoreHealth::State::unavailable,
                  .reason =
                      "neither monitors nor devices of the cluster answer; blocks are "
                      "computed; look at the cluster and the network to it"};
    } else if (trouble_ && !stopped_.empty()) {
        kind = "stopped";
        health = {.state = StoreHealth::State::degraded, .reason = "degraded-stop: " + stopped_};
    } else if (trouble_) {
        kind = "time-outs";
        health = {.state = StoreHealth::State::degraded,
                  .reason = failure(-ETIMEDOUT, trouble_->second).message()};
    } else if (!monitor_.ok()) {
        kind = "no monitor";
        health = {.state = StoreHealth::State::degraded,
                  .reason =
                      "no monitor of the cluster answers; blocks are found as long as its "
                      "devices stay as they are; bring the monitors back"};
    }
    metrics_.io_stopped.set(trouble_ ? 1 : 0);
    if (std::string_view(std::exchange(shown_, kind)) != kind) {
        if (health.state == StoreHealth::State::ok) {
            log_info("pool: the cluster answers again");
        } else {
            log_warning("pool: {}", health.reason);
        }
    }
    health_.set(std::move(health));
}

}  // namespace fathom
