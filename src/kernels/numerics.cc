#include "kernels/numerics.h"

namespace fathom {

namespace {

Status refused(const char* option, const char* value, const char* supported) {
    return error(StatusCode::unsupported,
                 "numerics: {} = {} is computed by no back end; supported: {}", option, value,
                 supported);
}

}  // namespace

Status validate_numerics(const Numerics& numerics) {
    if (numerics.index_score != IndexScore::fp32) {
        return refused("index_score", "bf16_pairs", "fp32");
    }
    if (numerics.woa == WoA::fp8_out8) return refused("woa", "fp8_out8", "bf16, fp8");
    if (numerics.moe_inner != MoeInner::bf16) return refused("moe_inner", "fp32", "bf16");
    if (numerics.moe_order != MoeOrder::expert) return refused("moe_order", "slot", "expert");
    if (numerics.mhc != MhcMix::fp32) return refused("mhc", "tf32", "fp32");
    if (numerics.main_kv_scale != MainKvScale::divide) {
        return refused("main_kv_scale", "reciprocal", "divide");
    }
    return {};
}

}  // namespace fathom
