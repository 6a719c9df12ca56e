// Decode placement on a group in virtual time: as many sequences as ever, each that ends replaced
// by one that some rule places. The number is mean over slowest rank's time, over all steps.
#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <vector>

#include "base/random.h"
#include "bench/policy_benches.h"
#include "policy/decode_balancer.h"

namespace fathom::bench {
namespace {

struct Setting {
    std::size_t ranks = 64;
    int sequences = 60;  // a rank, in the mean
    double sigma = 1.2;  // of the logarithm of contexts; their median is 30,000
    int steps_old = 0;   // reports
    bool has_ledger = true;
};

enum class Rule { random, round_robin, two_choices, requests, kv, time, joint, marginal, split };

constexpr double kMedian = 30'000;
constexpr double kOutputMean = 1500;      // tokens, exponential
constexpr std::int64_t kTokensAStep = 3;  // accepted, drafts included
constexpr int kSteps = 3000, kWarmUp = 1000;

class Group {
  public:
    Group(const Setting& setting, Rule rule)
        : setting_(setting), rule_(rule), balancer_(settings(rule)), random_(20261130) {
        const double mean_context = kMedian * std::exp(setting.sigma * setting.sigma / 2);
        // Of a mean rank's time a fifth is fixed; sequences and KV are two fifths each.
        cost_.a0_us = 2000;
        cost_.a1_us = 4000.0 / setting.sequences;
        cost_.a2_us = 4000.0 / (setting.sequences * mean_context);
        ranks_.resize(setting.ranks);
        balancer_.add_group(0, setting.ranks);
        publish();
    }

    double run() {
        const auto all = static_cast<std::size_t>(setting_.sequences) * setting_.ranks;
        double efficiency = 0;
        for (int step = 0; step < kSteps; ++step) {
            std::vector<DecodeRequest> batch;
            // Filled over the first steps, as by traffic.
            const std::size_t target = std::min(all, all / 50 * static_cast<std::size_t>(step + 1));
            while (running_ + batch.size() < target)
                batch.push_back(make_request());
            place(batch);
            if (step >= kWarmUp) efficiency += measure() / (kSteps - kWarmUp);
            advance();
            publish();
        }
        return efficiency;
    }

  private:
    struct Sequence {
        std::int64_t kv_tokens = 0, left_tokens = 0;
    };
    struct View {
        std::int64_t sequences = 0, kv_tokens = 0, number = 0;
    };
    struct Rank {
        std::vector<Sequence> sequences;
        std::int64_t kv_tokens = 0;
        std::int64_t number = 0;   // of its last placement
        std::deque<View> reports;  // newest last
        std::vector<View> ledger;  // of the plain rules: what the oldest report has not seen
    };

    static DecodeSettings settings(Rule rule) {
        DecodeSettings settings;
        settings.rule = rule == Rule::marginal ? DecodeRule::marginal
                        : rule == Rule::split  ? DecodeRule::split
                                               : DecodeRule::joint;
        return settings;
    }

    DecodeRequest make_request() {
        const double context = kMedian * std::exp(setting_.sigma * random_.next_normal());
        return {
            .id = next_id_++,
            .context_tokens = std::min<std::int64_t>(static_cast<std::int64_t>(context), 1'000'000),
            .output_tokens = static_cast<std::int64_t>(kOutputMean),
            .output_p90_tokens = static_cast<std::int64_t>(2.3 * kOutputMean)};
    }

    View seen(std::size_t r) const { return ranks_[r].reports.front(); }
    // What the plain rules know of a rank.
    View view(std::size_t r) const {
        View known = seen(r);
        if (!setting_.has_ledger) return known;
        for (const View& placed : ranks_[r].ledger) {
            if (placed.number <= known.number) continue;
            ++known.sequences;
            known.kv_tokens += placed.kv_tokens;
        }
        return known;
    }

    std::size_t plain(const DecodeRequest& request) {
        const std::size_t n = ranks_.size();
        const auto at_random = [&] { return static_cast<std::size_t>(random_.next_below(n)); };
        ++turn_;
        if (rule_ == Rule::random) return at_random();
        if (rule_ == Rule::round_robin) return turn_ % n;
        if (rule_ == Rule::two_choices) {
            const std::size_t a = at_random(), b = at_random();
            return view(a).sequences <= view(b).sequences ? a : b;
        }
        std::size_t best = 0;
        double best_value = 0;
        for (std::size_t i = 0; i < n; ++i) {
            const std::size_t r = (i + turn_) % n;
            const View known = view(r);
            const double value =
                rule_ == Rule::requests ? static_cast<double>(known.sequences)
                : rule_ == Rule::kv
                    ? static_cast<double>(known.kv_tokens)
                    : cost_.rank_us(known.sequences + 1, known.kv_tokens + request.context_tokens);
            if (i > 0 && value >= best_value) continue;
            best = r;
            best_value = value;
        }
        return best;
    }

