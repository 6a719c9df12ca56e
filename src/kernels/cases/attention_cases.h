// Indexer, selection and sparse attention.
#pragma once

#include "kernels/cases/case.h"

namespace fathom::cases {

struct IndexShape {
    KvFormat format;
    std::int64_t heads, dim, keys, rows, block_size;  // block_size 0: all visible rows
};

inline OperatorCase index_case(RandomStream& random, const IndexShape& r) {
    const bool real = r.format != KvFormat::f32;
    const DType act = real ? DType::bf16 : DType::f32;
    auto q = random_matrix(random, act, r.rows, r.heads * r.dim);
    auto keys = random_matrix(random, act, r.keys, r.dim);
    auto w = random_matrix(random, DType::f32, r.rows, r.heads);
    std::vector<std::int64_t> visible;
    std::vector<std::vector<std::int32_t>> blocks(r.rows);
    std::vector<std::int64_t> scored;
    for (std::int64_t i = 0; i < r.rows; ++i) {
        const std::int64_t seen =
            i == 0 ? r.keys : 1 + static_cast<std::int64_t>(random.next_below(r.keys));
        visible.push_back(seen);
        scored.push_back(r.block_size == 0 ? seen : 0);
        if (r.block_size == 0) continue;
        const std::int64_t last = (seen - 1) / r.block_size;
        for (std::int64_t b = 0; b <= last; ++b) {
            if (b != last && random.next_below(2) == 0) continue;
            blocks[i].push_back(static_cast<std::int32_t>(b));
            scored[i] += std::min(r.block_size, seen - b * r.block_size);
        }
    }
    return {
        fmt::format("index_scores {} {}x{} keys={} n={}{}", format_name(r.format), r.heads, r.dim,
                    r.keys, r.rows, r.block_size != 0 ? " blocks" : ""),
        r.rows,
        static_cast<double>(r.rows * r.keys * r.heads * r.dim) / (r.block_size != 0 ? 4 : 2),
        [=](Backend& backend, std::int64_t begin, std::int64_t end) {
            auto stored = std::make_shared<StoredRows>(r.format, r.dim, r.keys);
            stored->fill(backend, KvKind::index, *keys);
            auto queries = std::make_shared<Matrix>(*q);
            if (real) {  // per head: the round trip works on groups of 32 along the row
                backend.index_round_trip(queries->view());
            }
            auto out = std::make_shared<std::vector<std::vector<float>>>();
            for (std::int64_t i = begin; i < end; ++i)
                out->emplace_back(scored[i]);
            return Bound{[=, &backend] {
                             std::vector<IndexScoreArgs::Query> list;
                             for (std::int64_t i = begin; i < end; ++i) {
                                 list.push_back({.row = i - begin,
                                                 .keys = stored->paged,
                                                 .visible = visible[i],
                                                 .blocks = blocks[i],
                                                 .block_size = r.block_size,
                                                 .scores = (*out)[i - begin]});
                             }
                             backend.index_scores({.q = queries->view(begin, end),
                                                   .w = w->view(begin, end),
                                                   .heads = r.heads,
                                                   .dim = r.dim,
                                                   .queries = list});
                         },
                         [out] {
                             std::vector<float> all;
                             for (const auto& scores : *out)
                                 append(all, scores);
                             return all;
                         }};
        },
    };
}

inline void add_index_scores(std::vector<OperatorCase>& cases, RandomStream& random) {
    for (const IndexShape& r : {IndexShape{KvFormat::index_fp4, 32, 128, 700, 3, 0},
                                IndexShape{KvFormat::index_fp4, 32, 32, 131, 6, 4},
                                IndexShape{KvFormat::bf16, 5, 64, 70, 4, 8},
                                IndexShape{KvFormat::f32, 17, 96, 50, 5, 0}}) {
        cases.push_back(index_case(random, r));
    }
}

struct SelectionShape {
    std::int64_t n, k, rows, block_size;  // block_size 0: select_top
    int levels;                           // distinct score values; 0 for continuous ones
};

inline OperatorCase selection_case(RandomStream& random, const SelectionShape& r) {
    std::vector<float> scores = random_floats(random, r.rows * r.n, Magnitude::wide);
    for (float& s : scores) {
        if (r.levels > 0) s = static_cast<float>(random.next_below(r.levels)) - 1.0f;
        if (r.levels > 0 && s == 0 && random.next_below(2) != 0) s = -0.0f;
    }
    return {
        fmt::format("{} {} of {} n={}{}", r.block_size != 0 ? "select_blocks" : "select_top", r.k,
                    r.n, r.rows, r.levels != 0 ? " ties" : ""),
        r.rows,
        static_cast<double>(r.rows * r.n),
        [=](Backend& backend, std::int64_t begin, std::int64_t end) {
            auto out = std::make_shared<std::vector<float>>();
            return Bound{[=, &backend] {
                             out->clear();
                             std::vector<std::int32_t> chosen(r.k);
                             for (std::int64_t i = begin; i < end; ++i) {
                                 const auto row = std::span(scores).subspan(i * r.n, r.n);
                                 const std::int64_t count =
                                     r.block_size != 0
                                         ? backend.select_blocks(row, r.block_size, r.k, chosen)
                                         : backend.select_top(row, r.k, chosen);
                                 out->insert(out->end(), chosen.begin(), chosen.begin() + count);
                             }
                         },
                         [out] { return *out; }};
        },
    };
}

inline void add_selection(std::vector<OperatorCase>& cases, RandomStream& random) {
    for (const SelectionShape& r :
         {SelectionShape{4096, 512, 3, 0, 0}, SelectionShape{100, 16, 5, 0, 3},
          SelectionShape{7, 16, 2, 0, 0}, SelectionShape{4099, 128, 3, 8, 0},
          SelectionShape{131, 5, 6, 4, 3}, SelectionShape{1, 1, 1, 8, 0}}) {
        cases.push_back(selection_case(random, r));
    }
}

struct AttentionShape {
    KvFormat window, compressed;
    std::int64_t heads, dim, rows, window_max, selected_max;
    Magnitude magnitude = Magnitude::ordinary;
};

inline OperatorCase attention_case(RandomStream& random, const AttentionShape& r) {
    const DType act = r.window == KvFormat::f32 ? DType::f32 : DType::bf16;
    constexpr std::int64_t kRows = 300;
    auto q = random_matrix(random, act, r.rows, r.heads * r.dim, r.magnitude);
    auto window = random_matrix(random, act, kRows, r.dim, r.magnitude);
    auto compressed = random_matrix(random, act, kRows, r.dim, r.magnitude);
    auto sink = random_floats(random, r.heads);
    std::vector<std::int64_t> window_first, window_count;
    std::vector<std::vector<std::int32_t>> selected(r.rows);
    for (std::int64_t i = 0; i < r.rows; ++i) {  // row 0 is full, the last one empty
        const bool empty = r.rows > 1 && i == r.rows - 1;
        const std::int64_t keys =
            empty    ? 0
            : i == 0 ? r.window_max
                     : static_cast<std::int64_t>(random.next_below(r.window_max + 1));
        window_count.push_back(keys);
        window_first.push_back(static_cast<std::int64_t>(random.next_below(kRows - keys)));
        const std::int64_t entries =
            empty    ? 0
            : i == 0 ? r.selected_max
                     : static_cast<std::int64_t>(random.next_below(r.selected_max + 1));
        for (std::int64_t s = 0; s < entries; ++s) {  // duplicates are allowed
            selected[i].push_back(static_cast<std::int32_t>(random.next_below(kRows)));
        }
    }
    return {
        fmt::format("sparse_attention {}+{} {}x{} n={} {}", format_name(r.window),
                    format_name(r.compressed), r.heads, r.dim, r.rows, magnitude_name(r.magnitude)),
        r.rows,
        static_cast<double>(r.rows * r.heads * r.dim * (r.window_max + r.selected_max)),
        [=](Backend& backend, std::int64_t begin, std::int64_t end) {
            auto w = std::make_shared<StoredRows>(r.window, r.dim, kRows);
            w->fill(backend, KvKind::window, *window);
            auto c = std::make_shared<StoredRows>(r.compressed, r.dim, kRows);
            c->fill(backend, KvKind::main, *compressed);
            auto o = std::make_shared<Matrix>(act, end - begin, r.heads * r.dim);
            return Bound{
                [=, &backend] {
                    std::vector<std::vector<ConstKvRow>> windows(end - begin);
                    std::vector<AttentionList> lists(end - begin);
                    for (std::int64_t i = begin; i < end; ++i) {
                        auto& rows = windows[i - begin];
                        for (std::int64_t j = 0; j < window_count[i]; ++j) {
                            rows.push_back(w->row(window_first[i] + j));
                        }
                        lists[i - begin] = {.window = rows,
                                            .window_format = r.window,
                                            .compressed = c->paged,
                                            .selected = selected[i]};
                    }
                    backend.sparse_attention({.q = q->view(begin, end),
                                              .heads = r.heads,
                                              .head_dim = r.dim,
                                              .sink = sink,
                                              .scale = 1.0f / std::sqrt(static_cast<float>(r.dim)),
                                              .lists = lists,
                                              .o = o->view()});
                },
                [o] { return o->numbers(); }};
        },
    };
}

inline void add_attention(std::vector<OperatorCase>& cases, RandomStream& random) {
    for (const AttentionShape& r :
         {AttentionShape{KvFormat::window_fp8, KvFormat::main_fp4, 8, 512, 2, 128, 512},
          AttentionShape{KvFormat::window_fp8, KvFormat::main_fp4, 4, 64, 7, 16, 8},
          AttentionShape{KvFormat::bf16, KvFormat::bf16, 5, 64, 6, 70, 70},
          AttentionShape{KvFormat::window_fp8, KvFormat::window_fp8, 3, 32, 5, 33, 100},
          AttentionShape{KvFormat::f32, KvFormat::f32, 6, 96, 5, 66, 40},
          AttentionShape{KvFormat::bf16, KvFormat::main_fp4, 2, 32, 4, 20, 50, Magnitude::wide},
          AttentionShape{KvFormat::f32, KvFormat::f32, 1, 40, 4, 1, 0}}) {
        cases.push_back(attention_case(random, r));
    }
}

}  // namespace fathom::cases
