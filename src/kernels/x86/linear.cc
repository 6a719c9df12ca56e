#include "kernels/x86/backend.h"

namespace fathom::x86 {

std::unique_ptr<PackedWeight> X86Backend::pack(const WeightSource& source) {
    return oracle_->pack(source);
}

std::unique_ptr<PackedGateUp> X86Backend::pack_gate_up(const WeightSource& gate,
                                                       const WeightSource& up) {
    return oracle_->pack_gate_up(gate, up);
}

void X86Backend::linear(ConstRows x, const PackedWeight& w, Rows y) {
    oracle_->linear(x, w, y);
}

void X86Backend::grouped_linear(ConstRows x, const PackedWeight& w, std::int64_t groups, Rows y) {
    oracle_->grouped_linear(x, w, groups, y);
}

}  // namespace fathom::x86
