#include "cli/verify/blocks.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "base/formats.h"

namespace fathom::verify {

namespace {

constexpr double kRealBlockRms = 1e-2;
constexpr double kFp32BlockRms = 1e-5;
constexpr double kListsDiffer = 0.01;  // share of rows whose expert or selection list may differ

const std::set<std::string_view> kCompressed = {"latent", "main_kv_prequant", "main_kv", "index_k",
                                                "index_k_prequant"};
const std::set<std::string_view> kPrequant = {"window_kv_prequant", "main_kv_prequant",
                                              "index_k_prequant"};
const std::set<std::string_view> kRoundTrips = {"window_kv", "main_kv", "index_k"};
const std::set<std::string_view> kBlockInputs = {"embed",    "X",        "pre",
                                                 "engram_X", "selected", "candidates"};
const std::set<std::string_view> kLists = {"experts", "selected", "candidates", "engram_rows"};

std::string_view base_name(std::string_view key) {
    return key.substr(key.rfind('.') + 1);
}

float get(const Rows& x, std::int64_t row, std::int64_t col) {
    const std::int64_t at = row * x.stride + col;
    return x.dtype == DType::f32 ? static_cast<const float*>(x.data)[at]
                                 : bf16_to_float(static_cast<const Bf16*>(x.data)[at]);
}

void set(Rows& x, std::int64_t row, std::int64_t col, float value) {
    const std::int64_t at = row * x.stride + col;
    if (x.dtype == DType::f32)
        static_cast<float*>(x.data)[at] = value;
    else
        static_cast<Bf16*>(x.data)[at] = bf16_from_float(value);
}

}  // namespace

BlockProbe::BlockProbe(const SafetensorsFile& golden, std::string prefix, const ModelConfig& config,
                       std::int64_t prompt, NumericMode mode, Teach teach)
    : golden_(golden),
      prefix_(std::move(prefix)),
      config_(config),
      prompt_(prompt),
      mode_(mode),
      teach_(teach) {}

const BlockProbe::Reference* BlockProbe::find(int layer, std::string_view name) {
    const std::string key =
        layer < 0 ? std::string(name) : fmt::format("layers.{}.{}", layer, name);
    const auto known = references_.find(key);
    if (known != references_.end())
        return known->second.tensor.values.empty() ? nullptr : &known->second;
    Reference reference;
    if (std::optional<GoldenTensor> tensor = read_tensor(golden_, prefix_ + key)) {
        const bool compressed = layer >= 0 && kCompressed.contains(name);
        const std::int64_t total =
            compressed ? prompt_ / config_.roles[static_cast<std::size_t>(layer)].ratio : prompt_;
        reference.first = total - tensor->rows();
        reference.tensor = std::move(*tensor);
    }
    const Reference& stored = references_.emplace(key, std::move(reference)).first->second;
    return stored.tensor.values.empty() ? nullptr : &stored;
}

bool BlockProbe::replaces(std::string_view name) const {
    if (teach_ == Teach::nothing) return false;
    return kPrequant.contains(name) || (teach_ == Teach::blocks && kBlockInputs.contains(name));
}

void BlockProbe::compare_row(Stats& stats, std::span<const float> ours,
                             std::span<const float> golden) {
    bool equal = true;
    for (std::size_t i = 0; i < ours.size(); ++i) {
        if (!std::isfinite(ours[i])) continue;  // an entry that this layer may not choose
        if (!std::isfinite(golden[i])) {
            stats.broken = true;
            continue;
        }
        const double d = static_cast<double>(ours[i]) - golden[i];
        equal &= d == 0;
        stats.difference += d * d;
        stats.scale += static_cast<double>(golden[i]) * golden[i];
    }
    ++stats.rows;
    stats.rows_equal += equal ? 1 : 0;
}

void BlockProbe::rows(int layer, std::string_view name, Rows x, std::int64_t rows_per_position,
                      std::span<const std::int64_t> positions) {
    const Reference* reference = find(layer, name);
    if (reference == nullptr) return;
    const std::int64_t width = rows_per_position * x.cols;
    Stats& stats = stats_[fmt::format("layers.{}.{}", layer, name)];
    if (reference->tensor.width() != width) {
        stats.broken = true;
        return;
    }
    std::vector<float> ours(static_cast<std::size_t>(width));
    for (std::size_t i = 0; i < positions.size(); ++i) {
        const std::int64_t at = positions[i] - reference->first;
        if (at < 0 || at >= reference->tensor.rows()) continue;
        const auto golden = std::span(reference->tensor.values)
                                .subspan(static_cast<std::size_t>(at * width), ours.size());
        for (std::int64_t j = 0; j < width; ++j)
            ours[static_cast<std::size_t>(j)] =
                get(x, static_cast<std::int64_t>(i) * rows_per_position + j / x.cols, j % x.cols);
        compare_row(stats, ours, golden);
        if (!replaces(name)) continue;
        for (std::int64_t j = 0; j < width; ++j)
            set(x, static_cast<std::int64_t>(i) * rows_per_position + j / x.cols, j % x.cols,
                golden[static_cast<std::size_t>(j)]);
    }
}

void BlockProbe::floats(int layer, std::string_view name, std::span<float> x, std::int64_t width,
                        std::span<const std::int64_t> positions) {
    const Reference* reference = find(layer, name);
    if (reference == nullptr) return;
    // Scores are as long as the row's visible entries; golden rows are padded.
    const std::int64_t stride = reference->tensor.width();
    Stats& stats = stats_[fmt::format("layers.{}.{}", layer, name)];
    for (std::size_t i = 0; i < positions.size(); ++i) {
        const std::int64_t at = positions[i] - reference->first;
        if (at < 0 || at >= reference->tensor.rows() || width > stride) continue;
        const auto ours =
            x.subspan(i * static_cast<std::size_t>(width), static_cast<std::size_t>(width));
        const auto golden = std::span(reference->tensor.values)
                                .subspan(static_cast<std::size_t>(at * stride), ours.size());
        compare_row(stats, ours, golden);
        if (replaces(name)) std::copy(golden.begin(), golden.end(), ours.begin());
    }
}

void BlockProbe::ints(int layer, std::string_view name, std::span<std::int32_t> x,
                      std::int64_t width, std::span<const std::int64_t> positions) {
    const Reference* reference = find(layer, name);
    if (reference == nullptr) return;
    const std::int64_t stride = reference->tensor.width();
    const bool mask = name == "candidates";  // golden: a mask by position; ours: block numbers
    Stats& stats = stats_[fmt::format("layers.{}.{}", layer, name)];
    for (std::size_t i = 0; i < positions.size(); ++i) {
        const std::int64_t at = positions[i] - reference->first;
        if (at < 0 || at >= reference->tensor.rows()) continue;
        auto ours = x.subspan(i * static_cast<std::size_t>(width), static_cast<std::size_t>(width));
        const auto golden =
            std::span(reference->tensor.values)
                .subspan(static_cast<std::size_t>(at * stride), static_cast<std::size_t>(stride));
        std::vector<std::int32_t> wanted;
        if (mask) {
            const std::int64_t visible =
                (positions[i] + 1) / config_.roles[static_cast<std::size_t>(layer)].ratio;
            for (std::int64_t p = 0; p < std::min(visible, stride); ++p) {
                const auto block = static_cast<std::int32_t>(p / config_.candidate_block_size);
                if (golden[static_cast<std::size_t>(p)] != 0 &&
                    (wanted.empty() || wanted.back() != block))
                    wanted.push_back(block);
            }
        } else {
            for (const float value : golden)
                wanted.push_back(static_cast<std::int32_t>(value));
        }
        wanted.resize(static_cast<std::size_t>(width), -1);
        ++stats.rows;
        stats.rows_equal += std::equal(wanted.begin(), wanted.end(), ours.begin()) ? 1 : 0;
        if (replaces(name)) std::copy(wanted.begin(), wanted.end(), ours.begin());
    }
}

std::vector<Check> BlockProbe::checks() const {
    // One line a tensor kind: the worst layer.
    std::map<std::string, Check> worst;
    for (const auto& [key, stats] : stats_) {
        const std::string_view name = base_name(key);
        if (teach_ == Teach::round_trips && !kRoundTrips.contains(name)) continue;
        if (stats.rows == 0 && !stats.broken) continue;
        Check check;
        check.what = fmt::format("{}{}", prefix_, name);
        check.note = key.substr(0, key.rfind('.'));
        if (kLists.contains(name)) {
            check.worst =
                1.0 - static_cast<double>(stats.rows_equal) / static_cast<double>(stats.rows);
            check.tolerance = name == "engram_rows" ? 0 : kListsDiffer;
        } else if (mode_ == NumericMode::real && kRoundTrips.contains(name) &&
                   teach_ != Teach::nothing) {
            check.worst = static_cast<double>(stats.rows - stats.rows_equal);
            check.tolerance = 0;  // bit for bit, given the rows before
        } else {
            check.worst = stats.difference == 0 ? 0 : std::sqrt(stats.difference / stats.scale);
            check.tolerance = mode_ == NumericMode::fp32 ? kFp32BlockRms : kRealBlockRms;
        }
        if (stats.broken) check.worst = std::numeric_limits<double>::infinity();
        check.pass = check.worst <= check.tolerance;
        const auto [at, added] = worst.emplace(check.what, check);
        if (!added && check.worst > at->second.worst) at->second = check;
    }
    std::vector<Check> checks;
    for (const auto& [what, check] : worst)
        checks.push_back(check);
    return checks;
}

}  // namespace fathom::verify
