#include "policy/cost_model.h"

#include <algorithm>

namespace fathom {

namespace {

constexpr std::array<std::string_view, kCostFeatures> kNames = {
    "step",        "reads",         "rows", "decoder_rows", "attention_pairs",
    "index_pairs", "first_context", "last", "slices"};
constexpr double kAbsorbOver = 1.10;

std::int64_t layer_count(const std::vector<LayerKind>& kinds) {
    std::int64_t layers = 0;
    for (const LayerKind& kind : kinds)
        layers += kind.layers;
    return layers;
}

// 1 − (1 − k/E)^rows, by squaring: a policy gives the same decisions everywhere.
double touched(const ModelShape& shape, std::int64_t rows) {
    if (shape.experts == 0) return rows > 0 ? 1 : 0;
    double base =
        1 - static_cast<double>(shape.experts_per_token) / static_cast<double>(shape.experts);
    double power = 1;
    for (std::int64_t n = rows; n > 0; n >>= 1) {
        if ((n & 1) != 0) power *= base;
        base *= base;
    }
    return 1 - power;
}

double expert_reads(const ModelShape& shape, std::int64_t rows, std::int64_t decoder_rows) {
    const auto encoder = static_cast<double>(layer_count(shape.encoder));
    const auto decoder = static_cast<double>(shape.boundary.layers + layer_count(shape.decoder));
    if (encoder + decoder == 0) return 0;
    return (encoder * touched(shape, rows) + decoder * touched(shape, decoder_rows)) /
           (encoder + decoder);
}

double& at(CostVector& vector, CostFeature feature) {
    return vector[static_cast<std::size_t>(feature)];
}

}  // namespace

std::string_view cost_feature_name(std::size_t feature) {
    return kNames[feature];
}

void StepFeatures::add(const Slice& slice) {
    const WorkCounts counts = count_work(*shape_, slice);
    rows_ += counts.rows;
    decoder_rows_ += counts.decoder_rows;
    attention_pairs_ += counts.attention_pairs;
    index_pairs_ += counts.index_pairs;
    if (slice.first) first_context_ += static_cast<double>(slice.context);
    if (slice.last) ++last_;
    ++slices_;
}

CostVector StepFeatures::values() const {
    CostVector values{};
    at(values, CostFeature::step) = 1;
    at(values, CostFeature::reads) = expert_reads(*shape_, rows_, decoder_rows_);
    at(values, CostFeature::rows) = static_cast<double>(rows_);
    at(values, CostFeature::decoder_rows) = static_cast<double>(decoder_rows_);
    at(values, CostFeature::attention_pairs) = static_cast<double>(attention_pairs_);
    at(values, CostFeature::index_pairs) = static_cast<double>(index_pairs_);
    at(values, CostFeature::first_context) = first_context_;
    at(values, CostFeature::last) = static_cast<double>(last_);
    at(values, CostFeature::slices) = static_cast<double>(slices_);
    return values;
}

double CostModel::cost_us(const CostVector& features) const {
    double sum = 0;
    for (std::size_t i = 0; i < kCostFeatures; ++i)
        sum += k_us[i] * features[i];
    return scale * sum;
}

CostModel CostModel::per_slice() const {
    CostModel part = *this;
    at(part.k_us, CostFeature::step) = 0;
    at(part.k_us, CostFeature::reads) = 0;
    return part;
}

double CostModel::fixed_us(const ModelShape& shape) const {
    CostVector fixed{};
    at(fixed, CostFeature::step) = 1;
    at(fixed, CostFeature::reads) = expert_reads(shape, kStepRowsMax, 0);
    return cost_us(fixed);
}

Slice ChunkRequest::slice(std::int64_t rows) const {
    Slice slice;
    slice.context = context;
    slice.rows = rows;
    const std::int64_t end = context + rows;
    slice.decoder_rows = end - std::clamp(decoder_begin, context, end);
    slice.encoder_floor = encoder_floor;
    slice.decoder_floor = decoder_floor;
    slice.first = first;
    slice.last = samples && rows == remaining;
    slice.logits_rows = slice.last ? 1 : 0;
    return slice;
}

namespace {

double cost_with(const CostModel& model, StepFeatures step, const ChunkRequest& request,
                 std::int64_t rows) {
    step.add(request.slice(rows));
    return model.cost_us(step);
}

}  // namespace

std::int64_t rows_within(const CostModel& model, const StepFeatures& step, double budget_us,
                         const ChunkRequest& request, std::int64_t rows_max) {
    std::int64_t fits = 0;
    std::int64_t too_many = std::min({request.remaining, rows_max, kStepRowsMax}) + 1;
    while (too_many - fits > 1) {
        const std::int64_t rows = fits + (too_many - fits) / 2;
        (cost_with(model, step, request, rows) <= budget_us ? fits : too_many) = rows;
    }
    return fits;
}

std::int64_t fit_chunk(const CostModel& model, const StepFeatures& step, double budget_us,
                       const ChunkRequest& request, std::int64_t rows_max, std::int64_t align) {
    const std::int64_t remaining = request.remaining;
    std::int64_t rows = rows_within(model, step, budget_us, request, rows_max);
    if (rows == remaining || align == 1) return rows;
    const auto down = [&](std::int64_t count) {  // so that the chunk ends at a block boundary
        const std::int64_t over = (request.context + std::max<std::int64_t>(count, 0)) % align;
        return std::max<std::int64_t>(0, count - over);
    };
    rows = down(rows);
    if (rows > 0 && remaining - rows < kTailAbsorb) {
        const bool may_finish = remaining <= std::min(rows_max, kStepRowsMax);
        if (may_finish && cost_with(model, step, request, remaining) <= budget_us * kAbsorbOver)
            return remaining;
        const std::int64_t shorter = down(remaining - kTailAbsorb);
        if (shorter > 0) rows = shorter;
    }
    return rows;
}

}  // namespace fathom
