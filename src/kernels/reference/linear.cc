#include <array>

#include "kernels/reference/backend.h"
#include "kernels/reference/create.h"
#include "kernels/reference/support.h"
#include "kernels/reference/weights.h"

namespace fathom::reference {

namespace {

constexpr std::int64_t kBlockInputs = 256;  // inputs expanded at a time: 16 KiB of floats

const std::array<float, 256>& e4m3_table() {
    static const std::array<float, 256> table = [] {
        std::array<float, 256> t{};
        for (int c = 0; c < 256; ++c)
            t[c] = e4m3_to_float(static_cast<std::uint8_t>(c));
        return t;
    }();
    return table;
}

const std::array<float, 16>& e2m1_table() {
    static const std::array<float, 16> table = [] {
        std::array<float, 16> t{};
        for (int c = 0; c < 16; ++c)
            t[c] = e2m1_to_float(static_cast<std::uint8_t>(c));
        return t;
    }();
    return table;
}

// Unscaled weights k0..k1-1 of one output row to w[0], w[16], w[32], ….
void expand_row(const WeightSource& source, std::int64_t row, std::int64_t k0, std::int64_t k1,
                float* w) {
    switch (source.format) {
        case WeightFormat::fp8_block32: {
            const auto& table = e4m3_table();
            const auto* codes = static_cast<const std::uint8_t*>(source.codes) + row * source.in;
            for (std::int64_t k = k0; k < k1; ++k)
                w[(k - k0) * kLanes] = table[codes[k]];
            return;
        }
        case WeightFormat::fp4_row32: {
            const auto& table = e2m1_table();
            const auto* codes =
                static_cast<const std::uint8_t*>(source.codes) + row * (source.in / 2);
            for (std::int64_t k = k0; k < k1; k += 2) {
                const std::uint8_t pair = codes[k / 2];
                w[(k - k0) * kLanes] = table[pair & 15];
                w[(k - k0 + 1) * kLanes] = table[pair >> 4];
            }
            return;
        }
        case WeightFormat::bf16: {
            const auto* values = static_cast<const Bf16*>(source.codes) + row * source.in;
            for (std::int64_t k = k0; k < k1; ++k)
                w[(k - k0) * kLanes] = bf16_to_float(values[k]);
            return;
        }
        case WeightFormat::f32: {
            const auto* values = static_cast<const float*>(source.codes) + row * source.in;
            for (std::int64_t k = k0; k < k1; ++k)
                w[(k - k0) * kLanes] = values[k];
            return;
        }
    }
}

float group_scale(const WeightSource& source, std::int64_t row, std::int64_t group) {
    const std::int64_t groups = (source.in + kGroup - 1) / kGroup;
    switch (source.format) {
        case WeightFormat::fp8_block32:
            return ue8m0_to_float(source.scales[row / kGroup * groups + group]);
        case WeightFormat::fp4_row32:
            return ue8m0_to_float(source.scales[row * groups + group]);
        case WeightFormat::bf16:
        case WeightFormat::f32:
            return 1.0f;
    }
    return 1.0f;
}

// One block of inputs of a panel, inputs major: w[k][16] and one scale a group and output. Padding
// (outputs beyond the panel, inputs beyond w.in) is zero.
void expand_block(const WeightSource& source, std::int64_t first, std::int64_t outputs,
                  std::int64_t k0, std::int64_t padded_k1, float* w, float* scales) {
    const std::int64_t k1 = std::min(padded_k1, source.in);
    if (outputs < kLanes || k1 < padded_k1) {
        std::fill_n(w, (padded_k1 - k0) * kLanes, 0.0f);
        std::fill_n(scales, (padded_k1 - k0) / kGroup * kLanes, 0.0f);
    }
    for (std::int64_t j = 0; j < outputs; ++j) {
        expand_row(source, first + j, k0, k1, w + j);
        for (std::int64_t k = k0; k < k1; k += kGroup) {
            scales[(k - k0) / kGroup * kLanes + j] = group_scale(source, first + j, k / kGroup);
        }
    }
}

// acc = fma(group sum, scale, acc) for `groups` groups of R input rows.
template <int R>
void group_chains(const float* const* x, std::int64_t k0, std::int64_t groups, const float* w,
                  const float* scales, float* __restrict acc) {
    for (std::int64_t g = 0; g < groups; ++g) {
        const float* rows[R];
        for (int r = 0; r < R; ++r)
            rows[r] = x[r] + k0 + g * kGroup;
        float sum[R][kLanes] = {};
        pair_chain<R>(rows, w + g * kGroup * kLanes, kLanes, kGroup / 2, sum);
        const float* s = scales + g * kLanes;
        for (int r = 0; r < R; ++r) {
            for (int j = 0; j < kLanes; ++j) {
                acc[r * kLanes + j] = std::fma(sum[r][j], s[j], acc[r * kLanes + j]);
            }
        }
    }
}

void check_source(const WeightSource& s) {
    FATHOM_CHECK(s.out > 0 && s.in > 0 && s.codes != nullptr);
    const bool scaled =
        s.format == WeightFormat::fp8_block32 || s.format == WeightFormat::fp4_row32;
    FATHOM_CHECK(scaled == (s.scales != nullptr));
    FATHOM_CHECK(s.format != WeightFormat::fp4_row32 || s.in % 2 == 0);
}

}  // namespace

std::unique_ptr<Backend> create(std::shared_ptr<ComputePool> pool) {
    return std::make_unique<ReferenceBackend>(std::move(pool));
}

void panel_product(const WeightSource& w, std::int64_t first, std::int64_t outputs,
                   const float* const* x, std::int64_t n, float* acc) {
    alignas(64) float block[kBlockInputs * kLanes];
    alignas(64) float scales[kBlockInputs / kGroup * kLanes];
    std::fill_n(acc, n * kLanes, 0.0f);
    const std::int64_t padded = round_up(w.in, kGroup);
    for (std::int64_t k0 = 0; k0 < padded; k0 += kBlockInputs) {
        const std::int64_t k1 = std::min(k0 + kBlockInputs, padded);
        expand_block(w, first, outputs, k0, k1, block, scales);
        in_fours(n, [&]<int R>(std::int64_t i) {
            group_chains<R>(x + i, k0, (k1 - k0) / kGroup, block, scales, acc + i * kLanes);
        });
    }
}

const float* const* padded_rows(const ConstRows& x, std::int64_t segments, std::int64_t w_in) {
    FATHOM_CHECK(x.cols == segments * w_in);
    struct Pointers;
    struct Values;
    const std::int64_t padded = round_up(w_in, kGroup);
    const float** rows = scratch<Pointers, const float*>(x.rows * segments);
    const bool in_place = x.dtype == DType::f32 && padded == w_in;
    float* values = in_place ? nullptr : scratch<Values>(x.rows * segments * padded);
    for (std::int64_t i = 0; i < x.rows; ++i) {
        for (std::int64_t g = 0; g < segments; ++g) {
            if (in_place) {
                rows[i * segments + g] = reinterpret_cast<const float*>(row_bytes(x, i)) + g * w_in;
                continue;
            }
            float* out = values + (i * segments + g) * padded;
            read_row(x, i, g * w_in, w_in, out);
            std::fill(out + w_in, out + padded, 0.0f);
            rows[i * segments + g] = out;
        }
    }
    return rows;
}

std::unique_ptr<PackedWeight> ReferenceBackend::pack(const WeightSource& source) {
    check_source(source);
    return std::make_unique<ReferenceWeight>(source);
}

std::unique_ptr<PackedGateUp> ReferenceBackend::pack_gate_up(const WeightSource& gate,
                                                             const WeightSource& up) {
    check_source(gate);
    check_source(up);
    FATHOM_CHECK(gate.out == up.out && gate.in == up.in);
    return std::make_unique<ReferenceGateUp>(gate, up);
}

void ReferenceBackend::linear(ConstRows x, const PackedWeight& w, Rows y) {
    grouped_linear(x, w, 1, y);
}

void ReferenceBackend::grouped_linear(ConstRows x, const PackedWeight& w, std::int64_t groups,
                                      Rows y) {
    FATHOM_CHECK(groups > 0 && w.out % groups == 0 && x.cols == groups * w.in);
    FATHOM_CHECK(y.cols == w.out && y.rows == x.rows);
    const WeightSource& source = source_of(w);
    const std::int64_t outputs = w.out / groups;
    const std::int64_t panels = (outputs + kLanes - 1) / kLanes;
    // Rows of one group side by side: row i of group g is inputs[g·n + i].
    const std::int64_t n = x.rows;
    struct Order;
    const float* const* rows = padded_rows(x, groups, w.in);
    const float** inputs = scratch<Order, const float*>(n * groups);
    for (std::int64_t i = 0; i < n; ++i) {
        for (std::int64_t g = 0; g < groups; ++g)
            inputs[g * n + i] = rows[i * groups + g];
    }
    for_ranges(pool(), groups * panels, (n + kLanes) * w.in * kLanes,
               [&](std::int64_t begin, std::int64_t end) {
                   struct Sums;
                   float* acc = scratch<Sums>(n * kLanes);
                   for (std::int64_t p = begin; p < end; ++p) {
                       const std::int64_t g = p / panels;
                       const std::int64_t first = p % panels * kLanes;
                       const std::int64_t count = std::min(kLanes, outputs - first);
                       const std::int64_t column = g * outputs + first;
                       panel_product(source, column, count, inputs + g * n, n, acc);
                       for (std::int64_t i = 0; i < n; ++i) {
                           write_row(y, i, column, count, acc + i * kLanes);
                       }
                   }
               });
}

}  // namespace fathom::reference
