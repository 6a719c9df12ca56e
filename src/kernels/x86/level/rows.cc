#include "kernels/x86/row_kernels.h"

#include "kernels/x86/level/angles.h"
#include "kernels/x86/level/formats.h"
#include "kernels/x86/level/lanes.h"

namespace fathom::x86::FATHOM_X86_LEVEL {

namespace {

void rms_norm(const std::uint16_t* x, const std::uint16_t* w, std::int64_t n, float eps,
              std::uint16_t* y) {
    const float mean = sum_of_squares_bf16(x, n) / static_cast<float>(n);
    const F16 r = all(rsqrt(mean + eps));
    in_sixteens(n, [&](std::int64_t k, std::int64_t count) {
        store_result(y + k, load_part(x + k, count) * r * load_part(w + k, count), count);
    });
}

void q8_round_trip(const std::uint16_t* x, std::int64_t n, std::uint16_t* y) {
    for (std::int64_t k = 0; k < n; k += 2 * kLanes) {
        const Pair16 v = q8_group({load_bf16(x + k), load_bf16(x + k + kLanes)});
        store_bf16_result(y + k, v.a);
        store_bf16_result(y + k + kLanes, v.b);
    }
}

void angles(float position, const float* freqs, std::int64_t pairs, bool inverse, float* cosine,
            float* sine) {
    for (std::int64_t k = 0; k < pairs; k += kAngles)
        sincos(position, freqs + k, inverse, sine + k, cosine + k);
}

// (a, b) ← (a·cos − b·sin, a·sin + b·cos) of sixteen pairs, a in the low halves.
I16 rotated(I16 pairs, F16 cosine, F16 sine) {
    const F16 a = from_bits(shift_left<16>(pairs));
    const F16 b = from_bits(pairs & all_i(static_cast<std::int32_t>(0xffff0000u)));
    const I16 low = bf16_bits(a * cosine - b * sine);
    return low | shift_left<16>(bf16_bits(a * sine + b * cosine));
}

void rotate(std::uint16_t* x, std::int64_t heads, std::int64_t head_dim, std::int64_t pairs,
            const float* cosine, const float* sine) {
    for (std::int64_t h = 0; h < heads; ++h) {
        std::uint16_t* head = x + h * head_dim;
        in_sixteens(pairs, [&](std::int64_t k, std::int64_t count) {
            std::uint16_t* p = head + 2 * k;
            if (count == kLanes) {
                store_i(p, rotated(load_i(p), load(cosine + k), load(sine + k)));
                return;
            }
            std::uint16_t part[2 * kLanes] = {};
            for (std::int64_t j = 0; j < 2 * count; ++j)
                part[j] = p[j];
            store_i(part, rotated(load_i(part), load(cosine + k), load(sine + k)));
            for (std::int64_t j = 0; j < 2 * count; ++j)
                p[j] = part[j];
        });
    }
}

float engram_gate(std::uint16_t* x, const std::uint16_t* key, const std::uint16_t* value,
                  const std::uint16_t* q_weight, const std::uint16_t* k_weight, std::int64_t n,
                  float eps) {
    const float dot = reduce_row(n, [=](std::int64_t k, F16 lanes, std::int64_t count) {
        const F16 weight = load_part(q_weight + k, count) * load_part(k_weight + k, count);
        return fma(load_part(x + k, count) * weight, load_part(key + k, count), lanes);
    });
    const auto width = static_cast<float>(n);
    const float rx = rsqrt(sum_of_squares_bf16(x, n) / width + eps);
    const float rk = rsqrt(sum_of_squares_bf16(key, n) / width + eps);
    const float d = dot * rx * rk * rsqrt(width);
    const float size = d < 0 ? -d : d;
    const float root = sqrt(size > 1e-6f ? size : 1e-6f);
    const float gate = first(functions::sigmoid(all(d < 0 ? -root : root)));
    in_sixteens(n, [&](std::int64_t k, std::int64_t count) {
        const F16 updated = fma(all(gate), load_part(value + k, count), load_part(x + k, count));
        store_result(x + k, updated, count);
    });
    return gate;
}

}  // namespace

const RowKernels& row_kernels() {
    static constexpr RowKernels kKernels{.rms_norm = rms_norm,
                                         .q8_round_trip = q8_round_trip,
                                         .angles = angles,
                                         .rotate = rotate,
                                         .engram_gate = engram_gate};
    return kKernels;
}

}  // namespace fathom::x86::FATHOM_X86_LEVEL
