// Metrics with Prometheus names and text exposition. Look a metric up once and keep the reference:
// it lives as long as the registry. Counters and gauges are lock-free; histograms take a short
// lock. Any thread. prometheus-cpp does the work behind metrics.cc.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fathom {

using MetricLabels = std::vector<std::pair<std::string, std::string>>;

class Counter {
  public:
    void add(std::uint64_t n = 1) { value_.fetch_add(n, std::memory_order_relaxed); }
    std::uint64_t value() const { return value_.load(std::memory_order_relaxed); }

  private:
    std::atomic<std::uint64_t> value_{0};
};

class Gauge {
  public:
    void set(double v) { value_.store(v, std::memory_order_relaxed); }
    double value() const { return value_.load(std::memory_order_relaxed); }

  private:
    std::atomic<double> value_{0};
};

class Histogram {
  public:
    virtual ~Histogram() = default;
    virtual void observe(double value) = 0;
};

class MetricsRegistry {
  public:
    MetricsRegistry();
    ~MetricsRegistry();
    MetricsRegistry(const MetricsRegistry&) = delete;
    MetricsRegistry& operator=(const MetricsRegistry&) = delete;

    // Same name and labels give the same object. Help text is required: promtool asks for it.
    Counter& counter(std::string_view name, std::string_view help, const MetricLabels& labels = {});
    Gauge& gauge(std::string_view name, std::string_view help, const MetricLabels& labels = {});
    Histogram& histogram(std::string_view name, std::string_view help,
                         const std::vector<double>& upper_bounds, const MetricLabels& labels = {});

    std::string expose() const;  // Prometheus text format 0.0.4

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace fathom
