// The reference back end against golden/kernels: input and output pairs of single operations, made
// with the vendor's code and double-accumulated products. Tolerances are those of golden/README.md
// section 4. Every operation runs through the Backend interface, as the model calls it.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

#include "kernels/ops.h"
#include "model/safetensors.h"
#include "support.h"

namespace fathom {
namespace {

using testing::shared_path;

// ----------------------------------------------------------------------------------- golden files

class Golden {
  public:
    explicit Golden(const std::string& name) {
        auto file = SafetensorsFile::open(shared_path("golden/kernels/" + name + ".safetensors"));
        EXPECT_TRUE(file.ok()) << file.status().to_string();
        if (file.ok()) file_ = std::move(*file);
    }

    TensorRef tensor(const std::string& name) const {
        auto t = file_->tensor(name);
        EXPECT_TRUE(t.ok()) << t.status().to_string();
        return t.ok() ? *t : TensorRef{};
    }
    bool has(const std::string& name) const { return file_->tensors().count(name) != 0; }
    std::int64_t size(const std::string& name, std::size_t axis) const {
        return tensor(name).shape.at(axis);
    }
    template <class T>
    std::vector<T> raw(const std::string& name) const {
        const TensorRef t = tensor(name);
        std::vector<T> out(t.bytes / sizeof(T));
        std::memcpy(out.data(), t.data, out.size() * sizeof(T));
        return out;
    }
    std::vector<float> f32(const std::string& name) const { return raw<float>(name); }
    std::vector<Bf16> bf16(const std::string& name) const { return raw<Bf16>(name); }
    std::vector<std::int32_t> i32(const std::string& name) const { return raw<std::int32_t>(name); }
    std::vector<std::uint8_t> u8(const std::string& name) const { return raw<std::uint8_t>(name); }

  private:
    std::unique_ptr<SafetensorsFile> file_;
};

std::unique_ptr<Backend> backend() {
    auto b = make_reference_backend(std::make_shared<ComputePool>(2));
    EXPECT_TRUE(b.ok()) << b.status().to_string();
    return std::move(*b);
}

template <class T>
Rows view(std::vector<T>& v, std::int64_t cols) {
    static_assert(std::is_same_v<T, float> || std::is_same_v<T, Bf16>);
    const DType t = std::is_same_v<T, float> ? DType::f32 : DType::bf16;
    return {v.data(), t, static_cast<std::int64_t>(v.size()) / cols, cols, cols};
}

std::vector<float> widen(const std::vector<Bf16>& v) {
    std::vector<float> out;
    for (const Bf16 b : v)
        out.push_back(bf16_to_float(b));
    return out;
}

// ----------------------------------------------------------------------------------- comparisons

std::int32_t bf16_order(Bf16 b) {
    return (b.bits & 0x8000) != 0 ? -(b.bits & 0x7fff) : b.bits;
}

// Fails beyond 1 bf16 ulp; returns the share of equal elements.
double expect_one_ulp(const std::vector<Bf16>& got, const std::vector<Bf16>& want) {
    EXPECT_EQ(got.size(), want.size());
    std::size_t equal = 0, shown = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
        const int d = std::abs(bf16_order(got[i]) - bf16_order(want[i]));
        equal += d == 0;
        if (d > 1 && shown++ < 5) {
            ADD_FAILURE() << "element " << i << ": got " << bf16_to_float(got[i]) << ", want "
                          << bf16_to_float(want[i]);
        }
    }
    return want.empty() ? 1.0 : static_cast<double>(equal) / static_cast<double>(want.size());
}

void expect_close(const std::vector<float>& got, const std::vector<float>& want, double relative,
                  double absolute) {
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i) {
        ASSERT_NEAR(got[i], want[i], relative * std::fabs(want[i]) + absolute) << "element " << i;
    }
}

double rms(const std::vector<float>& v) {
    double sum = 0;
    for (const float x : v)
        sum += static_cast<double>(x) * x;
    return v.empty() ? 0 : std::sqrt(sum / static_cast<double>(v.size()));
}

