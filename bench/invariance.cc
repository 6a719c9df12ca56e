#include "bench/invariance.h"

#include <time.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace fathom::bench {

namespace {

constexpr std::int64_t kRows = 48;     // as an expert has in a prefill chunk of 3072 tokens
constexpr std::int64_t kInputs = 512;  // one block of K: its panel of 64 outputs stays in cache
constexpr std::int64_t kGroupInputs = 32;
constexpr std::int64_t kTileRows = 6;
constexpr int kRounds = 301;

double thread_seconds() {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

#if defined(__x86_64__)

// Keeps running sums in memory across groups (cpu-kernels.md 6.3).
inline void memory_barrier() {
    asm volatile("" ::: "memory");
}

// y[row][64] for six rows; x holds pairs of bf16 inputs, w the panel as [pair][64] pairs.
template <bool grouped>
__attribute__((target("avx512f,avx512bf16"), noinline)) void tile_bf16(const std::uint32_t* x,
                                                                       const std::uint32_t* w,
                                                                       float* y) {
    constexpr std::int64_t pairs = kInputs / 2;
    constexpr std::int64_t chain = grouped ? kGroupInputs / 2 : pairs;
    for (std::int64_t first = 0; first < pairs; first += chain) {
        __m512 sum[kTileRows][4];
#pragma GCC unroll 6
        for (auto& row : sum) {
#pragma GCC unroll 4
            for (auto& lanes : row)
                lanes = _mm512_setzero_ps();
        }
        for (std::int64_t p = first; p < first + chain; ++p) {
            __m512i weights[4];
#pragma GCC unroll 4
            for (int b = 0; b < 4; ++b)
                weights[b] = _mm512_loadu_si512(w + p * 64 + b * 16);
#pragma GCC unroll 6
            for (int r = 0; r < kTileRows; ++r) {
                const __m512i input = _mm512_set1_epi32(static_cast<int>(x[r * pairs + p]));
#pragma GCC unroll 4
                for (int b = 0; b < 4; ++b)
                    sum[r][b] = _mm512_dpbf16_ps(sum[r][b], (__m512bh)input, (__m512bh)weights[b]);
            }
        }
#pragma GCC unroll 6
        for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 4
            for (int b = 0; b < 4; ++b) {
                float* to = y + r * 64 + b * 16;
                _mm512_storeu_ps(to, _mm512_add_ps(_mm512_loadu_ps(to), sum[r][b]));
            }
        }
        memory_barrier();
    }
}

// The same by fp32 multiply-adds: 16 outputs at a time, the odd input of a pair first.
template <bool grouped>
__attribute__((target("avx2,fma"), noinline)) void tile_fp32(const float* x, const float* w,
                                                             float* y) {
    constexpr std::int64_t chain = grouped ? kGroupInputs : kInputs;
    for (int b = 0; b < 4; ++b) {
        for (std::int64_t first = 0; first < kInputs; first += chain) {
            __m256 sum[kTileRows][2];
#pragma GCC unroll 6
            for (auto& row : sum)
                row[0] = row[1] = _mm256_setzero_ps();
            for (std::int64_t k = first; k < first + chain; ++k) {
                const std::int64_t input = k ^ 1;
                const __m256 low = _mm256_loadu_ps(w + (b * kInputs + input) * 16);
                const __m256 high = _mm256_loadu_ps(w + (b * kInputs + input) * 16 + 8);
#pragma GCC unroll 6
                for (int r = 0; r < kTileRows; ++r) {
                    const __m256 value = _mm256_broadcast_ss(x + r * kInputs + input);
                    sum[r][0] = _mm256_fmadd_ps(value, low, sum[r][0]);
                    sum[r][1] = _mm256_fmadd_ps(value, high, sum[r][1]);
                }
            }
#pragma GCC unroll 6
            for (int r = 0; r < kTileRows; ++r) {
                float* to = y + r * 64 + b * 16;
                _mm256_storeu_ps(to, _mm256_add_ps(_mm256_loadu_ps(to), sum[r][0]));
                _mm256_storeu_ps(to + 8, _mm256_add_ps(_mm256_loadu_ps(to + 8), sum[r][1]));
            }
            memory_barrier();
        }
    }
}

// Whole cache lines, as packed weights and scratch memory lie.
template <class T>
struct alignas(64) Line {
    T values[64 / sizeof(T)];
};
template <class T>
using Lines = std::vector<Line<T>>;
template <class T>
Lines<T> lines(std::int64_t count, T even, T odd) {
    Lines<T> all(static_cast<std::size_t>(count) * sizeof(T) / 64);
    for (Line<T>& line : all) {
        for (std::size_t i = 0; i < 64 / sizeof(T); ++i)
            line.values[i] = i % 2 == 0 ? even : odd;
    }
    return all;
}

// Seconds of one pass over all rows with the panel.
template <class Tile, class Input>
double pass(const Tile& tile, const Lines<Input>& x, const Lines<Input>& w, Lines<float>& y) {
    constexpr int kPasses = 8;
    const std::int64_t row_inputs =
        static_cast<std::int64_t>(x.size() * (64 / sizeof(Input))) / kRows;
    const double start = thread_seconds();
    for (int i = 0; i < kPasses; ++i) {
        for (std::int64_t r = 0; r < kRows; r += kTileRows)
            tile(x.data()->values + r * row_inputs, w.data()->values, y.data()->values + r * 64);
    }
    return (thread_seconds() - start) / kPasses;
}

template <class Grouped, class Chained, class Input>
InvarianceCost compare(const Grouped& grouped, const Chained& chained, const Lines<Input>& x,
                       const Lines<Input>& w) {
    Lines<float> y = lines(kRows * 64, 0.0f, 0.0f);
    std::vector<double> shares, seconds;
    for (int round = 0; round < kRounds; ++round) {
        const double before = pass(chained, x, w, y);
        const double ours = pass(grouped, x, w, y);
        const double after = pass(chained, x, w, y);
        shares.push_back(ours / (0.5 * (before + after)) - 1);
        seconds.push_back(ours);
    }
    const auto middle = static_cast<std::ptrdiff_t>(shares.size() / 2);
    std::nth_element(shares.begin(), shares.begin() + middle, shares.end());
    std::nth_element(seconds.begin(), seconds.begin() + middle, seconds.end());
    return {shares[static_cast<std::size_t>(middle)],
            2.0 * kRows * 64 * kInputs / seconds[static_cast<std::size_t>(middle)]};
}

#endif

}  // namespace

InvarianceCost invariance_cost() {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512bf16")) {
        // The pair (1, −1) keeps sums small for ever.
        return compare(tile_bf16<true>, tile_bf16<false>,
                       lines<std::uint32_t>(kRows * kInputs / 2, 0xbf803f80u, 0xbf803f80u),
                       lines<std::uint32_t>(64 * kInputs / 2, 0x3f003f00u, 0x3f003f00u));
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        return compare(tile_fp32<true>, tile_fp32<false>, lines(kRows * kInputs, 1.0f, -1.0f),
                       lines(64 * kInputs, 0.5f, 0.5f));
    }
#endif
    return {};
}

}  // namespace fathom::bench
