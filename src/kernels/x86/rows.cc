#include "kernels/scratch.h"
#include "kernels/x86/backend.h"
#include "kernels/x86/support.h"

namespace fathom::x86 {

void X86Backend::q8_round_trip(ConstRows src, Rows dst) {
    if (src.dtype == DType::f32 || dst.dtype == DType::f32) return oracle_->q8_round_trip(src, dst);
    FATHOM_CHECK(src.rows == dst.rows && src.cols == dst.cols && src.cols % kQ8Group == 0);
    constexpr double kUsPerElement = 2e-4;
    for_rows(*pool_, src.rows, static_cast<double>(src.cols) * kUsPerElement,
             [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; ++i)
                     rows_.q8_round_trip(bf16_row(src, i), src.cols, bf16_row(dst, i));
             });
}

void X86Backend::rms_norm(ConstRows x, const Bf16* w, float eps, Rows y) {
    if (x.dtype == DType::f32) return oracle_->rms_norm(x, w, eps, y);
    FATHOM_CHECK(x.rows == y.rows && x.cols == y.cols && y.dtype == DType::bf16);
    constexpr double kUsPerElement = 1e-4;
    for_rows(*pool_, x.rows, static_cast<double>(x.cols) * kUsPerElement,
             [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; ++i)
                     rows_.rms_norm(bf16_row(x, i), bits(w), x.cols, eps, bf16_row(y, i));
             });
}

void X86Backend::rope(Rows x, std::int64_t heads, std::int64_t head_dim,
                      std::span<const std::int64_t> positions, const RopeTable& table,
                      bool inverse) {
    if (x.dtype == DType::f32) return oracle_->rope(x, heads, head_dim, positions, table, inverse);
    FATHOM_CHECK(x.cols == heads * head_dim && table.rope_dim <= head_dim);
    FATHOM_CHECK(static_cast<std::int64_t>(positions.size()) == x.rows);
    const std::int64_t pairs = table.rope_dim / 2;
    FATHOM_CHECK(static_cast<std::int64_t>(table.freqs.size()) == pairs);
    constexpr std::int64_t kWidth = 16;  // of the kernels
    const std::int64_t padded = (pairs + kWidth - 1) / kWidth * kWidth;
    constexpr double kUsPerPair = 1e-3, kUsPerAngle = 1e-3;
    for_rows(*pool_, x.rows,
             static_cast<double>(pairs) * (kUsPerAngle + kUsPerPair * static_cast<double>(heads)),
             [&](std::int64_t begin, std::int64_t end) {
                 struct Angles;
                 float* freqs = scratch<Angles>(3 * padded);
                 float *cosine = freqs + padded, *sine = cosine + padded;
                 std::fill(std::copy(table.freqs.begin(), table.freqs.end(), freqs), cosine, 0.0f);
                 for (std::int64_t i = begin; i < end; ++i) {
                     rows_.angles(static_cast<float>(positions[i]), freqs, pairs, inverse, cosine,
                                  sine);
                     rows_.rotate(bf16_row(x, i) + head_dim - table.rope_dim, heads, head_dim,
                                  pairs, cosine, sine);
                 }
             });
}

}  // namespace fathom::x86