double relative_rms(const std::vector<float>& got, const std::vector<float>& want) {
    EXPECT_EQ(got.size(), want.size());
    std::vector<float> d(want.size());
    for (std::size_t i = 0; i < d.size(); ++i)
        d[i] = got[i] - want[i];
    return rms(d) / rms(want);
}

WeightSource weight(const Golden& g, const std::string& codes, const std::string& scales = "") {
    const TensorRef t = g.tensor(codes);
    WeightSource w{.format = WeightFormat::bf16,
                   .out = t.shape[0],
                   .in = t.shape[1],
                   .codes = t.data,
                   .scales = nullptr};
    if (t.type == TensorType::f8_e4m3) w.format = WeightFormat::fp8_block32;
    if (t.type == TensorType::i8) {
        w.format = WeightFormat::fp4_row32;
        w.in *= 2;
    }
    if (!scales.empty()) w.scales = g.tensor(scales).data;
    return w;
}

std::vector<Bf16> q8(Backend& b, std::vector<Bf16> x, std::int64_t cols) {
    b.q8_round_trip(view(x, cols), view(x, cols));
    return x;
}

// ------------------------------------------------------------------------------------------ tests

#define NEED_GOLDEN() FATHOM_NEED_SHARED("golden/kernels/gemm.safetensors")

TEST(GoldenKernels, RmsNorm) {
    NEED_GOLDEN();
    const Golden g("rmsnorm");
    auto b = backend();
    for (const std::int64_t dim : {64, 512, 5120}) {
        const std::string p = "d" + std::to_string(dim) + ".";
        auto x = g.bf16(p + "x");
        const auto w = g.bf16(p + "w");
        std::vector<Bf16> y(x.size());
        b->rms_norm(view(x, dim), w.data(), 1e-20f, view(y, dim));
        EXPECT_GE(expect_one_ulp(y, g.bf16(p + "y")), 0.999) << p;
        b->rms_norm(view(x, dim), w.data(), 1e-6f, view(y, dim));
        EXPECT_GE(expect_one_ulp(y, g.bf16(p + "y_eps1e-6_vision")), 0.999) << p;
        auto x32 = widen(x);
        std::vector<float> y32(x.size());
        b->rms_norm(view(x32, dim), w.data(), 1e-20f, view(y32, dim));
        expect_close(y32, g.f32(p + "y_f32"), 1e-6, 0);
    }
}

TEST(GoldenKernels, HyperConnections) {
    NEED_GOLDEN();
    const Golden g("mhc");
    auto b = backend();
    for (const char* name : {"hc4_d256.", "hc2_d96.", "hc4_d5120."}) {
        const std::string p = name;
        auto x = g.bf16(p + "X");
        const std::int64_t n = g.size(p + "X", 0), h = g.size(p + "X", 1), dim = g.size(p + "X", 2);
        const auto fn = g.f32(p + "fn"), base = g.f32(p + "base"), scale = g.f32(p + "scale");
        const MhcWeights w{
            .fn = fn.data(), .base = base.data(), .scale = scale.data(), .streams = h, .dim = dim};
        std::vector<float> pre(n * h), post(n * h), comb(n * h * h);
        b->mhc_mix(view(x, dim), w, pre, post, comb);
        expect_close(pre, g.f32(p + "pre"), 1e-5, 1e-6);
        expect_close(post, g.f32(p + "post"), 1e-5, 1e-6);
        expect_close(comb, g.f32(p + "comb"), 1e-5, 1e-6);

        std::vector<Bf16> collapsed(n * dim);
        b->mhc_collapse(view(x, dim), h, g.f32(p + "pre_in"), view(collapsed, dim));
        expect_one_ulp(collapsed, g.bf16(p + "collapse"));
        auto y = g.bf16(p + "y");
        b->mhc_expand(view(x, dim), h, view(y, dim), g.f32(p + "post"), g.f32(p + "comb"));
        expect_one_ulp(x, g.bf16(p + "expand"));
    }
}

