// Stored bytes and scores that no well-behaved model writes: any code and scale, NaN, infinities,
// denormals, ties, rows that lie apart. Same bits as the reference all the same.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/cases/case.h"
#include "kernels/x86/test_levels.h"

namespace fathom {
namespace {

constexpr std::uint64_t kSeed = 20261201;

// Runs `outputs` on the reference and on every level and compares.
void expect_same(const std::string& what,
                 const std::function<std::vector<float>(Backend&)>& outputs) {
    auto oracle = x86::open_backend("reference", 1);
    const std::vector<float> expected = outputs(*oracle);
    for (const std::string& name : x86::level_names()) {
        auto b = x86::open_backend(name, 2);
        EXPECT_TRUE(cases::same_bits(expected, outputs(*b)))
            << what << " by " << name << ", seed " << kSeed;
    }
}

void fill_with_any_bytes(RandomStream& random, std::vector<std::uint8_t>& bytes) {
    for (std::uint8_t& b : bytes)
        b = static_cast<std::uint8_t>(random.next_u64());
}

// Rows of random bytes whose scales are drawn from [low, high].
std::shared_ptr<cases::StoredRows> any_rows(RandomStream& random, KvFormat format, std::int64_t dim,
                                            std::int64_t count, int low, int high) {
    auto rows = std::make_shared<cases::StoredRows>(format, dim, count);
    fill_with_any_bytes(random, rows->memory);
    for (std::int64_t j = 0; j < count; ++j) {
        const KvRow row = rows->paged.row(j);
        for (std::int64_t g = 0; g < kv_scale_bytes(format, dim); ++g)
            row.scales[g] = static_cast<std::uint8_t>(low + random.next_below(high - low + 1));
    }
    return rows;
}

struct ScaleRange {
    int low, high;
};
constexpr ScaleRange kScaleRanges[] = {{0, 255}, {0, 12}, {240, 255}, {110, 140}, {62, 66}};

TEST(X86OddValues, AnyStoredBytesAreReadAsByTheReference) {
    RandomStream random(kSeed);
    for (const KvFormat format :
         {KvFormat::window_fp8, KvFormat::main_fp4, KvFormat::index_fp4, KvFormat::bf16}) {
        for (const ScaleRange& range : kScaleRanges) {
            constexpr std::int64_t kDim = 96, kRows = 50;
            auto rows = any_rows(random, format, kDim, kRows, range.low, range.high);
            std::vector<ConstKvRow> list;
            for (std::int64_t j = 0; j < kRows; ++j)
                list.push_back(rows->row(j));
            expect_same(cases::format_name(format), [&](Backend& b) {
                cases::Matrix y(DType::bf16, kRows, kDim);
                b.load_kv(format, list, y.view());
                return y.numbers();
            });
        }
    }
}

TEST(X86OddValues, AttentionOverAnyStoredBytesAndWidth) {
    RandomStream random(kSeed + 1);
    struct Shape {
        KvFormat format;
        std::int64_t dim;
    };
    for (const Shape& s : {Shape{KvFormat::window_fp8, 64}, Shape{KvFormat::main_fp4, 32},
                           Shape{KvFormat::index_fp4, 96}, Shape{KvFormat::bf16, 2},
                           Shape{KvFormat::bf16, 30}, Shape{KvFormat::bf16, 66}}) {
        for (const ScaleRange& range : kScaleRanges) {
            constexpr std::int64_t kRows = 70, kHeads = 3;
            auto rows = any_rows(random, s.format, s.dim, kRows, range.low, range.high);
            for (std::size_t i = 1; s.format == KvFormat::bf16 && i < rows->memory.size(); i += 2)
                rows->memory[i] = static_cast<std::uint8_t>(rows->memory[i] & 0xbf);  // finite
            auto q = cases::random_matrix(random, DType::bf16, 1, kHeads * s.dim);
            const std::vector<float> sink = cases::random_floats(random, kHeads);
            std::vector<std::int32_t> selected;
            for (std::int32_t j = 0; j < kRows; ++j)
                selected.push_back(j);
            const AttentionList list{.window = {}, .compressed = rows->paged, .selected = selected};
            expect_same(fmt::format("{} of {}", cases::format_name(s.format), s.dim),
                        [&](Backend& b) {
                            cases::Matrix o(DType::bf16, 1, kHeads * s.dim);
                            b.sparse_attention({.q = q->view(),
                                                .heads = kHeads,
                                                .head_dim = s.dim,
                                                .sink = sink,
                                                .scale = 0.125f,
                                                .lists = {&list, 1},
                                                .o = o.view()});
                            return o.numbers();
                        });
        }
    }
}

TEST(X86OddValues, IndexScoresOfAnyStoredBytesAndQueries) {
    RandomStream random(kSeed + 2);
    for (const auto m : {cases::Magnitude::ordinary, cases::Magnitude::tiny, cases::Magnitude::wide,
                         cases::Magnitude::huge}) {
        for (const ScaleRange& range : kScaleRanges) {
            constexpr std::int64_t kDim = 96, kKeys = 75, kHeads = 4;
            auto keys = any_rows(random, KvFormat::index_fp4, kDim, kKeys, range.low, range.high);
            auto q = cases::random_matrix(random, DType::bf16, 1, kHeads * kDim, m);
            for (std::int64_t k = 0; k < 32; ++k)
                q->set(k, 0.0f);
            auto w = cases::random_matrix(random, DType::f32, 1, kHeads);
            expect_same(cases::magnitude_name(m), [&](Backend& b) {
                cases::Matrix query = *q;
                b.index_round_trip(query.view());
                std::vector<float> scores(kKeys);
                const IndexScoreArgs::Query one{.row = 0,
                                                .keys = keys->paged,
                                                .visible = kKeys,
                                                .blocks = {},
                                                .scores = scores};
                b.index_scores({.q = query.view(),
                                .w = w->view(),
                                .heads = kHeads,
                                .dim = kDim,
                                .queries = {&one, 1}});
                return scores;
            });
        }
    }
}

TEST(X86OddValues, SelectionOrdersEveryKindOfScore) {
    RandomStream random(kSeed + 3);
    constexpr float kInf = std::numeric_limits<float>::infinity();
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    constexpr float kTiny = std::numeric_limits<float>::denorm_min();
    const float odd[] = {kNan, -kNan, kInf, -kInf, 0.0f, -0.0f, kTiny, -kTiny, 1.0f, -1.0f};
    for (const std::int64_t n : {40, 9000, 20000}) {
        for (const int pattern : {0, 1, 2, 3, 4, 5, 6}) {
            std::vector<float> scores(static_cast<std::size_t>(n));
            for (std::int64_t i = 0; i < n; ++i) {
                const float normal = static_cast<float>(random.next_normal());
                const auto place = static_cast<float>(i);
                const float values[] = {odd[random.next_below(std::size(odd))],
                                        random.next_below(100) == 0 ? normal : kNan,
                                        place,            // rising
                                        -place,           // falling, all negative
                                        normal * 1e-42f,  // denormals
                                        random.next_below(200) == 0 ? normal : -0.0f,
                                        i % 8 == 0 ? 1e3f + normal : normal};  // fools a sample
                scores[static_cast<std::size_t>(i)] = values[pattern];
            }
            for (const std::int64_t k : {1, 30, 512}) {
                expect_same(fmt::format("pattern {}, {} of {}", pattern, k, n), [&](Backend& b) {
                    std::vector<std::int32_t> out(static_cast<std::size_t>(k));
                    std::vector<float> all;
                    const auto append = [&](std::int64_t count) {
                        all.insert(all.end(), out.begin(), out.begin() + count);
                    };
                    append(b.select_top(scores, k, out));
                    append(b.select_blocks(scores, 8, k, out));
                    const FlushDenormals flush;  // the order does not depend on MXCSR
                    append(b.select_top(scores, k, out));
                    return all;
                });
            }
        }
    }
}

TEST(X86OddValues, RowsThatLieApartAndNumbersThatAreNone) {
    RandomStream random(kSeed + 4);
    constexpr std::int64_t kStreams = 4, kDim = 64, kStride = 80, kTokens = 3;
    std::vector<Bf16> x(kTokens * kStreams * kStride);
    for (Bf16& v : x)
        v = bf16_from_float(cases::random_number(random, cases::Magnitude::wide));
    x[5] = bf16_from_float(std::numeric_limits<float>::infinity());
    x[kStride + 7] = bf16_from_float(std::numeric_limits<float>::quiet_NaN());
    const std::vector<float> fn = cases::random_floats(random, 24 * kStreams * kDim);
    const std::vector<float> base = cases::random_floats(random, 24);
    const std::vector<float> scale = cases::random_floats(random, 3);
    const auto view = [&](std::vector<Bf16>& v) {
        return Rows{v.data(), DType::bf16, kTokens * kStreams, kDim, kStride};
    };
    expect_same("strided rows", [&](Backend& b) {
        std::vector<float> pre(kTokens * kStreams), post(pre.size()), comb(4 * pre.size());
        b.mhc_mix(view(x),
                  {.fn = fn.data(),
                   .base = base.data(),
                   .scale = scale.data(),
                   .streams = kStreams,
                   .dim = kDim},
                  pre, post, comb);
        std::vector<float> all = pre;
        all.insert(all.end(), post.begin(), post.end());
        all.insert(all.end(), comb.begin(), comb.end());
        for (const int which : {0, 1}) {
            std::vector<Bf16> copy = x;
            which == 0 ? b.q8_round_trip(view(copy), view(copy)) : b.index_round_trip(view(copy));
            for (const Bf16 v : copy)
                all.push_back(bf16_to_float(v));
        }
        return all;
    });
}

}  // namespace
}  // namespace fathom
