#include "kernels/math.h"

#include "kernels/functions.h"

namespace fathom {

float math_exp(float x) {
    return functions::exp(x);
}
float math_log1p(float x) {
    return functions::log1p(x);
}
float math_sigmoid(float x) {
    return functions::sigmoid(x);
}
float math_silu(float x) {
    return functions::silu(x);
}
float math_softplus(float x) {
    return functions::softplus(x);
}
void math_sincos(float x, float* sine, float* cosine) {
    functions::sincos(x, sine, cosine);
}

}  // namespace fathom
