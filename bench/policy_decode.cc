// Decode placement on a group in virtual time: as many sequences as ever, each that ends replaced
// by one that some rule places. The number is mean over slowest rank's time, over all steps
// (serving.md 2.2.2). A rule without a ledger knows what it placed in this step, but nothing that
// it placed before and that no report has included.
//
// The specification gives ranks, sequences and contexts, and neither outputs nor the weights of a
// rank's time. Here an output has 400 tokens in the mean, 3 a step, and of a mean rank's time in
// the first setting 0.3 are fixed, 0.3 are sequences and 0.4 KV; the weights are those that give
// the specification's figures for the rules that do not look at a rank's time. They are the same
// in all settings: a rank with fewer sequences has a shorter step.
#include <algorithm>
#include <array>
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
    double output_mean = 400;  // tokens, exponential
    double fixed_share = 0.3, sequence_share = 0.3;
};

enum class Rule { random, round_robin, two_choices, requests, kv, time, joint, marginal, split };

constexpr double kMedian = 30'000;
constexpr std::int64_t kContextMax = 1'000'000;
constexpr double kReferenceSequences = 60, kReferenceSigma = 1.2;
constexpr std::int64_t kTokensAStep = 3;  // accepted, drafts included
constexpr int kLives = 60;                // mean lives of a sequence that are measured
constexpr int kLivesBefore = 4;           // that pass before

class Group {
  public:
    Group(const Setting& setting, Rule rule)
        : setting_(setting), rule_(rule), balancer_(settings(rule)), random_(20261130) {
        const double mean_context = kMedian * std::exp(kReferenceSigma * kReferenceSigma / 2);
        const double kv_share = 1 - setting.fixed_share - setting.sequence_share;
        cost_.a0_us = 1e4 * setting.fixed_share;
        cost_.a1_us = 1e4 * setting.sequence_share / kReferenceSequences;
        cost_.a2_us = 1e4 * kv_share / (kReferenceSequences * mean_context);
        ranks_.resize(setting.ranks);
        balancer_.add_group(0, setting.ranks);
        publish();
    }

    double run() {
        const auto all = static_cast<std::size_t>(setting_.sequences) * setting_.ranks;
        const double life = setting_.output_mean / static_cast<double>(kTokensAStep);
        const auto warm_up = static_cast<std::int64_t>(kLivesBefore * life);
        const auto steps = warm_up + static_cast<std::int64_t>(kLives * life);
        double mean = 0, slowest = 0;
        std::vector<DecodeRequest> batch;
        for (step_ = 1; step_ <= steps; ++step_) {
            // Filled over the first steps, as by traffic.
            const std::size_t target = std::min(all, all / 50 * static_cast<std::size_t>(step_));
            batch.clear();
            while (running_ + batch.size() < target)
                batch.push_back(make_request());
            place(batch);
            if (step_ > warm_up) measure(&mean, &slowest);
            advance();
            publish();
        }
        return mean / slowest;
    }

  private:
    struct Ending {
        std::size_t rank = 0;
        std::int64_t kv_tokens = 0;  // at its end
    };
    struct View {
        std::int64_t sequences = 0, kv_tokens = 0, number = 0;
        std::int64_t step = 0;  // of a placement
    };
    struct Rank {
        std::int64_t sequences = 0, kv_tokens = 0;
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
        return {.id = next_id_++,
                .context_tokens =
                    static_cast<std::int64_t>(std::min(context, static_cast<double>(kContextMax))),
                .output_tokens = static_cast<std::int64_t>(setting_.output_mean),
                .output_p90_tokens = static_cast<std::int64_t>(2.3 * setting_.output_mean)};
    }

    View seen(std::size_t r) const { return ranks_[r].reports.front(); }
    // What the plain rules know of a rank.
    View view(std::size_t r) const {
        View known = seen(r);
        for (const View& placed : ranks_[r].ledger) {
            if (!setting_.has_ledger && placed.step < step_) continue;
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
        balancer_.place(batch, 0, &placements);
        for (const DecodePlacement& placement : placements)
            put(static_cast<std::size_t>(placement.rank), batch[placement.id - batch.front().id]);
    }

    void put(std::size_t r, const DecodeRequest& request) {
        Rank& rank = ranks_[r];
        const double draw = -std::log(
            1 -
            random_uniform({.seed = 7, .purpose = RandomPurpose::test_data, .index = request.id}));
        const auto life = static_cast<std::size_t>(1 + draw * setting_.output_mean /
                                                           static_cast<double>(kTokensAStep));
        const auto last = static_cast<std::size_t>(step_) + life - 1;
        if (endings_.size() <= last) endings_.resize(last + 1);
        endings_[last].push_back(
            {.rank = r,
             .kv_tokens = request.context_tokens + static_cast<std::int64_t>(life) * kTokensAStep});
        ++rank.sequences;
        rank.kv_tokens += request.context_tokens;
        rank.ledger.push_back({.kv_tokens = request.context_tokens + request.output_tokens / 2,
                               .number = ++rank.number,
                               .step = step_});
        ++running_;
    }

    void measure(double* mean_us, double* slowest_us) const {
        double slowest = 0, sum = 0;
        for (const Rank& rank : ranks_) {
            const double us = cost_.rank_us(rank.sequences, rank.kv_tokens);
            slowest = std::max(slowest, us);
            sum += us;
        }
        *mean_us += sum / static_cast<double>(ranks_.size());
        *slowest_us += slowest;
    }

    void advance() {
        for (Rank& rank : ranks_)
            rank.kv_tokens += rank.sequences * kTokensAStep;
        if (endings_.size() <= static_cast<std::size_t>(step_)) return;
        for (const Ending& ending : endings_[static_cast<std::size_t>(step_)]) {
            --ranks_[ending.rank].sequences;
            ranks_[ending.rank].kv_tokens -= ending.kv_tokens;
            --running_;
        }
    }

    void publish() {
        for (std::size_t r = 0; r < ranks_.size(); ++r) {
            Rank& rank = ranks_[r];
            rank.reports.push_back(
                {.sequences = rank.sequences, .kv_tokens = rank.kv_tokens, .number = rank.number});
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
    std::vector<std::vector<Ending>> endings_;  // by step
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
        {"decode.fresh64_outputs_1500", {.output_mean = 1500}},
        {"decode.stale64_outputs_1500", {.steps_old = 5, .output_mean = 1500}},
    };
    for (const auto& [name, setting] : settings)
        for (const auto& [suffix, rule] : rules)
            report.add(name + suffix, Group(setting, rule).run(), "mean/max");
}

}  // namespace fathom::bench