TEST(GoldenKernels, RopeTablesAreTheReferencesBits) {
    NEED_GOLDEN();
    const Golden g("rope");
    const auto yarn = [](std::int64_t positions) {
        return YarnScaling{.factor = 16, .original_max_position = positions};
    };
    EXPECT_EQ(make_rope_table(10000, 64, {}).freqs, g.f32("window.freqs"));
    EXPECT_EQ(make_rope_table(160000, 64, yarn(65536)).freqs, g.f32("compress.freqs"));
    EXPECT_EQ(make_rope_table(10000, 16, {}).freqs, g.f32("tiny_window.freqs"));
    EXPECT_EQ(make_rope_table(160000, 16, yarn(64)).freqs, g.f32("tiny_compress.freqs"));
}

TEST(GoldenKernels, RopeRotatesBothWays) {
    NEED_GOLDEN();
    const Golden g("rope");
    auto b = backend();
    for (const char* name : {"window.", "compress.", "tiny_window.", "tiny_compress."}) {
        const std::string p = name;
        const std::int64_t heads = g.size(p + "x", 1), dim = g.size(p + "x", 2);
        const RopeTable table{.rope_dim = dim, .freqs = g.f32(p + "freqs")};
        const auto p32 = g.i32(p + "positions");
        const std::vector<std::int64_t> positions(p32.begin(), p32.end());
        for (const bool inverse : {false, true}) {
            auto x = g.bf16(p + "x");
            b->rope(view(x, heads * dim), heads, dim, positions, table, inverse);
            expect_one_ulp(x, g.bf16(p + (inverse ? "rotated_inverse" : "rotated")));
        }
    }
}

TEST(GoldenKernels, SparseAttention) {
    NEED_GOLDEN();
    const Golden g("sparse_attention");
    auto b = backend();
    for (const char* name : {"small.", "tiles.", "real.", "one."}) {
        const std::string p = name;
        auto q = g.bf16(p + "q");
        auto kv = g.bf16(p + "kv");
        auto kv32 = widen(kv);
        auto q32 = widen(q);
        const auto idx = g.i32(p + "idx");
        const auto sink = g.f32(p + "sink");
        const auto ideal = g.f32(p + "out_ideal_f32");
        const std::int64_t n = g.size(p + "q", 0), heads = g.size(p + "q", 1),
                           dim = g.size(p + "q", 2), slots = g.size(p + "idx", 1);
        for (const bool real : {true, false}) {
            const std::int64_t bytes = dim * (real ? 2 : 4);
            const auto* rows = real ? reinterpret_cast<const std::uint8_t*>(kv.data())
                                    : reinterpret_cast<const std::uint8_t*>(kv32.data());
            std::vector<std::vector<ConstKvRow>> lists(n);
            std::vector<AttentionList> views(n);
            for (std::int64_t i = 0; i < n; ++i) {
                for (std::int64_t s = 0; s < slots; ++s) {
                    const std::int32_t r = idx[i * slots + s];
                    if (r >= 0) lists[i].push_back({rows + r * bytes, nullptr});
                }
                views[i].window = lists[i];
                views[i].window_format = real ? KvFormat::bf16 : KvFormat::f32;
            }
            std::vector<Bf16> o(q.size());
            std::vector<float> o32(q.size());
            AttentionArgs args{.q = {},
                               .heads = heads,
                               .head_dim = dim,
                               .sink = sink,
                               .scale = g.f32(p + "scale")[0],
                               .lists = views,
                               .o = {}};
            args.q = real ? view(q, heads * dim) : view(q32, heads * dim);
            args.o = real ? view(o, heads * dim) : view(o32, heads * dim);
            b->sparse_attention(args);
            if (real) o32 = widen(o);
            expect_close(o32, ideal, real ? 0 : 1e-5, real ? 4e-3 : 1e-6);
            std::vector<float> d(ideal.size());
            for (std::size_t i = 0; i < d.size(); ++i)
                d[i] = o32[i] - ideal[i];
            EXPECT_LE(rms(d), real ? 5e-4 : 1e-7) << p;
        }
    }
}

