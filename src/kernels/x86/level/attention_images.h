// The images of a tile of list rows and the two matrix products of sparse attention.
//
// Scores have heads as lanes: the query image holds, for every pair of inputs, all heads side by
// side, and a row's numbers are broadcast. So the tile needs no transposition, and the softmax over
// rows works on whole vectors of heads. Values have dimensions as lanes, and a head's probabilities
// are broadcast.
#pragma once

#include "kernels/x86/attention_kernels.h"
#include "kernels/x86/level/lanes.h"
#include "kernels/x86/level/stored.h"
#include "kernels/x86/level/transpose.h"

namespace fathom::x86::FATHOM_X86_LEVEL {

inline constexpr std::int64_t kTile = 64;
inline constexpr std::int64_t kSpareRows = 16;  // a block of rows or heads may run over the end
inline constexpr std::int64_t kSpareHeads = 16;

// Memory of one task. H is `heads` rounded up to 16, D is `dim` rounded up to kDims.
struct Images {
    std::int64_t heads, dim, padded_heads, padded_dim, row_stride;
    float* scores;              // [64 + spare, H], later the probabilities
    float *top, *sum, *shrink;  // [H]
    float* o;                   // [D / kDims, H + spare, kDims]
#if defined(__AVX512BF16__)
    std::uint32_t* q;     // [dim / 2, H] pairs
    std::uint16_t* rows;  // [64 + spare, D]
    std::uint32_t* v;     // [D / kDims, 32, kDims] pairs of rows
    std::uint32_t* p;     // [32, H] pairs of rows
#else
    float* q;     // [H / 16, dim, 16]
    float* rows;  // [64 + spare, D + 16]
#endif
};

inline std::int64_t rounded_up(std::int64_t n, std::int64_t multiple) {
    return (n + multiple - 1) / multiple * multiple;
}

// Prefetches the rows of a tile in two steps. A prefetch to a page whose translation is not cached
// holds up what follows it, so the first lines of all rows are asked for together: their
// translations are looked up side by side. The other lines come one at a time while scores are
// computed: a burst of those would fill the core's miss buffers.
class RowLines {
  public:
    // Rows [begin, end) of the task.
    void begin(const AttentionTask& task, std::int64_t begin, std::int64_t end) {
        task_ = &task;
        row_ = begin;
        end_ = end;
        line_ = last_ = nullptr;
        for (std::int64_t j = begin; j < end; ++j) {
            __builtin_prefetch(task.rows[j].values);
            __builtin_prefetch(task.rows[j].scales);
        }
    }
    void prefetch_next() {
        if (line_ == last_ && !next_row()) return;
        line_ += kLine;
        __builtin_prefetch(line_);
    }
    void prefetch_all() {
        while (line_ != last_ || row_ < end_)
            prefetch_next();
    }

  private:
    static constexpr std::int64_t kLine = 64;

    bool next_row() {
        if (row_ >= end_) return false;  // behind the last tile it begins past the end
        const bool window = row_ < task_->windows;
        const std::int64_t bytes = window ? task_->window_bytes : task_->compressed_bytes;
        line_ = task_->rows[row_].values;
        last_ = line_ + (bytes + kLine - 1) / kLine * kLine;  // rows need not begin with a line
        ++row_;
        return true;
    }

    const AttentionTask* task_ = nullptr;
    std::int64_t row_ = 0, end_ = 0;
    const std::uint8_t *line_ = nullptr, *last_ = nullptr;
};

// Hands out pieces of memory in multiples of 64 bytes; counts only where it starts from null.
struct Pieces {
    char* base;
    std::int64_t used = 0;

