// The element formats of base/formats.h on sixteen lanes: rounding to E4M3 and E2M1 and the scales
// of the group quantisers. Same bits as the scalar functions; MXCSR as N6 wants it.
#pragma once

#include "kernels/x86/level/ints.h"

namespace fathom::x86::FATHOM_X86_LEVEL {

inline I16 magnitude_bits(F16 x) {
    return bits_of(x) & all_i(0x7fffffff);
}
inline I16 sign_bits(F16 x) {
    return bits_of(x) & all_i(static_cast<std::int32_t>(0x80000000u));
}

// A number's magnitude rounded to a format: as a float, and as the format's code.
struct Rounded {
    F16 value;  // with the sign of the number
    I16 code;   // without a sign
};

// Saturates at 448; what is no number counts as more.
inline Rounded round_e4m3(F16 x) {
    const I16 m = min(magnitude_bits(x), all_i(0x43e00000));
    const I16 normal =
        (m + all_i(0x7ffff) + (shift_right_zeros<20>(m) & all_i(1))) & all_i(~0xfffff);
    // Next to 2^14 a float's unit is 2^-9, the step of E4M3's subnormals.
    const F16 big = all(16384.0f);
    const F16 shifted = from_bits(m) + big;
    const M16 subnormal = less(m, all_i(0x3c800000));
    const I16 value = select(subnormal, bits_of(shifted - big), normal);
    const I16 code = select(subnormal, bits_of(shifted) - bits_of(big),
                            shift_right_zeros<20>(normal) - all_i(120 << 3));
    return {from_bits(value | sign_bits(x)), code};
}

// Saturates at 6; what is no number counts as more.
inline Rounded round_e2m1(F16 x) {
    const I16 m = min(magnitude_bits(x), all_i(0x40c00000));
    const I16 normal =
        (m + all_i(0x1fffff) + (shift_right_zeros<22>(m) & all_i(1))) & all_i(~0x3fffff);
    const F16 big = all(0x1p22f);  // where a float's unit is 0.5
    const F16 shifted = from_bits(m) + big;
    const M16 subnormal = less(m, all_i(0x3f800000));
    const I16 value = select(subnormal, bits_of(shifted - big), normal);
    const I16 code = select(subnormal, bits_of(shifted) - bits_of(big),
                            shift_right_zeros<22>(normal) - all_i(126 << 1));
    return {from_bits(value | sign_bits(x)), code};
}

// The UE8M0 byte of a non-negative v, in every lane as in v; above 254 where v is no number.
inline I16 ue8m0(F16 v) {
    return shift_right_zeros<23>(bits_of(v) + all_i(0x7fffff));
}

// The scale of a group, in every lane: 2^(byte − 127) and its reciprocal.
struct GroupScale {
    I16 byte;
    F16 scale, inverse;
};
inline GroupScale power_scale(I16 byte) {
    return {byte, from_bits(shift_left<23>(byte)), from_bits(shift_left<23>(all_i(254) - byte))};
}
// Q8, of the largest magnitude's bits (model.md 4.2). Finite numbers give bytes 105..247.
inline GroupScale q8_scale(I16 amax) {
    return power_scale(ue8m0(from_bits(max(amax, bits_of(all(1e-4f)))) * all(1.0f / 448.0f)));
}
// Index keys and queries (model.md 4.3).
inline GroupScale index_scale(I16 amax) {
    return power_scale(ue8m0(from_bits(max(amax, bits_of(all(0x1.8p-124f)))) * all(1.0f / 6.0f)));
}

// Q8 round trip of a group of 32: the nearest numbers that Q8 has, NaN if one is not finite.
struct Pair16 {
    F16 a, b;
};
inline Pair16 q8_group(Pair16 x) {
    const GroupScale s = q8_scale(largest(max(magnitude_bits(x.a), magnitude_bits(x.b))));
    const Pair16 y = {round_e4m3(x.a * s.inverse).value * s.scale,
                      round_e4m3(x.b * s.inverse).value * s.scale};
    const M16 finite = less(s.byte, all_i(255));
    const F16 nan = from_bits(all_i(0x7fc00000));
    return {select(finite, y.a, nan), select(finite, y.b, nan)};
}

}  // namespace fathom::x86::FATHOM_X86_LEVEL
