// What design.md rule 2 asks of a back end, for every operator: a row's bits depend on that row
// alone, and threads never show.
#include <gtest/gtest.h>

#include <string>

#include "kernels/cases/all_cases.h"

namespace fathom {
namespace {

using cases::Bound;
using cases::OperatorCase;

constexpr std::uint64_t kSeed = 20250710;

std::unique_ptr<Backend> backend(int threads) {
    auto b = make_reference_backend(std::make_shared<ComputePool>(threads));
    EXPECT_TRUE(b.ok()) << b.status().to_string();
    return std::move(*b);
}

std::vector<float> outputs(const OperatorCase& c, Backend& b, std::int64_t begin,
                           std::int64_t end) {
    const Bound bound = c.bind(b, begin, end);
    bound.run();
    return bound.outputs();
}

TEST(Invariance, AnySplitOfTheRowsGivesEqualBits) {
    auto b = backend(2);
    RandomStream random(kSeed);
    for (const OperatorCase& c : cases::all_cases(kSeed)) {
        const std::vector<float> whole = outputs(c, *b, 0, c.rows);
        for (int attempt = 0; attempt < 3; ++attempt) {  // single rows first, then random runs
            std::vector<float> parts;
            for (std::int64_t begin = 0; begin < c.rows;) {
                const std::int64_t left = c.rows - begin;
                const std::int64_t count =
                    attempt == 0 ? 1 : 1 + static_cast<std::int64_t>(random.next_below(left));
                cases::append(parts, outputs(c, *b, begin, begin + count));
                begin += count;
            }
            EXPECT_TRUE(cases::same_bits(whole, parts)) << c.what << ", seed " << kSeed;
        }
    }
}

TEST(Invariance, ThreadCountNeverShows) {
    auto one = backend(1);
    for (const int threads : {2, 3}) {
        auto many = backend(threads);
        for (const OperatorCase& c : cases::all_cases(kSeed + 1)) {
            EXPECT_TRUE(cases::same_bits(outputs(c, *one, 0, c.rows), outputs(c, *many, 0, c.rows)))
                << c.what << " with " << threads << " threads, seed " << kSeed + 1;
        }
    }
}

TEST(Invariance, RepeatedRunsGiveEqualBits) {
    auto b = backend(2);
    for (const OperatorCase& c : cases::all_cases(kSeed + 2)) {
        const Bound bound = c.bind(*b, 0, c.rows);
        bound.run();
        const std::vector<float> first = bound.outputs();
        bound.run();
        EXPECT_TRUE(cases::same_bits(first, bound.outputs())) << c.what;
    }
}

}  // namespace
}  // namespace fathom
