// What a verification budget gains on modelled requests (dspark.md 7): each request has a hidden
// ease that drifts, each draft a confidence that is true, and a step a time by its rows.
//
//   ease z[r]          AR(1) over steps, unit variance
//   logit c[r][k]      mean + spread · z[r] + noise · N(0, 1), anew for every draft and step
//   draft accepted     with probability c, if all before it were
//   T(rows) ÷ T0       1 + three slopes with two knees; scheduling adds a fixed part
//
// The budget comes from the block before the last, the lengths from the newest. All is compared, on
// the same requests and the same chances, with always verifying all drafts on the plain path. With
// the numbers below this is the deployed engine's published table by requests on a rank: −1.5,
// +1.6, +5.4, +11.0 %. Seven numbers fit eight: it checks consistency, it does not foretell another
// machine.
//
// Everything is a pure function of its arguments; `seed` names the random numbers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/random.h"
#include "policy/verify_budget.h"

namespace fathom {

struct VerifyModel {
    std::int64_t drafts = 5;
    double logit_mean = 1.42, logit_spread = 1.4, logit_noise = 1.4;
    double persistence = 0.95;  // of the ease, from a step to the next
    double base_ms = 20;        // T0
    double path_share = 0.0175;
    // Per row, in parts of T0: up to 100 rows, up to 405, beyond.
    double slope_low = 0.0006, slope_middle = 0.0015, slope_high = 0.0016;

    // slope_scale: of another machine, or of a table that is wrong.
    double step_ms(std::int64_t rows, double slope_scale = 1) const;
    double path_ms() const { return path_share * base_ms; }
    // The table of every `stride`-th size, as captured.
    VerifyCost cost(std::int64_t rows_max, std::int64_t stride = 1, double slope_scale = 1) const;
};

// The requests of one rank, block after block.
class VerifyRequests {
  public:
    VerifyRequests(const VerifyModel& model, std::int64_t count, std::uint64_t seed);
    struct Block {
        std::vector<float> logits;           // requests × drafts
        std::vector<float> survivals;        // true ones
        std::vector<std::int64_t> accepted;  // of each request, were all its drafts verified
    };
    void next(Block& block);
    void set_logit_mean(double mean) { model_.logit_mean = mean; }  // of blocks from the next on
    VerifyBatch view(const std::vector<float>& survivals) const;

  private:
    VerifyModel model_;
    RandomStream random_;
    std::vector<double> ease_;
};

// Which drafts are verified. The budget is the same in the first four.
enum class VerifyAllocation : std::uint8_t {
    newest,    // largest survivals of the block itself
    stale,     // of two blocks before
    even,      // each request as many
    shuffled,  // of other requests
    sure,      // as if all confidences were 1
    fallback,  // newest, or the plain path where the scheduler prefers it
    shorter,   // no budget: one draft less for everyone, on the plain path
};

struct VerifyTrial {
    VerifyAllocation allocation = VerifyAllocation::newest;
    bool has_path = true;       // false: variable lengths cost nothing by themselves
    std::int64_t stride = 1;    // rows are rounded up to multiples, in the table and in the machine
    double logit_scale = 1;     // of what the scheduler sees; 2: over-confident
    double logit_error = 0;     // standard deviation of what it sees
    double table_slope = 1;     // of its table
    std::int64_t steps = 1000;  // > 0
};

struct VerifyGain {
    std::int64_t requests = 0;
    double gain = 0;                      // tokens a second over the plain path, 0.01: 1 %
    double gain_sd = 0;                   // over seeds
    double verified = 0;                  // drafts of a request and step
    double length = 0, length_plain = 0;  // tokens of a request and step
    double accepted = 0;                  // part of the verified drafts
    double step_ms = 0, step_plain_ms = 0;
};

VerifyGain verify_gain(const VerifyModel& model, const VerifyTrial& trial, std::int64_t requests,
                       std::uint64_t seed);
// Mean and standard deviation over seeds; at least one.
VerifyGain verify_gain(const VerifyModel& model, const VerifyTrial& trial, std::int64_t requests,
                       std::span<const std::uint64_t> seeds);

// What was published, and ours with the specification's numbers of steps and three seeds.
struct VerifyTableRow {
    std::int64_t requests = 0;
    double published = 0;  // gain
    VerifyGain ours;
};
std::vector<VerifyTableRow> verify_table(const VerifyModel& model, const VerifyTrial& trial = {});

}  // namespace fathom