// True where a double-accumulated value lies within 1e-6 relative of a bf16 rounding boundary.
bool near_boundary(float exact) {
    const auto low = std::bit_cast<float>(std::bit_cast<std::uint32_t>(exact) & 0xffff0000u);
    const auto middle = std::bit_cast<float>(std::bit_cast<std::uint32_t>(low) | 0x8000u);
    return std::fabs(exact - middle) <= 1e-6f * std::fabs(exact);
}

TEST(GoldenKernels, QuantisedLinear) {
    NEED_GOLDEN();
    const Golden g("gemm");
    auto b = backend();
    for (const char* name :
         {"fp8.", "fp8_k1280.", "fp8_partial.", "fp8_partial_big.", "fp4.", "fp4_k2304."}) {
        const std::string p = name;
        const auto w = b->pack(weight(g, p + "w", p + "w_scale"));
        const auto k = static_cast<std::size_t>(w->in);
        auto x = q8(*b, g.bf16(p + "x"), w->in);
        const auto codes = g.u8(p + "x_code");
        const auto scales = g.u8(p + "x_scale");
        std::vector<float> expected(x.size());
        for (std::size_t i = 0; i < x.size(); i += k) {
            const std::size_t groups = k / kQ8Group;
            dequantise_q8({codes.data() + i, k}, {scales.data() + i / k * groups, groups},
                          {expected.data() + i, k});
        }
        EXPECT_EQ(widen(x), expected) << p;

        const std::size_t count = x.size() / k * static_cast<std::size_t>(w->out);
        std::vector<Bf16> out(count);
        std::vector<float> acc(count);
        b->linear(view(x, w->in), *w, view(out, w->out));
        b->linear(view(x, w->in), *w, view(acc, w->out));
        const auto exact = g.f32(p + "acc_exact_f32");
        EXPECT_LE(relative_rms(acc, exact), 1e-6) << p;
        EXPECT_LE(relative_rms(acc, g.f32(p + "acc_k_order_f32")), 1e-6) << p;
        const auto want = g.bf16(p + "out");
        for (std::size_t i = 0; i < count; ++i) {
            const int d = std::abs(bf16_order(out[i]) - bf16_order(want[i]));
            EXPECT_LE(d, near_boundary(exact[i]) ? 1 : 0) << p << i;
        }
    }
}

TEST(GoldenKernels, PartialScaleTilesDequantiseExactly) {
    NEED_GOLDEN();
    const Golden g("gemm");
    auto b = backend();
    const auto w = b->pack(weight(g, "dequant_partial.w", "dequant_partial.w_scale"));
    std::vector<float> unit(w->in * w->in), y(w->in * w->out), transposed(y.size());
    for (std::int64_t k = 0; k < w->in; ++k)
        unit[k * w->in + k] = 1;
    b->linear(view(unit, w->in), *w, view(y, w->out));
    for (std::int64_t k = 0; k < w->in; ++k) {
        for (std::int64_t o = 0; o < w->out; ++o)
            transposed[o * w->in + k] = y[k * w->out + o];
    }
    EXPECT_EQ(transposed, g.f32("dequant_partial.value"));
}

