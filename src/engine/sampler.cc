#include "engine/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "base/check.h"
#include "base/random.h"
#include "kernels/logits.h"
#include "kernels/math.h"

namespace fathom {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kTemperatureMin = 1e-5f;

std::size_t index_of(TokenId id) {
    return static_cast<std::size_t>(id);
}

// A token as a number: ascending keys are descending logits, the lower id first among equals.
std::uint64_t key_of(float logit, std::size_t id) {
    const auto bits = std::bit_cast<std::uint32_t>(logit + 0.0f);  // −0 becomes 0
    const std::uint32_t ascending = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
    return std::uint64_t{~ascending} << 32 | static_cast<std::uint32_t>(id);
}
TokenId token_of(std::uint64_t key) {
    return static_cast<TokenId>(key & 0xffffffffu);
}

// One set of logits with what is known about it.
struct Logits {
    std::span<const float> values;
    std::span<const float> block_peaks;
    LogitsPeak peak;

    float of(TokenId id) const { return values[index_of(id)]; }
    bool finite_peak() const { return peak.value > -kInfinity && peak.value < kInfinity; }
};

Logits look_at(std::span<const float> values, SamplerWorkspace& workspace) {
    workspace.block_peaks.resize(
        static_cast<std::size_t>(logits_blocks(static_cast<std::int64_t>(values.size()))));
    const LogitsPeak peak = logits_peak(values, workspace.block_peaks);
    return {.values = values, .block_peaks = workspace.block_peaks, .peak = peak};
}

double masses_of(const Logits& logits, float inverse_temperature, SamplerWorkspace& workspace) {
    workspace.masses.resize(logits.values.size());
    workspace.block_masses.resize(logits.block_peaks.size());
    return logits_masses(logits.values, logits.peak.value, inverse_temperature, workspace.masses,
                         workspace.block_masses);
}

// Calls visit(id) for the tokens of at least this logit, ids ascending, until it answers false.
template <typename Visit>
void visit_from(const Logits& logits, float threshold, Visit visit) {
    constexpr auto kBlock = static_cast<std::size_t>(kLogitsBlock);
    for (std::size_t block = 0; block < logits.block_peaks.size(); ++block) {
        if (logits.block_peaks[block] < threshold) continue;
        const std::size_t end = std::min(logits.values.size(), (block + 1) * kBlock);
        for (std::size_t id = block * kBlock; id < end; ++id)
            if (logits.values[id] >= threshold && !visit(id)) return;
    }
}

// Keys of the tokens with low <= logit < high.
void collect_between(const Logits& logits, float low, float high,
                     std::vector<std::uint64_t>& keys) {
    keys.clear();
    visit_from(logits, low, [&](std::size_t id) {
        if (logits.values[id] < high) keys.push_back(key_of(logits.values[id], id));
        return true;
    });
}

// Leaves the keys of the first `count` tokens of the order in workspace.keys, the last one at the
// end and the others before it in no order. As many blocks as have a peak of some value hold as
// many tokens of at least that.
void collect_first(const Logits& logits, std::size_t count, SamplerWorkspace& workspace) {
    float threshold = -kInfinity;
    if (count <= logits.block_peaks.size()) {
        std::vector<float>& peaks = workspace.sorted_peaks;
        peaks.assign(logits.block_peaks.begin(), logits.block_peaks.end());
        const auto nth = peaks.begin() + static_cast<std::ptrdiff_t>(count) - 1;
        std::nth_element(peaks.begin(), nth, peaks.end(), std::greater<>());
        threshold = *nth;
    }
    std::vector<std::uint64_t>& keys = workspace.keys;
    keys.clear();
    visit_from(logits, threshold, [&](std::size_t id) {
        keys.push_back(key_of(logits.values[id], id));
        return true;
    });
    count = std::min(count, keys.size());
    if (count == 0) return;
    const auto last = keys.begin() + static_cast<std::ptrdiff_t>(count) - 1;
    std::nth_element(keys.begin(), last, keys.end());
    keys.resize(count);
}

// What is left of a distribution: tokens up to a place in the order, and of at least some mass.
struct Kept {
    float threshold = -kInfinity;
    TokenId last_at_threshold = std::numeric_limits<TokenId>::max();
    double mass_min = 0;
    double mass = 0;  // of all that is kept
    bool everything = true;

