#include "kernels/x86/index_kernels.h"

#include "kernels/x86/level/formats.h"
#include "kernels/x86/level/lanes.h"
#include "kernels/x86/level/stored.h"
#include "kernels/x86/level/transpose.h"

namespace fathom::x86::FATHOM_X86_LEVEL {

namespace {

constexpr std::int64_t kQuads = kGroup / 4;  // of a group: four codes each

// Scale bytes whose products with each other and with group sums stay normal.
constexpr int kLowByte = 64, kHighByte = 190;
bool in_range(int byte) {
    return byte >= kLowByte && byte <= kHighByte;
}

bool prepare(const std::uint16_t* q, const IndexQuery& query) {
    for (std::int64_t h = 0; h < query.heads; ++h) {
        for (std::int64_t g = 0; g < query.groups; ++g) {
            const std::uint16_t* x = q + (h * query.groups + g) * kGroup;
            const std::int64_t at = g * query.heads + h;
            const F16 a = load_bf16(x), b = load_bf16(x + kLanes);
            const I16 amax = largest(max(magnitude_bits(a), magnitude_bits(b)));
            auto* codes = reinterpret_cast<std::uint8_t*>(query.codes + at * kGroup);
            if (first(amax) == 0) {  // its scale does not matter
                store_u8(codes, all_i(0));
                store_u8(codes + kLanes, all_i(0));
                query.start[at] = 0;
                query.scale[at] = 1.0f;
                continue;
            }
            const GroupScale s = index_scale(amax);
            if (!in_range(first(s.byte))) return false;
            const I16 ca = integer_of(round_e2m1(a * s.inverse).value * all(2.0f));
            const I16 cb = integer_of(round_e2m1(b * s.inverse).value * all(2.0f));
            store_u8(codes, ca & all_i(255));
            store_u8(codes + kLanes, cb & all_i(255));
            std::int32_t lanes[kLanes], sum = 0;
            store_i(lanes, ca + cb);
            for (const std::int32_t lane : lanes)
                sum += lane;
            query.start[at] = -12 * sum;
            query.scale[at] = first(s.scale) * 0.25f;
        }
    }
    return true;
}

// Scale bytes g .. g+3 of `count` keys, one key a lane; of missing keys and groups those of 1.
void gather_scales(const std::uint8_t* const* scales, std::int64_t g, std::int64_t groups,
                   std::int64_t count, std::int64_t lanes, std::uint32_t* out) {
    constexpr std::uint32_t kOnes = 0x7f7f7f7f;
    for (std::int64_t j = 0; j < lanes; ++j) {
        out[j] = kOnes;
        if (j >= count) continue;
        if (groups - g >= 4) {
            __builtin_memcpy(out + j, scales[j] + g, 4);
        } else {
            __builtin_memcpy(out + j, scales[j] + g, static_cast<std::size_t>(groups - g));
        }
    }
}

#if defined(__AVX512BF16__)

constexpr int kVectors = kIndexKeys / kLanes;

// The image of sixteen keys: quad q of key j at image[q·stride + j]. Missing keys are zero.
void expand_keys(const std::uint8_t* const* values, std::int64_t count, std::int64_t groups,
                 std::int64_t stride, std::uint32_t* image) {
    const __m512i low = _mm512_set1_epi64(0x2c2824200c080400);
    const __m512i high = _mm512_set1_epi64(0x3c3834301c181410);
    // Bits above the nibble are ignored: the table repeats. Doubled values plus 12.
    const __m512i table = _mm512_broadcast_i32x4(
        _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
    const std::int64_t dwords = groups * 4;
    for (std::int64_t d = 0; d < dwords; d += kLanes) {
        const std::int64_t left = dwords - d < kLanes ? dwords - d : kLanes;
        const auto mask = static_cast<__mmask16>((1u << left) - 1);
        __m512i block[16];
        for (int j = 0; j < 16; ++j) {
            block[j] = j < count ? _mm512_maskz_loadu_epi32(mask, values[j] + 4 * d)
                                 : _mm512_setzero_si512();
        }
        transpose(block);
        for (std::int64_t i = 0; i < left; ++i) {
            std::uint32_t* out = image + 2 * (d + i) * stride;
            const __m512i x = block[i];
            _mm512_storeu_si512(
                out, _mm512_permutexvar_epi8(_mm512_multishift_epi64_epi8(low, x), table));
            _mm512_storeu_si512(out + stride, _mm512_permutexvar_epi8(
                                                  _mm512_multishift_epi64_epi8(high, x), table));
        }
    }
}

std::uint32_t score(const IndexQuery& query, const std::uint8_t* const* values,
                    const std::uint8_t* const* scales, std::int64_t count, float* out) {
    auto* image = static_cast<std::uint32_t*>(query.memory);
    auto* dots = reinterpret_cast<float*>(image + query.groups * kQuads * kIndexKeys);
    for (int v = 0; v < kVectors; ++v) {
        expand_keys(values + v * kLanes, count - v * kLanes, query.groups, kIndexKeys,
                    image + v * kLanes);
    }
    std::uint32_t odd = 0;
    alignas(64) std::uint32_t bytes[kIndexKeys];
    for (std::int64_t g = 0; g < query.groups; ++g) {
        if (g % 4 == 0) gather_scales(scales, g, query.groups, count, kIndexKeys, bytes);
        __m512i keys[kQuads][kVectors];
        __m512 key_factor[kVectors];
        for (int v = 0; v < kVectors; ++v) {
            const __m512i byte =
                _mm512_and_si512(_mm512_srl_epi32(_mm512_load_si512(bytes + v * kLanes),
                                                  _mm_cvtsi64_si128(8 * (g % 4))),
                                 _mm512_set1_epi32(255));
            key_factor[v] = _mm512_castsi512_ps(_mm512_slli_epi32(byte, 23));
            odd |= static_cast<std::uint32_t>(
                       _mm512_cmpgt_epu32_mask(_mm512_sub_epi32(byte, _mm512_set1_epi32(kLowByte)),
                                               _mm512_set1_epi32(kHighByte - kLowByte)))
                   << (v * kLanes);
#pragma GCC unroll 8
            for (std::int64_t i = 0; i < kQuads; ++i)
                keys[i][v] = _mm512_loadu_si512(image + (g * kQuads + i) * kIndexKeys + v * kLanes);
        }
        const std::int8_t* codes = query.codes + g * query.heads * kGroup;
        for (std::int64_t h = 0; h < query.heads; ++h, codes += kGroup) {
            const __m512i start = _mm512_set1_epi32(query.start[g * query.heads + h]);
            const __m512 factor = _mm512_set1_ps(query.scale[g * query.heads + h]);
            __m512i sum[kVectors] = {start, start};
#pragma GCC unroll 8
            for (std::int64_t i = 0; i < kQuads; ++i) {
                std::int32_t quad;
                __builtin_memcpy(&quad, codes + 4 * i, sizeof quad);
                const __m512i b = _mm512_set1_epi32(quad);
                sum[0] = _mm512_dpbusd_epi32(sum[0], keys[i][0], b);
                sum[1] = _mm512_dpbusd_epi32(sum[1], keys[i][1], b);
            }
#pragma GCC unroll 2
            for (int v = 0; v < kVectors; ++v) {
                float* dot = dots + h * kIndexKeys + v * kLanes;
                const __m512 before = g == 0 ? _mm512_setzero_ps() : _mm512_loadu_ps(dot);
                // Both products are exact: the addition alone rounds.
                const __m512 part = _mm512_mul_ps(_mm512_cvtepi32_ps(sum[v]), key_factor[v]);
                _mm512_storeu_ps(dot, _mm512_fmadd_ps(part, factor, before));
            }
        }
    }
    F16 scored[kVectors] = {zero(), zero()};
    for (std::int64_t h = 0; h < query.heads; ++h) {
        for (int v = 0; v < kVectors; ++v) {
            const F16 dot = load(dots + h * kIndexKeys + v * kLanes);
            scored[v] = scored[v] + all(query.weights[h]) * max(dot, zero());
        }
    }
    for (int v = 0; v < kVectors; ++v)
        store(out + v * kLanes, scored[v]);
    return odd;
}

#else

// The image of eight keys: quad q of key j at image[q·8 + j]. Missing keys are zero.
void expand_keys(const std::uint8_t* const* values, std::int64_t count, std::int64_t groups,
                 std::uint32_t* image) {
    const __m128i table = _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);
    const __m128i nibble = _mm_set1_epi8(15);
    for (std::int64_t j = 0; j < 8; ++j) {
        for (std::int64_t g = 0; g < groups; ++g) {
            alignas(16) std::uint32_t quads[kQuads] = {};
            if (j < count) {
                const __m128i x =
                    _mm_loadu_si128(reinterpret_cast<const __m128i*>(values[j] + g * kGroup / 2));
                const __m128i even = _mm_shuffle_epi8(table, _mm_and_si128(x, nibble));
                const __m128i odd =
                    _mm_shuffle_epi8(table, _mm_and_si128(_mm_srli_epi16(x, 4), nibble));
                auto* q = reinterpret_cast<__m128i*>(quads);
                _mm_store_si128(q, _mm_unpacklo_epi8(even, odd));
                _mm_store_si128(q + 1, _mm_unpackhi_epi8(even, odd));
            }
            for (std::int64_t i = 0; i < kQuads; ++i)
                image[(g * kQuads + i) * 8 + j] = quads[i];
        }
    }
}

// Eight keys.
std::uint32_t score_eight(const IndexQuery& query, const std::uint8_t* const* values,
                          const std::uint8_t* const* scales, std::int64_t count, float* out) {
    auto* image = static_cast<std::uint32_t*>(query.memory);
    auto* dots = reinterpret_cast<float*>(image + query.groups * kQuads * kIndexKeys);
    expand_keys(values, count, query.groups, image);
    const __m256i ones = _mm256_set1_epi16(1);
    std::uint32_t odd = 0;
    alignas(32) std::uint32_t bytes[8];
    for (std::int64_t g = 0; g < query.groups; ++g) {
        if (g % 4 == 0) gather_scales(scales, g, query.groups, count, 8, bytes);
        const __m256i byte = _mm256_and_si256(
            _mm256_srl_epi32(_mm256_load_si256(reinterpret_cast<const __m256i*>(bytes)),
                             _mm_cvtsi64_si128(8 * (g % 4))),
            _mm256_set1_epi32(255));
        const __m256 key_factor = _mm256_castsi256_ps(_mm256_slli_epi32(byte, 23));
        const __m256i outside =
            _mm256_or_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(kLowByte), byte),
                            _mm256_cmpgt_epi32(byte, _mm256_set1_epi32(kHighByte)));
        odd |= static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(outside)));
        __m256i keys[kQuads];