TEST(GoldenKernels, Selection) {
    NEED_GOLDEN();
    const Golden g("topk");
    auto b = backend();
    for (const char* name : {"random.", "ties.", "zeros_and_signed_zero.", "k_ge_visible.",
                             "candidates.", "candidate_ties."}) {
        const std::string p = name;
        const auto score = g.f32(p + "score");
        const auto visible = g.i32(p + "visible");
        const std::int64_t n = g.size(p + "score", 0), width = g.size(p + "score", 1);
        const std::int64_t k = g.i32(p + "k")[0], slots = g.size(p + "selected", 1);
        const auto row_of = [&](const std::vector<std::int32_t>& v, std::int64_t i) {
            return std::vector<std::int32_t>(v.begin() + i * slots, v.begin() + (i + 1) * slots);
        };
        for (std::int64_t i = 0; i < n; ++i) {
            const std::span<const float> scores(score.data() + i * width,
                                                static_cast<std::size_t>(visible[i]));
            std::vector<std::int32_t> got(static_cast<std::size_t>(std::max(k, slots)), -1);
            const auto count = b->select_top(scores, k, got);
            std::fill(got.begin() + count, got.end(), -1);
            got.resize(slots);
            EXPECT_EQ(got, row_of(g.i32(p + "selected"), i)) << p << i;
            if (!g.has(p + "candidates")) continue;

            const auto block_topk = g.i32(p + "block_topk_size");
            std::vector<std::int32_t> blocks(block_topk[0]);
            blocks.resize(b->select_blocks(scores, block_topk[1], block_topk[0], blocks));
            std::vector<std::uint8_t> mask(width);
            std::vector<float> dense;
            std::vector<std::int32_t> positions;
            for (const std::int32_t block : blocks) {
                for (std::int32_t j = 0; j < block_topk[1]; ++j) {
                    const std::int32_t at = block * block_topk[1] + j;
                    if (at >= visible[i]) continue;
                    mask[at] = 1;
                    dense.push_back(scores[at]);
                    positions.push_back(at);
                }
            }
            // The golden mask covers whole blocks, also what is not visible of the last one.
            const auto want = g.u8(p + "candidates");
            EXPECT_TRUE(
                std::equal(mask.begin(), mask.begin() + visible[i], want.begin() + i * width))
                << p << i;
            std::vector<std::int32_t> chosen(k);
            chosen.resize(b->select_top(dense, k, chosen));
            for (std::int32_t& c : chosen)
                c = positions[c];
            chosen.resize(slots, -1);
            EXPECT_EQ(chosen, row_of(g.i32(p + "selected_from_candidates"), i)) << p << i;
        }
    }
}

TEST(GoldenKernels, IndexScores) {
    NEED_GOLDEN();
    const Golden g("index_score");
    auto b = backend();
    auto q = g.bf16("q");
    auto k = g.bf16("k");
    const std::int64_t n = g.size("q", 0), heads = g.size("q", 1), dim = g.size("q", 2),
                       keys = g.size("k", 0);
    std::vector<float> w = widen(g.bf16("weights_proj_out"));
    for (float& x : w)
        x *= 0.015625f;  // 128^-0.5 · 32^-0.5
    const auto want = g.f32("score");
    for (const KvFormat format : {KvFormat::index_fp4, KvFormat::bf16, KvFormat::f32}) {
        std::vector<std::uint8_t> page(keys *
                                       (kv_value_bytes(format, dim) + kv_scale_bytes(format, dim)));
        std::uint8_t* pages[] = {page.data()};
        const PagedRows paged{.pages = pages,
                              .format = format,
                              .dim = dim,
                              .rows_per_page = keys,
                              .values_offset = 0,
                              .scales_offset = keys * kv_value_bytes(format, dim)};
        std::vector<KvRow> rows;
        for (std::int64_t j = 0; j < keys; ++j)
            rows.push_back(paged.row(j));
        b->store_kv(view(k, dim), KvKind::index, format, rows);
        std::vector<float> scores(n * keys);
        std::vector<IndexScoreArgs::Query> queries;
        for (std::int64_t i = 0; i < n; ++i) {
            queries.push_back({.row = i,
                               .keys = paged,
                               .visible = keys,
                               .blocks = {},
                               .scores = std::span<float>(scores).subspan(i * keys, keys)});
        }
        b->index_scores({.q = view(q, heads * dim),
                         .w = view(w, heads),
                         .heads = heads,
                         .dim = dim,
                         .queries = queries});
        for (std::int64_t i = 0; i < n; ++i) {
            float top = 0;
            for (std::int64_t j = 0; j < keys; ++j) {
                top = std::max(top, std::fabs(want[i * keys + j]));
            }
            for (std::int64_t j = 0; j < keys; ++j) {
                EXPECT_NEAR(scores[i * keys + j], want[i * keys + j], 1e-5 * top);
            }
        }
    }
}

