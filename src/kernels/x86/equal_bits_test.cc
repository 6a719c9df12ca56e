// Every operator of the x86 back ends against the scalar oracle, bit for bit, at every level that
// this machine runs.
#include <gtest/gtest.h>

#include "base/check.h"
#include "kernels/cases/all_cases.h"
#include "kernels/x86/create.h"

namespace fathom {
namespace {

constexpr std::uint64_t kSeed = 20261130;

std::vector<std::string> names() {
    std::vector<std::string> list;
    for (const x86::Level level : {x86::Level::avx2, x86::Level::avx512}) {
        if (x86::check_level(level).ok())
            list.push_back(std::string("x86-") + x86::level_name(level));
    }
    return list;
}

std::unique_ptr<Backend> open(const std::string& name, int threads) {
    auto b = make_backend(name, std::make_shared<ComputePool>(threads));
    FATHOM_CHECK(b.ok());
    return std::move(*b);
}

std::vector<float> outputs(const cases::OperatorCase& c, Backend& b) {
    const cases::Bound bound = c.bind(b, 0, c.rows);
    bound.run();
    return bound.outputs();
}

void expect_equal_bits(std::vector<cases::OperatorCase> (*make)(std::uint64_t), int sets) {
    auto oracle = open("reference", 2);
    for (const std::string& name : names()) {
        for (const int threads : {1, 2, 3}) {
            auto b = open(name, threads);
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
    expect_equal_bits(cases::all_cases, 2);
}

}  // namespace
}  // namespace fathom
