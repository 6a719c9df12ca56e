#include "engine/scheduler.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "policy/share.h"

namespace fathom {

namespace {

// One microsecond a row: with a budget of as many as there are rows in a step.
CostModel cost_in_rows() {
    CostModel cost;
    cost.k_us[static_cast<std::size_t>(CostFeature::rows)] = 1;
    return cost;
}

}  // namespace

Scheduler::Scheduler(const EngineConfig& config, const ModelShape& shape, PrefixCache& cache)
    : config_(config),
      shape_(shape),
      cost_(config.cost.known() ? config.cost : cost_in_rows()),
      cache_(cache),
      step_(shape_) {
    budget_us_ = static_cast<double>(config.step_tokens_max);
    if (config.cost.known())
        budget_us_ =
            std::max(static_cast<double>(config.step_budget_us), 2 * config.cost.fixed_us(shape_));
    // Chunks end at block boundaries unless they are to be smaller, or of another size.
    if (config.prefill_chunk_max % kBlockTokens == 0 && config.step_tokens_max >= kBlockTokens)
        align_ = kBlockTokens;
}

void Scheduler::add(std::unique_ptr<Sequence> sequence) {
    Sequence* added = sequence.get();
    FATHOM_CHECK(by_id_.emplace(added->request().id, added).second);
    sequences_.emplace(added->order(), std::move(sequence));
}

Sequence* Scheduler::find(std::uint64_t id) const {
    const auto found = by_id_.find(id);
    return found == by_id_.end() ? nullptr : found->second;
}

std::unique_ptr<Sequence> Scheduler::remove(const Sequence& sequence) {
    const auto found = sequences_.find(sequence.order());
    FATHOM_CHECK(found != sequences_.end());
    std::unique_ptr<Sequence> removed = std::move(found->second);
    sequences_.erase(found);
    by_id_.erase(removed->request().id);
    if (removed->running()) --running_;
    removed->stop(cache_);
    removed->leave_fork();
    return removed;
}

const StepPlan& Scheduler::plan() {
    begin_plan();
    unblock();
    return plan_;
}

void Scheduler::begin_plan() {
    plan_.work.clear();
    plan_.incomplete = false;
    plan_.passed = nullptr;
    plan_owed_us_ = owed_us_;
    rows_left_ = config_.step_tokens_max;
    step_ = StepFeatures(shape_);
    for (const auto& [order, sequence] : sequences_)
        sequence->release_unlaunched_pages(cache_);
    plan_decoding();
    plan_prompts();
    CostModel unscaled = cost_;
    unscaled.scale = 1;
    plan_.cost_us = config_.cost.known() && !plan_.work.empty() ? unscaled.cost_us(step_) : 0;
}

void Scheduler::commit() {
    owed_us_ = plan_owed_us_;
    for (const StepWork& work : plan_.work)
        work.sequence->passes = 0;
    if (plan_.passed != nullptr) ++plan_.passed->passes;
}

void Scheduler::plan_decoding() {
    for (const auto& [order, sequence] : sequences_) {
        if (rows_left_ == 0) return;
        if (!sequence->decoding()) continue;
        bool covered = sequence->covered_rows() > sequence->rows_done() || take_page(*sequence);
        while (!covered) {
            Sequence* victim = youngest_running_behind(*sequence);
            if (victim == nullptr) break;
            if (victim->in_flight()) {
                plan_.incomplete = true;
                break;
            }
            preempt(*victim);
            covered = take_page(*sequence);
        }
        if (!covered) continue;
        plan_.work.push_back({sequence.get(), 1});
        step_.add(sequence->next_chunk().slice(1));
        --rows_left_;
    }
}

std::vector<Sequence*> Scheduler::prompts_that_may_run() {
    std::vector<Sequence*> prompts;
    std::int64_t places = config_.sequences_max - running_;
    for (const auto& [order, sequence] : sequences_) {
        if (sequence->decoding() || sequence->waits_for_fork() || sequence->loading ||
            sequence->rows_left() == 0)
            continue;
        if (!sequence->running()) {
            if (places == 0) continue;
            sequence->look_up(cache_);
            if (may_start(*sequence)) --places;
        }
        prompts.push_back(sequence.get());
    }
    return prompts;
}

// What each prompt would take alone, in the time of a step.
std::vector<double> Scheduler::prompt_needs(std::span<Sequence* const> prompts,
                                            const CostModel& per_slice,
                                            std::int64_t rows_max) const {
    std::vector<double> needs;
    for (const Sequence* sequence : prompts) {
        const ChunkRequest chunk = sequence->next_chunk();
        StepFeatures alone(shape_);
        alone.add(chunk.slice(std::min(chunk.remaining, rows_max)));
        needs.push_back(per_slice.cost_us(alone));
    }
    return needs;
}

// How many rows each prompt may run, by time and rows alone.
std::vector<Scheduler::Chunk> Scheduler::share_step() {
    const std::vector<Sequence*> prompts = prompts_that_may_run();
    if (prompts.empty()) return {};
    const CostModel per_slice = cost_.per_slice();
    const StepFeatures nothing(shape_);
    const std::int64_t rows_max = std::min(rows_left_, config_.prefill_chunk_max);
    const std::int64_t part = std::min(align_, kChunkPart);
    const std::vector<double> needs = prompt_needs(prompts, per_slice, rows_max);
    const double others_us = (step_.empty() ? 0 : cost_.cost_us(step_)) + cost_.fixed_us(shape_);
    const double budget_us = std::max(budget_us_ - others_us, kPromptShare * budget_us_);
    const std::vector<double> shares = share_budget(budget_us, needs);
    std::vector<Chunk> chunks;
    for (std::size_t i = 0; i < prompts.size(); ++i) {
        const ChunkRequest chunk = prompts[i]->next_chunk();
        std::int64_t rows = fit_chunk(per_slice, nothing, shares[i], chunk, rows_max, align_);
        if (rows == 0) rows = fit_chunk(per_slice, nothing, shares[i], chunk, rows_max, part);
        chunks.push_back({prompts[i], rows, std::min({chunk.remaining, rows_max, part})});
    }
    // Even a part of a block may be more than a share.
    Chunk& least = chunks[static_cast<std::size_t>(std::min_element(needs.begin(), needs.end()) -
                                                   needs.begin())];
    least.rows = std::max(least.rows, least.smallest);
    const auto oldest = std::find_if(chunks.begin(), chunks.end(), [](const Chunk& chunk) {
        return chunk.rows < chunk.sequence->next_chunk().remaining;
    });
    plan_owed_us_ = 0;
    if (oldest != chunks.end() && oldest->rows == 0) {
        StepFeatures alone(shape_);
        alone.add(oldest->sequence->next_chunk().slice(oldest->smallest));
        const double cost_us = per_slice.cost_us(alone);
        plan_owed_us_ = owed_us_ + kOldestShare * budget_us;
        if (plan_owed_us_ >= cost_us) {
            oldest->rows = oldest->smallest;
            plan_owed_us_ -= cost_us;
        }
    }
    return chunks;
}

void Scheduler::plan_prompts() {
    if (rows_left_ == 0) return;
    PageQueue queue;
    const std::vector<Chunk> chunks = share_step();
    for (const Chunk& chunk : chunks)
        if (chunk.rows > 0) plan_chunk(*chunk.sequence, chunk.rows, queue);
    // Those that were to run got no page: whoever can runs, or the step would be for nothing.
    for (const Chunk& chunk : chunks)
        if (plan_.work.empty() && chunk.rows == 0)
            plan_chunk(*chunk.sequence, chunk.smallest, queue);
    if (queue.passed) plan_.passed = queue.blocked;
}

void Scheduler::plan_chunk(Sequence& sequence, std::int64_t rows, PageQueue& queue) {
    if (rows_left_ == 0 || (!sequence.running() && running_ == config_.sequences_max)) return;
    const bool may_take_pages = queue.blocked == nullptr || queue.blocked->passes < kPassesMax;
    const std::int64_t pages_before = sequence.pages();
    const std::int64_t count = plan_prompt_rows(sequence, rows, may_take_pages);
    if (count == 0) {
        if (queue.blocked == nullptr) queue.blocked = &sequence;
        return;
    }
    if (queue.blocked != nullptr && sequence.pages() > pages_before) queue.passed = true;
    step_.add(sequence.next_chunk().slice(count));
    plan_.work.push_back({&sequence, count});
    rows_left_ -= count;
}

// Starts the sequence if need be and gives it pages for its next chunk; 0 when it cannot run.
std::int64_t Scheduler::plan_prompt_rows(Sequence& sequence, std::int64_t rows,
                                         bool may_take_pages) {
    if (!sequence.running()) {
        if (!may_take_pages) return 0;
        sequence.look_up(cache_);  // again: others took pages since
        if (!may_start(sequence)) return 0;
        sequence.start(cache_);
        ++running_;
    }
    const std::int64_t end =
        sequence.rows_done() +
        std::min({rows, rows_left_, sequence.rows_left(), sequence.rows_before_chunk_end()});
    while (sequence.covered_rows() < end && may_take_pages && take_page(sequence)) {
    }
    return std::min(end, sequence.covered_rows()) - sequence.rows_done();
}

void Scheduler::unblock() {
    // What loads will go on soon, and its pages with it.
    const bool loads = std::any_of(sequences_.begin(), sequences_.end(),
                                   [](const auto& entry) { return entry.second->loading; });
    while (plan_.work.empty() && !sequences_.empty() && !loads) {
        if (any_in_flight()) {
            plan_.incomplete = true;
            return;
        }
        if (Sequence* victim = youngest_running_behind(*sequences_.begin()->second)) {
            preempt(*victim);
        } else if (!take_back_a_fork()) {
            return;
        }
        begin_plan();
    }
}

bool Scheduler::any_in_flight() const {
    return std::any_of(sequences_.begin(), sequences_.end(),
                       [](const auto& entry) { return entry.second->in_flight(); });
}

bool Scheduler::take_back_a_fork() {
    const std::uint64_t oldest = sequences_.begin()->first;
    for (auto it = sequences_.rbegin(); it != sequences_.rend() && it->first != oldest; ++it) {
        if (it->second->running() || !it->second->starts_from_fork()) continue;
        it->second->leave_fork();
        return true;
    }
    return false;
}

bool Scheduler::may_start(const Sequence& sequence) const {
    if (sequence.starts_from_fork()) return cache_.available_pages() >= 1;
    const PrefixStart& start = sequence.found();
    const auto found = static_cast<std::int64_t>(start.blocks.size());
    std::int64_t needed = start.first_row < start.tokens ? 0 : 1;
    if (running_ > 0 && sequence.pages_when_preempted() > 0)
        needed = sequence.pages_when_preempted() - found + 1;
    // Once it uses them, idle blocks that it found can no longer be taken.
    const auto idle = std::count_if(start.blocks.begin(), start.blocks.end(),
                                    [](const auto* block) { return block->users() == 0; });
    return cache_.available_pages() - idle >= needed;
}

bool Scheduler::take_page(Sequence& sequence) {
    const std::optional<PageId> page = cache_.take_page();
    if (page.has_value()) sequence.add_page(*page);
    return page.has_value();
}

void Scheduler::preempt(Sequence& sequence) {
    sequence.preempt(cache_);
    --running_;
    ++preemptions_;
}

Sequence* Scheduler::youngest_running_behind(const Sequence& sequence) const {
    for (auto it = sequences_.rbegin(); it != sequences_.rend(); ++it) {
        if (it->first == sequence.order()) break;
        if (it->second->running()) return it->second.get();
    }
    return nullptr;
}

}  // namespace fathom
