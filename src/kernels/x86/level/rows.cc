#include "kernels/x86/level/lanes.h"
#include "kernels/x86/row_kernels.h"

namespace fathom::x86::FATHOM_X86_LEVEL {

namespace {

float rsqrt(float x) {
    return 1.0f / _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x)));
}

void rms_norm(const std::uint16_t* x, const std::uint16_t* w, std::int64_t n, float eps,
              std::uint16_t* y) {
    const float mean = sum_of_squares_bf16(x, n) / static_cast<float>(n);
    const F16 r = all(rsqrt(mean + eps));
    std::int64_t k = 0;
    for (; k + kLanes <= n; k += kLanes)
        store_bf16(y + k, load_bf16(x + k) * r * load_bf16(w + k));
    if (k == n) return;
    std::uint16_t part[kLanes];
    store_bf16(part, load_bf16_tail(x + k, n - k) * r * load_bf16_tail(w + k, n - k));
    for (std::int64_t j = 0; k + j < n; ++j)
        y[k + j] = part[j];
}

}  // namespace

const RowKernels& row_kernels() {
    static constexpr RowKernels kKernels{.rms_norm = rms_norm};
    return kKernels;
}

}  // namespace fathom::x86::FATHOM_X86_LEVEL
