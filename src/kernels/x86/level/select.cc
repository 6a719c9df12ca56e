// How a selection works: the rank of a score somewhat below the wanted ones is estimated from a
// sample; one scan keeps what is above it; the k-th largest of those, found bit by bit, decides.
// Only the time depends on the estimate.
#include "kernels/x86/select_kernels.h"

#include "kernels/x86/level/ints.h"

namespace fathom::x86::FATHOM_X86_LEVEL {

namespace {

constexpr std::int32_t kLowest = -0x7fffffff - 1;  // of NaN
constexpr std::int32_t kInfinity = 0x7f800000;

std::int32_t rank_of(float score) {
    std::int32_t u;
    __builtin_memcpy(&u, &score, sizeof u);
    const std::int32_t magnitude = u & 0x7fffffff;
    if (magnitude > kInfinity) return kLowest;
    return u < 0 ? -magnitude : magnitude;
}
I16 ranks_of(I16 bits) {
    const I16 magnitude = bits & all_i(0x7fffffff);
    const I16 ranks = select(less(bits, all_i(0)), all_i(0) - magnitude, magnitude);
    return select(less(all_i(kInfinity), magnitude), all_i(kLowest), ranks);
}

// One bit for each of 64 lanes.
std::uint64_t lanes_of(const M16 (&m)[4]) {
#if defined(__AVX512BF16__)
    return _cvtmask64_u64(
        _mm512_kunpackd(_mm512_kunpackw(m[3], m[2]), _mm512_kunpackw(m[1], m[0])));
#else
    std::uint64_t lanes = 0;
    for (int i = 0; i < 4; ++i) {
        lanes |= static_cast<std::uint64_t>(_mm256_movemask_ps(m[i].a)) << (16 * i) |
                 static_cast<std::uint64_t>(_mm256_movemask_ps(m[i].b)) << (16 * i + 8);
    }
    return lanes;
#endif
}

I16 plus_one_where(M16 m, I16 x) {
#if defined(__AVX512BF16__)
    return {_mm512_mask_sub_epi32(x.v, m, x.v, _mm512_set1_epi32(-1))};
#else
    return {_mm256_sub_epi32(x.a, _mm256_castps_si256(m.a)),
            _mm256_sub_epi32(x.b, _mm256_castps_si256(m.b))};
#endif
}

// ------------------------------------------------------------------------------------- sources

// Where ranks come from. rank() is exact; exceeds<true>() takes a threshold that is not negative,
// and may be true for a NaN.
struct Scores {
    const float* p;
    std::int32_t at(std::int64_t i) const { return rank_of(p[i]); }
    I16 rank(std::int64_t i) const { return ranks_of(load_i(p + i)); }
    // Bit patterns of positive scores compare as the scores do, those of others are below.
    template <bool kPositive>
    M16 exceeds(std::int64_t i, I16 threshold) const {
        return less(threshold, kPositive ? load_i(p + i) : rank(i));
    }
};
struct Ranks {
    const std::int32_t* p;
    std::int32_t at(std::int64_t i) const { return p[i]; }
    I16 rank(std::int64_t i) const { return load_i(p + i); }
    template <bool kPositive>
    M16 exceeds(std::int64_t i, I16 threshold) const {
        return less(threshold, load_i(p + i));
    }
};

// ------------------------------------------------------------------------------------ exact part

std::int32_t sum_of_lanes(I16 x) {
    alignas(64) std::int32_t lanes[kLanes];
    store_i(lanes, x);
    std::int32_t sum = 0;
    for (const std::int32_t lane : lanes)
        sum += lane;
    return sum;
}

// How many of n ranks, padded to two whole vectors with kLowest, are above t.
std::int64_t count_above(const std::int32_t* ranks, std::int64_t n, std::int32_t t) {
    const I16 threshold = all_i(t);
    I16 a = all_i(0), b = all_i(0);
    for (std::int64_t i = 0; i < n; i += 2 * kLanes) {
        a = plus_one_where(less(threshold, load_i(ranks + i)), a);
        b = plus_one_where(less(threshold, load_i(ranks + i + kLanes)), b);
    }
    return sum_of_lanes(a + b);
}

void pad(std::int32_t* ranks, std::int64_t n) {
    for (std::int64_t i = 0; i < 2 * kLanes; ++i)
        ranks[n + i] = kLowest;
}

// A value v such that fewer than k of n ranks are above it and at least k are v or above,
// 0 < k <= n.
std::int32_t kth_largest(const std::int32_t* ranks, std::int64_t n, std::int64_t k) {
    I16 top = all_i(kLowest);
    for (std::int64_t i = 0; i < n; i += kLanes)
        top = max(top, load_i(ranks + i));
    std::int64_t low = kLowest, high = first(largest(top));
    while (low < high) {  // at least k ranks are low or above, fewer than k are above high
        const std::int64_t middle = low + (high - low + 1) / 2;
        const std::int64_t count = count_above(ranks, n, static_cast<std::int32_t>(middle - 1));
        if (count == k) return static_cast<std::int32_t>(middle);
        (count > k ? low : high) = count > k ? middle : middle - 1;
    }
    return static_cast<std::int32_t>(low);
}

// Everything above v, and ties from the lowest index on until k are out. `indices` null: 0, 1, ….
// `out` is written one element beyond what it keeps, never beyond k.
void emit(const std::int32_t* ranks, const std::int32_t* indices, std::int64_t n, std::int32_t v,
          std::int64_t k, std::int32_t* out) {
    std::int64_t ties = k - count_above(ranks, n, v), found = 0;
    for (std::int64_t i = 0; found < k && i < n; ++i) {
        const bool tie = (ranks[i] == v) & (ties > 0);
        ties -= tie;
        out[found] = indices != nullptr ? indices[i] : static_cast<std::int32_t>(i);
        found += (ranks[i] > v) | tie;
    }
}

// ---------------------------------------------------------------------------------- the estimate

constexpr std::int64_t kSample = 2048;
constexpr std::int64_t kScanFrom = 8192;  // below this all ranks are searched

// A rank that a few more than k of n scores should exceed.
template <class Source>
std::int32_t estimate(const Source& source, std::int64_t n, std::int64_t k) {
    std::int32_t sample[kSample + 2 * kLanes];
    const std::int64_t step = n / kSample;
    for (std::int64_t i = 0; i < kSample; ++i)
        sample[i] = source.at(i * step);
    pad(sample, kSample);
    const std::int64_t expected = k * kSample / n + 1;
    std::int64_t margin = 1;  // three standard deviations
    while (margin * margin < 9 * expected)
        ++margin;
    const std::int64_t place = expected + margin;
    return place >= kSample ? kLowest : kth_largest(sample, kSample, place);
}

// Ranks and indices of what exceeds the threshold (and of some NaN); returns how many. No
// branch depends on a score but one for each group that has a hit.
template <bool kPositive, class Source>
std::int64_t scan(const Source& source, std::int64_t n, std::int32_t threshold, std::int32_t* ranks,
                  std::int32_t* indices) {
    constexpr std::int64_t kGroup = 4 * kLanes, kGroups = 512;
    const I16 t = all_i(threshold);
    std::int64_t count = 0, i = 0;
    while (i + kGroup <= n) {
        std::uint64_t lanes[kGroups];
        std::int32_t hits[kGroups + 1];
        std::int64_t groups = 0, hit_count = 0;
        for (; groups < kGroups && i + kGroup <= n; i += kGroup, ++groups) {
            M16 m[4];
            for (int j = 0; j < 4; ++j)
                m[j] = source.template exceeds<kPositive>(i + j * kLanes, t);
            lanes[groups] = lanes_of(m);
            hits[hit_count] = static_cast<std::int32_t>(groups);
            hit_count += lanes[groups] != 0;
        }
        const std::int64_t begin = i - groups * kGroup;
        for (std::int64_t h = 0; h < hit_count; ++h) {
            const std::int64_t first_index = begin + hits[h] * kGroup;
            for (std::uint64_t bits = lanes[hits[h]]; bits != 0; bits &= bits - 1) {
                const std::int64_t index = first_index + __builtin_ctzll(bits);
                indices[count] = static_cast<std::int32_t>(index);
                ranks[count++] = source.at(index);
            }
        }
    }
    for (; i < n; ++i) {
        const std::int32_t rank = source.at(i);
        if (rank <= threshold) continue;
        ranks[count] = rank;
        indices[count++] = static_cast<std::int32_t>(i);
    }
    return count;
}

// The `count` entries above t, listed with their ranks, and the first `ties` entries of rank t,
// merged. False where there are not as many ties.
template <class Source>
bool emit_with_ties(const Source& source, std::int64_t n, std::int32_t t, std::int64_t ties,
                    const std::int32_t* ranks, const std::int32_t* indices, std::int64_t count,
                    std::int32_t* out) {
    std::int64_t i = 0;
    for (; i < n && ties > 0; ++i) {
        const std::int32_t rank = source.at(i);
        ties -= rank == t;
        if (rank >= t) *out++ = static_cast<std::int32_t>(i);
    }
    for (std::int64_t j = 0; j < count; ++j) {
        if (ranks[j] > t && indices[j] >= i) *out++ = indices[j];
    }
    return ties == 0;
}

template <class Source>
void top_of(const Source& source, std::int64_t n, std::int64_t k, std::int32_t* memory,
            std::int32_t* out) {
    std::int32_t* ranks = memory;
    std::int32_t* indices = memory + n + kSelectSpare;
    if (n >= kScanFrom) {
        const std::int32_t t = estimate(source, n, k);
        const std::int64_t count = t >= 0 ? scan<true>(source, n, t, ranks, indices)
                                          : scan<false>(source, n, t, ranks, indices);
        pad(ranks, count);
        const std::int64_t above = count_above(ranks, count, t);
        if (above >= k) return emit(ranks, indices, count, kth_largest(ranks, count, k), k, out);
        // Few distinct scores: the threshold itself may be the k-th.
        if (emit_with_ties(source, n, t, k - above, ranks, indices, count, out)) return;
    }
    std::int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes)
        store_i(ranks + i, source.rank(i));
    for (; i < n; ++i)
        ranks[i] = source.at(i);
    pad(ranks, n);
    emit(ranks, nullptr, n, kth_largest(ranks, n, k), k, out);
}

void top(const float* scores, std::int64_t n, std::int64_t k, std::int32_t* memory,
         std::int32_t* out) {
    top_of(Scores{scores}, n, k, memory, out);
}
void top_ranks(const std::int32_t* ranks, std::int64_t n, std::int64_t k, std::int32_t* memory,
               std::int32_t* out) {
    top_of(Ranks{ranks}, n, k, memory, out);
}

// ---------------------------------------------------------------------------------------- blocks

// The highest ranks of the blocks of eight among 8 vectors.
#if defined(__AVX512BF16__)
void blocks_of_eight(const float* scores, std::int32_t* out) {
    __m512i four[2];
    for (int half = 0; half < 2; ++half) {
        __m512i two[2];
        for (int i = 0; i < 2; ++i) {
            const __m512i a = ranks_of(load_i(scores + (4 * half + 2 * i) * kLanes)).v;
            const __m512i b = ranks_of(load_i(scores + (4 * half + 2 * i + 1) * kLanes)).v;
            two[i] = _mm512_max_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
        }
        const __m512 a = _mm512_castsi512_ps(two[0]), b = _mm512_castsi512_ps(two[1]);
        four[half] = _mm512_max_epi32(_mm512_castps_si512(_mm512_shuffle_ps(a, b, 0x88)),
                                      _mm512_castps_si512(_mm512_shuffle_ps(a, b, 0xdd)));
    }
    const __m512i eight = _mm512_max_epi32(_mm512_shuffle_i32x4(four[0], four[1], 0x88),
                                           _mm512_shuffle_i32x4(four[0], four[1], 0xdd));
    const __m512i order = _mm512_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
    _mm512_storeu_si512(out, _mm512_permutexvar_epi32(order, eight));
}
#else
void blocks_of_eight(const float* scores, std::int32_t* out) {
    __m256i v[16];
    for (int i = 0; i < 8; ++i) {
        const I16 x = ranks_of(load_i(scores + i * kLanes));
        v[2 * i] = x.a;
        v[2 * i + 1] = x.b;
    }
    for (int half = 0; half < 2; ++half) {
        __m256i four[2];
        for (int q = 0; q < 2; ++q) {
            const __m256i* x = v + 8 * half + 4 * q;
            const __m256 a = _mm256_castsi256_ps(_mm256_max_epi32(
                _mm256_unpacklo_epi64(x[0], x[1]), _mm256_unpackhi_epi64(x[0], x[1])));
            const __m256 b = _mm256_castsi256_ps(_mm256_max_epi32(
                _mm256_unpacklo_epi64(x[2], x[3]), _mm256_unpackhi_epi64(x[2], x[3])));
            four[q] = _mm256_max_epi32(_mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x88)),
                                       _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xdd)));
        }
        const __m256i eight = _mm256_max_epi32(_mm256_permute2x128_si256(four[0], four[1], 0x20),
                                               _mm256_permute2x128_si256(four[0], four[1], 0x31));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 8 * half), eight);
    }
}
#endif

void block_ranks(const float* scores, std::int64_t n, std::int64_t block_size,
                 std::int32_t* ranks) {
    std::int64_t i = 0;
    if (block_size == 8) {
        for (; i + 8 * kLanes <= n; i += 8 * kLanes)
            blocks_of_eight(scores + i, ranks + i / 8);
    }
    for (; i < n; i += block_size) {
        const std::int64_t end = i + block_size < n ? i + block_size : n;
        std::int32_t best = kLowest;
        for (std::int64_t j = i; j < end; ++j) {
            const std::int32_t rank = rank_of(scores[j]);
            best = rank > best ? rank : best;
        }
        ranks[i / block_size] = best;
    }
}

}  // namespace

const SelectKernels& select_kernels() {
    static constexpr SelectKernels kKernels{
        .top = top, .top_ranks = top_ranks, .block_ranks = block_ranks};
    return kKernels;
}

}  // namespace fathom::x86::FATHOM_X86_LEVEL
