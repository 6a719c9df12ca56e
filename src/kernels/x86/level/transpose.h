// Transposing blocks of 32-bit elements.
#pragma once

#include "kernels/x86/level/vec.h"

namespace fathom::x86::FATHOM_X86_LEVEL {

#if defined(__AVX512BF16__)

// 16 × 16 dwords.
inline void transpose(__m512i (&r)[16]) {
    __m512i t[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    // r[4b + c] holds, in lane-of-128 j, column 4j + c of rows 4b..4b+3.
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
        t[c] = _mm512_shuffle_i32x4(r[c], r[4 + c], 0x88);
        t[4 + c] = _mm512_shuffle_i32x4(r[c], r[4 + c], 0xdd);
        t[8 + c] = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0x88);
        t[12 + c] = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0xdd);
    }
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
        r[c] = _mm512_shuffle_i32x4(t[c], t[8 + c], 0x88);
        r[4 + c] = _mm512_shuffle_i32x4(t[4 + c], t[12 + c], 0x88);
        r[8 + c] = _mm512_shuffle_i32x4(t[c], t[8 + c], 0xdd);
        r[12 + c] = _mm512_shuffle_i32x4(t[4 + c], t[12 + c], 0xdd);
    }
}

#endif

}  // namespace fathom::x86::FATHOM_X86_LEVEL
