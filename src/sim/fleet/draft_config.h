// How a simulated fleet comes to the drafts that a decode step verifies, and how good they are.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace fathom {

enum class Verification : std::uint8_t {
    table,   // rows and accepted tokens by load (SpeculationPoint): no draft is modelled
    all,     // every sequence has drafts; all are verified
    budget,  // every sequence has drafts; VerifyScheduler says how many are verified
};
std::string_view verification_name(Verification verification);

// Drafts are those of VerifyModel (policy/verify_model.h).
struct DraftConfig {
    Verification verification = Verification::table;
    std::int64_t count = 5;  // of a sequence and step
    double logit_mean = 1.42, logit_spread = 1.4, logit_noise = 1.4;
    double persistence = 0.95;  // of a sequence's ease, from a step to the next
    // How old, in steps, the survivals are that choose how many; 0: of the step itself.
    std::int64_t age_steps = 2;
    bool is_group_wide = false;  // one budget for the ranks of a group; else each its own
    std::int64_t patience = 8, probe_every = 64;  // VerifyRules
    double gain_min = 0.005;
    double path_us = 175;   // of a step in which a rank's lengths vary
    double draft_us = 500;  // that a step saves in which no rank drafts
    // From then on, and so long, no draft is accepted. 0 s long: never.
    double fail_at_s = 0, fail_s = 0;

    bool is_modelled() const { return verification != Verification::table; }
    friend bool operator==(const DraftConfig&, const DraftConfig&) = default;
};

// Sequences of all decode cards together whose drafts are modelled at most.
inline constexpr std::int64_t kDraftedSequencesMax = 16'384;

inline constexpr std::size_t kVerifyReasons = 6;  // VerifyReason

// Of steps that ended.
struct DraftFigures {
    std::array<std::int64_t, kVerifyReasons> rank_steps{};  // of ranks with sequences
    std::int64_t sequence_steps = 0, rows = 0, tokens = 0;  // tokens: with the model's own

    void add(const DraftFigures& other);
    std::int64_t all_rank_steps() const;
    double share(std::size_t reason) const;
    double rows_each() const;    // of a sequence and step
    double tokens_each() const;  // the same
    double rows_of_rank() const;
};

}  // namespace fathom
