// Norms, rotations, hyper-connections, caches and Engram.
#pragma once

#include "kernels/cases/case.h"

namespace fathom::cases {

// What most operators here are: rows in, rows out.
inline OperatorCase row_case(
    std::string what, double cost_per_element, const MatrixPtr& x, std::int64_t rows, DType y_type,
    std::int64_t y_cols,
    const std::function<void(Backend&, Rows x, Rows y, std::int64_t begin)>& call) {
    const std::int64_t per_row = x->rows() / rows;  // streams, say
    return {std::move(what), rows, cost_per_element * static_cast<double>(x->rows() * x->cols()),
            [=](Backend& backend, std::int64_t begin, std::int64_t end) {
                auto y = std::make_shared<Matrix>(y_type, end - begin, y_cols);
                return Bound{[=, &backend] {
                                 call(backend, x->view(begin * per_row, end * per_row), y->view(),
                                      begin);
                             },
                             [y] { return y->numbers(); }};
            }};
}

// The same for operators that work in place: every run starts from a fresh copy of x.
inline OperatorCase in_place_case(
    std::string what, double cost_per_element, const MatrixPtr& x, std::int64_t rows,
    const std::function<void(Backend&, Rows x, std::int64_t begin)>& call) {
    const std::int64_t per_row = x->rows() / rows;
    return {std::move(what), rows, cost_per_element * static_cast<double>(x->rows() * x->cols()),
            [=](Backend& backend, std::int64_t begin, std::int64_t end) {
                auto y = std::make_shared<Matrix>(*x);
                return Bound{[=, &backend] {
                                 *y = *x;
                                 call(backend, y->view(begin * per_row, end * per_row), begin);
                             },
                             [=] {
                                 const std::vector<float> all = y->numbers();
                                 const std::int64_t width = per_row * y->cols();
                                 return std::vector<float>(all.begin() + begin * width,
                                                           all.begin() + end * width);
                             }};
            }};
}

inline std::string shape_text(const char* name, const Matrix& x, DType dtype, Magnitude m) {
    return fmt::format("{} [{}, {}] {} {}", name, x.rows(), x.cols(),
                       dtype == DType::bf16 ? "bf16" : "f32", magnitude_name(m));
}

struct NormShape {
    std::int64_t rows, cols;
    DType dtype;
    Magnitude magnitude;
};

inline void add_norm_and_trip_case(std::vector<OperatorCase>& cases, RandomStream& random,
                                   const NormShape& r) {
    auto x = random_matrix(random, r.dtype, r.rows, r.cols, r.magnitude);
    auto w = random_bf16(random, r.cols);
    cases.push_back(row_case(
        shape_text("rms_norm", *x, r.dtype, r.magnitude), 3, x, r.rows, r.dtype, r.cols,
        [w](Backend& b, Rows in, Rows y, std::int64_t) { b.rms_norm(in, w.data(), 1e-20f, y); }));
    if (r.dtype != DType::bf16 || r.cols % 32 != 0) return;
    cases.push_back(row_case(
        shape_text("q8_round_trip", *x, r.dtype, r.magnitude), 10, x, r.rows, r.dtype, r.cols,
        [](Backend& b, Rows in, Rows y, std::int64_t) { b.q8_round_trip(in, y); }));
    cases.push_back(in_place_case(shape_text("index_round_trip", *x, r.dtype, r.magnitude), 10, x,
                                  r.rows,
                                  [](Backend& b, Rows y, std::int64_t) { b.index_round_trip(y); }));
}

inline void add_norms_and_trips(std::vector<OperatorCase>& cases, RandomStream& random) {
    for (const NormShape& r : {NormShape{3, 5120, DType::bf16, Magnitude::ordinary},
                               NormShape{17, 64, DType::bf16, Magnitude::wide},
                               NormShape{5, 512, DType::bf16, Magnitude::huge},
                               NormShape{6, 96, DType::bf16, Magnitude::tiny},
                               NormShape{4, 608, DType::f32, Magnitude::wide},
                               NormShape{9, 37, DType::f32, Magnitude::ordinary},
                               NormShape{2, 523, DType::bf16, Magnitude::ordinary}})
        add_norm_and_trip_case(cases, random, r);
}

struct RopeShape {
    std::int64_t rows, heads, head_dim, rope_dim;
    DType dtype;
    bool inverse;
};

inline void add_rope_case(std::vector<OperatorCase>& cases, RandomStream& random,
                          const RopeShape& r) {
    auto x = random_matrix(random, r.dtype, r.rows, r.heads * r.head_dim);
    auto table = make_rope_table(160000, r.rope_dim, {.factor = 16, .original_max_position = 64});
    std::vector<std::int64_t> positions;
    for (std::int64_t i = 0; i < r.rows; ++i) {
        positions.push_back(static_cast<std::int64_t>(random.next_below(1 << 20)));
    }
    cases.push_back(in_place_case(
        fmt::format("rope {}x{} last {} n={}", r.heads, r.head_dim, r.rope_dim, r.rows),
        4.0 * static_cast<double>(r.rope_dim) / static_cast<double>(r.head_dim), x, r.rows,
        [=](Backend& b, Rows y, std::int64_t begin) {
            b.rope(y, r.heads, r.head_dim,
                   {positions.data() + begin, static_cast<std::size_t>(y.rows)}, table, r.inverse);
        }));
}

inline void add_rope(std::vector<OperatorCase>& cases, RandomStream& random) {
    for (const RopeShape& r :
         {RopeShape{5, 8, 512, 64, DType::bf16, false}, RopeShape{7, 3, 32, 16, DType::bf16, true},
          RopeShape{4, 2, 64, 64, DType::f32, true}, RopeShape{3, 1, 34, 2, DType::f32, false}})
        add_rope_case(cases, random, r);
}

struct MhcShape {
    std::int64_t rows, streams, dim;
    DType dtype;
    Magnitude magnitude;
};

inline void add_mhc_case(std::vector<OperatorCase>& cases, RandomStream& random,
                         const MhcShape& r) {
    const std::int64_t h = r.streams, mixes = (2 + h) * h;
    auto x = random_matrix(random, r.dtype, r.rows * h, r.dim, r.magnitude);
    auto y = random_matrix(random, r.dtype, r.rows, r.dim, r.magnitude);
    auto fn = random_floats(random, mixes * h * r.dim);
    auto base = random_floats(random, mixes);
    auto scale = random_floats(random, 3);
    auto pre = random_floats(random, r.rows * h), post = random_floats(random, r.rows * h);
    auto comb = random_floats(random, r.rows * h * h);
    const std::string shape =
        fmt::format("{}x{} n={} {}", h, r.dim, r.rows, magnitude_name(r.magnitude));
    cases.push_back(row_case("mhc_mix " + shape, static_cast<double>(mixes + 1), x, r.rows,
                             DType::f32, mixes, [=](Backend& b, Rows in, Rows out, std::int64_t) {
                                 std::vector<float> p(out.rows * h), q(out.rows * h),
                                     c(out.rows * h * h);
                                 b.mhc_mix(in,
                                           {.fn = fn.data(),
                                            .base = base.data(),
                                            .scale = scale.data(),
                                            .streams = h,
                                            .dim = r.dim},
                                           p, q, c);
                                 for (std::int64_t i = 0; i < out.rows; ++i) {
                                     float* row = static_cast<float*>(out.data) + i * mixes;
                                     std::copy_n(p.begin() + i * h, h, row);
                                     std::copy_n(q.begin() + i * h, h, row + h);
                                     std::copy_n(c.begin() + i * h * h, h * h, row + 2 * h);
                                 }
                             }));
    const auto part = [](const std::vector<float>& v, std::int64_t begin, std::int64_t n,
                         std::int64_t width) {
        return std::span<const float>(v).subspan(begin * width, n * width);
    };
    cases.push_back(row_case("mhc_collapse " + shape, 1, x, r.rows, r.dtype, r.dim,
                             [=](Backend& b, Rows in, Rows out, std::int64_t begin) {
                                 b.mhc_collapse(in, h, part(pre, begin, out.rows, h), out);
                             }));
    cases.push_back(in_place_case("mhc_expand " + shape, static_cast<double>(h + 1), x, r.rows,
                                  [=](Backend& b, Rows out, std::int64_t begin) {
                                      const std::int64_t n = out.rows / h;
                                      b.mhc_expand(out, h, y->view(begin, begin + n),
                                                   part(post, begin, n, h),
                                                   part(comb, begin, n, h * h));
                                  }));
}

inline void add_mhc(std::vector<OperatorCase>& cases, RandomStream& random) {
    for (const MhcShape& r : {MhcShape{2, 4, 5120, DType::bf16, Magnitude::ordinary},
                              MhcShape{9, 4, 128, DType::bf16, Magnitude::wide},
                              MhcShape{5, 2, 96, DType::f32, Magnitude::ordinary},
                              MhcShape{4, 3, 50, DType::f32, Magnitude::wide},
                              MhcShape{3, 2, 40, DType::bf16, Magnitude::tiny}})
        add_mhc_case(cases, random, r);
}

struct StoreShape {
    KvKind kind;
    KvFormat format;
    std::int64_t rows, dim;
    Magnitude magnitude;
};

inline void add_store_case(std::vector<OperatorCase>& cases, RandomStream& random,
                           const StoreShape& r) {
    const DType act = r.format == KvFormat::f32 ? DType::f32 : DType::bf16;
    auto x = random_matrix(random, act, r.rows, r.dim, r.magnitude);
    const std::int64_t values = kv_value_bytes(r.format, r.dim);
    const std::int64_t bytes = values + kv_scale_bytes(r.format, r.dim);
    cases.push_back(row_case(fmt::format("store_kv+load_kv {} [{}, {}] {}", format_name(r.format),
                                         r.rows, r.dim, magnitude_name(r.magnitude)),
                             12, x, r.rows, DType::f32, bytes + r.dim,
                             [=](Backend& b, Rows in, Rows y, std::int64_t) {
                                 std::vector<std::uint8_t> memory(in.rows * bytes);
                                 std::vector<KvRow> rows;
                                 std::vector<ConstKvRow> stored;
                                 for (std::int64_t i = 0; i < in.rows; ++i) {
                                     std::uint8_t* p = memory.data() + i * bytes;
                                     rows.push_back({p, bytes > values ? p + values : nullptr});
                                     stored.push_back({rows.back().values, rows.back().scales});
                                 }
                                 b.store_kv(in, r.kind, r.format, rows);
                                 Matrix back(act, in.rows, r.dim);
                                 b.load_kv(r.format, stored, back.view());
                                 const std::vector<float> numbers = back.numbers();
                                 for (std::int64_t i = 0; i < in.rows; ++i) {
                                     float* row = static_cast<float*>(y.data) + i * y.stride;
                                     std::copy_n(memory.begin() + i * bytes, bytes, row);
                                     std::copy_n(numbers.begin() + i * r.dim, r.dim, row + bytes);
                                 }
                             }));
}

inline void add_caches(std::vector<OperatorCase>& cases, RandomStream& random) {
    for (const DType act : {DType::bf16, DType::f32}) {
        auto u = random_matrix(random, DType::f32, 10, 512);
        auto g = random_matrix(random, DType::f32, 10, 512, Magnitude::wide);
        cases.push_back(row_case(
            fmt::format("compress_pair [5, 512] {}", act == DType::bf16 ? "bf16" : "f32"), 10, u, 5,
            act, 512, [g](Backend& b, Rows in, Rows y, std::int64_t begin) {
                const auto half = [&](const Rows& all, std::int64_t which) {
                    return ConstRows(static_cast<float*>(all.data) + which * 512, DType::f32,
                                     y.rows, 512, 1024);
                };
                const Rows gates = g->view(2 * begin, 2 * (begin + y.rows));
                b.compress_pair(half(in, 0), half(gates, 0), half(in, 1), half(gates, 1), y);
            }));
    }
    for (const StoreShape& r :
         {StoreShape{KvKind::window, KvFormat::window_fp8, 6, 512, Magnitude::ordinary},
          StoreShape{KvKind::window, KvFormat::bf16, 5, 64, Magnitude::wide},
          StoreShape{KvKind::main, KvFormat::main_fp4, 6, 512, Magnitude::ordinary},
          StoreShape{KvKind::main, KvFormat::main_fp4, 4, 96, Magnitude::tiny},
          StoreShape{KvKind::main, KvFormat::bf16, 7, 64, Magnitude::wide},
          StoreShape{KvKind::main, KvFormat::window_fp8, 3, 64, Magnitude::ordinary},
          StoreShape{KvKind::index, KvFormat::index_fp4, 9, 128, Magnitude::ordinary},
          StoreShape{KvKind::index, KvFormat::bf16, 3, 32, Magnitude::wide},
          StoreShape{KvKind::main, KvFormat::f32, 3, 64, Magnitude::ordinary}})
        add_store_case(cases, random, r);
}

inline void add_engram(std::vector<OperatorCase>& cases, RandomStream& random) {
    struct Row {
        WeightFormat format;
        std::int64_t rows, ids, dim;
        DType dtype;
    };
    for (const Row& r : {Row{WeightFormat::fp8_block32, 5, 24, 256, DType::bf16},
                         Row{WeightFormat::fp8_block32, 4, 6, 32, DType::f32},
                         Row{WeightFormat::bf16, 7, 6, 40, DType::bf16}}) {
        constexpr std::int64_t kTableRows = 101;
        auto w = random_weight(random, r.format, kTableRows, r.dim);
        if (r.format == WeightFormat::fp8_block32) {  // one scale a row and group, not a tile
            w->scales.resize(kTableRows * r.dim / 32);
            for (auto& s : w->scales)
                s = static_cast<std::uint8_t>(100 + random.next_below(40));
        }
        std::vector<std::int64_t> ids;
        for (std::int64_t i = 0; i < r.rows * r.ids; ++i) {
            ids.push_back(static_cast<std::int64_t>(random.next_below(kTableRows)));
        }
        auto shape = std::make_shared<Matrix>(r.dtype, r.rows, r.ids * r.dim);
        cases.push_back(row_case(
            fmt::format("engram_lookup {} {}x{} n={}", format_name(r.format), r.ids, r.dim, r.rows),
            1, shape, r.rows, r.dtype, r.ids * r.dim,
            [=](Backend& b, Rows, Rows y, std::int64_t begin) {
                b.engram_lookup({.format = r.format,
                                 .rows = kTableRows,
                                 .dim = r.dim,
                                 .codes = w->codes.data(),
                                 .scales = w->scales.empty() ? nullptr : w->scales.data()},
                                std::span(ids).subspan(begin * r.ids, y.rows * r.ids), r.ids, y);
            }));
    }
    struct Gate {
        std::int64_t rows, streams, dim;
        DType dtype;
        Magnitude magnitude;
    };
    for (const Gate& r : {Gate{2, 4, 5120, DType::bf16, Magnitude::ordinary},
                          Gate{9, 2, 64, DType::bf16, Magnitude::wide},
                          Gate{4, 4, 100, DType::f32, Magnitude::ordinary},
                          Gate{3, 2, 64, DType::bf16, Magnitude::tiny}}) {
        auto x = random_matrix(random, r.dtype, r.rows * r.streams, r.dim, r.magnitude);
        auto kv = random_matrix(random, r.dtype, r.rows, (r.streams + 1) * r.dim, r.magnitude);
        auto q = random_bf16(random, r.streams * r.dim), k = random_bf16(random, r.streams * r.dim);
        std::vector<std::uint8_t> image(r.rows);
        image.back() = 1;
        cases.push_back(in_place_case(fmt::format("engram_gate {}x{} n={} {}", r.streams, r.dim,
                                                  r.rows, magnitude_name(r.magnitude)),
                                      5, x, r.rows, [=](Backend& b, Rows y, std::int64_t begin) {
                                          const std::int64_t n = y.rows / r.streams;
                                          b.engram_gate(
                                              {.x = y,
                                               .kv = kv->view(begin, begin + n),
                                               .q_weight = q.data(),
                                               .k_weight = k.data(),
                                               .streams = r.streams,
                                               .eps = 1e-20f,
                                               .in_image = std::span(image).subspan(begin, n),
                                               .gates = {}});
                                      }));
    }
}

}  // namespace fathom::cases
