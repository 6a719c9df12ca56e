#include "kernels/x86/backend.h"

namespace fathom::x86 {

void X86Backend::mhc_mix(ConstRows streams, const MhcWeights& w, std::span<float> pre,
                         std::span<float> post, std::span<float> comb) {
    oracle_->mhc_mix(streams, w, pre, post, comb);
}

void X86Backend::mhc_collapse(ConstRows streams, std::int64_t n_streams, std::span<const float> pre,
                              Rows x) {
    oracle_->mhc_collapse(streams, n_streams, pre, x);
}

void X86Backend::mhc_expand(Rows streams, std::int64_t n_streams, ConstRows y,
                            std::span<const float> post, std::span<const float> comb) {
    oracle_->mhc_expand(streams, n_streams, y, post, comb);
}

}  // namespace fathom::x86