    template <class T>
    T* take(std::int64_t count) {
        T* p = base == nullptr ? nullptr : reinterpret_cast<T*>(base + used);
        used += rounded_up(count * static_cast<std::int64_t>(sizeof(T)), 64);
        return p;
    }
};

#if defined(__AVX512BF16__)

inline constexpr std::int64_t kDims = 64;        // of a value block
inline constexpr std::int64_t kPairBlock = 128;  // pairs of a query image block that stays in L1

inline Images layout(std::int64_t heads, std::int64_t dim, Pieces& m) {
    Images t{};
    t.heads = heads;
    t.dim = dim;
    t.padded_heads = rounded_up(heads, kLanes);
    t.padded_dim = t.row_stride = rounded_up(dim, kDims);
    t.q = m.take<std::uint32_t>(dim / 2 * t.padded_heads);
    t.rows = m.take<std::uint16_t>((kTile + kSpareRows) * t.row_stride);
    t.scores = m.take<float>((kTile + kSpareRows) * t.padded_heads);
    t.p = m.take<std::uint32_t>(kTile / 2 * t.padded_heads + kSpareHeads);
    t.v = m.take<std::uint32_t>(kTile / 2 * t.padded_dim);
    t.top = m.take<float>(t.padded_heads);
    t.sum = m.take<float>(t.padded_heads);
    t.shrink = m.take<float>(t.padded_heads + kSpareHeads);
    t.o = m.take<float>((t.padded_heads + kSpareHeads) * t.padded_dim);
    return t;
}

inline __m512 dot_pairs(__m512 acc, __m512i a, __m512i b) {
    return _mm512_dpbf16_ps(acc, (__m512bh)a, (__m512bh)b);
}

inline void make_query(const Images& t, const std::uint16_t* q) {
    const std::int64_t pairs = t.dim / 2;
    for (std::int64_t h = 0; h < t.padded_heads; h += kLanes) {
        for (std::int64_t p = 0; p < pairs; p += kLanes) {
            const std::int64_t left = pairs - p < kLanes ? pairs - p : kLanes;
            const auto mask = static_cast<__mmask16>((1u << left) - 1);
            __m512i block[16];
            for (int i = 0; i < 16; ++i) {
                block[i] = h + i < t.heads
                               ? _mm512_maskz_loadu_epi32(mask, q + (h + i) * t.dim + 2 * p)
                               : _mm512_setzero_si512();
            }
            transpose(block);
            for (std::int64_t i = 0; i < left; ++i)
                _mm512_storeu_si512(t.q + (p + i) * t.padded_heads + h, block[i]);
        }
    }
}

// The value image of n decoded rows.
inline void make_values(const Images& t, std::int64_t n) {
    alignas(64) std::uint16_t low[32], high[32];
    for (int i = 0; i < 16; ++i) {
        low[2 * i] = static_cast<std::uint16_t>(i);
        low[2 * i + 1] = static_cast<std::uint16_t>(32 + i);
        high[2 * i] = static_cast<std::uint16_t>(16 + i);
        high[2 * i + 1] = static_cast<std::uint16_t>(48 + i);
    }
    const __m512i first = _mm512_load_si512(low), second = _mm512_load_si512(high);
    for (std::int64_t i = 0; i < (n + 1) / 2; ++i) {
        const std::uint16_t* a = t.rows + 2 * i * t.row_stride;
        const std::uint16_t* b = a + t.row_stride;
        for (std::int64_t d = 0; d < t.padded_dim; d += 32) {
            const __m512i x = _mm512_loadu_si512(a + d), y = _mm512_loadu_si512(b + d);
            std::uint32_t* out = t.v + (d / kDims * (kTile / 2) + i) * kDims + d % kDims;
            _mm512_storeu_si512(out, _mm512_permutex2var_epi16(x, first, y));
            _mm512_storeu_si512(out + kLanes, _mm512_permutex2var_epi16(x, second, y));
        }
    }
}

// Pairs [begin, end) of R rows with V vectors of heads.
template <int V, int R>
void score_block(const Images& t, std::int64_t row, std::int64_t begin, std::int64_t end,
                 RowLines& lines) {
    __m512 acc[R][V];
    float* s = t.scores + row * t.padded_heads;
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v)
            acc[r][v] = begin == 0 ? _mm512_setzero_ps()
                                   : _mm512_loadu_ps(s + r * t.padded_heads + v * kLanes);
    }
    const std::uint32_t* q = t.q + begin * t.padded_heads;
    const char* x = reinterpret_cast<const char*>(t.rows + row * t.row_stride);
    const std::int64_t stride = t.row_stride * 2;
    for (std::int64_t p = begin; p < end; ++p, q += V * kLanes) {
        if (p % (V > 2 ? 4 : 2) == 0) lines.prefetch_next();
        __m512i heads[V];
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v)
            heads[v] = _mm512_loadu_si512(q + v * kLanes);
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) {
            std::int32_t pair;
            __builtin_memcpy(&pair, x + r * stride + 4 * p, sizeof pair);
            const __m512i b = _mm512_set1_epi32(pair);
#pragma GCC unroll 4
            for (int v = 0; v < V; ++v)
                acc[r][v] = dot_pairs(acc[r][v], heads[v], b);
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v)
            _mm512_storeu_ps(s + r * t.padded_heads + v * kLanes, acc[r][v]);
    }
}

template <int V, int R, int kRest>
void scores_of(const Images& t, std::int64_t n, RowLines& lines) {
    const std::int64_t pairs = t.dim / 2;
    const std::int64_t block = V * kPairBlock / 4 <= kPairBlock / 2 ? pairs : kPairBlock;
    for (std::int64_t begin = 0; begin < pairs; begin += block) {
        const std::int64_t end = begin + block < pairs ? begin + block : pairs;
        for (std::int64_t row = 0; row < n; row += R) {
            if (n - row <= kRest) {
                score_block<V, kRest>(t, row, begin, end, lines);
            } else {
                score_block<V, R>(t, row, begin, end, lines);
            }
        }
    }
}

