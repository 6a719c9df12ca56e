// The choices of one request (n > 1) up to the end of their prompt. One member, the first that is
// live, runs the prompt; the others wait. When its last row is run, what the others need is kept
// here, and each goes on from it when it gets its turn, however the first fares meanwhile:
//
//   full pages before the last prompt row   shared, through the PrefixCache
//   the page that holds that row            a copy, since each choice goes on writing in it
//   window and pending rows                 a copy
//
// A choice runs the last prompt row once more for its logits. That is a rollback by one row, which
// rings and pending rows allow (kv_cache.h), and gives the same bits as every other cut. Its
// anchors are those of the run that it goes on from.
//
// A member leaves when it has taken its copy, has run its prompt, or ends. Copies cost as much as a
// sequence's state, so only some prompt ends are kept at a time; when there is no room for another,
// the next member runs the prompt again. The engine's thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/prefix_cache.h"
#include "engine/types.h"
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
    // Members by their place of arrival, ascending. Cache and budget outlive the fork.
    PromptFork(PrefixCache& cache, ForkBudget& budget, std::vector<std::uint64_t> members)
        : cache_(cache), budget_(budget), id_(members.front()), members_(std::move(members)) {}
    ~PromptFork() { release(); }
    PromptFork(const PromptFork&) = delete;
    PromptFork& operator=(const PromptFork&) = delete;

    std::uint64_t id() const { return id_; }  // of no other fork of this engine
    bool ready() const { return rows_.has_value(); }
    bool runs_prompt(std::uint64_t member) const { return members_.front() == member; }
    // What is kept is let go when nobody is left to want it.
    void leave(std::uint64_t member);

    // Keeps the state of a sequence that has run its prompt exactly, if the budget allows: the
    // blocks before its last row, and the page that holds that row.
    void capture(const SequenceState& state, std::span<PrefixCache::Block* const> blocks,
                 const std::uint8_t* last_page, const Anchors& anchors, std::int64_t first_row);
    const std::vector<PrefixCache::Block*>& blocks() const { return blocks_; }  // in use
    const Anchors& anchors() const { return anchors_; }
    std::int64_t first_row() const { return first_row_; }
    // Fills a page, and the rows and floors of a new sequence.
    void restore(std::uint8_t* last_page, SequenceState& state) const;

  private:
    void release();

    PrefixCache& cache_;
    ForkBudget& budget_;
    const std::uint64_t id_;
    std::vector<std::uint64_t> members_;
    std::vector<PrefixCache::Block*> blocks_;
    Anchors anchors_;
    std::int64_t first_row_ = 0;
    std::vector<std::uint8_t> last_page_;
    std::optional<SequenceState> rows_;
};

}  // namespace fathom
