#include "pool/health_watch.h"

namespace fathom {

HealthWatch::HealthWatch(const BlockStore& store, MetricsRegistry& metrics, std::int64_t look_us)
    : store_(store),
      gauge_(metrics.gauge("kvpool_health",
                           "The pool: 0 ok, 1 degraded, 2 unavailable; the log says why.")) {
    look();
    thread_ = std::thread([this, look_us] {
        while (!ended_.pop(look_us))
            look();
    });
}

HealthWatch::~HealthWatch() {
    (void)ended_.try_push(true);
    thread_.join();
}

void HealthWatch::look() {
    StoreHealth health = store_.health();
    gauge_.set(static_cast<double>(health.state));
    seen_.set(std::move(health));
}

}  // namespace fathom
