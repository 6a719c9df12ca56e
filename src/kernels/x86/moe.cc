#include "kernels/x86/backend.h"

namespace fathom::x86 {

void X86Backend::route(const RouterArgs& args) {
    oracle_->route(args);
}

void X86Backend::gate_up(ConstRows x, const PackedGateUp& w, std::span<const float> weights,
                         float limit, NumericMode mode, Rows t) {
    oracle_->gate_up(x, w, weights, limit, mode, t);
}

void X86Backend::moe(const MoeArgs& args) {
    oracle_->moe(args);
}

}  // namespace fathom::x86