    void place(const std::vector<DecodeRequest>& batch) {
        if (rule_ < Rule::joint) {
            for (const DecodeRequest& request : batch)
                put(plain(request), request);
            return;
        }
        std::vector<DecodePlacement> placements;
        if (setting_.has_ledger) {
            balancer_.place(batch, 0, &placements);
        } else {
            for (const DecodeRequest& request : batch) {
                balancer_.place({&request, 1}, 0, &placements);
                report(static_cast<std::size_t>(placements.back().rank));  // forgets it
            }
        }
        for (const DecodePlacement& placement : placements)
            put(static_cast<std::size_t>(placement.rank), batch[placement.id - batch.front().id]);
    }

    void put(std::size_t r, const DecodeRequest& request) {
        Rank& rank = ranks_[r];
        const double draw = -std::log(
            1 -
            random_uniform({.seed = 7, .purpose = RandomPurpose::test_data, .index = request.id}));
        const Sequence sequence{.kv_tokens = request.context_tokens,
                                .left_tokens = 1 + static_cast<std::int64_t>(draw * kOutputMean)};
        rank.sequences.push_back(sequence);
        rank.kv_tokens += sequence.kv_tokens;
        rank.ledger.push_back({.kv_tokens = sequence.kv_tokens, .number = ++rank.number});
        ++running_;
    }

    double measure() const {
        double slowest = 0, mean = 0;
        for (const Rank& rank : ranks_) {
            const double us =
                cost_.rank_us(static_cast<std::int64_t>(rank.sequences.size()), rank.kv_tokens);
            slowest = std::max(slowest, us);
            mean += us / static_cast<double>(ranks_.size());
        }
        return mean / slowest;
    }

    void advance() {
        for (Rank& rank : ranks_) {
            std::erase_if(rank.sequences, [&](Sequence& sequence) {
                sequence.left_tokens -= kTokensAStep;
                sequence.kv_tokens += kTokensAStep;
                rank.kv_tokens += kTokensAStep;
                if (sequence.left_tokens > 0) return false;
                rank.kv_tokens -= sequence.kv_tokens;
                --running_;
                return true;
            });
        }
    }

    void publish() {
        ++step_;
        for (std::size_t r = 0; r < ranks_.size(); ++r) {
            Rank& rank = ranks_[r];
            rank.reports.push_back({.sequences = static_cast<std::int64_t>(rank.sequences.size()),
                                    .kv_tokens = rank.kv_tokens,
                                    .number = rank.number});
            if (rank.reports.size() > static_cast<std::size_t>(setting_.steps_old) + 1)
                rank.reports.pop_front();
            std::erase_if(rank.ledger,
                          [&](const View& v) { return v.number <= rank.reports.front().number; });
            report(r);
        }
    }

    void report(std::size_t r) {
        DecodeRankReport report;
        const View known = seen(r);
        report.acked =
            setting_.has_ledger ? known.number : std::numeric_limits<std::int64_t>::max();
        report.sequences = known.sequences;
        report.kv_tokens = known.kv_tokens;
        report.free_blocks = report.total_blocks = 1 << 30;
        report.sequences_max = 100'000;
        report.step = step_;
        balancer_.report(0, r, report, 0);
    }

    Setting setting_;
    Rule rule_;
    DecodeBalancer balancer_;
    RandomStream random_;
    DecodeCost cost_;
    std::vector<Rank> ranks_;
    std::size_t running_ = 0, turn_ = 0;
    std::uint64_t next_id_ = 0;
    std::int64_t step_ = 0;
};

}  // namespace

void bench_policy_decode(Report& report) {
    const std::vector<std::pair<std::string, Rule>> rules = {
        {"", Rule::joint},
        {".marginal", Rule::marginal},
        {".split", Rule::split},
        {".least_time", Rule::time},
        {".least_kv", Rule::kv},
        {".least_requests", Rule::requests},
        {".two_choices", Rule::two_choices},
        {".round_robin", Rule::round_robin},
        {".random", Rule::random},
    };
    const std::vector<std::pair<std::string, Setting>> settings = {
        {"decode.fresh64", {}},
        {"decode.stale64", {.steps_old = 5}},
        {"decode.blind64", {.steps_old = 5, .has_ledger = false}},
        {"decode.fresh128", {.ranks = 128}},
        {"decode.fresh64_16", {.sequences = 16}},
        {"decode.fresh64_narrow", {.sigma = 0.6}},
    };
    for (const auto& [name, setting] : settings)
        for (const auto& [suffix, rule] : rules)
            report.add(name + suffix, Group(setting, rule).run(), "mean/max");
}

}  // namespace fathom::bench