    bool holds(const Logits& logits, std::size_t id, float mass_of_id) const {
        if (everything) return true;
        const float logit = logits.values[id];
        const bool in_place = logit > threshold ||
                              (logit == threshold && static_cast<TokenId>(id) <= last_at_threshold);
        return in_place && static_cast<double>(mass_of_id) >= mass_min;
    }
};

// How many of `keys` are kept when a token is kept while the mass before it is <= limit, `before`
// the mass of the tokens in front of all of them; they are then the first ones of `keys`, the last
// of them last. A binary search that sorts only as far as it must: it looks at ever shorter pieces.
std::size_t keep_by_mass(std::vector<std::uint64_t>& keys, std::span<const float> masses,
                         double before, double limit) {
    constexpr std::size_t kSortAtMost = 64;
    const auto at = [&](std::size_t i) { return keys.begin() + static_cast<std::ptrdiff_t>(i); };
    const auto mass_at = [&](std::size_t i) {
        return static_cast<double>(masses[index_of(token_of(keys[i]))]);
    };
    std::size_t kept = 0, end = keys.size();  // [kept, end) is undecided
    while (end - kept > kSortAtMost) {
        const std::size_t middle = kept + (end - kept) / 2;
        std::nth_element(at(kept), at(middle), at(end));
        double left = before;
        for (std::size_t i = kept; i < middle; ++i)
            left += mass_at(i);
        if (left > limit) {
            end = middle;
        } else {
            before = left + mass_at(middle);
            kept = middle + 1;
        }
    }
    std::sort(at(kept), at(end));
    for (; kept < end && before <= limit; ++kept)
        before += mass_at(kept);
    return kept;
}

// Narrows down where the mass from the top passes `limit`: collects the keys among which that is,
// and returns the mass of all tokens above them. Peaked distributions end near the top; in flat
// ones bisection leaves few keys.
double collect_around_mass(const Logits& logits, float inverse_temperature, double limit,
                           SamplerWorkspace& workspace) {
    constexpr int kBisections = 7;
    float low = -kInfinity, high = kInfinity;
    double above = 0;  // mass of the logits >= high
    const auto passes_limit_at = [&](float threshold) {
        const double mass =
            logits_mass_from(logits.values, workspace.masses, logits.block_peaks, threshold);
        if (mass > limit) {
            low = threshold;
            return true;
        }
        high = threshold;
        above = mass;
        return false;
    };
    for (const float distance : {4.0f, 8.0f, 16.0f, 32.0f})
        if (passes_limit_at(logits.peak.value - distance / inverse_temperature)) break;
    for (int i = 0; i < kBisections && low > -kInfinity; ++i)
        passes_limit_at(low + (std::min(high, logits.peak.value) - low) / 2);
    collect_between(logits, low, high, workspace.keys);
    return above;
}

Kept keep(const Logits& logits, const SamplingParams& params, float inverse_temperature,
          double total, SamplerWorkspace& workspace) {
    const std::size_t size = logits.values.size();
    const bool by_rank = params.top_k > 0 && static_cast<std::uint64_t>(params.top_k) < size;
    const bool by_mass = params.top_p < 1.0;
    Kept kept{.mass = total};
    if (!by_rank && !by_mass && params.min_p <= 0) return kept;
    kept.everything = false;
    kept.mass_min = params.min_p;
    std::vector<std::uint64_t>& keys = workspace.keys;
    const std::span<const float> masses = workspace.masses;
    const double limit = params.top_p * total;
    double above = 0;  // mass of what is kept and not among the keys
    if (by_rank)
        collect_first(logits, static_cast<std::size_t>(params.top_k), workspace);
    else if (by_mass)
        above = collect_around_mass(logits, inverse_temperature, limit, workspace);
    if (by_mass) keys.resize(keep_by_mass(keys, masses, above, limit));
    if (by_rank || by_mass) {
        kept.last_at_threshold = token_of(keys.back());
        kept.threshold = logits.of(kept.last_at_threshold);
    }
    kept.mass = 0;
    visit_from(logits, kept.threshold, [&](std::size_t id) {
        if (kept.holds(logits, id, masses[id])) kept.mass += static_cast<double>(masses[id]);
        return true;
    });
    return kept;
}

TokenId draw(const Logits& logits, const Kept& kept, double u, const SamplerWorkspace& workspace) {
    constexpr auto kBlock = static_cast<std::size_t>(kLogitsBlock);
    const double target = u * kept.mass;
    double mass = 0;
    for (std::size_t block = 0; block < logits.block_peaks.size(); ++block) {
        if (logits.block_peaks[block] < kept.threshold) continue;
        const double block_mass = workspace.block_masses[block];
        if (kept.everything && mass + block_mass <= target) {
            mass += block_mass;
            continue;
        }
        const std::size_t end = std::min(logits.values.size(), (block + 1) * kBlock);
        for (std::size_t id = block * kBlock; id < end; ++id) {
            const float own = workspace.masses[id];
            if (own <= 0 || !kept.holds(logits, id, own)) continue;
            mass += static_cast<double>(own);
            if (mass > target) return static_cast<TokenId>(id);
        }
    }
    return static_cast<TokenId>(logits.peak.id);
}

float floored(float logprob) {
    return logprob > kLogprobFloor ? logprob : kLogprobFloor;  // NaN too
}

float log_of_mass(double mass) {
    return math_log1p(static_cast<float>(mass - 1.0));  // the largest mass is 1
}

// Log probabilities of the token and of the first `top` ones; `of` gives them by id.
template <typename Of>
TokenLogprobs describe(const Logits& logits, TokenId token, std::int64_t top,
                       SamplerWorkspace& workspace, Of of) {
    TokenLogprobs logprobs;
    logprobs.logprob = of(token);
    if (top == 0) return logprobs;
    collect_first(logits, static_cast<std::size_t>(top), workspace);
    std::sort(workspace.keys.begin(), workspace.keys.end());
    for (const std::uint64_t key : workspace.keys)
        logprobs.top.push_back({.id = token_of(key), .logprob = of(token_of(key))});
    return logprobs;
}

TokenLogprobs describe_raw(const Logits& logits, TokenId token, std::int64_t top,
                           SamplerWorkspace& workspace) {
    const float log_total =
        logits.finite_peak() ? log_of_mass(masses_of(logits, 1.0f, workspace)) : 0.0f;
    return describe(logits, token, top, workspace, [&](TokenId id) {
        return floored((logits.of(id) - logits.peak.value) - log_total);
    });
}

bool edits(const SamplingParams& params, const TokenHistory& history) {
    return !params.logit_bias.empty() || !params.allowed_tokens.empty() ||
           !history.seen().empty() || history.output_tokens() < params.min_tokens;
}

float normal_or_zero(float x) {
    return std::fabs(x) < std::numeric_limits<float>::min() ? 0.0f : x;
}

float penalised(float x, const TokenHistory::Seen& seen, const SamplingParams& params) {
    const auto repetition = static_cast<float>(params.repetition_penalty);
    if (params.repetition_penalty != 1.0)
        x = normal_or_zero(x > 0 ? x / repetition : x * repetition);
    if (seen.outputs == 0) return x;
    if (params.frequency_penalty != 0.0)
        x = normal_or_zero(x - static_cast<float>(params.frequency_penalty) *
                                   static_cast<float>(seen.outputs));
    if (params.presence_penalty != 0.0)
        x = normal_or_zero(x - static_cast<float>(params.presence_penalty));
    return x;
}

std::span<const float> edit(const SampleInput& input, std::vector<float>& edited) {
    const SamplingParams& params = input.params;
    const std::span<const float> logits = input.logits;
    edited.assign(logits.begin(), logits.end());
    for (const LogitBias& entry : params.logit_bias)
        edited[index_of(entry.id)] = normal_or_zero(edited[index_of(entry.id)] + entry.bias);
    for (const TokenHistory::Seen& seen : input.history.seen())
        edited[index_of(seen.id)] = penalised(edited[index_of(seen.id)], seen, params);
    if (!params.allowed_tokens.empty()) {
        std::vector<float> kept;
        for (const TokenId id : params.allowed_tokens)
            kept.push_back(edited[index_of(id)]);
        std::fill(edited.begin(), edited.end(), -kInfinity);
        for (std::size_t i = 0; i < kept.size(); ++i)
            edited[index_of(params.allowed_tokens[i])] = kept[i];
    }
    if (input.history.output_tokens() < params.min_tokens) {
        for (const TokenId id : input.stop_tokens)
            edited[index_of(id)] = -kInfinity;
    }
    return edited;
}

TokenId without_choice(const SamplingParams& params, const LogitsPeak& peak) {
    const auto& allowed = params.allowed_tokens;
    if (peak.value > -kInfinity || allowed.empty()) return static_cast<TokenId>(peak.id);
    return *std::min_element(allowed.begin(), allowed.end());
}

// Draws from the edited logits, and describes that distribution when it is asked for.
void draw_processed(const Logits& logits, const SampleInput& input, SamplerWorkspace& workspace,
                    SampledToken& sampled) {
    const SamplingParams& params = input.params;
    const bool described = params.logprobs >= 0 && params.logprobs_processed;
    if (params.temperature <= 0 || !logits.finite_peak()) {
        sampled.token = without_choice(params, logits.peak);
        if (described)
            sampled.logprobs =
                describe(logits, sampled.token, params.logprobs, workspace,
                         [&](TokenId id) { return id == sampled.token ? 0.0f : kLogprobFloor; });
        return;
    }
    const float inverse = 1.0f / std::max(static_cast<float>(params.temperature), kTemperatureMin);
    const double total = masses_of(logits, inverse, workspace);
    const Kept kept = keep(logits, params, inverse, total, workspace);
    const double u = random_uniform({.seed = params.seed,
                                     .purpose = RandomPurpose::sample_token,
                                     .index = static_cast<std::uint64_t>(input.position),
                                     .block = input.block});
    sampled.token = draw(logits, kept, u, workspace);
    if (!described) return;
    const float log_mass = log_of_mass(kept.mass);
    sampled.logprobs = describe(logits, sampled.token, params.logprobs, workspace, [&](TokenId id) {
        if (!kept.holds(logits, index_of(id), workspace.masses[index_of(id)])) return kLogprobFloor;
        return floored((logits.of(id) - logits.peak.value) * inverse - log_mass);
    });
}

// NaN fails every range.
Status within(const char* field, double value, bool holds, const char* range) {
    if (holds) return {};
    return invalid_argument("{} is {}; it must be within {}", field, value, range);
}

Status check_ids(const SamplingParams& params, std::int64_t vocab) {
    for (std::size_t i = 0; i < params.logit_bias.size(); ++i) {
        const TokenId id = params.logit_bias[i].id;
        if (id < 0 || id >= vocab)
            return invalid_argument("logit_bias names token {}; ids of this model are 0 to {}", id,
                                    vocab - 1);
    }
    for (std::size_t i = 0; i < params.allowed_tokens.size(); ++i) {
        const TokenId id = params.allowed_tokens[i];
        if (id < 0 || id >= vocab)
            return invalid_argument(
                "allowed_token_ids[{}] is token {}; ids of this model are 0 to {}", i, id,
                vocab - 1);
    }
    return {};
}

}  // namespace

