#include <vector>

#include "kernels/functions.h"
#include "kernels/reference/backend.h"
#include "kernels/reference/lanes.h"
#include "kernels/reference/support.h"

namespace fathom::reference {

void ReferenceBackend::q8_round_trip(ConstRows src, Rows dst) {
    FATHOM_CHECK(src.rows == dst.rows && src.cols == dst.cols && src.cols % kQ8Group == 0);
    const std::int64_t n = src.cols;
    constexpr std::int64_t kCostPerElement = 16;
    for_ranges(pool(), src.rows, n * kCostPerElement, [&](std::int64_t begin, std::int64_t end) {
        struct Values;
        struct Codes;
        float* x = scratch<Values>(n);
        auto* codes = scratch<Codes, std::uint8_t>(n + n / kQ8Group);
        const std::span<float> values(x, static_cast<std::size_t>(n));
        const std::span<std::uint8_t> code_span(codes, values.size());
        const std::span<std::uint8_t> scales(codes + n, values.size() / kQ8Group);
        for (std::int64_t i = begin; i < end; ++i) {
            read_row(src, i, x);
            quantise_q8(values, code_span, scales);
            dequantise_q8(code_span, scales, values);
            write_row(dst, i, x);
        }
    });
}

void ReferenceBackend::rms_norm(ConstRows x, const Bf16* w, float eps, Rows y) {
    FATHOM_CHECK(x.rows == y.rows && x.cols == y.cols);
    const std::int64_t n = x.cols;
    for_ranges(pool(), x.rows, 4 * n, [&](std::int64_t begin, std::int64_t end) {
        struct Values;
        float* v = scratch<Values>(n);
        for (std::int64_t i = begin; i < end; ++i) {
            read_row(x, i, v);
            const float mean = sum_of_squares(v, n) / static_cast<float>(n);
            const float r = functions::rsqrt(mean + eps);
            for (std::int64_t k = 0; k < n; ++k)
                v[k] = v[k] * r * bf16_to_float(w[k]);
            write_row(y, i, v);
        }
    });
}

void ReferenceBackend::rope(Rows x, std::int64_t heads, std::int64_t head_dim,
                            std::span<const std::int64_t> positions, const RopeTable& table,
                            bool inverse) {
    FATHOM_CHECK(x.cols == heads * head_dim && table.rope_dim <= head_dim);
    FATHOM_CHECK(static_cast<std::int64_t>(positions.size()) == x.rows);
    const std::int64_t pairs = table.rope_dim / 2;
    FATHOM_CHECK(static_cast<std::int64_t>(table.freqs.size()) == pairs);
    constexpr std::int64_t kCostPerPair = 8;
    constexpr std::int64_t kCostPerAngle = 40;
    for_ranges(pool(), x.rows, pairs * (heads * kCostPerPair + kCostPerAngle),
               [&](std::int64_t begin, std::int64_t end) {
                   struct Angles;
                   struct Slice;
                   float* cosine = scratch<Angles>(2 * pairs);
                   float* sine = cosine + pairs;
                   float* v = scratch<Slice>(table.rope_dim);
                   for (std::int64_t i = begin; i < end; ++i) {
                       const auto position = static_cast<float>(positions[i]);
                       for (std::int64_t k = 0; k < pairs; ++k) {
                           functions::sincos(position * table.freqs[k], &sine[k], &cosine[k]);
                           if (inverse) sine[k] = -sine[k];
                       }
                       for (std::int64_t h = 0; h < heads; ++h) {
                           const std::int64_t column = (h + 1) * head_dim - table.rope_dim;
                           read_row(x, i, column, table.rope_dim, v);
                           for (std::int64_t k = 0; k < pairs; ++k) {
                               const float a = v[2 * k];
                               const float b = v[2 * k + 1];
                               v[2 * k] = a * cosine[k] - b * sine[k];
                               v[2 * k + 1] = a * sine[k] + b * cosine[k];
                           }
                           write_row(x, i, column, table.rope_dim, v);
                       }
                   }
               });
}

}  // namespace fathom::reference
