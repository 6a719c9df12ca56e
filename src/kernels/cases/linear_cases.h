// Linears and experts.
#pragma once

#include "kernels/cases/case.h"

namespace fathom::cases {

struct LinearShape {
    WeightFormat format;
    std::int64_t out, in, rows;
    DType x, y;
    Magnitude magnitude;
    bool q8;
    int scale_spread = 4;
};

inline OperatorCase linear_case(RandomStream& random, const LinearShape& r) {
    auto x = random_matrix(random, r.x, r.rows, r.in, r.magnitude);
    if (r.q8) quantise_rows(*x);
    auto w = random_weight(random, r.format, r.out, r.in, r.scale_spread);
    return {
        fmt::format("linear {} [{}, {}] n={} {} {}", format_name(r.format), r.out, r.in, r.rows,
                    r.x == DType::bf16 ? "bf16" : "f32", magnitude_name(r.magnitude)),
        r.rows,
        static_cast<double>(r.rows * r.out * r.in),
        [x, w, r](Backend& backend, std::int64_t begin, std::int64_t end) {
            std::shared_ptr<PackedWeight> packed = backend.pack(w->source);
            auto y = std::make_shared<Matrix>(r.y, end - begin, r.out);
            return Bound{[=, &backend] { backend.linear(x->view(begin, end), *packed, y->view()); },
                         [y] { return y->numbers(); }};
        },
    };
}

inline void add_linear(std::vector<OperatorCase>& cases, RandomStream& random) {
    constexpr auto kFp8 = WeightFormat::fp8_block32, kFp4 = WeightFormat::fp4_row32;
    constexpr auto kBf16 = WeightFormat::bf16, kF32 = WeightFormat::f32;
    constexpr auto b = DType::bf16, f = DType::f32;
    using enum Magnitude;
    for (const LinearShape& r : {
             LinearShape{kFp8, 512, 5120, 1, b, b, ordinary, true},
             LinearShape{kFp8, 133, 1280, 7, b, b, ordinary, true},
             LinearShape{kFp8, 40, 96, 48, b, f, wide, true},
             LinearShape{kFp8, 64, 256, 9, b, b, huge, true, 127},
             LinearShape{kFp8, 64, 256, 9, b, f, tiny, false, 127},
             LinearShape{kFp8, 1, 32, 3, b, b, ordinary, true},
             LinearShape{kFp4, 256, 5120, 2, b, b, ordinary, true},
             LinearShape{kFp4, 40, 2304, 5, b, b, ordinary, true},
             LinearShape{kFp4, 17, 64, 97, b, f, wide, true},
             LinearShape{kFp4, 64, 128, 6, b, f, tiny, false, 127},
             LinearShape{kFp4, 96, 128, 6, f, f, ordinary, false},
             LinearShape{kBf16, 384, 512, 16, b, f, ordinary, false},
             LinearShape{kBf16, 33, 40, 15, b, b, wide, false},
             LinearShape{kBf16, 24, 7, 4, b, b, tiny, false},
             LinearShape{kBf16, 65, 100, 8, f, f, wide, false},
             LinearShape{kF32, 31, 70, 5, f, f, ordinary, false},
             LinearShape{kFp8, 70, 320, 17, f, f, ordinary, false},
         }) {
        cases.push_back(linear_case(random, r));
    }
}

inline void add_grouped_linear(std::vector<OperatorCase>& cases, RandomStream& random) {
    struct Row {
        WeightFormat format;
        std::int64_t groups, out, in, rows;  // out and in of one group
        DType dtype;
    };
    for (const Row& r : {
             Row{WeightFormat::fp8_block32, 8, 64, 512, 3, DType::bf16},
             Row{WeightFormat::fp8_block32, 2, 32, 128, 21, DType::bf16},
             Row{WeightFormat::bf16, 3, 19, 40, 6, DType::bf16},
             Row{WeightFormat::fp8_block32, 2, 32, 128, 5, DType::f32},
         }) {
        auto x = random_matrix(random, r.dtype, r.rows, r.groups * r.in);
        auto w = random_weight(random, r.format, r.groups * r.out, r.in);
        cases.push_back({
            fmt::format("grouped_linear {} {}x[{}, {}] n={}", format_name(r.format), r.groups,
                        r.out, r.in, r.rows),
            r.rows,
            static_cast<double>(r.rows * r.groups * r.out * r.in),
            [x, w, r](Backend& backend, std::int64_t begin, std::int64_t end) {
                std::shared_ptr<PackedWeight> packed = backend.pack(w->source);
                auto y = std::make_shared<Matrix>(r.dtype, end - begin, r.groups * r.out);
                return Bound{[=, &backend] {
                                 backend.grouped_linear(x->view(begin, end), *packed, r.groups,
                                                        y->view());
                             },
                             [y] { return y->numbers(); }};
            },
        });
    }
}

struct ExpertWeights {
    std::shared_ptr<Weight> gate, up, down;

