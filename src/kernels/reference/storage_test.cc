// Stored rows: packed formats against rounded numbers, masked writes, and everything that reads
// them.
#include <gtest/gtest.h>

#include "kernels/cases/all_cases.h"

namespace fathom {
namespace {

using cases::Magnitude;
using cases::Matrix;
using cases::random_floats;
using cases::random_matrix;
using cases::same_bits;
using cases::StoredRows;

constexpr std::uint64_t kSeed = 5;

std::unique_ptr<Backend> backend() {
    auto b = make_reference_backend(std::make_shared<ComputePool>(2));
    EXPECT_TRUE(b.ok()) << b.status().to_string();
    return std::move(*b);
}

std::vector<float> load(Backend& b, const StoredRows& rows, std::int64_t dim, DType dtype) {
    std::vector<ConstKvRow> list;
    for (std::int64_t j = 0; j < rows.count; ++j)
        list.push_back(rows.row(j));
    Matrix y(dtype, rows.count, dim);
    b.load_kv(rows.paged.format, list, y.view());
    return y.numbers();
}

struct PackedKind {
    KvKind kind;
    KvFormat format;
};
constexpr PackedKind kPacked[] = {{KvKind::window, KvFormat::window_fp8},
                                  {KvKind::main, KvFormat::main_fp4},
                                  {KvKind::index, KvFormat::index_fp4}};

TEST(Storage, SizesAreThoseOfTheRelease) {
    EXPECT_EQ(kv_value_bytes(KvFormat::window_fp8, 512) + kv_scale_bytes(KvFormat::window_fp8, 512),
              528);
    EXPECT_EQ(kv_value_bytes(KvFormat::main_fp4, 512) + kv_scale_bytes(KvFormat::main_fp4, 512),
              288);
    EXPECT_EQ(kv_value_bytes(KvFormat::index_fp4, 128) + kv_scale_bytes(KvFormat::index_fp4, 128),
              68);
    EXPECT_EQ(kv_value_bytes(KvFormat::bf16, 512), 1024);
    EXPECT_EQ(kv_value_bytes(KvFormat::f32, 512), 2048);
    EXPECT_EQ(kv_scale_bytes(KvFormat::bf16, 512) + kv_scale_bytes(KvFormat::f32, 512), 0);
}

// Invariant 5 of model.md section 9, for the numbers themselves.
TEST(Storage, PackedRowsHoldTheNumbersOfBf16Rows) {
    auto b = backend();
    RandomStream random(kSeed);
    for (const auto& [kind, format] : kPacked) {
        for (const Magnitude m :
             {Magnitude::ordinary, Magnitude::wide, Magnitude::tiny, Magnitude::huge}) {
            auto x = random_matrix(random, DType::bf16, 70, 128, m);
            StoredRows packed(format, 128, 70), plain(KvFormat::bf16, 128, 70);
            packed.fill(*b, kind, *x);
            plain.fill(*b, kind, *x);
            const auto numbers = load(*b, packed, 128, DType::bf16);
            EXPECT_TRUE(same_bits(numbers, load(*b, plain, 128, DType::bf16)));
            EXPECT_TRUE(same_bits(numbers, load(*b, packed, 128, DType::f32))) << "exact in bf16";

            // A row that went through the round trip is stored as it is.
            Matrix again(DType::bf16, 70, 128);
            for (std::size_t i = 0; i < numbers.size(); ++i) {
                again.set(static_cast<std::int64_t>(i), numbers[i]);
            }
            packed.fill(*b, kind, again);
            EXPECT_TRUE(same_bits(numbers, load(*b, packed, 128, DType::bf16)));
        }
    }
}

// Invariant 5 for what is computed from them.
TEST(Storage, AttentionAndScoresOfPackedRowsEqualThoseOfBf16Rows) {
    auto b = backend();
    RandomStream random(kSeed);
    constexpr std::int64_t kHeads = 6, kDim = 64, kRows = 150;
    auto window = random_matrix(random, DType::bf16, kRows, kDim);
    auto main = random_matrix(random, DType::bf16, kRows, kDim);
    auto q = random_matrix(random, DType::bf16, 1, kHeads * kDim);
    auto w = random_matrix(random, DType::f32, 1, kHeads);
    const auto sink = random_floats(random, kHeads);
    const std::vector<std::int32_t> selected = {0, 3, 3, 64, 149};
    std::vector<float> outputs[2], scores[2];
    for (const bool packed : {false, true}) {
        StoredRows window_rows(packed ? KvFormat::window_fp8 : KvFormat::bf16, kDim, kRows);
        StoredRows main_rows(packed ? KvFormat::main_fp4 : KvFormat::bf16, kDim, kRows);
        StoredRows index_rows(packed ? KvFormat::index_fp4 : KvFormat::bf16, kDim, kRows);
        window_rows.fill(*b, KvKind::window, *window);
        main_rows.fill(*b, KvKind::main, *main);
        index_rows.fill(*b, KvKind::index, *main);
        std::vector<ConstKvRow> list;
        for (std::int64_t j = 20; j < 100; ++j)
            list.push_back(window_rows.row(j));
        const AttentionList lists[] = {{.window = list,
                                        .window_format = window_rows.paged.format,
                                        .compressed = main_rows.paged,
                                        .selected = selected}};
        Matrix o(DType::bf16, 1, kHeads * kDim);
        b->sparse_attention({.q = q->view(),
                             .heads = kHeads,
                             .head_dim = kDim,
                             .sink = sink,
                             .scale = 0.125f,
                             .lists = lists,
                             .o = o.view()});
        outputs[packed] = o.numbers();

        Matrix iq = *q;
        b->index_round_trip(iq.view());
        scores[packed].resize(kRows);
        const IndexScoreArgs::Query queries[] = {{.row = 0,
                                                  .keys = index_rows.paged,
                                                  .visible = kRows,
                                                  .blocks = {},
                                                  .scores = scores[packed]}};
        b->index_scores(
            {.q = iq.view(), .w = w->view(), .heads = kHeads, .dim = kDim, .queries = queries});
    }
    EXPECT_TRUE(same_bits(outputs[0], outputs[1]));
    EXPECT_TRUE(same_bits(scores[0], scores[1]));
}

TEST(Storage, MaskedRowsAreNotWritten) {
    auto b = backend();
    RandomStream random(kSeed);
    for (const auto& [kind, format] : kPacked) {
        auto x = random_matrix(random, DType::bf16, 3, 64);
        StoredRows rows(format, 64, 3);
        std::fill(rows.memory.begin(), rows.memory.end(), 0xa5);
        const KvRow targets[] = {rows.paged.row(0), {}, rows.paged.row(2)};
        b->store_kv(x->view(), kind, format, targets);
        const KvRow skipped = rows.paged.row(1);
        for (std::int64_t i = 0; i < kv_value_bytes(format, 64); ++i) {
            ASSERT_EQ(skipped.values[i], 0xa5);
        }
        for (std::int64_t i = 0; i < kv_scale_bytes(format, 64); ++i) {
            ASSERT_EQ(skipped.scales[i], 0xa5);
        }
    }
}

TEST(Storage, Fp32RowsAreNeverRounded) {
    auto b = backend();
    RandomStream random(kSeed);
    auto x = random_matrix(random, DType::f32, 5, 40, Magnitude::wide);
    StoredRows rows(KvFormat::f32, 40, 5);
    rows.fill(*b, KvKind::main, *x);
    EXPECT_TRUE(same_bits(load(*b, rows, 40, DType::f32), x->numbers()));
}

TEST(Rope, OnlyTheLastSliceOfEachHeadMovesAndBackAgain) {
    auto b = backend();
    RandomStream random(kSeed);
    constexpr std::int64_t kHeads = 3, kDim = 48, kRope = 16, kRows = 5;
    auto x = random_matrix(random, DType::f32, kRows, kHeads * kDim);
    const std::vector<float> before = x->numbers();
    const auto table = make_rope_table(10000, kRope, {});
    const std::vector<std::int64_t> positions = {0, 1, 127, 65536, 1048575};
    b->rope(x->view(), kHeads, kDim, positions, table, false);
    const std::vector<float> rotated = x->numbers();
    b->rope(x->view(), kHeads, kDim, positions, table, true);
    for (std::size_t i = 0; i < before.size(); ++i) {
        const bool fixed = static_cast<std::int64_t>(i) % kDim < kDim - kRope;
        if (fixed || i < kHeads * kDim) {  // position 0 rotates by nothing
            EXPECT_EQ(rotated[i], before[i]);
        }
        EXPECT_NEAR(x->numbers()[i], before[i], 1e-6);
    }
}

}  // namespace
}  // namespace fathom
