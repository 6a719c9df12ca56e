#include "kernels/x86/backend.h"
#include "kernels/x86/support.h"

namespace fathom::x86 {

void X86Backend::q8_round_trip(ConstRows src, Rows dst) {
    oracle_->q8_round_trip(src, dst);
}

void X86Backend::rms_norm(ConstRows x, const Bf16* w, float eps, Rows y) {
    if (x.dtype == DType::f32) return oracle_->rms_norm(x, w, eps, y);
    FATHOM_CHECK(x.rows == y.rows && x.cols == y.cols && y.dtype == DType::bf16);
    constexpr double kUsPerElement = 2e-4;
    for_rows(*pool_, x.rows, static_cast<double>(x.cols) * kUsPerElement,
             [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; ++i)
                     rows_.rms_norm(bf16_row(x, i), bits(w), x.cols, eps, bf16_row(y, i));
             });
}

void X86Backend::rope(Rows x, std::int64_t heads, std::int64_t head_dim,
                      std::span<const std::int64_t> positions, const RopeTable& table,
                      bool inverse) {
    oracle_->rope(x, heads, head_dim, positions, table, inverse);
}

}  // namespace fathom::x86
