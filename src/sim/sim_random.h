// Random numbers of a simulation. A stream belongs to one entity (an engine, a session) and one
// purpose (the noise of its steps), and is a pure function of (seed, entity, purpose): another
// entity more, or another draw of somebody else, does not shift it (serving.md 4.1).
//
// Streams are small values that are copied freely. Counter-based below (base/random.h).
#pragma once

#include <cstdint>

namespace fathom {

// Append only: values are part of what makes a run repeatable.
enum class SimPurpose : std::uint32_t {
    arrival = 0,
    service = 1,
    session = 2,
    step_noise = 3,
    acceptance = 4,
    failure = 5,
    client = 6,
    popularity = 7,   // of experts
    topic = 8,        // shares of topics
    expert_step = 9,  // tokens of a recorded step
    draft = 10,       // of a sequence: how good its drafts are
};

class SimRandom {
  public:
    SimRandom() = default;
    SimRandom(std::uint64_t seed, std::uint64_t entity, SimPurpose purpose);

    std::uint64_t next_u64();
    double uniform();                                // [0, 1)
    std::int64_t below(std::int64_t bound);          // [0, bound), bound >= 1
    double normal();                                 // mean 0, deviation 1
    double exponential(double mean);                 // > 0
    double log_normal(double median, double sigma);  // sigma of the logarithm

  private:
    std::uint64_t key_ = 0, counter_ = 0;
};

}  // namespace fathom
