// Latency and outcome metrics of request owners, under vLLM's names (serving.md 7.3) so that
// existing dashboards read them. Used by owner.cc only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/metrics.h"
#include "gateway/generation.h"

namespace fathom {

class OwnerMetrics {
  public:
    OwnerMetrics(MetricsRegistry& registry, const std::string& model_name);

    void first_token(std::int64_t elapsed_us);
    // `tokens` were committed together, elapsed_us after the commit before.
    void inter_token(std::int64_t elapsed_us, std::size_t tokens);
    void resumed() { resumed_.add(); }
    void finished(const GenerationResult& result);

  private:
    Histogram& first_token_;
    Histogram& inter_token_;
    Histogram& token_;
    Histogram& total_;
    Counter& stop_;
    Counter& length_;
    Counter& abort_;
    Counter& error_;
    Counter& resumed_;
    Counter& prompt_;
    Counter& cached_;
};

}  // namespace fathom
