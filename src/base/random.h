// Counter-based random numbers: a value is a pure function of (seed, purpose, index), so the draw
// for output token n does not depend on the attempt, the batch, the rank or what was drawn before
// (design.md rule 2). Philox4x32-10 after Salmon et al., "Parallel random numbers: as easy as 1, 2,
// 3".
#pragma once

#include <array>
#include <cstdint>

namespace fathom {

// What a draw is for; two purposes never share numbers. Values are part of the reproducibility
// contract: append only.
enum class RandomPurpose : std::uint32_t {
    sample_token = 0,    // a fresh draw of an output token
    draft_token = 1,     // a drafter's proposal
    accept_draft = 2,    // the acceptance test of a verified draft
    residual_token = 3,  // the draw after a rejected draft
    choice_seed = 4,     // the seeds of a request's further choices
    call_id = 5,         // names of the tool calls of an answer
    test_data = 100,     // tests, generated models, benchmarks
};

struct RandomKey {
    std::uint64_t seed = 0;
    RandomPurpose purpose = RandomPurpose::sample_token;
    std::uint64_t index = 0;  // e.g. absolute position of the token being drawn
    std::uint32_t block = 0;  // e.g. the speculative block that asks; 0 without speculation
};

// 128 random bits for the key.
std::array<std::uint32_t, 4> random_bits(const RandomKey& key);

// Uniform in [0, 1) with 53 bits, from the first two words of random_bits.
double random_uniform(const RandomKey& key);

// A sequential convenience over one (seed, purpose): draws index 0, 1, 2, … For tests and
// generators.
class RandomStream {
  public:
    explicit RandomStream(std::uint64_t seed, RandomPurpose purpose = RandomPurpose::test_data)
        : key_{.seed = seed, .purpose = purpose} {}
    std::uint64_t next_u64();
    std::uint64_t next_below(std::uint64_t bound);  // uniform in [0, bound), bound > 0
    double next_uniform();                          // [0, 1)
    double next_normal();                           // mean 0, standard deviation 1

  private:
    RandomKey key_;
};

}  // namespace fathom
