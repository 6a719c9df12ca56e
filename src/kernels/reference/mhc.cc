#include "kernels/functions.h"
#include "kernels/reference/backend.h"
#include "kernels/reference/lanes.h"
#include "kernels/reference/support.h"

namespace fathom::reference {

namespace {

// N3 products of z with R consecutive rows of fn, whose chains run side by side.
template <int R>
void row_products(const float* z, const float* fn, std::int64_t n, float* out) {
    float lane[R][kLanes] = {};
    std::int64_t k = 0;
    for (; k + kLanes <= n; k += kLanes) {
        for (int r = 0; r < R; ++r) {
            for (int j = 0; j < kLanes; ++j) {
                lane[r][j] = std::fma(z[k + j], fn[r * n + k + j], lane[r][j]);
            }
        }
    }
    for (int r = 0; r < R; ++r) {
        for (int j = 0; k < n && j < kLanes; ++j) {
            lane[r][j] =
                k + j < n ? std::fma(z[k + j], fn[r * n + k + j], lane[r][j]) : lane[r][j] + 0.0f;
        }
        out[r] = tree(lane[r]);
    }
}

// C: softmax of each row plus eps, one column step, then iters − 1 pairs of row and column steps.
void sinkhorn(float* c, std::int64_t h, std::int64_t iters, float eps) {
    const auto divide_columns = [&] {
        for (std::int64_t j = 0; j < h; ++j) {
            float sum = 0;
            for (std::int64_t i = 0; i < h; ++i)
                sum += c[i * h + j];
            for (std::int64_t i = 0; i < h; ++i)
                c[i * h + j] /= sum + eps;
        }
    };
    for (std::int64_t i = 0; i < h; ++i) {
        float* row = c + i * h;
        const float top = *std::max_element(row, row + h);
        float sum = 0;
        for (std::int64_t j = 0; j < h; ++j)
            sum += row[j] = functions::exp(row[j] - top);
        for (std::int64_t j = 0; j < h; ++j)
            row[j] = row[j] / sum + eps;
    }
    divide_columns();
    for (std::int64_t step = 1; step < iters; ++step) {
        for (std::int64_t i = 0; i < h; ++i) {
            float* row = c + i * h;
            float sum = 0;
            for (std::int64_t j = 0; j < h; ++j)
                sum += row[j];
            for (std::int64_t j = 0; j < h; ++j)
                row[j] /= sum + eps;
        }
        divide_columns();
    }
}

// Stream rows t·h .. t·h+h−1 of a token, one after the other.
void read_streams(const ConstRows& streams, std::int64_t t, std::int64_t h, float* out) {
    for (std::int64_t i = 0; i < h; ++i)
        read_row(streams, t * h + i, out + i * streams.cols);
}

}  // namespace

void ReferenceBackend::mhc_mix(ConstRows streams, const MhcWeights& w, std::span<float> pre,
                               std::span<float> post, std::span<float> comb) {
    const std::int64_t h = w.streams;
    FATHOM_CHECK(h > 0 && streams.cols == w.dim && streams.rows % h == 0);
    const std::int64_t n = streams.rows / h;
    const std::int64_t width = h * w.dim;
    const std::int64_t mixes = (2 + h) * h;
    FATHOM_CHECK(static_cast<std::int64_t>(pre.size()) == n * h && post.size() == pre.size() &&
                 static_cast<std::int64_t>(comb.size()) == n * h * h);
    for_ranges(pool(), n, width * (mixes + 2), [&](std::int64_t begin, std::int64_t end) {
        struct Flat;
        struct Mixes;
        float* z = scratch<Flat>(width);
        float* m = scratch<Mixes>(mixes);
        for (std::int64_t t = begin; t < end; ++t) {
            read_streams(streams, t, h, z);
            const float mean = sum_of_squares(z, width) / static_cast<float>(width);
            const float r = functions::rsqrt(mean + w.norm_eps);
            in_fours(mixes, [&]<int R>(std::int64_t j) {
                row_products<R>(z, w.fn + j * width, width, m + j);
            });
            for (std::int64_t j = 0; j < mixes; ++j) {
                const float scale = w.scale[j < h ? 0 : j < 2 * h ? 1 : 2];
                m[j] = m[j] * r * scale + w.base[j];
            }
            for (std::int64_t j = 0; j < h; ++j) {
                pre[t * h + j] = functions::sigmoid(m[j]) + w.eps;
                post[t * h + j] = 2.0f * functions::sigmoid(m[h + j]);
            }
            float* c = comb.data() + t * h * h;
            std::copy_n(m + 2 * h, h * h, c);
            sinkhorn(c, h, w.sinkhorn_iters, w.eps);
        }
    });
}

void ReferenceBackend::mhc_collapse(ConstRows streams, std::int64_t n_streams,
                                    std::span<const float> pre, Rows x) {
    const std::int64_t h = n_streams;
    const std::int64_t dim = x.cols;
    FATHOM_CHECK(streams.cols == dim && streams.rows == x.rows * h);
    FATHOM_CHECK(static_cast<std::int64_t>(pre.size()) == streams.rows);
    for_ranges(pool(), x.rows, 4 * h * dim, [&](std::int64_t begin, std::int64_t end) {
        struct Streams;
        struct Sum;
        float* v = scratch<Streams>(h * dim);
        float* sum = scratch<Sum>(dim);
        for (std::int64_t t = begin; t < end; ++t) {
            read_streams(streams, t, h, v);
            const float* p = pre.data() + t * h;
            for (std::int64_t k = 0; k < dim; ++k)
                sum[k] = p[0] * v[k];
            for (std::int64_t i = 1; i < h; ++i) {
                const float* stream = v + i * dim;
                for (std::int64_t k = 0; k < dim; ++k)
                    sum[k] += p[i] * stream[k];
            }
            write_row(x, t, sum);
        }
    });
}

void ReferenceBackend::mhc_expand(Rows streams, std::int64_t n_streams, ConstRows y,
                                  std::span<const float> post, std::span<const float> comb) {
    const std::int64_t h = n_streams;
    const std::int64_t dim = y.cols;
    FATHOM_CHECK(streams.cols == dim && streams.rows == y.rows * h);
    FATHOM_CHECK(static_cast<std::int64_t>(post.size()) == streams.rows &&
                 static_cast<std::int64_t>(comb.size()) == streams.rows * h);
    for_ranges(pool(), y.rows, 4 * h * h * dim, [&](std::int64_t begin, std::int64_t end) {
        struct Streams;
        struct Update;
        struct Sum;
        float* v = scratch<Streams>(h * dim);
        float* update = scratch<Update>(dim);
        float* sum = scratch<Sum>(dim);
        for (std::int64_t t = begin; t < end; ++t) {
            read_streams(streams, t, h, v);
            read_row(y, t, update);
            const float* c = comb.data() + t * h * h;
            for (std::int64_t j = 0; j < h; ++j) {
                for (std::int64_t k = 0; k < dim; ++k)
                    sum[k] = c[j] * v[k];
                for (std::int64_t i = 1; i < h; ++i) {
                    const float weight = c[i * h + j];
                    const float* stream = v + i * dim;
                    for (std::int64_t k = 0; k < dim; ++k)
                        sum[k] += weight * stream[k];
                }
                const float p = post[t * h + j];
                for (std::int64_t k = 0; k < dim; ++k)
                    sum[k] = p * update[k] + sum[k];
                write_row(streams, t * h + j, sum);
            }
        }
    });
}

}  // namespace fathom::reference
