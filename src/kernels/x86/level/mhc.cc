#include "kernels/x86/mhc_kernels.h"

#include "kernels/x86/level/functions.h"
#include "kernels/x86/level/ints.h"
#include "kernels/x86/level/lanes.h"

namespace fathom::x86::FATHOM_X86_LEVEL {

namespace {

// ------------------------------------------------------------------------------------- products

#if defined(__AVX512BF16__)
constexpr int kMixes = 6, kRows = 4;  // chains in registers
#else
constexpr int kMixes = 3, kRows = 2;
#endif
constexpr std::int64_t kBlock = 1024;  // inputs of fn that stay in L2 while all rows pass

// Elements [begin, end) of R rows with M rows of fn; the lanes of all chains are carried in memory.
template <int R, int M>
void chains(const std::uint16_t* const* z, const float* fn, std::int64_t width, std::int64_t mixes,
            std::int64_t begin, std::int64_t end, float* lanes) {
    F16 acc[R][M];
    for (int r = 0; r < R; ++r) {
        for (int m = 0; m < M; ++m)
            acc[r][m] = begin == 0 ? zero() : load(lanes + (r * mixes + m) * kLanes);
    }
    in_sixteens(end - begin, [&](std::int64_t offset, std::int64_t count) {
        const std::int64_t k = begin + offset;
        F16 x[R];
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r)
            x[r] = load_part(z[r] + k, count);
#pragma GCC unroll 6
        for (int m = 0; m < M; ++m) {
            const float* p = fn + m * width + k;
            __builtin_prefetch(p + 512);
            const F16 w = load_part(p, count);
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r)
                acc[r][m] = fma(x[r], w, acc[r][m]);
        }
    });
    for (int r = 0; r < R; ++r) {
        for (int m = 0; m < M; ++m)
            store(lanes + (r * mixes + m) * kLanes, acc[r][m]);
    }
}

using Chains = void (*)(const std::uint16_t* const*, const float*, std::int64_t, std::int64_t,
                        std::int64_t, std::int64_t, float*);
template <int R>
constexpr Chains kChainsOf[] = {chains<R, 1>, chains<R, 2>,
                                chains<R, 3>,
#if defined(__AVX512BF16__)
                                chains<R, 4>, chains<R, 5>,
                                chains<R, 6>
#endif
};
constexpr const Chains* kChains[] = {kChainsOf<1>, kChainsOf<2>,
#if defined(__AVX512BF16__)
                                     kChainsOf<3>, kChainsOf<4>
#endif
};

void products(const std::uint16_t* const* z, std::int64_t rows, const float* fn, std::int64_t width,
              std::int64_t mixes, float* lanes, float* out, std::int64_t out_stride) {
    const std::int64_t block = rows <= kRows ? width : kBlock;
    for (std::int64_t begin = 0; begin < width; begin += block) {
        const std::int64_t end = begin + block < width ? begin + block : width;
        for (std::int64_t m = 0; m < mixes; m += kMixes) {
            const std::int64_t some = mixes - m < kMixes ? mixes - m : kMixes;
            for (std::int64_t r = 0; r < rows; r += kRows) {
                const std::int64_t few = rows - r < kRows ? rows - r : kRows;
                kChains[few - 1][some - 1](z + r, fn + m * width, width, mixes, begin, end,
                                           lanes + (r * mixes + m) * kLanes);
            }
        }
    }
    for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t m = 0; m < mixes; ++m)
            out[r * out_stride + m] = tree(load(lanes + (r * mixes + m) * kLanes));
    }
}

// ------------------------------------------------------------------------------------- sinkhorn

// Four rows (or columns) of a 4×4 matrix.
struct Four {
    __m128 v[4];
};

Four transposed(Four c) {
    _MM_TRANSPOSE4_PS(c.v[0], c.v[1], c.v[2], c.v[3]);
    return c;
}

// Every element divided by the sum over v[0..3] of its place, plus eps.
Four normalised(Four c, __m128 eps) {
    const __m128 sum = _mm_add_ps(
        _mm_add_ps(_mm_add_ps(_mm_add_ps(_mm_setzero_ps(), c.v[0]), c.v[1]), c.v[2]), c.v[3]);
    const __m128 divisor = _mm_add_ps(sum, eps);
    for (__m128& v : c.v)
        v = _mm_div_ps(v, divisor);
    return c;
}

// C of four streams after the softmax of its rows.
void sinkhorn_four(float* comb, std::int64_t iters, float eps_value) {
    const __m128 eps = _mm_set1_ps(eps_value);
    Four c;
    for (int i = 0; i < 4; ++i)
        c.v[i] = _mm_loadu_ps(comb + 4 * i);
    c = normalised(c, eps);
    for (std::int64_t step = 1; step < iters; ++step) {
        c = transposed(normalised(transposed(c), eps));
        c = normalised(c, eps);
    }
    for (int i = 0; i < 4; ++i)
        _mm_storeu_ps(comb + 4 * i, c.v[i]);
}

void divide_columns(float* c, std::int64_t h, float eps) {
    for (std::int64_t j = 0; j < h; ++j) {
        float sum = 0;
        for (std::int64_t i = 0; i < h; ++i)
            sum += c[i * h + j];
        for (std::int64_t i = 0; i < h; ++i)
            c[i * h + j] /= sum + eps;
    }
}