    PackedExpert pack(Backend& backend) const {
        return {backend.pack_gate_up(gate->source, up->source), backend.pack(down->source)};
    }
};

inline ExpertWeights random_expert(RandomStream& random, WeightFormat format, std::int64_t dim,
                                   std::int64_t inter) {
    return {random_weight(random, format, inter, dim), random_weight(random, format, inter, dim),
            random_weight(random, format, dim, inter)};
}

inline void add_gate_up(std::vector<OperatorCase>& cases, RandomStream& random) {
    struct Row {
        WeightFormat format;
        std::int64_t inter, in, rows;
        bool weighted;
        float limit;
        NumericMode mode;
    };
    for (const Row& r : {
             Row{WeightFormat::fp4_row32, 96, 512, 3, true, 10, NumericMode::real},
             Row{WeightFormat::fp8_block32, 64, 128, 33, false, 10, NumericMode::real},
             Row{WeightFormat::fp4_row32, 64, 128, 4, true, 0, NumericMode::real},
             Row{WeightFormat::fp4_row32, 64, 128, 4, true, 10, NumericMode::fp32},
             Row{WeightFormat::bf16, 40, 72, 7, false, 0, NumericMode::fp32},
         }) {
        const bool real = r.mode == NumericMode::real;
        const DType act = real ? DType::bf16 : DType::f32;
        auto x = random_matrix(random, act, r.rows, r.in);
        if (real) quantise_rows(*x);
        auto gate = random_weight(random, r.format, r.inter, r.in);
        auto up = random_weight(random, r.format, r.inter, r.in);
        auto weights = random_floats(random, r.rows);
        cases.push_back({
            fmt::format("gate_up {} [{}, {}] n={} {}", format_name(r.format), r.inter, r.in, r.rows,
                        real ? "real" : "fp32"),
            r.rows,
            static_cast<double>(2 * r.rows * r.inter * r.in),
            [=](Backend& backend, std::int64_t begin, std::int64_t end) {
                std::shared_ptr<PackedGateUp> packed =
                    backend.pack_gate_up(gate->source, up->source);
                auto t = std::make_shared<Matrix>(act, end - begin, r.inter);
                const auto count = static_cast<std::size_t>(r.weighted ? end - begin : 0);
                return Bound{[=, &backend] {
                                 backend.gate_up(x->view(begin, end), *packed,
                                                 {weights.data() + begin, count}, r.limit, r.mode,
                                                 t->view());
                             },
                             [t] { return t->numbers(); }};
            },
        });
    }
}

struct MoeShape {
    std::int64_t experts, top_k, dim, inter, rows;
    bool shared;
    NumericMode mode;
};

inline OperatorCase moe_case(RandomStream& random, const MoeShape& r) {
    const DType act = r.mode == NumericMode::real ? DType::bf16 : DType::f32;
    auto x = random_matrix(random, act, r.rows, r.dim);
    if (r.mode == NumericMode::real) quantise_rows(*x);
    std::vector<ExpertWeights> weights;
    for (std::int64_t e = 0; e < r.experts; ++e) {
        weights.push_back(random_expert(random, WeightFormat::fp4_row32, r.dim, r.inter));
    }
    auto shared = random_expert(random, WeightFormat::fp8_block32, r.dim, r.inter);
    std::vector<std::int32_t> chosen;
    for (std::int64_t i = 0; i < r.rows; ++i) {  // top_k distinct ones, ascending
        std::int64_t left = r.top_k;
        for (std::int64_t e = 0; e < r.experts; ++e) {
            if (static_cast<std::int64_t>(random.next_below(r.experts - e)) >= left) continue;
            chosen.push_back(static_cast<std::int32_t>(e));
            --left;
        }
    }
    auto gates = random_floats(random, r.rows * r.top_k);
    return {
        fmt::format("moe {} top {} [{}, {}] n={} {}", r.experts, r.top_k, r.dim, r.inter, r.rows,
                    act == DType::bf16 ? "real" : "fp32"),
        r.rows,
        static_cast<double>(3 * r.rows * (r.top_k + r.shared) * r.dim * r.inter),
        [=](Backend& backend, std::int64_t begin, std::int64_t end) {
            auto packed = std::make_shared<std::vector<PackedExpert>>();
            for (const ExpertWeights& w : weights)
                packed->push_back(w.pack(backend));
            auto packed_shared = std::make_shared<PackedExpert>(shared.pack(backend));
            auto y = std::make_shared<Matrix>(act, end - begin, r.dim);
            auto numerics = std::make_shared<Numerics>();
            numerics->mode = r.mode;
            const auto first = static_cast<std::size_t>(begin * r.top_k);
            const auto count = static_cast<std::size_t>((end - begin) * r.top_k);
            return Bound{[=, &backend] {
                             backend.moe({.x_q8 = x->view(begin, end),
                                          .top_k = r.top_k,
                                          .experts = {chosen.data() + first, count},
                                          .weights = {gates.data() + first, count},
                                          .routed = *packed,
                                          .shared = r.shared ? packed_shared.get() : nullptr,
                                          .swiglu_limit = 10,
                                          .numerics = numerics.get(),
                                          .y = y->view()});
                         },
                         [y] { return y->numbers(); }};
        },
    };
}

inline void add_moe(std::vector<OperatorCase>& cases, RandomStream& random) {
    for (const MoeShape& r : {
             MoeShape{8, 2, 128, 64, 1, true, NumericMode::real},
             MoeShape{8, 2, 128, 64, 37, true, NumericMode::real},
             MoeShape{16, 6, 512, 96, 5, true, NumericMode::real},
             MoeShape{4, 1, 96, 32, 9, false, NumericMode::real},
             MoeShape{8, 3, 128, 64, 11, true, NumericMode::fp32},
         }) {
        cases.push_back(moe_case(random, r));
    }
}

inline void add_route(std::vector<OperatorCase>& cases, RandomStream& random) {
    struct Row {
        std::int64_t experts, top_k, dim, rows;
        bool ties;
    };
    for (const Row& r : {Row{384, 6, 512, 4, false}, Row{8, 2, 64, 19, true},
                         Row{16, 1, 96, 5, false}, Row{5, 5, 33, 3, true}}) {
        auto x = random_matrix(random, DType::bf16, r.rows, r.dim);
        auto gate = random_weight(random, WeightFormat::bf16, r.experts, r.dim);
        if (r.ties) {  // expert 1 repeats expert 0
            std::copy_n(gate->codes.begin(), 2 * r.dim, gate->codes.begin() + 2 * r.dim);
        }
        auto bias = r.ties ? std::vector<float>(r.experts) : random_floats(random, r.experts);
        auto bias_vl = random_floats(random, r.experts);
        std::vector<std::uint8_t> image;
        for (std::int64_t i = 0; i < r.rows; ++i) {
            image.push_back(static_cast<std::uint8_t>(random.next_below(4) == 0));
        }
        cases.push_back({
            fmt::format("route {} top {} dim={} n={}", r.experts, r.top_k, r.dim, r.rows),
            r.rows,
            static_cast<double>(r.rows * r.experts * r.dim),
            [=](Backend& backend, std::int64_t begin, std::int64_t end) {
                std::shared_ptr<PackedWeight> packed = backend.pack(gate->source);
                const auto n = static_cast<std::size_t>(end - begin);
                auto experts = std::make_shared<std::vector<std::int32_t>>(n * r.top_k);
                auto weights = std::make_shared<std::vector<float>>(n * r.top_k);
                return Bound{[=, &backend] {
                                 backend.route({.x = x->view(begin, end),
                                                .gate = packed.get(),
                                                .bias = bias,
                                                .bias_vl = bias_vl,
                                                .in_image = {image.data() + begin, n},
                                                .top_k = r.top_k,
                                                .gate_temp = 1.25f,
                                                .route_scale = 1.5f,
                                                .experts = *experts,
                                                .weights = *weights});
                             },
                             [=] {
                                 std::vector<float> out;
                                 for (std::size_t i = 0; i < experts->size(); ++i) {
                                     out.push_back(static_cast<float>((*experts)[i]));
                                     out.push_back((*weights)[i]);
                                 }
                                 return out;
                             }};
            },
        });
    }
}

}  // namespace fathom::cases
