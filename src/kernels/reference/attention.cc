#include "kernels/functions.h"
#include "kernels/reference/backend.h"
#include "kernels/reference/kv_rows.h"
#include "kernels/reference/lanes.h"
#include "kernels/reference/support.h"

namespace fathom::reference {

namespace {

constexpr std::int64_t kTile = 64;
constexpr float kNoMaximum = -1e30f;

// The heads [first, first + count) of one query. Memory is the thread's scratch.
class HeadRange {
  public:
    HeadRange(const AttentionArgs& args, std::int64_t query, std::int64_t first, std::int64_t count)
        : args_(args),
          list_(args.lists[query]),
          query_(query),
          first_(first),
          count_(count),
          dim_(args.head_dim),
          padded_(round_up(args.head_dim, kLanes)) {
        struct Q;
        struct O;
        struct P;
        struct State;
        struct V;
        struct K;
        q_ = scratch<Q>(count * dim_);
        o_ = scratch<O>(count * padded_);
        p_ = scratch<P>(count * kTile);
        m_ = scratch<State>(2 * count);
        l_ = m_ + count;
        v_ = scratch<V>(kTile * padded_);
        k_ = scratch<K>(kTile * dim_);
    }

    void run() {
        read_row(args_.q, query_, first_ * dim_, count_ * dim_, q_);
        std::fill_n(o_, count_ * padded_, 0.0f);
        std::fill_n(m_, count_, kNoMaximum);
        std::fill_n(l_, count_, 0.0f);
        const std::int64_t rows =
            static_cast<std::int64_t>(list_.window.size() + list_.selected.size());
        for (std::int64_t begin = 0; begin < rows; begin += kTile) {
            const std::int64_t n = std::min(kTile, rows - begin);
            load_tile(begin, n);
            scores(n);
            for (std::int64_t h = 0; h < count_; ++h)
                softmax(h, n);
            values(n);
        }
        for (std::int64_t h = 0; h < count_; ++h) {
            float* o = o_ + h * padded_;
            const float sum = l_[h] + functions::exp(args_.sink[first_ + h] - m_[h]);
            for (std::int64_t d = 0; rows > 0 && d < dim_; ++d)
                o[d] /= sum;
            write_row(args_.o, query_, (first_ + h) * dim_, dim_, o);
        }
    }

  private:
    void load_row(std::int64_t j, float* out) const {
        const auto windows = static_cast<std::int64_t>(list_.window.size());
        if (j < windows) {
            load_kv_row(list_.window_format, dim_, list_.window[j], out);
            return;
        }
        const KvRow row = list_.compressed.row(list_.selected[j - windows]);
        load_kv_row(list_.compressed.format, dim_, {row.values, row.scales}, out);
    }

    // v_ [64][padded] and its transposed image k_ [4 panels][dim][16 rows]; missing rows are zero.
    void load_tile(std::int64_t begin, std::int64_t n) {
        std::fill_n(v_, kTile * padded_, 0.0f);
        for (std::int64_t r = 0; r < n; ++r)
            load_row(begin + r, v_ + r * padded_);
        for (std::int64_t r = 0; r < round_up(n, kLanes); ++r) {
            float* panel = k_ + r / kLanes * dim_ * kLanes + r % kLanes;
            for (std::int64_t d = 0; d < dim_; ++d)
                panel[d * kLanes] = v_[r * padded_ + d];
        }
    }

    void scores(std::int64_t n) {
        in_fours(count_, [&]<int R>(std::int64_t h) {
            const float* rows[R];
            for (int r = 0; r < R; ++r)
                rows[r] = q_ + (h + r) * dim_;
            for (std::int64_t first = 0; first < n; first += kLanes) {
                float s[R][kLanes] = {};
                pair_chain<R>(rows, k_ + first * dim_, kLanes, dim_ / 2, s);
                for (int r = 0; r < R; ++r) {
                    float* out = p_ + (h + r) * kTile + first;
                    for (int j = 0; j < kLanes; ++j)
                        out[j] = s[r][j] * args_.scale;
                }
            }
        });
    }

    // Scores of head h become probabilities; its state moves to the new maximum.
    void softmax(std::int64_t h, std::int64_t n) {
        float* p = p_ + h * kTile;
        float top = m_[h];
        for (std::int64_t j = 0; j < n; ++j)
            top = p[j] > top ? p[j] : top;
        const float shrink = functions::exp(m_[h] - top);
        m_[h] = top;
        for (std::int64_t j = 0; j < n; ++j)
            p[j] = functions::exp(p[j] - top);
        for (std::int64_t j = n; j < kTile; ++j)
            p[j] = 0.0f;
        const float sum = reduce_row(n, [p](std::int64_t j, float lane) { return lane + p[j]; });
        l_[h] = std::fma(l_[h], shrink, sum);
        for (std::int64_t j = 0; j < n; ++j)
            p[j] = round_to(args_.q.dtype, p[j]);
        float* o = o_ + h * padded_;
        for (std::int64_t d = 0; d < dim_; ++d)
            o[d] *= shrink;
    }

    void values(std::int64_t n) {
        in_fours(count_, [&]<int R>(std::int64_t h) {
            const float* rows[R];
            for (int r = 0; r < R; ++r)
                rows[r] = p_ + (h + r) * kTile;
            for (std::int64_t d = 0; d < padded_; d += kLanes) {
                float o[R][kLanes];
                for (int r = 0; r < R; ++r)
                    std::copy_n(o_ + (h + r) * padded_ + d, kLanes, o[r]);
                pair_chain<R>(rows, v_ + d, padded_, (n + 1) / 2, o);
                for (int r = 0; r < R; ++r)
                    std::copy_n(o[r], kLanes, o_ + (h + r) * padded_ + d);
            }
        });
    }

    const AttentionArgs& args_;
    const AttentionList& list_;
    const std::int64_t query_, first_, count_, dim_, padded_;
    float *q_, *o_, *p_, *m_, *l_, *v_, *k_;
};

}  // namespace

void ReferenceBackend::sparse_attention(const AttentionArgs& args) {
    const std::int64_t n = args.q.rows, heads = args.heads, dim = args.head_dim;
    FATHOM_CHECK(args.q.cols == heads * dim && dim % 2 == 0);
    FATHOM_CHECK(args.o.rows == n && args.o.cols == args.q.cols);
    FATHOM_CHECK(static_cast<std::int64_t>(args.lists.size()) == n);
    FATHOM_CHECK(static_cast<std::int64_t>(args.sink.size()) == heads);
    std::int64_t rows = 0;
    for (const AttentionList& list : args.lists) {
        rows += static_cast<std::int64_t>(list.window.size() + list.selected.size());
    }
    // Rows are expanded once a task, so heads are split only when there are too few queries.
    const std::int64_t parts = std::clamp<std::int64_t>(
        (pool().threads() + n - 1) / std::max<std::int64_t>(n, 1), 1, (heads + 3) / 4);
    const std::int64_t step = round_up((heads + parts - 1) / parts, 4);
    const std::int64_t ranges = (heads + step - 1) / step;
    const std::int64_t mean_rows = n == 0 ? 0 : rows / n + 1;
    for_ranges(pool(), n * ranges, mean_rows * dim * (step / 4 + 4),
               [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t t = begin; t < end; ++t) {
                       const std::int64_t first = t % ranges * step;
                       HeadRange(args, t / ranges, first, std::min(step, heads - first)).run();
                   }
               });
}

}  // namespace fathom::reference