TEST(GoldenKernels, Routing) {
    NEED_GOLDEN();
    const Golden g("moe_routing");
    auto b = backend();
    for (const char* name : {"tiny.", "real.", "draft."}) {
        const std::string p = name;
        auto x = g.bf16(p + "x");
        const auto gate = b->pack(weight(g, p + "w"));
        const auto bias = g.f32(p + "bias"), bias_vl = g.f32(p + "bias_vl");
        const auto image = g.u8(p + "image");
        const std::int64_t n = g.size(p + "x", 0), k = g.i32(p + "k")[0];
        std::vector<float> logits(n * gate->out);
        b->linear(view(x, gate->in), *gate, view(logits, gate->out));
        EXPECT_LE(relative_rms(logits, g.f32(p + "logits")), 1e-6) << p;

        std::vector<std::int32_t> experts(n * k);
        std::vector<float> weights(n * k);
        b->route({.x = view(x, gate->in),
                  .gate = gate.get(),
                  .bias = bias,
                  .bias_vl = bias_vl,
                  .in_image = image,
                  .top_k = k,
                  .gate_temp = 1.0f,
                  .route_scale = 1.5f,
                  .experts = experts,
                  .weights = weights});
        EXPECT_EQ(experts, g.i32(p + "experts")) << p;
        expect_close(weights, g.f32(p + "weights"), 1e-5, 0);
    }
}

TEST(GoldenKernels, Expert) {
    NEED_GOLDEN();
    const Golden g("expert");
    auto b = backend();
    for (const char* name : {"fp4.", "fp8."}) {
        const std::string p = name;
        const auto source = [&](const char* w) {
            return weight(g, p + w + ".weight", p + w + ".scale");
        };
        const WeightSource w1 = source("w1"), w3 = source("w3");
        auto x = q8(*b, g.bf16(p + "x"), w1.in);
        const std::int64_t n = g.size(p + "x", 0);
        for (const bool up : {false, true}) {
            std::vector<Bf16> y(n * w1.out);
            b->linear(view(x, w1.in), *b->pack(up ? w3 : w1), view(y, w1.out));
            expect_one_ulp(y, g.bf16(p + (up ? "up" : "gate")));
        }
        PackedExpert expert{.gate_up = b->pack_gate_up(w1, w3), .down = b->pack(source("w2"))};
        const Numerics numerics;
        const auto weights = g.f32(p + "weight");
        const std::vector<std::int32_t> experts(n, 0);
        std::vector<Bf16> y(n * w1.in);
        MoeArgs args{.x_q8 = view(x, w1.in),
                     .top_k = 1,
                     .experts = experts,
                     .weights = weights,
                     .routed = {&expert, 1},
                     .shared = nullptr,
                     .swiglu_limit = 10,
                     .numerics = &numerics,
                     .y = view(y, w1.in)};
        b->moe(args);
        EXPECT_LE(relative_rms(widen(y), widen(g.bf16(p + "out_weighted"))), 5e-3) << p;
        args.top_k = 0;
        args.experts = {};
        args.weights = {};
        args.shared = &expert;
        b->moe(args);
        EXPECT_LE(relative_rms(widen(y), widen(g.bf16(p + "out_unweighted"))), 5e-3) << p;
    }
}

