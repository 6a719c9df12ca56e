// The choices of one request (n > 1) up to the end of their prompt. One member, the first that is
// live, runs the prompt; the others wait. When its last row is run, what the others need is kept
// here, and each goes on from it when it gets its turn, however the first fares meanwhile:
//
//   full pages before the last prompt row   shared, by reference
//   the page that holds that row            a copy, since each choice goes on writing in it
//   window and pending rows                 a copy
//
// A choice runs the last prompt row once more for its logits. That is a rollback by one row, which
// rings and pending rows allow (kv_cache.h), and gives the same bits as every other cut.
//
// A member leaves when it has taken its copy, has run its prompt, or ends. Copies cost as much as a
// sequence's state, so only some prompt ends are kept at a time; when there is no room for another,
// the next member runs the prompt again. The engine's thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/page_pool.h"
#include "model/kv_cache.h"

namespace fathom {

// Prompt ends that an engine of so many sequences keeps at most.
constexpr std::int64_t kept_forks_max(std::int64_t sequences_max) {
    return std::max<std::int64_t>(1, sequences_max / 8);
}

struct ForkBudget {
    std::int64_t kept = 0;
    std::int64_t kept_max = 0;
};

class PromptFork {
  public:
    // Members by their place of arrival, ascending. The budget outlives the fork.
    PromptFork(std::shared_ptr<PagePool> pool, ForkBudget& budget,
               std::vector<std::uint64_t> members)
        : pool_(std::move(pool)), budget_(budget), members_(std::move(members)) {}
    ~PromptFork() { release(); }
    PromptFork(const PromptFork&) = delete;
    PromptFork& operator=(const PromptFork&) = delete;

    bool ready() const { return rows_.has_value(); }
    bool runs_prompt(std::uint64_t member) const { return members_.front() == member; }
    // What is kept is let go when nobody is left to want it.
    void leave(std::uint64_t member);

    // Keeps the state of a sequence that has run exactly `tokens` rows, if the budget allows.
    void capture(const SequenceState& state, const std::vector<PageId>& pages, std::int64_t tokens);
    // Pages to share, in order; each is to be retained by who takes it.
    const std::vector<PageId>& shared_pages() const { return shared_; }
    // Fills a page and the rows of a new sequence.
    void restore(std::uint8_t* last_page, SequenceState& state) const;

  private:
    void release();

    const std::shared_ptr<PagePool> pool_;
    ForkBudget& budget_;
    std::vector<std::uint64_t> members_;
    std::vector<PageId> shared_;
    std::vector<std::uint8_t> last_page_;
    std::optional<SequenceState> rows_;
};

}  // namespace fathom
