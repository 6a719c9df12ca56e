#include "kernels/x86/cache_kernels.h"

#include "kernels/x86/level/formats.h"
#include "kernels/x86/level/lanes.h"
#include "kernels/x86/level/stored.h"

namespace fathom::x86::FATHOM_X86_LEVEL {

namespace {

constexpr std::int32_t kInfinityBits = 0x7f800000;

struct Group {
    F16 x[2];
    I16 amax;  // bits of the largest magnitude, in every lane
};

// 16 or 32 elements.
Group read_group(const std::uint16_t* x, std::int64_t n) {
    Group g = {{load_bf16(x), zero()}, all_i(0)};
    if (n > kLanes) g.x[1] = load_bf16(x + kLanes);
    g.amax = largest(max(magnitude_bits(g.x[0]), magnitude_bits(g.x[1])));
    return g;
}
bool finite(const Group& g) {
    return first(g.amax) < kInfinityBits;
}

Rounded main_scale(I16 amax) {
    return round_e4m3(from_bits(max(amax, bits_of(all(6.0f / 512.0f)))) / all(6.0f));
}

// Eight bytes of sixteen E2M1 codes with the signs of x.
void pack(std::uint8_t* out, F16 x, I16 code) {
    alignas(16) std::uint8_t bytes[kLanes];
    store_u8(bytes, code | shift_right_zeros<28>(sign_bits(x)));
    const __m128i nibbles = _mm_load_si128(reinterpret_cast<const __m128i*>(bytes));
    const __m128i words = _mm_maddubs_epi16(nibbles, _mm_set1_epi16(0x1001));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(out), _mm_packus_epi16(words, words));
}

bool quantise_fp8(const std::uint16_t* x, std::int64_t n, std::uint8_t* values,
                  std::uint8_t* scales) {
    for (std::int64_t k = 0; k < n; k += kGroup) {
        const Group g = read_group(x + k, kGroup);
        if (!finite(g)) return false;
        const GroupScale s = q8_scale(g.amax);
        scales[k / kGroup] = static_cast<std::uint8_t>(first(s.byte));
        for (int i = 0; i < 2; ++i) {
            const I16 code = round_e4m3(g.x[i] * s.inverse).code;
            store_u8(values + k + i * kLanes, code | shift_right_zeros<24>(sign_bits(g.x[i])));
        }
    }
    return true;
}

bool quantise_main(const std::uint16_t* x, std::int64_t n, std::uint8_t* values,
                   std::uint8_t* scales) {
    for (std::int64_t k = 0; k < n; k += kLanes) {
        const Group g = read_group(x + k, kLanes);
        if (!finite(g)) return false;
        const Rounded s = main_scale(g.amax);
        scales[k / kLanes] = static_cast<std::uint8_t>(first(s.code));
        pack(values + k / 2, g.x[0], round_e2m1(g.x[0] / s.value).code);
    }
    return true;
}

bool quantise_index(const std::uint16_t* x, std::int64_t n, std::uint8_t* values,
                    std::uint8_t* scales) {
    for (std::int64_t k = 0; k < n; k += kGroup) {
        const Group g = read_group(x + k, kGroup);
        if (!finite(g)) return false;
        const GroupScale s = index_scale(g.amax);
        if (!scale_is_plain(first(s.byte))) return false;
        scales[k / kGroup] = static_cast<std::uint8_t>(first(s.byte));
        for (int i = 0; i < 2; ++i) {
            pack(values + k / 2 + i * kLanes / 2, g.x[i], round_e2m1(g.x[i] * s.inverse).code);
        }
    }
    return true;
}

bool quantise(RowFormat format, const std::uint16_t* x, std::int64_t n, std::uint8_t* values,
              std::uint8_t* scales) {
    switch (format) {
        case RowFormat::fp8:
            return quantise_fp8(x, n, values, scales);
        case RowFormat::main_fp4:
            return quantise_main(x, n, values, scales);
        case RowFormat::index_fp4:
            return quantise_index(x, n, values, scales);
        case RowFormat::bf16:
            break;
    }
    return false;
}

bool round_trip(RowFormat format, const std::uint16_t* x, std::int64_t n, std::uint16_t* y) {
    const std::int64_t width = format == RowFormat::main_fp4 ? kLanes : kGroup;
    for (std::int64_t k = 0; k < n; k += width) {
        const Group g = read_group(x + k, width);
        if (!finite(g)) return false;
        if (format == RowFormat::main_fp4) {
            const F16 s = main_scale(g.amax).value;
            store_bf16_result(y + k, round_e2m1(g.x[0] / s).value * s);
            continue;
        }
        const bool fp8 = format == RowFormat::fp8;
        const GroupScale s = fp8 ? q8_scale(g.amax) : index_scale(g.amax);
        if (!scale_is_plain(first(s.byte))) return false;
        for (int i = 0; i < 2; ++i) {
            const F16 v = g.x[i] * s.inverse;
            const F16 rounded = fp8 ? round_e4m3(v).value : round_e2m1(v).value;
            store_bf16_result(y + k + i * kLanes, rounded * s.scale);
        }
    }
    return format != RowFormat::bf16;
}

bool decode(RowFormat format, const std::uint8_t* values, const std::uint8_t* scales,
            std::int64_t n, std::uint16_t* y) {
    if (format != RowFormat::bf16) return decode_row(format, values, scales, n, y);
    const auto* x = reinterpret_cast<const std::uint16_t*>(values);
    std::int64_t k = 0;
    for (; k + kLanes <= n; k += kLanes)
        store_bf16(y + k, load_bf16(x + k));
    if (k == n) return true;
    std::uint16_t part[kLanes];
    store_bf16(part, load_part(x + k, n - k));
    for (std::int64_t j = 0; k + j < n; ++j)
        y[k + j] = part[j];
    return true;
}

void compress_pair(const float* u0, const float* g0, const float* u1, const float* g1,
                   std::int64_t n, std::uint16_t* y) {
    in_sixteens(n, [&](std::int64_t k, std::int64_t count) {
        const F16 a0 = load_part(g0 + k, count), a1 = load_part(g1 + k, count);
        const F16 top = max(a0, a1);
        const F16 e0 = functions::exp(a0 - top), e1 = functions::exp(a1 - top);
        const F16 sum = e0 + e1;
        const F16 first_part = e0 / sum * load_part(u0 + k, count);
        store_result(y + k, first_part + e1 / sum * load_part(u1 + k, count), count);
    });
}

}  // namespace

const CacheKernels& cache_kernels() {
    static constexpr CacheKernels kKernels{.quantise = quantise,
                                           .round_trip = round_trip,
                                           .decode = decode,
                                           .compress_pair = compress_pair};
    return kKernels;
}

}  // namespace fathom::x86::FATHOM_X86_LEVEL
