// The verification budget on modelled requests (policy/verify_model.h, the numbers of dspark.md 7).
// Gains are of tokens a second over always verifying five drafts, R requests on a rank, three
// seeds:
//
//   budget.gainR            budget of two blocks ago, lengths from the newest; published:
//   -1.5, 1.6,
//                           5.4, 11.0 % for 16, 32, 60, 96
//   budget.gainR.KIND       stale: lengths of two blocks ago too; even: each request as many;
//                           shuffled: confidences of other requests; sure: all confidences 1;
//                           shorter: always four drafts; fallback: the plain path where it is
//                           better
//   budget.verifiedR, .lengthR, .length_plainR
//                           drafts verified, tokens committed of a request and step
//   budget.off.WHAT.gainR   what the scheduler has wrong: over (logits doubled), noise1, noise2
//   (error
//                           of logits), flat, steep (half, twice the slope in its table)
//   budget.rank_gain, .rank_learned_gain, .group_gain
//                           eight ranks in lock step with 20 to 100 requests, over the plain path:
//                           ranks that decide alone by their own curve, the same with the slope
//                           that they learn from measured steps (which contain waiting, as
//                           deployed), and a common budget
//   budget.decision_us      choice and allocation, 256 requests of 5 drafts, a curve of 1,536 rows
//   budget.group_us         common choice of 64 ranks of 60 requests
#include <algorithm>
#include <string>
#include <vector>

#include "bench/policy_benches.h"
#include "policy/verify_model.h"

namespace fathom::bench {
namespace {

void add_table(Report& report, const std::string& tail, const VerifyTrial& trial) {
    for (const VerifyTableRow& row : verify_table({}, trial))
        report.add("budget." + tail.substr(0, tail.find('@')) + std::to_string(row.requests) +
                       tail.substr(tail.find('@') + 1),
                   100 * row.ours.gain, "%");
}

void bench_gains(Report& report) {
    for (const VerifyTableRow& row : verify_table({})) {
        const std::string requests = std::to_string(row.requests);
        report.add("budget.gain" + requests, 100 * row.ours.gain, "%");
        report.add("budget.verified" + requests, row.ours.verified, "drafts");
        report.add("budget.length" + requests, row.ours.length, "tokens");
        report.add("budget.length_plain" + requests, row.ours.length_plain, "tokens");
    }
    add_table(report, "gain@.stale", {.allocation = VerifyAllocation::stale});
    add_table(report, "gain@.even", {.allocation = VerifyAllocation::even});
    add_table(report, "gain@.shuffled", {.allocation = VerifyAllocation::shuffled});
    add_table(report, "gain@.sure", {.allocation = VerifyAllocation::sure});
    add_table(report, "gain@.shorter", {.allocation = VerifyAllocation::shorter});
    add_table(report, "gain@.fallback", {.allocation = VerifyAllocation::fallback});
    add_table(report, "off.over.gain@", {.logit_scale = 2});
    add_table(report, "off.noise1.gain@", {.logit_error = 1});
    add_table(report, "off.noise2.gain@", {.logit_error = 2});
    add_table(report, "off.flat.gain@", {.table_slope = 0.5});
    add_table(report, "off.steep.gain@", {.table_slope = 2});
}

struct Group {
    double tokens = 0, ms = 0;
    double rate() const { return tokens / ms; }
};

// Ranks in lock step.
class LockStep {
  public:
    explicit LockStep(const VerifyModel& model) : model_(model) {
        for (const std::int64_t count : {20, 32, 44, 56, 64, 76, 88, 100}) {
            ranks_.emplace_back(model, count, static_cast<std::uint64_t>(count));
            learned_.push_back(model.cost(600));
            blocks_.emplace_back(3);
            for (VerifyRequests::Block& block : blocks_.back())
                ranks_.back().next(block);
        }
    }

