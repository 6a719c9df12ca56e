#include "kernels/x86/attention_kernels.h"

#include "kernels/x86/level/attention_images.h"
#include "kernels/x86/level/functions.h"

namespace fathom::x86::FATHOM_X86_LEVEL {

namespace {

constexpr float kNoMaximum = -1e30f;

// functions::exp of x <= 0 or NaN: nothing to guard above, and one factor is enough.
F16 exp_of_nonpositive(F16 x) {
    const M16 below = less(x, all(-87.33f)), nan = unordered(x);
    const F16 inside = max(x, all(-87.33f));
    const F16 round_shift = all(0x1.8p23f);
    const F16 shifted = fma(inside, all(0x1.715476p+0f), round_shift);
    const F16 n = shifted - round_shift;
    F16 r = fma(n, all(-functions::kLn2High), inside);
    r = fma(n, all(-functions::kLn2Low), r);
    F16 q = all(0x1.6d110ap-10f);
    q = fma(q, r, all(0x1.120b6ep-7f));
    q = fma(q, r, all(0x1.55551ap-5f));
    q = fma(q, r, all(0x1.5554dcp-3f));
    q = fma(q, r, all(0.5f));
    const F16 y = all(1.0f) + fma(r * r, q, r);
    // The low bits of `shifted` are n: its exponent goes straight into place.
    const F16 power = from_bits(shift_left<23>(bits_of(shifted)) + all_i(127 << 23));
    return select(nan, x, select(below, zero(), y * power));
}

class Task {
  public:
    explicit Task(const AttentionTask& task) : task_(task) {
        Pieces pieces{static_cast<char*>(task.memory)};
        t_ = layout(task.heads, task.dim, pieces);
    }

    void run() {
        make_query(t_, task_.q);
        for (std::int64_t h = 0; h < t_.padded_heads; h += kLanes) {
            store(t_.top + h, all(kNoMaximum));
            store(t_.sum + h, zero());
        }
        // Beyond dim the images stay zero.
        for (std::int64_t r = 0; r < kTile; ++r) {
            for (std::int64_t d = t_.dim; d < t_.padded_dim; ++d)
                t_.rows[r * t_.row_stride + d] = 0;
        }
        fetch_tile(0);
        lines_.prefetch_all();
        for (std::int64_t begin = 0; begin < task_.count; begin += kTile) {
            const std::int64_t n = task_.count - begin < kTile ? task_.count - begin : kTile;
            load_tile(begin, n);
            make_values(t_, n);
            fetch_tile(begin + kTile);
            make_scores(t_, n, lines_);
            for (std::int64_t h = 0; h < t_.padded_heads; h += kLanes)
                softmax(h, n);
            add_values(t_, n, begin == 0);
        }
        finish();
    }

  private:
    void fetch_tile(std::int64_t begin) {
        const std::int64_t end = begin + kTile < task_.count ? begin + kTile : task_.count;
        lines_.begin(task_, begin, end);
    }

    void load_tile(std::int64_t begin, std::int64_t n) const {
        for (std::int64_t r = 0; r < n; ++r) {
            const std::int64_t j = begin + r;
            const RowFormat format =
                j < task_.windows ? task_.window_format : task_.compressed_format;
            auto* out = t_.rows + r * t_.row_stride;
            const AttentionRow& row = task_.rows[j];
            if (format == RowFormat::bf16) {
                copy_row(reinterpret_cast<const std::uint16_t*>(row.values), out);
            } else if (!decode_row(format, row.values, row.scales, t_.dim, out)) {
                decode_odd_row(format, row, out);
            }
        }
        if (n % 2 == 0) return;
        for (std::int64_t d = 0; d < t_.padded_dim; ++d)
            t_.rows[n * t_.row_stride + d] = 0;
    }

    void copy_row(const std::uint16_t* x, std::uint16_t* out) const {
        __builtin_memcpy(out, x, static_cast<std::size_t>(t_.dim) * sizeof(std::uint16_t));
    }
    void copy_row(const std::uint16_t* x, float* out) const {
        in_sixteens(t_.dim, [&](std::int64_t k, std::int64_t count) {
            const F16 v = load_part(x + k, count);
            if (count == kLanes) return store(out + k, v);
            float part[kLanes];
            store(part, v);
            for (std::int64_t j = 0; j < count; ++j)
                out[k + j] = part[j];
        });
    }

