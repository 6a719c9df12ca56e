// The verification budget (dspark.md 7.2): requests with a hidden ease that drifts, five drafts
// each with true confidences, and the step time of one rank
//
//   T(B) = 20 ms · (1 + 0.0006 · min(B, 100) + 0.0015 · clip(B − 100, 0, 305) + 0.0016 · max(B −
//   405, 0))
//
// plus 1.75 % on the path of variable lengths. Gains are of tokens a second over always verifying
// five drafts, R requests on a rank:
//
//   budget.gainR            budget of two blocks ago, lengths from now
//   budget.gainR.stale      the same with lengths of two blocks ago too
//   budget.gainR.fallback   the first with the plain path where that is better
//   budget.verifiedR        drafts verified of each request
//   budget.group_gain       eight ranks in lock step with 20 to 100 requests: tokens a second of a
//                           common budget over those of ranks that decide alone
//   budget.decision_us      choice and allocation, 256 requests of 5 drafts, a curve of 1,536 rows
//   budget.group_us         common choice of 64 ranks of 60 requests
#include <algorithm>
#include <cmath>
#include <deque>
#include <string>
#include <vector>

#include "base/random.h"
#include "bench/policy_benches.h"
#include "policy/verify_budget.h"
#include "policy/verify_scheduler.h"

namespace fathom::bench {
namespace {

constexpr std::int64_t kDrafts = 5;
constexpr double kStepMs = 20, kPathMs = 0.0175 * kStepMs;

double step_ms(double rows) {
    return kStepMs *
           (1 + 0.0006 * std::min(rows, 100.0) + 0.0015 * std::clamp(rows - 100, 0.0, 305.0) +
            0.0016 * std::max(rows - 405, 0.0));
}

VerifyCost cost_of_rows(std::int64_t rows_max, std::int64_t stride) {
    std::vector<CurvePoint> points;
    for (std::int64_t rows = stride; rows <= rows_max; rows += stride)
        points.push_back({rows, step_ms(static_cast<double>(rows))});
    return VerifyCost(*VerifyCurve::make(points));
}

// Requests of one rank, block after block.
class Requests {
  public:
    Requests(std::int64_t count, std::uint64_t seed)
        : random_(seed), ease_(static_cast<std::size_t>(count)) {
        for (double& z : ease_)
            z = random_.next_normal();
    }
    struct Block {
        std::vector<float> survivals;
        std::vector<std::int64_t> accepted;  // of all five
    };
    Block next() {
        Block block;
        for (double& z : ease_) {
            z = 0.95 * z + std::sqrt(1 - 0.95 * 0.95) * random_.next_normal();
            double survival = 1;
            std::int64_t accepted = 0;
            bool alive = true;
            for (std::int64_t k = 0; k < kDrafts; ++k) {
                const double logit = 1.42 + 1.4 * z + 1.4 * random_.next_normal();
                const double confidence = 1 / (1 + std::exp(-logit));
                survival *= confidence;
                block.survivals.push_back(static_cast<float>(survival));
                alive = alive && random_.next_uniform() < confidence;
                accepted += alive ? 1 : 0;
            }
            block.accepted.push_back(accepted);
        }
        return block;
    }
    VerifyBatch view(const Block& block) const {
        return {.requests = static_cast<std::int64_t>(ease_.size()),
                .drafts = kDrafts,
                .survivals = block.survivals};
    }