    void step() {
        std::vector<VerifyBatch> old;
        for (std::size_t r = 0; r < ranks_.size(); ++r) {
            std::rotate(blocks_[r].begin(), blocks_[r].begin() + 1, blocks_[r].end());
            ranks_[r].next(blocks_[r].back());
            old.push_back(ranks_[r].view(blocks_[r].front().survivals));
        }
        std::vector<std::int64_t> own(ranks_.size()), learned(own), common(own), all(own);
        for (std::size_t r = 0; r < ranks_.size(); ++r) {
            own[r] = solver_.choose(old[r], cost_, model_.path_ms()).drafts;
            learned[r] = solver_.choose(old[r], learned_[r], model_.path_ms()).drafts;
            all[r] = old[r].requests * model_.drafts;
        }
        solver_.choose_group(old, cost_, 0, common);
        run(all, 0, plain);
        run(own, model_.path_ms(), alone);
        run(common, model_.path_ms(), together);
        const double ms = run(learned, model_.path_ms(), deployed);
        for (std::size_t r = 0; r < ranks_.size(); ++r)
            learned_[r].observe(old[r].requests, old[r].requests + learned[r], ms, 0);
    }

    Group plain, alone, deployed, together;

  private:
    double run(std::span<const std::int64_t> budgets, double path_ms, Group& group) {
        double slowest = 0;
        for (std::size_t r = 0; r < ranks_.size(); ++r) {
            const VerifyRequests::Block& block = blocks_[r].back();
            const VerifyBatch now = ranks_[r].view(block.survivals);
            lengths_.resize(static_cast<std::size_t>(now.requests));
            solver_.allocate(now, budgets[r], lengths_);
            for (std::size_t i = 0; i < lengths_.size(); ++i)
                group.tokens += static_cast<double>(
                    1 + std::min<std::int64_t>(block.accepted[i], lengths_[i] - 1));
            slowest = std::max(slowest, model_.step_ms(now.requests + budgets[r]) + path_ms);
        }
        group.ms += slowest;
        return slowest;
    }

    VerifyModel model_;
    VerifyCost cost_ = model_.cost(600);
    BudgetSolver solver_;
    std::vector<VerifyRequests> ranks_;
    std::vector<VerifyCost> learned_;
    std::vector<std::vector<VerifyRequests::Block>> blocks_;
    std::vector<std::int32_t> lengths_;
};

void bench_group(Report& report) {
    LockStep ranks({});
    for (int i = 0; i < 600; ++i)
        ranks.step();
    const auto gain = [&](const Group& group) {
        return 100 * (group.rate() / ranks.plain.rate() - 1);
    };
    report.add("budget.rank_gain", gain(ranks.alone), "%");
    report.add("budget.rank_learned_gain", gain(ranks.deployed), "%");
    report.add("budget.group_gain", gain(ranks.together), "%");
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
    const VerifyModel model;
    const VerifyCost cost = model.cost(1536, 8);
    VerifyRequests requests(model, 256, 1);
    VerifyRequests::Block block;
    requests.next(block);
    const VerifyBatch batch = requests.view(block.survivals);
    BudgetSolver solver;
    std::vector<std::int32_t> lengths(256);
    report.add(
        "budget.decision_us",
        best_us(200, [&] { solver.allocate(batch, solver.choose(batch, cost).drafts, lengths); }),
        "us");
    std::vector<VerifyRequests::Block> blocks(64);
    VerifyRequests rank(model, 60, 2);
    std::vector<VerifyBatch> batches;
    for (VerifyRequests::Block& own : blocks) {
        rank.next(own);
        batches.push_back(rank.view(own.survivals));
    }
    std::vector<std::int64_t> budgets(64);
    report.add("budget.group_us",
               best_us(5, [&] { solver.choose_group(batches, cost, 0.0001, budgets); }), "us");
}

}  // namespace

void bench_verify_budget(Report& report) {
    bench_gains(report);
    bench_group(report);
    bench_times(report);
}

}  // namespace fathom::bench