    template <class T>
    void decode_odd_row(RowFormat format, const AttentionRow& row, T* out) const {
        constexpr std::int64_t kPart = 32;  // groups lie whole in it
        std::uint16_t part[kPart];
        const std::int64_t per_scale = format == RowFormat::main_fp4 ? 16 : 32;
        const std::int64_t per_byte = format == RowFormat::fp8 ? 1 : 2;
        for (std::int64_t k = 0; k < t_.dim; k += kPart) {
            task_.decode_exactly(format, row.values + k / per_byte, row.scales + k / per_scale,
                                 kPart, part);
            put(out + k, load_bf16(part));
            put(out + k + kLanes, load_bf16(part + kLanes));
        }
    }

    // Scores of sixteen heads become probabilities; their state moves to the new maximum.
    void softmax(std::int64_t h, std::int64_t n) {
        const F16 scale = all(task_.scale), old = load(t_.top + h);
        F16 top = old;
        for (std::int64_t j = 0; j < n; ++j) {
            const F16 s = load(score(j, h)) * scale;
            store(score(j, h), s);
            top = max(s, top);  // a score that is NaN does not count
        }
        const F16 shrink = exp_of_nonpositive(old - top);
        store(t_.top + h, top);
        store(t_.shrink + h, shrink);
        for (std::int64_t j = 0; j < n; ++j)
            store(score(j, h), exp_of_nonpositive(load(score(j, h)) - top));
        for (std::int64_t j = n; j < kTile; ++j)
            store(score(j, h), zero());
        store(t_.sum + h, fma(load(t_.sum + h), shrink, sum_of_rows(h)));
        for (std::int64_t j = 0; j < n; j += 2)
            put_probabilities(t_, j, h, load(score(j, h)), load(score(j + 1, h)));
    }

    float* score(std::int64_t j, std::int64_t h) const {
        return t_.scores + j * t_.padded_heads + h;
    }

    // N4 over the rows, for sixteen heads at once. No probability is negative, so that rows which
    // are missing change nothing.
    F16 sum_of_rows(std::int64_t h) const {
        F16 lane[kLanes];
#pragma GCC unroll 16
        for (int j = 0; j < kLanes; ++j) {
            lane[j] = load(score(j, h)) + load(score(j + 16, h));
            lane[j] = lane[j] + load(score(j + 32, h));
            lane[j] = lane[j] + load(score(j + 48, h));
        }
#pragma GCC unroll 4
        for (int step = 8; step > 0; step /= 2) {
#pragma GCC unroll 8
            for (int j = 0; j < step; ++j)
                lane[j] = lane[j] + lane[j + step];
        }
        return lane[0];
    }

    void finish() const {
        alignas(64) float divisor[kAttentionHeadsMax];
        for (std::int64_t h = 0; h < t_.padded_heads; h += kLanes) {
            const std::int64_t left = t_.heads - h < kLanes ? t_.heads - h : kLanes;
            const F16 sink = load_part(task_.sink + h, left);
            store(divisor + h, load(t_.sum + h) + functions::exp(sink - load(t_.top + h)));
        }
        for (std::int64_t h = 0; h < t_.heads; ++h) {
            std::uint16_t* out = task_.o + h * t_.dim;
            in_sixteens(t_.dim, [&](std::int64_t d, std::int64_t count) {
                if (task_.count == 0) return store_result(out + d, zero(), count);
                const float* o =
                    t_.o + (d / kDims * (t_.padded_heads + kSpareHeads) + h) * kDims + d % kDims;
                store_result(out + d, load(o) / all(divisor[h]), count);
            });
        }
    }

    const AttentionTask& task_;
    Images t_;
    RowLines lines_;
};

std::int64_t memory_bytes(std::int64_t heads, std::int64_t dim) {
    Pieces pieces{nullptr};
    layout(heads, dim, pieces);
    return pieces.used;
}

void run(const AttentionTask& task) {
    Task(task).run();
}

}  // namespace

const AttentionKernels& attention_kernels() {
    static constexpr AttentionKernels kKernels{.memory_bytes = memory_bytes, .run = run};
    return kKernels;
}

}  // namespace fathom::x86::FATHOM_X86_LEVEL
