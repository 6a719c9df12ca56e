#include "base/metrics.h"

#include <prometheus/check_names.h>
#include <prometheus/histogram.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "base/check.h"

namespace fathom {

namespace {

class PrometheusHistogram final : public Histogram {
  public:
    explicit PrometheusHistogram(const std::vector<double>& upper_bounds)
        : upper_bounds_(upper_bounds), histogram_(upper_bounds) {}

    void observe(double value) override { histogram_.Observe(value); }

    const std::vector<double>& upper_bounds() const { return upper_bounds_; }
    prometheus::ClientMetric collect() const { return histogram_.Collect(); }

  private:
    const std::vector<double> upper_bounds_;
    prometheus::Histogram histogram_;
};

// One of a family's metrics; exactly one pointer is set, as the family's type says.
struct Series {
    std::unique_ptr<Counter> counter;
    std::unique_ptr<Gauge> gauge;
    std::unique_ptr<PrometheusHistogram> histogram;

    prometheus::ClientMetric collect() const {
        prometheus::ClientMetric metric;
        if (counter) metric.counter.value = static_cast<double>(counter->value());
        if (gauge) metric.gauge.value = gauge->value();
        if (histogram) metric = histogram->collect();
        return metric;
    }
};

struct Family {
    prometheus::MetricType type;
    std::string help;
    std::map<MetricLabels, Series> series;  // labels sorted by name
};

}  // namespace

struct MetricsRegistry::Impl {
    // Guards the maps, not the values: held for a look-up or a scrape.
    mutable std::mutex mutex;
    std::map<std::string, Family, std::less<>> families;

    // Wrong names and changed types are mistakes of the program, not of its input.
    Series& series(prometheus::MetricType type, std::string_view name, std::string_view help,
                   MetricLabels labels) {
        std::sort(labels.begin(), labels.end());
        auto family = families.find(name);
        if (family == families.end()) {
            FATHOM_CHECK(prometheus::CheckMetricName(std::string(name)), name);
            FATHOM_CHECK(!help.empty() && help.find_first_of("\n\\") == help.npos, name);
            family = families.emplace(std::string(name), Family{type, std::string(help), {}}).first;
        }
        FATHOM_CHECK(family->second.type == type, name);
        const auto found = family->second.series.find(labels);
        if (found != family->second.series.end()) return found->second;
        for (const auto& [label, value] : labels)
            FATHOM_CHECK(prometheus::CheckLabelName(label), label);
        return family->second.series[std::move(labels)];
    }
};

MetricsRegistry::MetricsRegistry() : impl_(std::make_unique<Impl>()) {}
MetricsRegistry::~MetricsRegistry() = default;

Counter& MetricsRegistry::counter(std::string_view name, std::string_view help,
                                  const MetricLabels& labels) {
    const std::lock_guard lock(impl_->mutex);
    Series& series = impl_->series(prometheus::MetricType::Counter, name, help, labels);
    if (!series.counter) series.counter = std::make_unique<Counter>();
    return *series.counter;
}

Gauge& MetricsRegistry::gauge(std::string_view name, std::string_view help,
                              const MetricLabels& labels) {
    const std::lock_guard lock(impl_->mutex);
    Series& series = impl_->series(prometheus::MetricType::Gauge, name, help, labels);
    if (!series.gauge) series.gauge = std::make_unique<Gauge>();
    return *series.gauge;
}

Histogram& MetricsRegistry::histogram(std::string_view name, std::string_view help,
                                      const std::vector<double>& upper_bounds,
                                      const MetricLabels& labels) {
    const std::lock_guard lock(impl_->mutex);
    Series& series = impl_->series(prometheus::MetricType::Histogram, name, help, labels);
    if (!series.histogram) {
        FATHOM_CHECK(std::adjacent_find(upper_bounds.begin(), upper_bounds.end(),
                                        std::greater_equal<>()) == upper_bounds.end(),
                     name);
        series.histogram = std::make_unique<PrometheusHistogram>(upper_bounds);
    }
    FATHOM_CHECK(series.histogram->upper_bounds() == upper_bounds, name);
    return *series.histogram;
}

std::string MetricsRegistry::expose() const {
    std::vector<prometheus::MetricFamily> page;
    {
        const std::lock_guard lock(impl_->mutex);
        for (const auto& [name, family] : impl_->families) {
            prometheus::MetricFamily& out = page.emplace_back();
            out.name = name;
            out.help = family.help;
            out.type = family.type;
            for (const auto& [labels, series] : family.series) {
                prometheus::ClientMetric& metric = out.metric.emplace_back(series.collect());
                for (const auto& [label, value] : labels)
                    metric.label.push_back({label, value});
            }
        }
    }
    return prometheus::TextSerializer().Serialize(page);
}

}  // namespace fathom