TEST(GoldenKernels, Compressor) {
    NEED_GOLDEN();
    const Golden g("compressor");
    auto b = backend();
    auto x = g.bf16("ratio2.x");
    const auto wkv = b->pack(weight(g, "ratio2.wkv"));
    const auto wgate = b->pack(weight(g, "ratio2.wgate"));
    const auto norm = g.bf16("ratio2.norm");
    const std::int64_t n = g.size("ratio2.x", 0), dim = wkv->out;
    std::vector<float> u(n * dim), gate(n * dim);
    b->linear(view(x, wkv->in), *wkv, view(u, dim));
    b->linear(view(x, wkv->in), *wgate, view(gate, dim));
    expect_close(u, g.f32("ratio2.u"), 1e-5, 1e-6);
    expect_close(gate, g.f32("ratio2.g"), 1e-5, 1e-6);

    const std::int64_t pairs = n / 2;  // the last token stays pending
    const auto every_second = [&](std::vector<float>& v, std::int64_t first) {
        return ConstRows(v.data() + first * dim, DType::f32, pairs, dim, 2 * dim);
    };
    std::vector<float> pooled32(pairs * dim);
    b->compress_pair(every_second(u, 0), every_second(gate, 0), every_second(u, 1),
                     every_second(gate, 1), view(pooled32, dim));
    expect_close(pooled32, g.f32("ratio2.pooled"), 1e-5, 1e-6);
    std::vector<Bf16> pooled(pairs * dim), latent(pairs * dim);
    b->compress_pair(every_second(u, 0), every_second(gate, 0), every_second(u, 1),
                     every_second(gate, 1), view(pooled, dim));
    b->rms_norm(view(pooled, dim), norm.data(), 1e-20f, view(latent, dim));
    expect_one_ulp(latent, g.bf16("ratio2.latent"));

    std::vector<Bf16> product(n * dim), latent1(n * dim);
    b->linear(view(x, wkv->in), *wkv, view(product, dim));
    expect_one_ulp(product, g.bf16("ratio1.wkv_out"));
    b->rms_norm(view(product, dim), norm.data(), 1e-20f, view(latent1, dim));
    expect_one_ulp(latent1, g.bf16("ratio1.latent"));
}

TEST(GoldenKernels, EngramGate) {
    NEED_GOLDEN();
    const Golden g("engram_gate");
    auto b = backend();
    const EngramTable table{.format = WeightFormat::fp8_block32,
                            .rows = g.size("table", 0),
                            .dim = g.size("table", 1),
                            .codes = g.tensor("table").data,
                            .scales = g.tensor("table_scale").data};
    const std::int64_t n = g.size("rows", 0), columns = g.size("rows", 1);
    const std::int64_t streams = g.size("X", 1), dim = g.size("X", 2);
    const auto rows = g.i32("rows");
    const std::vector<std::int64_t> ids(rows.begin(), rows.end());
    std::vector<Bf16> looked_up(n * columns * table.dim);
    b->engram_lookup(table, ids, columns, view(looked_up, columns * table.dim));
    const auto wkv = b->pack(weight(g, "wkv", "wkv_scale"));
    EXPECT_EQ(q8(*b, looked_up, wkv->in), looked_up) << "re-quantising table rows is lossless";
    std::vector<Bf16> kv(n * wkv->out);
    b->linear(view(looked_up, wkv->in), *wkv, view(kv, wkv->out));
    expect_one_ulp(kv, g.bf16("kv"));

    kv = g.bf16("kv");
    auto x = g.bf16("X");
    const auto q_weight = g.bf16("q_weight"), k_weight = g.bf16("k_weight");
    auto in_image = g.u8("text");
    for (std::uint8_t& flag : in_image)
        flag = flag == 0;
    std::vector<float> gates(n * streams);
    b->engram_gate({.x = view(x, dim),
                    .kv = view(kv, wkv->out),
                    .q_weight = q_weight.data(),
                    .k_weight = k_weight.data(),
                    .streams = streams,
                    .eps = 1e-20f,
                    .in_image = in_image,
                    .gates = gates});
    expect_close(gates, g.f32("gate"), 0, 1e-5);
    expect_one_ulp(x, g.bf16("X_out"));
}

}  // namespace
}  // namespace fathom