  private:
    RandomStream random_;
    std::vector<double> ease_;
};

struct Tally {
    double tokens = 0, ms = 0, drafts = 0;
    double rate() const { return tokens / ms; }
};

void commit(Tally& tally, const Requests::Block& block, std::span<const std::int32_t> lengths,
            double path_ms) {
    double rows = 0;
    for (std::size_t r = 0; r < lengths.size(); ++r) {
        rows += lengths[r];
        tally.tokens +=
            static_cast<double>(1 + std::min<std::int64_t>(block.accepted[r], lengths[r] - 1));
    }
    tally.drafts += rows - static_cast<double>(lengths.size());
    tally.ms += step_ms(rows) + path_ms;
}

void bench_gains(Report& report, std::int64_t count, int steps) {
    const VerifyCost cost = cost_of_rows(count * (kDrafts + 1), 1);
    Requests requests(count, 20261129);
    BudgetSolver solver;
    VerifyScheduler scheduler({.path_ms = kPathMs, .draft_ms = 0});
    std::deque<Requests::Block> blocks = {requests.next(), requests.next()};
    Tally fixed, fresh, stale, fallback;
    std::vector<std::int32_t> lengths(static_cast<std::size_t>(count));
    const std::vector<std::int32_t> full(lengths.size(), kDrafts + 1);
    for (int i = 0; i < steps; ++i) {
        blocks.push_back(requests.next());
        const VerifyBatch old = requests.view(blocks.front()), now = requests.view(blocks.back());
        const BudgetChoice choice = solver.choose(old, cost, kPathMs);
        commit(fixed, blocks.back(), full, 0);
        solver.allocate(now, choice.drafts, lengths);
        commit(fresh, blocks.back(), lengths, kPathMs);
        const VerifyDecision decision = scheduler.decide(old, cost);
        commit(fallback, blocks.back(), decision.variable() ? lengths : full,
               decision.variable() ? kPathMs : 0);
        solver.allocate(old, choice.drafts, lengths);
        commit(stale, blocks.back(), lengths, kPathMs);
        blocks.pop_front();
    }
    const std::string name = "budget.gain" + std::to_string(count);
    report.add(name, 100 * (fresh.rate() / fixed.rate() - 1), "%");
    report.add(name + ".stale", 100 * (stale.rate() / fixed.rate() - 1), "%");
    report.add(name + ".fallback", 100 * (fallback.rate() / fixed.rate() - 1), "%");
    report.add("budget.verified" + std::to_string(count),
               fresh.drafts / static_cast<double>(count * steps), "drafts");
}

void bench_group(Report& report) {
    const VerifyCost cost = cost_of_rows(600, 1);
    std::vector<Requests> ranks;
    for (const std::int64_t count : {20, 32, 44, 56, 64, 76, 88, 100})
        ranks.emplace_back(count, static_cast<std::uint64_t>(count));
    BudgetSolver solver;
    std::vector<std::vector<Requests::Block>> blocks(ranks.size());
    for (std::size_t r = 0; r < ranks.size(); ++r)
        for (int i = 0; i < 2; ++i)
            blocks[r].push_back(ranks[r].next());
    Tally alone, together;
    for (int i = 0; i < 300; ++i) {
        std::vector<VerifyBatch> old;
        std::vector<std::int64_t> budgets(ranks.size());
        for (std::size_t r = 0; r < ranks.size(); ++r) {
            blocks[r].push_back(ranks[r].next());
            old.push_back(ranks[r].view(blocks[r].front()));
        }
        solver.choose_group(old, cost, 0, budgets);
        double alone_ms = 0, together_ms = 0;
        for (std::size_t r = 0; r < ranks.size(); ++r) {
            const VerifyBatch now = ranks[r].view(blocks[r].back());
            std::vector<std::int32_t> lengths(static_cast<std::size_t>(now.requests));
            Tally own, common;
            solver.allocate(now, solver.choose(old[r], cost).drafts, lengths);
            commit(own, blocks[r].back(), lengths, kPathMs);
            solver.allocate(now, budgets[r], lengths);
            commit(common, blocks[r].back(), lengths, kPathMs);
            alone.tokens += own.tokens;
            together.tokens += common.tokens;
            alone_ms = std::max(alone_ms, own.ms);
            together_ms = std::max(together_ms, common.ms);
            blocks[r].erase(blocks[r].begin());
        }
        alone.ms += alone_ms;
        together.ms += together_ms;
    }
    report.add("budget.group_gain", 100 * (together.rate() / alone.rate() - 1), "%");
}

template <typename Call>
double best_us(int calls, const Call& call) {
    double best = 1e9;
    for (int round = 0; round < 5; ++round) {
        const double start = policy_thread_seconds();
        for (int i = 0; i < calls; ++i)
            call();
        best = std::min(best, (policy_thread_seconds() - start) / calls);
    }
    return 1e6 * best;
}

void bench_times(Report& report) {
    const VerifyCost cost = cost_of_rows(1536, 8);
    Requests requests(256, 1);
    const Requests::Block block = requests.next();
    const VerifyBatch batch = requests.view(block);
    BudgetSolver solver;
    std::vector<std::int32_t> lengths(256);
    report.add(
        "budget.decision_us",
        best_us(200, [&] { solver.allocate(batch, solver.choose(batch, cost).drafts, lengths); }),
        "us");
    std::vector<Requests::Block> blocks;
    Requests rank(60, 2);
    std::vector<VerifyBatch> batches;
    for (int r = 0; r < 64; ++r)
        blocks.push_back(rank.next());
    for (const Requests::Block& own : blocks)
        batches.push_back(rank.view(own));
    std::vector<std::int64_t> budgets(64);
    report.add("budget.group_us",
               best_us(5, [&] { solver.choose_group(batches, cost, 0.0001, budgets); }), "us");
}

}  // namespace

void bench_verify_budget(Report& report) {
    bench_gains(report, 16, 4000);
    bench_gains(report, 32, 2000);
    bench_gains(report, 60, 1000);
    bench_gains(report, 96, 700);
    bench_group(report);
    bench_times(report);
}

}  // namespace fathom::bench
