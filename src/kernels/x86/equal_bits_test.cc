// Every operator of the x86 back ends against the scalar oracle, bit for bit, at every level that
// this machine runs.
#include <gtest/gtest.h>

#include "kernels/cases/all_cases.h"
#include "kernels/x86/test_levels.h"

namespace fathom {
namespace {

using x86::level_names;
using x86::open_backend;

constexpr std::uint64_t kSeed = 20261130;

std::vector<float> outputs(const cases::OperatorCase& c, Backend& b) {
    const cases::Bound bound = c.bind(b, 0, c.rows);
    bound.run();
    return bound.outputs();
}

void expect_equal_bits(std::vector<cases::OperatorCase> (*make)(std::uint64_t), int sets) {
    auto oracle = open_backend("reference", 2);
    for (const std::string& name : level_names()) {
        for (const int threads : {1, 2, 3}) {
            auto b = open_backend(name, threads);
            for (int set = 0; set < sets; ++set) {
                const std::uint64_t seed = kSeed + 10 * set + threads;
                for (const cases::OperatorCase& c : make(seed)) {
                    EXPECT_TRUE(cases::same_bits(outputs(c, *oracle), outputs(c, *b)))
                        << c.what << " by " << name << " with " << threads << " threads, seed "
                        << seed;
                }
            }
        }
    }
}

TEST(X86, GivesTheBitsOfTheReference) {
    expect_equal_bits(cases::all_cases, 1);
}

// Lists that end within, at and after a tile, heads and widths that fill no vector.
std::vector<cases::OperatorCase> attention_edges(std::uint64_t seed) {
    constexpr auto kFp8 = KvFormat::window_fp8, kFp4 = KvFormat::main_fp4, kBf16 = KvFormat::bf16;
    std::vector<cases::OperatorCase> list;
    RandomStream random(seed);
    for (const std::int64_t rows : {0, 1, 2, 63, 64, 65, 127, 128, 129}) {
        list.push_back(cases::attention_case(random, {kFp8, kFp4, 5, 32, 1, rows, 0}));
        list.push_back(cases::attention_case(random, {kFp8, kFp4, 17, 64, 1, 0, rows}));
        list.push_back(cases::attention_case(random, {kBf16, kBf16, 2, 32, 2, rows, 1}));
    }
    list.push_back(cases::attention_case(random, {kFp8, kFp4, 16, 512, 1, 128, 512}));
    list.push_back(cases::attention_case(random, {kFp8, kFp4, 64, 128, 3, 100, 40}));
    for (const std::int64_t heads : {1, 3, 7, 15, 16, 18, 20, 31, 33, 48, 63, 65, 80})
        list.push_back(cases::attention_case(random, {kFp8, kFp4, heads, 96, 2, 40, 40}));
    for (const std::int64_t dim : {96, 160, 288, 544})
        list.push_back(cases::attention_case(random, {kBf16, kBf16, 9, dim, 2, 30, 40}));
    for (const auto m : {cases::Magnitude::wide, cases::Magnitude::tiny, cases::Magnitude::huge}) {
        list.push_back(cases::attention_case(random, {kFp8, kFp4, 19, 64, 2, 70, 70, m}));
        list.push_back(cases::attention_case(random, {kBf16, kBf16, 19, 64, 2, 70, 70, m}));
    }
    return list;
}

TEST(X86, AttentionOfAnyShapeGivesTheBitsOfTheReference) {
    expect_equal_bits(attention_edges, 1);
}

std::vector<cases::OperatorCase> index_edges(std::uint64_t seed) {
    std::vector<cases::OperatorCase> list;
    RandomStream random(seed);
    for (const std::int64_t keys : {1, 7, 8, 31, 32, 33, 1100})
        list.push_back(cases::index_case(random, {KvFormat::index_fp4, 3, 64, keys, 1, 0}));
    for (const std::int64_t heads : {1, 2, 31, 64})
        list.push_back(cases::index_case(random, {KvFormat::index_fp4, heads, 128, 70, 2, 8}));
    for (const std::int64_t dim : {32, 96, 160, 288, 544})
        list.push_back(cases::index_case(random, {KvFormat::index_fp4, 5, dim, 70, 2, 3}));
    return list;
}

TEST(X86, IndexScoresOfAnyShapeGiveTheBitsOfTheReference) {
    expect_equal_bits(index_edges, 1);
}

std::vector<cases::OperatorCase> selection_edges(std::uint64_t seed) {
    std::vector<cases::OperatorCase> list;
    RandomStream random(seed);
    for (const std::int64_t n : {2, 15, 16, 17, 8191, 8192, 8193, 50001}) {
        for (const std::int64_t k : {1, 2, 512, 8190}) {
            list.push_back(cases::selection_case(random, {n, k, 1, 0, 0}));
            list.push_back(cases::selection_case(random, {n, k, 1, 0, 3}));
        }
    }
    for (const std::int64_t n : {127, 128, 129, 1000, 80003}) {
        for (const std::int64_t block : {1, 3, 8, 16}) {
            list.push_back(cases::selection_case(random, {n, 100, 1, block, 0}));
            list.push_back(cases::selection_case(random, {n, 100, 1, block, 2}));
        }
    }
    return list;
}

TEST(X86, SelectionOfAnySizeIsThatOfTheReference) {
    expect_equal_bits(selection_edges, 1);
}

// Row counts and widths around those at which the kernels change their way.
std::vector<cases::OperatorCase> row_edges(std::uint64_t seed) {
    std::vector<cases::OperatorCase> list;
    RandomStream random(seed);
    for (const auto m : {cases::Magnitude::ordinary, cases::Magnitude::wide, cases::Magnitude::tiny,
                         cases::Magnitude::huge}) {
        for (const std::int64_t rows : {1, 2, 3, 4, 5, 9, 17, 33, 70})
            cases::add_mhc_case(list, random, {rows, 4, 48, DType::bf16, m});
        for (const std::int64_t streams : {1, 2, 3, 5, 8, 9})
            cases::add_mhc_case(list, random, {3, streams, 37, DType::bf16, m});
        for (const std::int64_t cols : {32, 64, 544, 1056})
            cases::add_norm_and_trip_case(list, random, {2, cols, DType::bf16, m});
        for (const std::int64_t cols : {1, 15, 17, 511, 513})
            cases::add_norm_and_trip_case(list, random, {2, cols, DType::bf16, m});
        for (const std::int64_t dim : {32, 64, 96, 288, 544}) {
            for (const KvKind kind : {KvKind::window, KvKind::main, KvKind::index}) {
                constexpr KvFormat kOf[] = {KvFormat::window_fp8, KvFormat::main_fp4,
                                            KvFormat::index_fp4};
                const KvFormat format = kOf[static_cast<int>(kind)];
                cases::add_store_case(list, random, {kind, format, 3, dim, m});
                cases::add_store_case(list, random, {kind, KvFormat::bf16, 2, dim, m});
            }
        }
    }
    for (const std::int64_t rope_dim : {2, 6, 32, 34, 64})
        cases::add_rope_case(list, random, {3, 2, 70, rope_dim, DType::bf16, rope_dim % 4 == 0});
    return list;
}

TEST(X86, RowOperatorsOfAnyShapeGiveTheBitsOfTheReference) {
    expect_equal_bits(row_edges, 1);
}

}  // namespace
}  // namespace fathom