// Scores of n rows, not yet scaled. Meanwhile `lines` come nearer.
inline void make_scores(const Images& t, std::int64_t n, RowLines& lines) {
    switch (t.padded_heads / kLanes) {
        case 1:
            return scores_of<1, 16, 4>(t, n, lines);
        case 2:
            return scores_of<2, 12, 4>(t, n, lines);
        case 3:
            return scores_of<3, 8, 4>(t, n, lines);
        default:
            return scores_of<4, 6, 4>(t, n, lines);
    }
}

// The probabilities of heads h..h+15 in rows j and j+1, rounded.
inline void put_probabilities(const Images& t, std::int64_t j, std::int64_t h, F16 a, F16 b) {
    const __m512i order =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    const auto both = (__m512i)_mm512_cvtne2ps_pbh(b.v, a.v);
    _mm512_storeu_si512(t.p + j / 2 * t.padded_heads + h, _mm512_permutexvar_epi16(order, both));
}

template <int R>
void value_block(const Images& t, std::int64_t h, std::int64_t block, std::int64_t pairs,
                 bool fresh) {
    constexpr int V = kDims / kLanes;
    __m512 acc[R][V];
    float* o = t.o + (block * (t.padded_heads + kSpareHeads) + h) * kDims;
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
        const __m512 shrink = _mm512_set1_ps(t.shrink[h + r]);
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v)
            acc[r][v] = fresh ? _mm512_setzero_ps()
                              : _mm512_mul_ps(_mm512_loadu_ps(o + r * kDims + v * kLanes), shrink);
    }
    const std::uint32_t* x = t.v + block * (kTile / 2) * kDims;
    const std::uint32_t* p = t.p + h;
    for (std::int64_t i = 0; i < pairs; ++i, x += kDims, p += t.padded_heads) {
        __builtin_prefetch(o + R * kDims + i * kLanes);  // the next heads
        __m512i dims[V];
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v)
            dims[v] = _mm512_loadu_si512(x + v * kLanes);
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r) {
            const __m512i b = _mm512_set1_epi32(static_cast<std::int32_t>(p[r]));
#pragma GCC unroll 4
            for (int v = 0; v < V; ++v)
                acc[r][v] = dot_pairs(acc[r][v], b, dims[v]);
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v)
            _mm512_storeu_ps(o + r * kDims + v * kLanes, acc[r][v]);
    }
}

inline void add_values(const Images& t, std::int64_t n, bool fresh) {
    const std::int64_t pairs = (n + 1) / 2;
    for (std::int64_t block = 0; block < t.padded_dim / kDims; ++block) {
        for (std::int64_t h = 0; h < t.heads; h += 6) {
            if (t.heads - h <= 2) {
                value_block<2>(t, h, block, pairs, fresh);
            } else if (t.heads - h <= 4) {
                value_block<4>(t, h, block, pairs, fresh);
            } else {
                value_block<6>(t, h, block, pairs, fresh);
            }
        }
    }
}

#else

inline constexpr std::int64_t kDims = 16;
inline constexpr std::int64_t kPairBlock = 128;

inline Images layout(std::int64_t heads, std::int64_t dim, Pieces& m) {
    Images t{};
    t.heads = heads;
    t.dim = dim;
    t.padded_heads = rounded_up(heads, kLanes);
    t.padded_dim = rounded_up(dim, kDims);
    // An odd number of cache lines: the rows of a value block fall into different cache sets.
    t.row_stride = t.padded_dim % 32 == 0 ? t.padded_dim + kLanes : t.padded_dim;
    t.q = m.take<float>(dim * t.padded_heads);
    t.rows = m.take<float>((kTile + kSpareRows) * t.row_stride);
    t.scores = m.take<float>((kTile + kSpareRows) * t.padded_heads + kSpareHeads);
    t.top = m.take<float>(t.padded_heads);
    t.sum = m.take<float>(t.padded_heads);
    t.shrink = m.take<float>(t.padded_heads + kSpareHeads);
    t.o = m.take<float>((t.padded_heads + kSpareHeads) * t.padded_dim);
    return t;
}

inline void make_query(const Images& t, const std::uint16_t* q) {
    for (std::int64_t h = 0; h < t.padded_heads; ++h) {
        float* out = t.q + h / kLanes * t.dim * kLanes + h % kLanes;
        for (std::int64_t d = 0; d < t.dim; ++d) {
            const int bits = h < t.heads ? q[h * t.dim + d] << 16 : 0;
            out[d * kLanes] = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(bits)));
        }
    }
}

inline void make_values(const Images&, std::int64_t) {}  // the rows are the image

