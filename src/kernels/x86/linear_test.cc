// Linears of both levels against the reference, bit for bit: every way through a panel (few, some
// and many rows, folded scales and not), numbers at the edges of their formats, any number of
// threads.
#include <gtest/gtest.h>

#include "kernels/cases/all_cases.h"
#include "kernels/x86/create.h"

namespace fathom {
namespace {

using cases::Magnitude;
using cases::Matrix;
using cases::MatrixPtr;
using cases::random_matrix;
using cases::random_weight;
using cases::same_bits;
using cases::Weight;

constexpr std::uint64_t kSeed = 20261129;
constexpr WeightFormat kFormats[] = {WeightFormat::fp4_row32, WeightFormat::fp8_block32,
                                     WeightFormat::bf16};
constexpr std::int64_t kRowCounts[] = {1,  2,  3,  4,  5,  6,  7,  8,  9, 15,
                                       16, 17, 18, 29, 30, 47, 48, 49, 97};

std::unique_ptr<Backend> backend(const std::string& name, int threads) {
    auto b = make_backend(name, std::make_shared<ComputePool>(threads));
    EXPECT_TRUE(b.ok()) << b.status().to_string();
    return std::move(*b);
}

std::vector<std::string> levels_here() {
    std::vector<std::string> names;
    for (const x86::Level level : {x86::Level::avx2, x86::Level::avx512}) {
        if (x86::check_level(level).ok()) names.push_back(std::string("x86-") + level_name(level));
    }
    return names;
}

std::vector<float> product(Backend& b, const PackedWeight& w, Matrix& x, std::int64_t rows,
                           std::int64_t groups = 1) {
    Matrix y(DType::f32, rows, w.out);
    b.grouped_linear(x.view(0, rows), w, groups, y.view());
    return y.numbers();
}

// The reference's product of all rows of x, and that of every level, thread and row count.
void expect_same(const Weight& w, const MatrixPtr& x, const std::string& what,
                 std::span<const std::int64_t> row_counts = kRowCounts) {
    const auto reference = backend("reference", 2);
    const auto source = reference->pack(w.source);
    const std::vector<float> want = product(*reference, *source, *x, x->rows());
    for (const std::string& name : levels_here()) {
        for (const int threads : {1, 2, 3}) {
            const auto b = backend(name, threads);
            const auto packed = b->pack(w.source);
            for (const std::int64_t rows : row_counts) {
                const std::vector<float> part(want.begin(), want.begin() + rows * w.source.out);
                ASSERT_TRUE(same_bits(product(*b, *packed, *x, rows), part))
                    << name << " " << what << " rows " << rows << " threads " << threads << " seed "
                    << kSeed;
            }
        }
    }
}

TEST(X86Linear, HasTheReferencesBitsAtEveryRowCount) {
    RandomStream random(kSeed);
    for (const WeightFormat format : kFormats) {
        const auto w = random_weight(random, format, 130, 352);
        const auto x = random_matrix(random, DType::bf16, 97, 352);
        expect_same(*w, x, cases::format_name(format));
        cases::quantise_rows(*x);
        expect_same(*w, x, std::string(cases::format_name(format)) + " quantised");
    }
}

TEST(X86Linear, HasTheReferencesBitsAtTheEdgesOfFormats) {
    RandomStream random(kSeed);
    constexpr std::int64_t kRows[] = {2, 5, 48, 97};
    for (const WeightFormat format : kFormats) {
        for (const Magnitude m : {Magnitude::wide, Magnitude::tiny, Magnitude::huge}) {
            // Scales around 1, and anywhere: then none may be folded.
            for (const int spread : {60, 127}) {
                const auto w = random_weight(random, format, 65, 96, spread);
                const auto x = random_matrix(random, DType::bf16, 97, 96, m);
                expect_same(*w, x,
                            fmt::format("{} {} spread {}", cases::format_name(format),
                                        cases::magnitude_name(m), spread),
                            kRows);
            }
        }
    }
}

TEST(X86Linear, HasTheReferencesBitsInOddShapes) {
    RandomStream random(kSeed);
    constexpr std::int64_t kRows[] = {1, 3, 7, 50};
    for (const WeightFormat format : kFormats) {
        for (const auto& [out, in] :
             {std::pair<std::int64_t, std::int64_t>{1, 2}, {33, 40}, {64, 62}, {129, 1090}}) {
            const auto w = random_weight(random, format, out, in);
            const auto x = random_matrix(random, DType::bf16, 50, in);
            expect_same(*w, x, fmt::format("{} [{}, {}]", cases::format_name(format), out, in),
                        kRows);
        }
    }
}

TEST(X86Linear, KeepsWhatIsNoNumber) {
    RandomStream random(kSeed);
    constexpr std::int64_t kRows[] = {1, 4, 8, 48};
    const auto x = random_matrix(random, DType::bf16, 48, 128);
    auto fp8 = random_weight(random, WeightFormat::fp8_block32, 70, 128);
    fp8->codes[5 * 128 + 77] = 0x7f;
    fp8->codes[69 * 128] = 0xff;
    expect_same(*fp8, x, "fp8 NaN codes", kRows);
    fp8->scales[2] = 255;
    expect_same(*fp8, x, "fp8 NaN scale", kRows);
    auto fp4 = random_weight(random, WeightFormat::fp4_row32, 70, 128);
    fp4->scales[9] = 255;
    fp4->scales[20] = 0;
    expect_same(*fp4, x, "fp4 NaN and least scale", kRows);
    x->set(3, std::numeric_limits<float>::infinity());
    x->set(128 + 4, std::numeric_limits<float>::quiet_NaN());
    expect_same(*fp4, x, "inputs that are not finite", kRows);
}

// Every code beside the largest and smallest inputs of a folded product.
TEST(X86Linear, FoldsScalesOnlyWhereNoBitChanges) {
    RandomStream random(kSeed);
    constexpr std::int64_t kRows[] = {17, 18, 48, 97};
    for (const WeightFormat format : {WeightFormat::fp4_row32, WeightFormat::fp8_block32}) {
        for (const int byte : {40, 41, 47, 48, 190, 191}) {
            const auto w = random_weight(random, format, 64, 256);
            for (auto& s : w->scales)
                s = static_cast<std::uint8_t>(byte);
            for (const int exponent : {-31, -32, 40, 41}) {
                auto x = std::make_shared<Matrix>(DType::bf16, 97, 256);
                for (std::int64_t i = 0; i < 97 * 256; ++i) {
                    const float sign = random.next_below(2) != 0 ? -1.0f : 1.0f;
                    x->set(i, std::ldexp(sign, exponent));
                }
                expect_same(*w, x,
                            fmt::format("{} byte {} inputs 2^{}", cases::format_name(format), byte,
                                        exponent),
                            kRows);
            }
        }
    }
}

TEST(X86Linear, SplitsManyRowsWithoutATrace) {
    RandomStream random(kSeed);
    constexpr std::int64_t kRows[] = {240, 241, 500};
    for (const WeightFormat format : kFormats) {
        const auto w = random_weight(random, format, 70, 64);
        expect_same(*w, random_matrix(random, DType::bf16, 500, 64), cases::format_name(format),
                    kRows);
    }
}

TEST(X86Linear, GroupsMayShareAPanel) {
    RandomStream random(kSeed);
    for (const auto& [groups, out] :
         {std::pair<std::int64_t, std::int64_t>{3, 19}, {5, 64}, {2, 96}}) {
        const auto w = random_weight(random, WeightFormat::bf16, groups * out, 40);
        const auto x = random_matrix(random, DType::bf16, 60, groups * 40);
        const auto reference = backend("reference", 1);
        const auto source = reference->pack(w->source);
        for (const std::string& name : levels_here()) {
            const auto b = backend(name, 3);
            const auto packed = b->pack(w->source);
            for (const std::int64_t rows : {1, 60}) {
                EXPECT_TRUE(same_bits(product(*b, *packed, *x, rows, groups),
                                      product(*reference, *source, *x, rows, groups)))
                    << name << " " << groups << " groups of " << out << " rows " << rows;
            }
        }
    }
}

struct MoeRow {
    std::int64_t experts, top_k, rows;
    bool shared;
};

// Few rows walk the experts, more go through memory; an expert may have none or more than a call
// takes.
TEST(X86Moe, HasTheReferencesBitsHoweverRowsFallOnExperts) {
    RandomStream random(kSeed);
    const auto reference = backend("reference", 2);
    for (const MoeRow& r :
         {MoeRow{6, 2, 1, true}, MoeRow{6, 6, 2, false}, MoeRow{40, 3, 16, true},
          MoeRow{6, 2, 17, true}, MoeRow{3, 1, 160, false}, MoeRow{2, 2, 300, true}}) {
        const auto c = cases::moe_case(
            random, {r.experts, r.top_k, 96, 64, r.rows, r.shared, NumericMode::real});
        const cases::Bound want = c.bind(*reference, 0, c.rows);
        want.run();
        for (const std::string& name : levels_here()) {
            for (const int threads : {1, 2, 3}) {
                const auto b = backend(name, threads);
                const cases::Bound got = c.bind(*b, 0, c.rows);
                for (int repeat = 0; repeat < 2; ++repeat)
                    got.run();
                EXPECT_TRUE(same_bits(got.outputs(), want.outputs()))
                    << name << " threads " << threads << ": " << c.what << " seed " << kSeed;
            }
        }
    }
}

}  // namespace
}  // namespace fathom
