// What prefill costs a fleet (serving.md 2.1.1 to 2.1.3). A step of an engine runs slices on each
// of its ranks in lock step; a slice is q new tokens after c tokens of one request:
//
//   slice = k1·q + k2·q·(c + (q+1)/2) + k3·c·first + k4·last + k5
//   step  = k0 + max over ranks of Σ slices · (1 + φ·(moe_lb − 1)) + t_sync
//
// cost_model.h counts one machine's work exactly; this is the smaller model that a dispatcher
// evaluates thousands of times a second, with one set of coefficients a length class. Costs here
// include the factor of φ and moe_lb, so a step's time is its largest rank's cost plus fixed_us().
// Inverted, it says how many tokens fit in a budget. No coefficient is negative.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "policy/cost_fit.h"
#include "policy/prefill_table.h"
#include "policy/state_bytes.h"

namespace fathom {

// Length classes by all tokens of a prompt, hits included: below 16 K, 64 K, 256 K, and the rest.
inline constexpr std::size_t kPrefillClasses = 4;
inline constexpr std::array<std::int64_t, kPrefillClasses - 1> kPrefillClassEdges = {
    16 << 10, 64 << 10, 256 << 10};
std::size_t prefill_class(std::int64_t total_tokens);

inline constexpr std::int64_t kContextTokensMax = 1 << 20;
inline constexpr std::int64_t kDecoderTailTokens = 140;  // rows that the decoder half keeps

// What of a prompt an engine has to run: tokens [context, context + tokens).
struct PrefillWork {
    std::int64_t context = 0;  // a multiple of 128
    std::int64_t tokens = 0;   // >= 1
};
// `hit_tokens` of a prompt lie in the pool; is_window_found: also the sliding-window state at that
// point, without which a window is replayed. Hits count in whole blocks and never cover the last
// token. A prompt without tokens counts as one token.
PrefillWork prefill_work(std::int64_t total_tokens, std::int64_t hit_tokens, bool is_window_found);

struct PrefillSlice {
    std::int64_t context = 0;
    std::int64_t tokens = 0;
    bool first = false, last = false;  // of its request
};

struct PrefillCost {
    double k0_us = 0;  // a step
    double k1_us = 0;  // a token
    double k2_us = 0;  // a pair of a token and a token before it
    double k3_us = 0;  // a token of context, once a request
    double k4_us = 0;  // the decoder tail and sampling, once a request
    double k5_us = 0;  // a slice
    double sync_us = 0;
    double moe_share = 0;    // φ
    double moe_balance = 1;  // moe_lb: slowest rank over mean
    double scale = 1;        // online correction of k1 and k2
    // Where no coefficients fit: the time of a slice in place of k1, k2 and k5, which are 0.
    // Equal ones may be shared, by copies and by length classes.
    std::shared_ptr<const PrefillTable> table;

    Status check() const;  // everything finite, nothing negative, moe_balance >= 1
    double factor() const { return 1 + moe_share * (moe_balance - 1); }
    double fixed_us() const { return k0_us + sync_us; }
    double work_us(std::int64_t tokens, std::int64_t context) const;
    double slice_us(const PrefillSlice& slice) const;
    // The rest of a request's prefill in as few slices as the limit of a step allows.
    double request_us(std::int64_t context, std::int64_t tokens, bool first) const;
    // With the same table, not one like it.
    friend bool operator==(const PrefillCost&, const PrefillCost&) = default;
};

// One a length class. The fixed part, moe_share and moe_balance are of a step: there those of class
// 0 are meant.
using PrefillCosts = std::array<PrefillCost, kPrefillClasses>;
bool is_same_for_all(const PrefillCosts& costs);

// The rest of a request that asks for a slice.
struct PrefillRest {
    std::int64_t context = 0;
    std::int64_t tokens = 0;
    bool first = true;
};
// Tokens of it that fit in budget_us on a rank, at most tokens_max. A slice that does not finish
// ends at a block's end and leaves no crumb: fewer than 256 remaining tokens come along for up to
// 10 % over the budget, or stay behind with a block more. With is_rank_empty it is never 0 (while
// tokens_max allows a block): a wrong model must not stop the work.
std::int64_t fit_slice(const PrefillCost& cost, double budget_us, const PrefillRest& rest,
                       std::int64_t tokens_max, bool is_rank_empty);

// One measured step of one rank; all its slices, and the median time of its repeats.
struct PrefillSample {
    std::vector<PrefillSlice> slices;
    double time_us = 0;
    double spread = 0;  // (90th − 10th percentile) / median
};
// Steady ones that a fit needs.
inline constexpr std::size_t kPrefillSamplesMin = 12;
struct PrefillFit {
    PrefillCost cost;
    CostGates gates;
};
// Least squares of relative errors with no negative coefficient. sync_us is part of k0_us, since
// one rank cannot tell them apart. Needs kPrefillSamplesMin samples with positive times.
Result<PrefillFit> fit_prefill_cost(std::span<const PrefillSample> samples);

enum class PrefillFitMethod { pooled, by_class, table };
std::string_view prefill_fit_method_name(PrefillFitMethod method);
struct PrefillCalibration {
    PrefillCosts costs;
    CostGates gates;         // of all steady samples, with these costs
    double worst_error = 0;  // of them, relative
    PrefillFitMethod method = PrefillFitMethod::pooled;
};
// One set of coefficients for all classes if it passes the gates, else one a class with the same k0
// (a class with fewer than 12 samples keeps the pooled one), else a table. The gates of the result
// may still not be passed; then the samples are at odds with each other.
Result<PrefillCalibration> calibrate_prefill(std::span<const PrefillSample> samples);

// Follows one engine, class by class (CostCorrection). What is not the model's fault is left out.
class PrefillCorrection {
  public:
    struct Excuse {
        bool swap_stall = false, expert_flip = false, first_shape = false, drain = false;
        bool any() const { return swap_stall || expert_flip || first_shape || drain; }
    };
    // predicted_us: with scale 1 and the present moe_balance.
    void observe(std::size_t length_class, double predicted_us, double observed_us,
                 const Excuse& excuse, std::int64_t now_us);
    double scale(std::size_t length_class) const { return classes_[length_class].scale(); }
    // A class has been off by more than e^0.2 for 5 minutes: calibrate again.
    bool drifted(std::int64_t now_us) const;
    void save(StateWriter& out) const;
    void load(StateReader& in);

  private:
    std::array<CostCorrection, kPrefillClasses> classes_;
    std::array<std::int64_t, kPrefillClasses> off_since_us_ = {-1, -1, -1, -1};
};

}  // namespace fathom
