// What a pool would have had of a trace's prompts, under one policy. A page is the KV of a number
// of tokens; requests bring the pages of their input in order, and those at its beginning that are
// there are hits. Afterwards all its pages are there, as a decode instance persists them:
//
//   unlimited  a page lives for ever
//   refresh    for its TTL from its last use
//   fixed      for its TTL from when it was written; then it is written again by the next request
//              that lacks it (Rewrite::miss), or never (Rewrite::never, as a pool does whose
//              writers trust a list of what they wrote)
//   renew      as fixed, but a request that finds a page with less than `renew_share` of its TTL
//              left writes it anew (kvpool.md 6)
//
// With buckets a page expires at the end of its bucket plus TTL. An evictor limits the space on
// top. Requests take no time: what one leaves is there for the next. The time of a request that is
// earlier than the one before it is taken as the same. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "sim/replay/evictor.h"
#include "sim/replay/window_model.h"

namespace fathom {

enum class Expiry : std::uint8_t { unlimited, refresh, fixed, renew };
std::string_view expiry_name(Expiry expiry);
enum class Rewrite : std::uint8_t { miss, never };

struct CachePolicy {
    Expiry expiry = Expiry::unlimited;
    std::int64_t ttl_us = 0;     // all but unlimited
    std::int64_t bucket_us = 0;  // 0: expiry is exact
    double renew_share = 0.25;   // renew
    Rewrite rewrite = Rewrite::miss;
    Eviction eviction = Eviction::none;
    std::int64_t capacity_bytes = 0;  // with an eviction
    bool persist_output = false;
    std::int64_t page_tokens = 0;
    std::int64_t token_bytes = 890;
    WindowOptions window;

    std::int64_t page_bytes() const { return page_tokens * token_bytes; }
};
// invalid_argument when values are out of range, or do not go together.
Status check_policy(const CachePolicy& policy);

// One request as pages. Several models of one page size share it.
struct PagedRequest {
    std::int64_t time_us = 0;
    std::int64_t input_tokens = 0;
    std::span<const ReplayPage> pages;         // of the input
    std::span<const ReplayPage> output_pages;  // behind it
    ReplayPage pages_end = 0;                  // above every page of both
};

// Sums over a replay. Tokens of the input are hits, or misses by the cause of each page: a page
// that is there but behind one that is not counts under the cause of that one.
struct CacheCounts {
    std::int64_t requests = 0, input_tokens = 0, hit_tokens = 0;
    std::int64_t absent_tokens = 0, expired_tokens = 0, evicted_tokens = 0;
    std::int64_t tail_tokens = 0;                                       // behind the last page
    std::int64_t read_pages = 0, written_pages = 0, renewed_pages = 0;  // renewed: not in written
    std::int64_t live_pages_peak = 0;   // not expired, not evicted; of the largest scope
    std::int64_t space_bytes_peak = 0;  // the same in bytes; with segments all of their space
    WindowCounts windows;

    double hit_share() const {
        return input_tokens > 0
                   ? static_cast<double>(hit_tokens) / static_cast<double>(input_tokens)
                   : 0;
    }
};

class CacheModel : private Evictor::Cache {
  public:
    explicit CacheModel(const CachePolicy& policy);  // checked before

    // Pages mean others from now on; the counts go on.
    void begin_scope();
    void replay(const PagedRequest& request);
    // The same in two parts, for those whose requests take time: what is there of the input,
    // counted as replay() does, in leading pages; and all pages as they are when the request is
    // done. Windows are not studied.
    std::size_t look_up(const PagedRequest& request);
    void keep(const PagedRequest& request);

    const CachePolicy& policy() const { return policy_; }
    const CacheCounts& counts() const { return counts_; }

  private:
    // Pages written with the same expiry are an epoch; epochs end in the order they began. A page's
    // mark is its epoch's number, so that it is live when that is not before the first one left.
    using Mark = std::uint32_t;
    struct Epoch {
        std::int64_t expiry_us = 0, pages = 0;
    };
    static constexpr Mark kNever = 0, kEvicted = 1, kFirstEpoch = 2;

    bool is_live(ReplayPage page) const override { return marks_[page] >= first_epoch_; }
    std::int64_t live_pages() const override { return live_pages_; }
    void evict(ReplayPage page) override;

    void advance(std::int64_t time_us);
    void open_epoch();
    std::size_t count_input(const PagedRequest& request);
    void reach(ReplayPage pages_end);
    void keep_from(const PagedRequest& request, std::size_t first);
    std::int64_t& missed_tokens(ReplayPage page);
    void store(ReplayPage page);
    void write(ReplayPage page);
    void move_to_newest(ReplayPage page);

    CachePolicy policy_;
    CacheCounts counts_;
    std::unique_ptr<Evictor> evictor_;
    WindowModel windows_;
    std::int64_t now_us_ = 0;
    std::vector<Mark> marks_;
    std::deque<Epoch> epochs_;
    Mark first_epoch_ = kFirstEpoch;
    std::int64_t live_pages_ = 0;
};

}  // namespace fathom
