#include "kernels/scratch.h"
#include "kernels/x86/backend.h"
#include "kernels/x86/stored_rows.h"
#include "kernels/x86/support.h"

namespace fathom::x86 {

namespace {

std::int64_t length(const AttentionList& list) {
    return static_cast<std::int64_t>(list.window.size() + list.selected.size());
}

bool holds_floats(const AttentionList& list) {
    return (!list.window.empty() && list.window_format == KvFormat::f32) ||
           (!list.selected.empty() && list.compressed.format == KvFormat::f32);
}

// A task for the list, without its heads.
AttentionTask task_of(const AttentionList& list, std::int64_t dim) {
    struct Addresses;
    AttentionTask task{.dim = dim, .decode_exactly = decode_exactly};
    task.count = length(list);
    task.windows = static_cast<std::int64_t>(list.window.size());
    auto* rows = scratch<Addresses, AttentionRow>(task.count);
    task.rows = rows;
    if (!list.window.empty()) {
        task.window_format = row_format(list.window_format);
        task.window_bytes = kv_value_bytes(list.window_format, dim);
        task.window_scale_bytes = kv_scale_bytes(list.window_format, dim);
        for (const ConstKvRow& row : list.window)
            *rows++ = {row.values, row.scales};
    }
    if (!list.selected.empty()) {
        const PagedRows& source = list.compressed;
        task.compressed_format = row_format(source.format);
        task.compressed_bytes = kv_value_bytes(source.format, dim);
        task.compressed_scale_bytes = kv_scale_bytes(source.format, dim);
        for (const std::int32_t j : list.selected) {
            const KvRow row = source.row(j);
            *rows++ = {row.values, row.scales};
        }
    }
    return task;
}

}  // namespace

void X86Backend::sparse_attention(const AttentionArgs& args) {
    const std::int64_t n = args.q.rows, heads = args.heads, dim = args.head_dim;
    if (args.q.dtype == DType::f32 || args.o.dtype == DType::f32 ||
        std::any_of(args.lists.begin(), args.lists.end(), holds_floats))
        return oracle_->sparse_attention(args);
    FATHOM_CHECK(args.q.cols == heads * dim && dim % 2 == 0);
    FATHOM_CHECK(args.o.rows == n && args.o.cols == args.q.cols);
    FATHOM_CHECK(static_cast<std::int64_t>(args.lists.size()) == n);
    FATHOM_CHECK(static_cast<std::int64_t>(args.sink.size()) == heads);
    if (n == 0) return;
    // Every task expands the rows of its list, so heads are split only when there are few queries,
    // and then by whole vectors.
    constexpr std::int64_t kVector = 16;
    const std::int64_t wanted = (pool_->threads() + n - 1) / n;
    const std::int64_t vectors = (heads + kVector - 1) / kVector;
    const std::int64_t step =
        std::min(kAttentionHeadsMax, (vectors + wanted - 1) / wanted * kVector);
    const std::int64_t parts = (heads + step - 1) / step;
    const auto run = [&](std::int64_t begin, std::int64_t end) {
        struct Memory;
        for (std::int64_t i = begin; i < end; ++i) {
            const std::int64_t query = i / parts, first = i % parts * step;
            AttentionTask task = task_of(args.lists[query], dim);
            task.heads = std::min(step, heads - first);
            task.q = bf16_row(args.q, query) + first * dim;
            task.sink = args.sink.data() + first;
            task.scale = args.scale;
            task.memory = scratch<Memory, std::byte>(attention_.memory_bytes(task.heads, dim));
            task.o = bf16_row(args.o, query) + first * dim;
            attention_.run(task);
        }
    };
    std::int64_t rows = 0;
    for (const AttentionList& list : args.lists)
        rows += length(list);
    constexpr double kUsPerProduct = 1e-5;
    const double item_us =
        static_cast<double>((rows / n + 1) * std::min(step, heads) * dim) * kUsPerProduct;
    for_rows(*pool_, n * parts, item_us, run);
}

}  // namespace fathom::x86