Status validate_sampling(const SamplingParams& params) {
    const auto in = [](double value, double low, double high) {
        return value >= low && value <= high;
    };
    const double t = params.temperature, p = params.top_p, m = params.min_p;
    const double f = params.frequency_penalty, s = params.presence_penalty;
    const double r = params.repetition_penalty;
    FATHOM_RETURN_IF_ERROR(within("temperature", t, in(t, 0, 2), "[0, 2]"));
    if (params.top_k < 0)
        return invalid_argument("top_k is {}; it must be 0 (off) or positive", params.top_k);
    FATHOM_RETURN_IF_ERROR(within("top_p", p, p > 0 && p <= 1, "(0, 1]"));
    FATHOM_RETURN_IF_ERROR(within("min_p", m, in(m, 0, 1), "[0, 1]"));
    FATHOM_RETURN_IF_ERROR(within("frequency_penalty", f, in(f, -2, 2), "[-2, 2]"));
    FATHOM_RETURN_IF_ERROR(within("presence_penalty", s, in(s, -2, 2), "[-2, 2]"));
    FATHOM_RETURN_IF_ERROR(within("repetition_penalty", r, r >= 0.01 && r <= 10, "[0.01, 10]"));
    if (params.logit_bias.size() > kLogitBiasMax)
        return invalid_argument("logit_bias has {} entries; at most {} are allowed",
                                params.logit_bias.size(), kLogitBiasMax);
    for (const LogitBias& entry : params.logit_bias) {
        const auto bias = static_cast<double>(entry.bias);
        if (!in(bias, -100, 100))
            return invalid_argument("logit_bias of token {} is {}; it must be within [-100, 100]",
                                    entry.id, bias);
    }
    if (params.allowed_tokens.size() > kAllowedTokensMax)
        return invalid_argument("allowed_token_ids has {} entries; at most {} are allowed",
                                params.allowed_tokens.size(), kAllowedTokensMax);
    if (params.min_tokens < 0)
        return invalid_argument("min_tokens is {}; it must be 0 (off) or positive",
                                params.min_tokens);
    if (params.logprobs < -1 || params.logprobs > kTopLogprobsMax)
        return invalid_argument("top_logprobs is {}; it must be within [0, {}]", params.logprobs,
                                kTopLogprobsMax);
    return {};
}

