// How long a step takes, before it runs (serving.md 2.1):
//
//   step = k_step + k_reads · expert reads + Σ_slices [ k_row · rows + k_decoder · decoder rows
//          + k_attention · attention pairs + k_index · index pairs
//          + k_first · context · first + k_last · last + k_slice ]
//
// with the exact counts of work_counts.h. All coefficients are >= 0, so time grows with every
// count, and how many tokens fit in a budget is found by bisection, with no root to lose precision
// or to be missing. "Expert reads" is the expected part of the routed experts that the step's rows
// touch, 1 − (1 − k/E)^rows, averaged over the layers that they run: on a processor a few rows
// already read most weights, and further ones then cost arithmetic only. It is the only count that
// does not add up over slices; StepFeatures takes care of it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "policy/work_counts.h"

namespace fathom {

inline constexpr std::int64_t kStepRowsMax = 32'768;

enum class CostFeature : std::size_t {
    step,
    reads,
    rows,
    decoder_rows,
    attention_pairs,
    index_pairs,
    first_context,
    last,
    slices,
};
inline constexpr std::size_t kCostFeatures = 9;
using CostVector = std::array<double, kCostFeatures>;
std::string_view cost_feature_name(std::size_t feature);  // as in files

// The counts of a whole step.
class StepFeatures {
  public:
    explicit StepFeatures(const ModelShape& shape) : shape_(&shape) {}  // which outlives it
    explicit StepFeatures(const ModelShape&& shape) = delete;
    void add(const Slice& slice);
    CostVector values() const;
    bool empty() const { return slices_ == 0; }
    std::int64_t rows() const { return rows_; }

  private:
    const ModelShape* shape_;
    std::int64_t rows_ = 0, decoder_rows_ = 0, attention_pairs_ = 0, index_pairs_ = 0;
    std::int64_t slices_ = 0, last_ = 0;
    double first_context_ = 0;
};

struct CostModel {
    CostVector k_us{};  // microseconds a unit of each feature; none is negative
    double scale = 1;   // from the online correction (cost_fit.h)

    bool known() const { return k_us != CostVector{}; }
    double cost_us(const CostVector& features) const;
    double cost_us(const StepFeatures& step) const { return cost_us(step.values()); }
    // Without what the step pays once: each slice's cost then adds up.
    CostModel per_slice() const;
    // The part of a prefill step that no chunk size changes: starting, and reading every expert of
    // the encoder.
    double fixed_us(const ModelShape& shape) const;
};

// A prompt that asks for a chunk: its next slice, were it as long as `remaining`.
struct ChunkRequest {
    std::int64_t context = 0;
    std::int64_t remaining = 0;  // rows until its prompt (or committed output) ends; >= 1
    // Rows at positions from here on run the decoder half.
    std::int64_t decoder_begin = 0;
    std::int64_t encoder_floor = 0, decoder_floor = 0;
    bool first = false;
    bool samples = true;  // at its end

    Slice slice(std::int64_t rows) const;
};

// Tokens of a request that fit beside `step` in budget_us (of the whole step). At most rows_max.
// A chunk that does not finish its request ends at a block boundary, and leaves no crumb: fewer
// than kTailAbsorb remaining tokens come along for up to 10 % over the budget, or stay behind with
// a whole chunk. 0 when not even a block fits. With `align` 1 (chunks of a fixed size, for tests
// and for those who ask) there is neither rule.
inline constexpr std::int64_t kBlockTokens = 128;
inline constexpr std::int64_t kTailAbsorb = 256;
std::int64_t fit_chunk(const CostModel& model, const StepFeatures& step, double budget_us,
                       const ChunkRequest& request, std::int64_t rows_max,
                       std::int64_t align = kBlockTokens);

// The same without the rules: the most rows whose step costs at most budget_us.
std::int64_t rows_within(const CostModel& model, const StepFeatures& step, double budget_us,
                         const ChunkRequest& request, std::int64_t rows_max);

}  // namespace fathom
