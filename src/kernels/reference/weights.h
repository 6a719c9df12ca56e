// Weights as they lie in the checkpoint, and the one product loop (N1) that every linear uses.
#pragma once

#include <cstdint>

#include "kernels/ops.h"
#include "kernels/reference/lanes.h"

namespace fathom::reference {

inline constexpr std::int64_t kGroup = 32;  // inputs under one scale

class ReferenceWeight : public PackedWeight {
  public:
    explicit ReferenceWeight(const WeightSource& s) : PackedWeight(s.out, s.in), source(s) {}
    std::int64_t bytes() const override { return 0; }
    const WeightSource source;
};

class ReferenceGateUp : public PackedGateUp {
  public:
    ReferenceGateUp(const WeightSource& g, const WeightSource& u)
        : PackedGateUp(g.out, g.in), gate(g), up(u) {}
    std::int64_t bytes() const override { return 0; }
    const WeightSource gate;
    const WeightSource up;
};

inline const WeightSource& source_of(const PackedWeight& w) {
    return static_cast<const ReferenceWeight&>(w).source;
}
inline const ReferenceGateUp& reference_of(const PackedGateUp& w) {
    return static_cast<const ReferenceGateUp&>(w);
}

// acc[16·i + j] = N1 product of input i with output row first + j, for `outputs` <= 16 rows (the
// other lanes are zero). x[i] points to an input row of round_up(w.in, 32) floats, zero beyond
// w.in.
void panel_product(const WeightSource& w, std::int64_t first, std::int64_t outputs,
                   const float* const* x, std::int64_t n, float* acc);

// The rows of x as floats, every segment of w_in columns padded with zeros to a multiple of 32:
// result[i·segments + g] is segment g of row i. The pointers stay valid until the calling thread's
// next call. x itself is used where it already has that form.
const float* const* padded_rows(const ConstRows& x, std::int64_t segments, std::int64_t w_in);

}  // namespace fathom::reference