Status validate_sampling(const SamplingParams& params, std::int64_t vocab) {
    FATHOM_RETURN_IF_ERROR(validate_sampling(params));
    return check_ids(params, vocab);
}

TokenHistory::TokenHistory(const SamplingParams& params, std::span<const TokenId> prompt)
    : counts_outputs_(params.frequency_penalty != 0.0 || params.presence_penalty != 0.0 ||
                      params.repetition_penalty != 1.0) {
    if (params.repetition_penalty == 1.0) return;
    for (const TokenId id : prompt)
        entry(id);
}

TokenHistory::Seen& TokenHistory::entry(TokenId id) {
    const auto [place, added] = places_.try_emplace(id, seen_.size());
    if (added) seen_.push_back({.id = id, .outputs = 0});
    return seen_[place->second];
}

void TokenHistory::append(TokenId output) {
    ++output_tokens_;
    if (counts_outputs_) ++entry(output).outputs;
}

SampledToken sample_token(const SampleInput& input, SamplerWorkspace& workspace) {
    FATHOM_CHECK(!input.logits.empty());
    SampledToken sampled;
    const SamplingParams& params = input.params;
    const Logits raw = look_at(input.logits, workspace);
    sampled.damaged = raw.peak.has_nan;
    if (edits(params, input.history)) {
        const Logits edited = look_at(edit(input, workspace.edited), workspace);
        draw_processed(edited, input, workspace, sampled);
    } else {
        draw_processed(raw, input, workspace, sampled);
    }
    if (params.logprobs >= 0 && !params.logprobs_processed)
        sampled.logprobs = describe_raw(look_at(input.logits, workspace), sampled.token,
                                        params.logprobs, workspace);
    return sampled;
}

}  // namespace fathom