void sinkhorn_any(float* c, std::int64_t h, std::int64_t iters, float eps) {
    divide_columns(c, h, eps);
    for (std::int64_t step = 1; step < iters; ++step) {
        for (std::int64_t i = 0; i < h; ++i) {
            float* row = c + i * h;
            float sum = 0;
            for (std::int64_t j = 0; j < h; ++j)
                sum += row[j];
            for (std::int64_t j = 0; j < h; ++j)
                row[j] /= sum + eps;
        }
        divide_columns(c, h, eps);
    }
}

// Softmax of each row of m, plus eps.
void softmax_rows(const float* m, std::int64_t h, float eps, float* c) {
    constexpr std::int64_t kMax = kMhcStreamsMax * kMhcStreamsMax;
    float inner[kMax + kLanes] = {};
    for (std::int64_t i = 0; i < h; ++i) {
        const float* row = m + i * h;
        float top = row[0];
        for (std::int64_t j = 1; j < h; ++j)
            top = top < row[j] ? row[j] : top;
        for (std::int64_t j = 0; j < h; ++j)
            inner[i * h + j] = row[j] - top;
    }
    for (std::int64_t k = 0; k < h * h; k += kLanes)
        store(inner + k, functions::exp(load(inner + k)));
    for (std::int64_t i = 0; i < h; ++i) {
        float sum = 0;
        for (std::int64_t j = 0; j < h; ++j)
            sum += inner[i * h + j];
        for (std::int64_t j = 0; j < h; ++j)
            c[i * h + j] = inner[i * h + j] / sum + eps;
    }
}

void finish(const std::uint16_t* z, std::int64_t width, std::int64_t h, const float* base,
            const float* scale, std::int64_t sinkhorn_iters, float eps, float norm_eps,
            const float* m, float* pre, float* post, float* comb) {
    constexpr std::int64_t kMax = (2 + kMhcStreamsMax) * kMhcStreamsMax;
    const float r = rsqrt(sum_of_squares_bf16(z, width) / static_cast<float>(width) + norm_eps);
    float mixed[kMax + kLanes] = {};
    for (std::int64_t j = 0; j < (2 + h) * h; ++j)
        mixed[j] = m[j] * r * scale[j < h ? 0 : j < 2 * h ? 1 : 2] + base[j];
    softmax_rows(mixed + 2 * h, h, eps, comb);
    float gates[2 * kMhcStreamsMax + kLanes];
    for (std::int64_t j = 0; j < 2 * h; j += kLanes)
        store(gates + j, functions::sigmoid(load(mixed + j)));
    for (std::int64_t j = 0; j < h; ++j) {
        pre[j] = gates[j] + eps;
        post[j] = 2.0f * gates[h + j];
    }
    if (h == 4) return sinkhorn_four(comb, sinkhorn_iters, eps);
    sinkhorn_any(comb, h, sinkhorn_iters, eps);
}

// --------------------------------------------------------------------------- collapse and expand

// kStreams is 0 for a number known only at run time.
template <int kStreams>
void collapse_of(const std::uint16_t* x, std::int64_t stride, std::int64_t streams,
                 const float* pre, std::int64_t dim, std::uint16_t* y) {
    const std::int64_t h = kStreams != 0 ? kStreams : streams;
    in_sixteens(dim, [&](std::int64_t k, std::int64_t count) {
        F16 sum = all(pre[0]) * load_part(x + k, count);
        for (std::int64_t i = 1; i < h; ++i)
            sum = sum + all(pre[i]) * load_part(x + i * stride + k, count);
        store_result(y + k, sum, count);
    });
}

void collapse(const std::uint16_t* x, std::int64_t stride, std::int64_t streams, const float* pre,
              std::int64_t dim, std::uint16_t* y) {
    (streams == 4 ? collapse_of<4> : collapse_of<0>)(x, stride, streams, pre, dim, y);
}

template <int kStreams>
void expand_of(std::uint16_t* x, std::int64_t stride, std::int64_t streams, const std::uint16_t* y,
               const float* post, const float* comb, std::int64_t dim) {
    const std::int64_t h = kStreams != 0 ? kStreams : streams;
    in_sixteens(dim, [&](std::int64_t k, std::int64_t count) {
        F16 v[kStreams != 0 ? kStreams : kMhcStreamsMax];
        for (std::int64_t i = 0; i < h; ++i)
            v[i] = load_part(x + i * stride + k, count);
        const F16 update = load_part(y + k, count);
        for (std::int64_t j = 0; j < h; ++j) {
            F16 sum = all(comb[j]) * v[0];
            for (std::int64_t i = 1; i < h; ++i)
                sum = sum + all(comb[i * h + j]) * v[i];
            store_result(x + j * stride + k, all(post[j]) * update + sum, count);
        }
    });
}

void expand(std::uint16_t* x, std::int64_t stride, std::int64_t streams, const std::uint16_t* y,
            const float* post, const float* comb, std::int64_t dim) {
    (streams == 4 ? expand_of<4> : expand_of<0>)(x, stride, streams, y, post, comb, dim);
}

}  // namespace

const MhcKernels& mhc_kernels() {
    static constexpr MhcKernels kKernels{
        .products = products, .finish = finish, .collapse = collapse, .expand = expand};
    return kKernels;
}

}  // namespace fathom::x86::FATHOM_X86_LEVEL
