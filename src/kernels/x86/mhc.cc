#include "kernels/scratch.h"
#include "kernels/x86/backend.h"
#include "kernels/x86/support.h"

namespace fathom::x86 {

namespace {

constexpr double kMixUsPerProduct = 3e-5;  // fn from memory
constexpr double kMixUsPerElement = 5e-5;  // of the row statistic
constexpr double kElementUs = 1e-4;        // of a stream, collapsed

// Rows [begin, end) of X as flat bf16 rows of h·dim elements; copied where streams lie apart.
void flat_rows(const ConstRows& streams, std::int64_t h, std::int64_t begin, std::int64_t end,
               const std::uint16_t** out) {
    const std::int64_t dim = streams.cols;
    struct Flat;
    std::uint16_t* copy = nullptr;
    if (streams.stride != dim) copy = scratch<Flat, std::uint16_t>((end - begin) * h * dim);
    for (std::int64_t t = begin; t < end; ++t) {
        out[t - begin] = bf16_row(streams, t * h);
        if (copy == nullptr) continue;
        out[t - begin] = copy;
        for (std::int64_t i = 0; i < h; ++i)
            copy = std::copy_n(bf16_row(streams, t * h + i), dim, copy);
    }
}

}  // namespace

void X86Backend::mhc_mix(ConstRows streams, const MhcWeights& w, std::span<float> pre,
                         std::span<float> post, std::span<float> comb) {
    const std::int64_t h = w.streams;
    if (streams.dtype == DType::f32 || h > kMhcStreamsMax)
        return oracle_->mhc_mix(streams, w, pre, post, comb);
    FATHOM_CHECK(h > 0 && streams.cols == w.dim && streams.rows % h == 0);
    const std::int64_t n = streams.rows / h, width = h * w.dim, mixes = (2 + h) * h;
    FATHOM_CHECK(static_cast<std::int64_t>(pre.size()) == n * h && post.size() == pre.size() &&
                 static_cast<std::int64_t>(comb.size()) == n * h * h);
    const auto products = [&](const std::uint16_t* const* z, std::int64_t rows, std::int64_t first,
                              std::int64_t count, float* out) {
        struct Lanes;
        mhc_.products(z, rows, w.fn + first * width, width, count,
                      scratch<Lanes>(rows * count * 16), out + first, mixes);
    };
    const auto finish = [&](const std::uint16_t* z, std::int64_t t, const float* m) {
        mhc_.finish(z, width, h, w.base, w.scale, w.sinkhorn_iters, w.eps, w.norm_eps, m,
                    pre.data() + t * h, post.data() + t * h, comb.data() + t * h * h);
    };
    const std::uint16_t* z[kMhcRowsMax];
    if (n <= kMhcRowsMax) {  // fn is read once; its rows are spread over the threads
        struct Mixes;
        float* m = scratch<Mixes>(n * mixes);
        flat_rows(streams, h, 0, n, z);
        const std::int64_t parts =
            std::min<std::int64_t>(mixes, pool_->threads() == 1 ? 1 : 2 * pool_->threads());
        for_rows(*pool_, parts, static_cast<double>(n * mixes / parts * width) * kMixUsPerProduct,
                 [&](std::int64_t begin, std::int64_t end) {
                     const std::int64_t first = mixes * begin / parts, last = mixes * end / parts;
                     products(z, n, first, last - first, m);
                 });
        for_rows(*pool_, n, static_cast<double>(width) * kMixUsPerElement,
                 [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t t = begin; t < end; ++t)
                         finish(z[t], t, m + t * mixes);
                 });
        return;
    }
    const std::int64_t groups = (n + kMhcRowsMax - 1) / kMhcRowsMax;
    pool_->run(groups, [&](std::int64_t g) {
        struct GroupMixes;
        const std::uint16_t* rows[kMhcRowsMax];
        const std::int64_t begin = n * g / groups, end = n * (g + 1) / groups;
        float* m = scratch<GroupMixes>(kMhcRowsMax * mixes);
        flat_rows(streams, h, begin, end, rows);
        products(rows, end - begin, 0, mixes, m);
        for (std::int64_t t = begin; t < end; ++t)
            finish(rows[t - begin], t, m + (t - begin) * mixes);
    });
}

void X86Backend::mhc_collapse(ConstRows streams, std::int64_t n_streams, std::span<const float> pre,
                              Rows x) {
    const std::int64_t h = n_streams, dim = x.cols;
    if (streams.dtype == DType::f32 || x.dtype == DType::f32)
        return oracle_->mhc_collapse(streams, h, pre, x);
    FATHOM_CHECK(streams.cols == dim && streams.rows == x.rows * h);
    FATHOM_CHECK(static_cast<std::int64_t>(pre.size()) == streams.rows);
    for_rows(*pool_, x.rows, static_cast<double>(h * dim) * kElementUs,
             [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t t = begin; t < end; ++t)
                     mhc_.collapse(bf16_row(streams, t * h), streams.stride, h, pre.data() + t * h,
                                   dim, bf16_row(x, t));
             });
}

void X86Backend::mhc_expand(Rows streams, std::int64_t n_streams, ConstRows y,
                            std::span<const float> post, std::span<const float> comb) {
    const std::int64_t h = n_streams, dim = y.cols;
    if (streams.dtype == DType::f32 || y.dtype == DType::f32 || h > kMhcStreamsMax)
        return oracle_->mhc_expand(streams, h, y, post, comb);
    FATHOM_CHECK(streams.cols == dim && streams.rows == y.rows * h);
    FATHOM_CHECK(static_cast<std::int64_t>(post.size()) == streams.rows &&
                 static_cast<std::int64_t>(comb.size()) == streams.rows * h);
    for_rows(*pool_, y.rows, static_cast<double>(h * dim) * 2 * kElementUs,
             [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t t = begin; t < end; ++t)
                     mhc_.expand(bf16_row(streams, t * h), streams.stride, h, bf16_row(y, t),
                                 post.data() + t * h, comb.data() + t * h * h, dim);
             });
}

}  // namespace fathom::x86
