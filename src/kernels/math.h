// The functions of N5: own polynomials in explicit fused multiply-adds, so that every back end
// gives the same bits on every machine. No libm. Accuracy is stated per function (kernels_test
// sweeps it); a vector back end repeats the same steps (functions.h) lane by lane. They need FMA
// instructions, which make_backend has checked by the time anything is computed. A denormal
// argument counts as zero; NaN gives NaN.
#pragma once

namespace fathom {

float math_exp(float x);    // ≤ 1 ulp in the normal range; < −87.33 gives 0; > 88.72 gives +inf
float math_log1p(float x);  // x ≥ 0, ≤ 2 ulp
float math_sigmoid(float x);   // 1 / (1 + exp(−x)), ≤ 2.5 ulp; no overflow for large |x|
float math_silu(float x);      // x / (1 + exp(−x)), ≤ 3.5 ulp
float math_softplus(float x);  // log(1 + exp(x)), ≤ 3 ulp; x for x > 20
// sin and cos of an fp32 angle up to 2^23, evaluated in double after a three-part reduction by π/2
// and rounded once: the correctly rounded value but for rare last bits.
void math_sincos(float x, float* sine, float* cosine);

}  // namespace fathom