#pragma GCC unroll 8
        for (std::int64_t i = 0; i < kQuads; ++i) {
            keys[i] =
                _mm256_loadu_si256(reinterpret_cast<const __m256i*>(image + (g * kQuads + i) * 8));
        }
        const std::int8_t* codes = query.codes + g * query.heads * kGroup;
        for (std::int64_t h = 0; h < query.heads; ++h, codes += kGroup) {
            __m256i words = _mm256_setzero_si256();  // at most 8 · 576: no saturation
#pragma GCC unroll 8
            for (std::int64_t i = 0; i < kQuads; ++i) {
                std::int32_t quad;
                __builtin_memcpy(&quad, codes + 4 * i, sizeof quad);
                words =
                    _mm256_add_epi16(words, _mm256_maddubs_epi16(keys[i], _mm256_set1_epi32(quad)));
            }
            const __m256i sum =
                _mm256_add_epi32(_mm256_madd_epi16(words, ones),
                                 _mm256_set1_epi32(query.start[g * query.heads + h]));
            float* dot = dots + h * 8;
            const __m256 before = g == 0 ? _mm256_setzero_ps() : _mm256_loadu_ps(dot);
            const __m256 part = _mm256_mul_ps(_mm256_cvtepi32_ps(sum), key_factor);
            _mm256_storeu_ps(
                dot,
                _mm256_fmadd_ps(part, _mm256_set1_ps(query.scale[g * query.heads + h]), before));
        }
    }
    __m256 scored = _mm256_setzero_ps();
    for (std::int64_t h = 0; h < query.heads; ++h) {
        const __m256 dot = _mm256_max_ps(_mm256_loadu_ps(dots + h * 8), _mm256_setzero_ps());
        scored = _mm256_add_ps(scored, _mm256_mul_ps(_mm256_set1_ps(query.weights[h]), dot));
    }
    _mm256_storeu_ps(out, scored);
    return odd;
}

std::uint32_t score(const IndexQuery& query, const std::uint8_t* const* values,
                    const std::uint8_t* const* scales, std::int64_t count, float* out) {
    std::uint32_t odd = 0;
    for (std::int64_t j = 0; j < count; j += 8) {
        const std::int64_t some = count - j < 8 ? count - j : 8;
        odd |= score_eight(query, values + j, scales + j, some, out + j) << j;
    }
    return odd;
}

#endif

std::int64_t memory_bytes(std::int64_t heads, std::int64_t groups) {
    return (groups * kQuads + heads) * kIndexKeys * static_cast<std::int64_t>(sizeof(float));
}

}  // namespace

const IndexKernels& index_kernels() {
    static constexpr IndexKernels kKernels{
        .memory_bytes = memory_bytes, .prepare = prepare, .score = score};
    return kKernels;
}

}  // namespace fathom::x86::FATHOM_X86_LEVEL
