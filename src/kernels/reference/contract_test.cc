// The rules N1 to N4 and the operators built on them, written down again as literally as possible
// and compared bit for bit, on shapes with tails, denormals and extreme scales.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/cases/all_cases.h"
#include "kernels/math.h"

namespace fathom {
namespace {

using cases::Magnitude;
using cases::Matrix;
using cases::random_floats;
using cases::random_matrix;
using cases::same_bits;

constexpr std::uint64_t kSeed = 77;
constexpr Magnitude kMagnitudes[] = {Magnitude::ordinary, Magnitude::wide, Magnitude::tiny,
                                     Magnitude::huge};

std::unique_ptr<Backend> backend() {
    auto b = make_reference_backend(std::make_shared<ComputePool>(2));
    EXPECT_TRUE(b.ok()) << b.status().to_string();
    return std::move(*b);
}

// -------------------------------------------------------------------------- the rules, literally

float weight_code(const WeightSource& w, std::int64_t o, std::int64_t k) {
    const auto* bytes = static_cast<const std::uint8_t*>(w.codes);
    switch (w.format) {
        case WeightFormat::fp8_block32:
            return e4m3_to_float(bytes[o * w.in + k]);
        case WeightFormat::fp4_row32:
            return e2m1_to_float(bytes[(o * w.in + k) / 2] >> (k % 2 * 4));
        case WeightFormat::bf16:
            return bf16_to_float(static_cast<const Bf16*>(w.codes)[o * w.in + k]);
        case WeightFormat::f32:
            return static_cast<const float*>(w.codes)[o * w.in + k];
    }
    return 0;
}

float weight_scale(const WeightSource& w, std::int64_t o, std::int64_t group) {
    const std::int64_t groups = (w.in + 31) / 32;
    if (w.format == WeightFormat::fp8_block32) {
        return ue8m0_to_float(w.scales[o / 32 * groups + group]);
    }
    if (w.format == WeightFormat::fp4_row32) return ue8m0_to_float(w.scales[o * groups + group]);
    return 1;
}

float rule_n1(const float* x, const WeightSource& w, std::int64_t o) {
    float acc = 0;
    for (std::int64_t g = 0; g * 32 < w.in; ++g) {
        const auto input = [&](std::int64_t k) { return k < w.in ? x[k] : 0.0f; };
        const auto code = [&](std::int64_t k) { return k < w.in ? weight_code(w, o, k) : 0.0f; };
        float sum = 0;
        for (std::int64_t p = 0; p < 16; ++p) {
            const std::int64_t k = g * 32 + 2 * p;
            sum = std::fma(input(k), code(k), std::fma(input(k + 1), code(k + 1), sum));
        }
        acc = std::fma(sum, weight_scale(w, o, g), acc);
    }
    return acc;
}

float rule_tree(std::vector<float> lane) {
    for (int half = 8; half > 0; half /= 2) {
        for (int j = 0; j < half; ++j)
            lane[j] += lane[j + half];
    }
    return lane[0];
}

float rule_n3(const float* a, const float* b, std::int64_t n) {
    std::vector<float> lane(16);
    for (std::int64_t k = 0; k < (n + 15) / 16 * 16; ++k) {
        lane[k % 16] = std::fma(k < n ? a[k] : 0.0f, k < n ? b[k] : 0.0f, lane[k % 16]);
    }
    return rule_tree(lane);
}

float rule_n4(const float* a, const float* b, std::int64_t n) {
    float total = 0;
    for (std::int64_t begin = 0; begin < n; begin += 512) {
        total += rule_n3(a + begin, b + begin, std::min<std::int64_t>(512, n - begin));
    }
    return total;
}

float rounded(DType act, float x) {
    return act == DType::bf16 ? round_to_bf16(x) : x;
}

// ------------------------------------------------------------------------------------------ tests

TEST(Contract, LinearsFollowN1WithPaddingForEveryFormat) {
    auto b = backend();
    RandomStream random(kSeed);
    for (int attempt = 0; attempt < 60; ++attempt) {
        const auto format = static_cast<WeightFormat>(attempt % 4);
        const Magnitude magnitude = kMagnitudes[attempt / 4 % 4];
        const auto out = static_cast<std::int64_t>(1 + random.next_below(70));
        const auto in = static_cast<std::int64_t>(2 * (1 + random.next_below(330)));
        const auto rows = static_cast<std::int64_t>(1 + random.next_below(9));
        const DType act = random.next_below(2) != 0 ? DType::bf16 : DType::f32;
        auto w = cases::random_weight(random, format, out, in, attempt % 3 == 0 ? 127 : 4);
        auto x = random_matrix(random, act, rows, in, magnitude);
        Matrix y(DType::f32, rows, out), y16(DType::bf16, rows, out);
        const auto packed = b->pack(w->source);
        b->linear(x->view(), *packed, y.view());
        b->linear(x->view(), *packed, y16.view());
        const FlushDenormals flush;
        const std::vector<float> numbers = x->numbers();
        std::vector<float> want, want16;
        for (std::int64_t i = 0; i < rows; ++i) {
            for (std::int64_t o = 0; o < out; ++o) {
                want.push_back(rule_n1(numbers.data() + i * in, w->source, o));
                want16.push_back(round_to_bf16(want.back()));
            }
        }
        EXPECT_TRUE(same_bits(y.numbers(), want)) << attempt << ", seed " << kSeed;
        EXPECT_TRUE(same_bits(y16.numbers(), want16)) << attempt << ", seed " << kSeed;
    }
}

TEST(Contract, GroupedLinearIsOneLinearAGroup) {
    auto b = backend();
    RandomStream random(kSeed);
    constexpr std::int64_t kGroups = 3, kOut = 37, kIn = 96, kRows = 5;
    auto w = cases::random_weight(random, WeightFormat::bf16, kGroups * kOut, kIn);
    auto x = random_matrix(random, DType::bf16, kRows, kGroups * kIn);
    Matrix y(DType::bf16, kRows, kGroups * kOut), part(DType::bf16, kRows, kOut);
    b->grouped_linear(x->view(), *b->pack(w->source), kGroups, y.view());
    for (std::int64_t g = 0; g < kGroups; ++g) {
        WeightSource slice = w->source;
        slice.out = kOut;
        slice.codes = w->codes.data() + g * kOut * kIn * 2;
        Rows columns = x->view();
        columns.data = static_cast<Bf16*>(columns.data) + g * kIn;
        columns.cols = kIn;
        b->linear(columns, *b->pack(slice), part.view());
        for (std::int64_t i = 0; i < kRows; ++i) {
            for (std::int64_t o = 0; o < kOut; ++o) {
                EXPECT_EQ(y.numbers()[(i * kGroups + g) * kOut + o], part.numbers()[i * kOut + o]);
            }
        }
    }
}

TEST(Contract, RmsNormFollowsN4) {
    auto b = backend();
    RandomStream random(kSeed);
    for (const std::int64_t dim : {1, 15, 16, 64, 511, 512, 513, 1030, 5120}) {
        for (const Magnitude magnitude : kMagnitudes) {
            for (const DType act : {DType::bf16, DType::f32}) {
                auto x = random_matrix(random, act, 3, dim, magnitude);
                const auto w = cases::random_bf16(random, dim);
                Matrix y(act, 3, dim);
                b->rms_norm(x->view(), w.data(), 1e-20f, y.view());
                const FlushDenormals flush;
                std::vector<float> want = x->numbers();
                for (std::int64_t i = 0; i < 3; ++i) {
                    float* v = want.data() + i * dim;
                    const float mean = rule_n4(v, v, dim) / static_cast<float>(dim);
                    const float r = 1.0f / std::sqrt(mean + 1e-20f);
                    for (std::int64_t k = 0; k < dim; ++k) {
                        v[k] = rounded(act, v[k] * r * bf16_to_float(w[k]));
                    }
                }
                EXPECT_TRUE(same_bits(y.numbers(), want)) << dim << ", seed " << kSeed;
            }
        }
    }
}

TEST(Contract, HyperConnectionMixFollowsN3AndN4) {
    auto b = backend();
    RandomStream random(kSeed);
    for (const auto& [h, dim] : {std::pair<std::int64_t, std::int64_t>{4, 640}, {2, 33}}) {
        const std::int64_t mixes = (2 + h) * h, width = h * dim;
        auto x = random_matrix(random, DType::bf16, h, dim);
        const auto fn = random_floats(random, mixes * width);
        const auto base = random_floats(random, mixes), scale = random_floats(random, 3);
        std::vector<float> pre(h), post(h), comb(h * h);
        b->mhc_mix(
            x->view(),
            {.fn = fn.data(), .base = base.data(), .scale = scale.data(), .streams = h, .dim = dim},
            pre, post, comb);
        const FlushDenormals flush;
        const std::vector<float> z = x->numbers();
        const float mean = rule_n4(z.data(), z.data(), width) / static_cast<float>(width);
        const float r = 1.0f / std::sqrt(mean + 1e-20f);
        const auto mix = [&](std::int64_t j, int which) {
            return rule_n3(z.data(), fn.data() + j * width, width) * r * scale[which] + base[j];
        };
        for (std::int64_t j = 0; j < h; ++j) {
            EXPECT_EQ(pre[j], math_sigmoid(mix(j, 0)) + 1e-6f);
            EXPECT_EQ(post[j], 2 * math_sigmoid(mix(h + j, 1)));
        }
    }
}

// Invariant 6 of model.md section 9.
TEST(Contract, ColumnsOfTheStreamMixSumToOne) {
    auto b = backend();
    RandomStream random(kSeed);
    constexpr std::int64_t kStreams = 4, kDim = 96, kRows = 50, kMixes = 24;
    auto x = random_matrix(random, DType::bf16, kRows * kStreams, kDim);
    const auto fn = random_floats(random, kMixes * kStreams * kDim);
    const auto base = random_floats(random, kMixes);
    const std::vector<float> scale = {0.1f, 0.1f, 0.1f};
    std::vector<float> pre(kRows * 4), post(kRows * 4), comb(kRows * 16);
    b->mhc_mix(x->view(),
               {.fn = fn.data(),
                .base = base.data(),
                .scale = scale.data(),
                .streams = kStreams,
                .dim = kDim},
               pre, post, comb);
    for (std::int64_t t = 0; t < kRows; ++t) {
        for (std::int64_t j = 0; j < kStreams; ++j) {
            float sum = 0;
            for (std::int64_t i = 0; i < kStreams; ++i)
                sum += comb[t * 16 + i * 4 + j];
            EXPECT_NEAR(sum, 1, 1e-5);
        }
    }
}

// Numbers of every (head, dim) of one query over `rows`, as ops.h states it.
std::vector<float> literal_attention(const std::vector<float>& q, std::int64_t heads,
                                     std::int64_t dim, const std::vector<std::vector<float>>& rows,
                                     const std::vector<float>& sink, float scale, DType act) {
    const FlushDenormals flush;
    std::vector<float> out;
    for (std::int64_t h = 0; h < heads; ++h) {
        std::vector<float> o(dim);
        float m = -1e30f, l = 0;
        for (std::size_t begin = 0; begin < rows.size(); begin += 64) {
            const std::size_t n = std::min<std::size_t>(64, rows.size() - begin);
            std::vector<float> s(n);
            for (std::size_t r = 0; r < n; ++r) {
                const float* k = rows[begin + r].data();
                const float* v = q.data() + h * dim;
                for (std::int64_t p = 0; p < dim / 2; ++p) {
                    s[r] = std::fma(v[2 * p], k[2 * p], std::fma(v[2 * p + 1], k[2 * p + 1], s[r]));
                }
                s[r] *= scale;
            }
            const float top = std::max(m, *std::max_element(s.begin(), s.end()));
            const float a = math_exp(m - top);
            m = top;
            for (float& x : s)
                x = math_exp(x - top);
            const std::vector<float> ones(n, 1.0f);
            l = std::fma(l, a, rule_n4(s.data(), ones.data(), static_cast<std::int64_t>(n)));
            for (float& x : s)
                x = rounded(act, x);
            for (std::int64_t d = 0; d < dim; ++d) {
                o[d] *= a;
                for (std::size_t r = 0; r < n; r += 2) {
                    const bool pair = r + 1 < n;
                    o[d] = std::fma(s[r], rows[begin + r][d],
                                    std::fma(pair ? s[r + 1] : 0.0f,
                                             pair ? rows[begin + r + 1][d] : 0.0f, o[d]));
                }
            }
        }
        for (std::int64_t d = 0; d < dim; ++d) {
            out.push_back(rounded(act, rows.empty() ? 0 : o[d] / (l + math_exp(sink[h] - m))));
        }
    }
    return out;
}

TEST(Contract, AttentionWalksTilesOf64) {
    auto b = backend();
    RandomStream random(kSeed);
    for (const DType act : {DType::bf16, DType::f32}) {
        for (const std::int64_t length : {0, 1, 2, 63, 64, 65, 127, 200}) {
            constexpr std::int64_t kHeads = 5, kDim = 48;
            auto q = random_matrix(random, act, 1, kHeads * kDim, Magnitude::ordinary);
            auto kv = random_matrix(random, act, std::max<std::int64_t>(length, 1), kDim);
            const auto sink = random_floats(random, kHeads);
            const KvFormat format = act == DType::bf16 ? KvFormat::bf16 : KvFormat::f32;
            std::vector<ConstKvRow> list;
            std::vector<std::vector<float>> rows;
            const std::vector<float> numbers = kv->numbers();
            for (std::int64_t r = 0; r < length; ++r) {
                list.push_back({static_cast<std::uint8_t*>(kv->view(r, r + 1).data), nullptr});
                rows.emplace_back(numbers.begin() + r * kDim, numbers.begin() + (r + 1) * kDim);
            }
            const AttentionList lists[] = {
                {.window = list, .window_format = format, .compressed = {}, .selected = {}}};
            Matrix o(act, 1, kHeads * kDim);
            b->sparse_attention({.q = q->view(),
                                 .heads = kHeads,
                                 .head_dim = kDim,
                                 .sink = sink,
                                 .scale = 0.25f,
                                 .lists = lists,
                                 .o = o.view()});
            EXPECT_TRUE(same_bits(
                o.numbers(), literal_attention(q->numbers(), kHeads, kDim, rows, sink, 0.25f, act)))
                << length << ", seed " << kSeed;

            // Invariant 8: another order of the list shows in the rounding only.
            std::reverse(list.begin(), list.end());
            Matrix reversed(act, 1, kHeads * kDim);
            b->sparse_attention({.q = q->view(),
                                 .heads = kHeads,
                                 .head_dim = kDim,
                                 .sink = sink,
                                 .scale = 0.25f,
                                 .lists = lists,
                                 .o = reversed.view()});
            for (std::size_t i = 0; i < o.numbers().size(); ++i) {
                EXPECT_NEAR(o.numbers()[i], reversed.numbers()[i],
                            act == DType::bf16 ? 2e-2 : 1e-6);
            }
        }
    }
}

TEST(Contract, IndexScoresAreExactGroupSums) {
    auto b = backend();
    RandomStream random(kSeed);
    constexpr std::int64_t kHeads = 7, kDim = 96, kKeys = 21;
    for (const KvFormat format : {KvFormat::index_fp4, KvFormat::bf16, KvFormat::f32}) {
        const DType act = format == KvFormat::f32 ? DType::f32 : DType::bf16;
        auto q = random_matrix(random, act, 1, kHeads * kDim);
        auto k = random_matrix(random, act, kKeys, kDim);
        if (format != KvFormat::f32) {
            b->index_round_trip(q->view());
            b->index_round_trip(k->view());
        }
        auto w = random_matrix(random, DType::f32, 1, kHeads);
        cases::StoredRows stored(format, kDim, kKeys);
        stored.fill(*b, KvKind::index, *k);
        std::vector<float> scores(kKeys);
        const IndexScoreArgs::Query queries[] = {
            {.row = 0, .keys = stored.paged, .visible = kKeys, .blocks = {}, .scores = scores}};
        b->index_scores(
            {.q = q->view(), .w = w->view(), .heads = kHeads, .dim = kDim, .queries = queries});
        const FlushDenormals flush;
        const std::vector<float> qs = q->numbers(), ks = k->numbers(), ws = w->numbers();
        std::vector<float> want;
        for (std::int64_t t = 0; t < kKeys; ++t) {
            float score = 0;
            for (std::int64_t h = 0; h < kHeads; ++h) {
                float dot = 0;
                for (std::int64_t g = 0; g < kDim; g += 32) {
                    const float *x = qs.data() + h * kDim + g, *y = ks.data() + t * kDim + g;
                    double exact = 0;
                    float chain = 0;
                    for (std::int64_t p = 0; p < 32; p += 2) {
                        exact += static_cast<double>(x[p]) * y[p];
                        exact += static_cast<double>(x[p + 1]) * y[p + 1];
                        chain = std::fma(x[p], y[p], std::fma(x[p + 1], y[p + 1], chain));
                    }
                    dot += format == KvFormat::f32 ? chain : static_cast<float>(exact);
                }
                score += ws[h] * std::max(0.0f, dot);
            }
            want.push_back(score);
        }
        EXPECT_TRUE(same_bits(scores, want)) << cases::format_name(format) << ", seed " << kSeed;
    }
}

TEST(Contract, MoeSumsExpertOutputsInAscendingOrder) {
    auto b = backend();
    RandomStream random(kSeed);
    constexpr std::int64_t kExperts = 5, kTop = 2, kDim = 64, kInter = 32, kRows = 6;
    for (const NumericMode mode : {NumericMode::real, NumericMode::fp32}) {
        const DType act = mode == NumericMode::real ? DType::bf16 : DType::f32;
        auto x = random_matrix(random, act, kRows, kDim);
        if (mode == NumericMode::real) cases::quantise_rows(*x);
        std::vector<cases::ExpertWeights> weights;
        std::vector<PackedExpert> experts;
        for (std::int64_t e = 0; e < kExperts + 1; ++e) {
            weights.push_back(cases::random_expert(random, WeightFormat::fp4_row32, kDim, kInter));
            experts.push_back(weights.back().pack(*b));
        }
        const std::vector<std::int32_t> chosen = {0, 1, 1, 4, 2, 3, 0, 4, 1, 2, 3, 4};
        const auto gates = random_floats(random, kRows * kTop);
        const Numerics numerics{.mode = mode};
        Matrix y(act, kRows, kDim);
        b->moe({.x_q8 = x->view(),
                .top_k = kTop,
                .experts = chosen,
                .weights = gates,
                .routed = {experts.data(), kExperts},
                .shared = &experts[kExperts],
                .swiglu_limit = 0.5f,
                .numerics = &numerics,
                .y = y.view()});

        std::vector<float> want;
        for (std::int64_t i = 0; i < kRows; ++i) {
            std::vector<float> sum(kDim);
            const auto add = [&](const cases::ExpertWeights& w, const PackedExpert& e,
                                 std::span<const float> gate) {
                Matrix g(act, 1, kInter), u(act, 1, kInter), t(act, 1, kInter), out(act, 1, kDim);
                b->linear(x->view(i, i + 1), *b->pack(w.gate->source), g.view());
                b->linear(x->view(i, i + 1), *b->pack(w.up->source), u.view());
                const FlushDenormals flush;
                for (std::int64_t c = 0; c < kInter; ++c) {
                    float value = math_silu(std::min(g.numbers()[c], 0.5f)) *
                                  std::clamp(u.numbers()[c], -0.5f, 0.5f);
                    if (!gate.empty()) value *= gate[0];
                    t.set(c, value);
                }
                if (mode == NumericMode::real) b->q8_round_trip(t.view(), t.view());
                Matrix joined(act, 1, kInter);
                b->gate_up(x->view(i, i + 1), *e.gate_up, gate, 0.5f, mode, joined.view());
                EXPECT_TRUE(same_bits(joined.numbers(), t.numbers()));
                b->linear(t.view(), *e.down, out.view());
                for (std::int64_t d = 0; d < kDim; ++d)
                    sum[d] += out.numbers()[d];
            };
            for (std::int64_t s = 0; s < kTop; ++s) {
                const auto e = static_cast<std::size_t>(chosen[i * kTop + s]);
                add(weights[e], experts[e], {&gates[i * kTop + s], 1});
            }
            add(weights[kExperts], experts[kExperts], {});
            for (const float v : sum)
                want.push_back(rounded(act, v));
        }
        EXPECT_TRUE(same_bits(y.numbers(), want)) << "seed " << kSeed;
    }
}

}  // namespace
}  // namespace fathom
