// The named place of every switch that changes numbers (deepinfer-model.md section 18). Two engines
// with equal Numerics and equal Anchors give equal bits. Defaults are the vendor's reference;
// values that no back end computes yet are refused by validate_numerics, never ignored.
#pragma once

#include "base/result.h"

namespace fathom {

// real: the release's arithmetic (Q8 activations, bf16 rounding points, packed caches).
// fp32: nothing is quantised or rounded to bf16; weights are dequantised exactly. For checking
// structure
//       (golden/README.md section 1); the same checkpoint serves both.
enum class NumericMode { real, fp32 };

enum class IndexScore { fp32, bf16_pairs };     // N2
enum class WoA { bf16, fp8, fp8_out8 };         // N3
enum class MoeInner { bf16, fp32 };             // N4
enum class MoeOrder { expert, slot };           // N5
enum class MhcMix { fp32, tf32 };               // N6
enum class MainKvScale { divide, reciprocal };  // N7

struct Numerics {
    NumericMode mode = NumericMode::real;
    IndexScore index_score = IndexScore::fp32;
    WoA woa = WoA::bf16;
    MoeInner moe_inner = MoeInner::bf16;
    MoeOrder moe_order = MoeOrder::expert;
    MhcMix mhc = MhcMix::fp32;
    MainKvScale main_kv_scale = MainKvScale::divide;

    friend bool operator==(const Numerics&, const Numerics&) = default;
};

// Unsupported for a value that is named but that no back end computes; the message lists what is.
Status validate_numerics(const Numerics& numerics);

}  // namespace fathom