// acc += a pair: the odd element first.
template <int R>
void fma_pair(__m256 (&acc)[R][2], const float* even, const float* odd, const float* x,
              std::int64_t row_step, std::int64_t odd_step) {
    const __m256 o0 = _mm256_loadu_ps(odd), o1 = _mm256_loadu_ps(odd + 8);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
        const __m256 b = _mm256_broadcast_ss(x + r * row_step + odd_step);
        acc[r][0] = _mm256_fmadd_ps(b, o0, acc[r][0]);
        acc[r][1] = _mm256_fmadd_ps(b, o1, acc[r][1]);
    }
    const __m256 e0 = _mm256_loadu_ps(even), e1 = _mm256_loadu_ps(even + 8);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
        const __m256 b = _mm256_broadcast_ss(x + r * row_step);
        acc[r][0] = _mm256_fmadd_ps(b, e0, acc[r][0]);
        acc[r][1] = _mm256_fmadd_ps(b, e1, acc[r][1]);
    }
}

template <int R>
void score_block(const Images& t, std::int64_t h, std::int64_t row, std::int64_t begin,
                 std::int64_t end, RowLines& lines) {
    __m256 acc[R][2];
    float* s = t.scores + row * t.padded_heads + h;
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
        acc[r][0] = begin == 0 ? _mm256_setzero_ps() : _mm256_loadu_ps(s + r * t.padded_heads);
        acc[r][1] = begin == 0 ? _mm256_setzero_ps() : _mm256_loadu_ps(s + r * t.padded_heads + 8);
    }
    const float* q = t.q + (h / kLanes * t.dim + 2 * begin) * kLanes;
    const float* x = t.rows + row * t.row_stride + 2 * begin;
    for (std::int64_t p = begin; p < end; ++p, q += 2 * kLanes, x += 2) {
        if (p % 4 == 0) lines.prefetch_next();
        fma_pair<R>(acc, q, q + kLanes, x, t.row_stride, 1);
    }
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
        _mm256_storeu_ps(s + r * t.padded_heads, acc[r][0]);
        _mm256_storeu_ps(s + r * t.padded_heads + 8, acc[r][1]);
    }
}

inline void make_scores(const Images& t, std::int64_t n, RowLines& lines) {
    for (std::int64_t h = 0; h < t.padded_heads; h += kLanes) {
        for (std::int64_t begin = 0; begin < t.dim / 2; begin += kPairBlock) {
            const std::int64_t end =
                begin + kPairBlock < t.dim / 2 ? begin + kPairBlock : t.dim / 2;
            for (std::int64_t row = 0; row < n; row += 6) {
                if (n - row <= 4) {
                    score_block<4>(t, h, row, begin, end, lines);
                } else {
                    score_block<6>(t, h, row, begin, end, lines);
                }
            }
        }
    }
}

inline void put_probabilities(const Images& t, std::int64_t j, std::int64_t h, F16 a, F16 b) {
    float* p = t.scores + j * t.padded_heads + h;
    store(p, from_bits(shift_left<16>(bf16_bits(a))));
    store(p + t.padded_heads, from_bits(shift_left<16>(bf16_bits(b))));
}

template <int R>
void value_block(const Images& t, std::int64_t h, std::int64_t block, std::int64_t pairs,
                 bool fresh) {
    __m256 acc[R][2];
    float* o = t.o + (block * (t.padded_heads + kSpareHeads) + h) * kDims;
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
        const __m256 shrink = _mm256_set1_ps(t.shrink[h + r]);
        for (int v = 0; v < 2; ++v)
            acc[r][v] = fresh ? _mm256_setzero_ps()
                              : _mm256_mul_ps(_mm256_loadu_ps(o + r * kDims + v * 8), shrink);
    }
    const float* x = t.rows + block * kDims;
    const float* p = t.scores + h;
    for (std::int64_t i = 0; i < pairs; ++i, x += 2 * t.row_stride, p += 2 * t.padded_heads) {
        __builtin_prefetch(o + R * kDims + i * kLanes);
        fma_pair<R>(acc, x, x + t.row_stride, p, 1, t.padded_heads);
    }
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
        _mm256_storeu_ps(o + r * kDims, acc[r][0]);
        _mm256_storeu_ps(o + r * kDims + 8, acc[r][1]);
    }
}

inline void add_values(const Images& t, std::int64_t n, bool fresh) {
    for (std::int64_t block = 0; block < t.padded_dim / kDims; ++block) {
        for (std::int64_t h = 0; h < t.heads; h += 6) {
            if (t.heads - h <= 4) {
                value_block<4>(t, h, block, (n + 1) / 2, fresh);
            } else {
                value_block<6>(t, h, block, (n + 1) / 2, fresh);
            }
        }
    }
}

#endif

}  // namespace fathom::x86::FATHOM_X86_LEVEL
