#include "sim/replay/evictor.h"

#include <algorithm>
#include <array>
#include <deque>

#include "base/check.h"

namespace fathom {
namespace {

constexpr ReplayPage kNoPage = static_cast<ReplayPage>(-1);

template <typename T>
T& grown(std::vector<T>& list, ReplayPage page, T fill) {
    if (page >= list.size())
        list.resize(std::max<std::size_t>(std::size_t{page} + 1, list.size() * 3 / 2), fill);
    return list[page];
}

// Queues of pages as links in arrays: a page is in one queue at most, and leaves it in O(1).
class PageQueues {
  public:
    static constexpr std::uint8_t kOutside = 255;

    void push(std::uint8_t queue, ReplayPage page) {
        Link& link = grown(links_, page, Link{});
        FATHOM_CHECK(link.queue == kOutside);
        End& end = ends_[queue];
        link = {end.newest, kNoPage, queue};
        (end.newest == kNoPage ? end.oldest : links_[end.newest].newer) = page;
        end.newest = page;
        ++end.size;
    }

    void remove(ReplayPage page) {
        Link& link = links_[page];
        End& end = ends_[link.queue];
        (link.older == kNoPage ? end.oldest : links_[link.older].newer) = link.newer;
        (link.newer == kNoPage ? end.newest : links_[link.newer].older) = link.older;
        --end.size;
        link.queue = kOutside;
    }

    std::uint8_t queue_of(ReplayPage page) const {
        return page < links_.size() ? links_[page].queue : kOutside;
    }
    ReplayPage oldest(std::uint8_t queue) const { return ends_[queue].oldest; }
    std::int64_t size(std::uint8_t queue) const { return ends_[queue].size; }

  private:
    struct Link {
        ReplayPage older = kNoPage, newer = kNoPage;
        std::uint8_t queue = kOutside;
    };
    struct End {
        ReplayPage oldest = kNoPage, newest = kNoPage;
        std::int64_t size = 0;
    };
    std::vector<Link> links_;
    std::array<End, 2> ends_;
};

class LruEvictor : public Evictor {
  public:
    explicit LruEvictor(const SpaceLimit& limit)
        : page_bytes_(limit.page_bytes), pages_max_(limit.capacity_bytes / limit.page_bytes) {}

    void wrote(ReplayPage page, std::int64_t) override { used(page); }
    void used(ReplayPage page) override {
        if (queues_.queue_of(page) != PageQueues::kOutside) queues_.remove(page);
        queues_.push(0, page);
    }
    void expire(std::int64_t) override {}  // expired pages do not count, and fall out at the end
    void shrink(Cache& cache) override {
        while (cache.live_pages() > pages_max_) {
            const ReplayPage page = queues_.oldest(0);
            queues_.remove(page);
            if (cache.is_live(page)) cache.evict(page);
        }
    }
    std::int64_t space_bytes(const Cache& cache) const override {
        return cache.live_pages() * page_bytes_;
    }

  private:
    std::int64_t page_bytes_, pages_max_;
    PageQueues queues_;
};

class S3FifoEvictor : public Evictor {
  public:
    explicit S3FifoEvictor(const SpaceLimit& limit)
        : page_bytes_(limit.page_bytes),
          pages_max_(limit.capacity_bytes / limit.page_bytes),
          small_max_(std::max<std::int64_t>(1, pages_max_ / 10)) {}

    void wrote(ReplayPage page, std::int64_t) override {
        if (queues_.queue_of(page) != PageQueues::kOutside) queues_.remove(page);  // had expired
        const std::int64_t left_at = grown(left_at_, page, std::int64_t{-1});
        const bool came_back = left_at >= 0 && evictions_ - left_at <= pages_max_ - small_max_;
        queues_.push(came_back ? kMain : kSmall, page);
        grown(uses_, page, std::uint8_t{0}) = 0;
    }
    void used(ReplayPage page) override {
        std::uint8_t& uses = uses_[page];
        uses = std::min<std::uint8_t>(3, static_cast<std::uint8_t>(uses + 1));
    }
    void expire(std::int64_t) override {}
    void shrink(Cache& cache) override {
        while (cache.live_pages() > pages_max_) {
            const bool from_small = queues_.size(kSmall) > small_max_ || queues_.size(kMain) == 0;
            const ReplayPage page = queues_.oldest(from_small ? kSmall : kMain);
            queues_.remove(page);
            if (!cache.is_live(page)) continue;
            std::uint8_t& uses = uses_[page];
            if (from_small && uses > 1) {
                uses = 0;
                queues_.push(kMain, page);
            } else if (!from_small && uses > 0) {
                --uses;
                queues_.push(kMain, page);
            } else {
                // Only pages that left the small queue are remembered.
                left_at_[page] = from_small ? evictions_++ : -1;
                cache.evict(page);
            }
        }
    }
    std::int64_t space_bytes(const Cache& cache) const override {
        return cache.live_pages() * page_bytes_;
    }

  private:
    static constexpr std::uint8_t kSmall = 0, kMain = 1;
    std::int64_t page_bytes_, pages_max_, small_max_;
    PageQueues queues_;
    std::vector<std::uint8_t> uses_;
    std::vector<std::int64_t> left_at_;  // number of the eviction that dropped it; -1: none
    std::int64_t evictions_ = 0;
};

class SegmentEvictor : public Evictor {
  public:
    explicit SegmentEvictor(const SpaceLimit& limit)
        : segment_bytes_(limit.segment_bytes),
          slots_(std::max<std::int64_t>(1, limit.segment_bytes / limit.page_bytes)),
          high_bytes_(share_of(limit.capacity_bytes, limit.high_share)),
          low_bytes_(share_of(limit.capacity_bytes, limit.low_share)) {}

    void wrote(ReplayPage page, std::int64_t expiry_us) override {
        // A segment has one expiry bucket; where expiry is exact its pages lie close together.
        if (segments_.empty() || static_cast<std::int64_t>(segments_.back().pages.size()) == slots_)
            segments_.emplace_back();
        Segment& segment = segments_.back();
        segment.pages.push_back(page);
        segment.expiry_us = expiry_us;
        grown(segment_of_, page, std::uint64_t{0}) = last_number();
    }
    void used(ReplayPage) override {}
    void expire(std::int64_t now_us) override {
        while (!segments_.empty() && segments_.front().expiry_us < now_us)
            pop();
    }
    void shrink(Cache& cache) override {
        if (allocated_bytes() <= high_bytes_) return;
        while (!segments_.empty() && allocated_bytes() > low_bytes_) {
            for (const ReplayPage page : segments_.front().pages)
                if (segment_of_[page] == first_number_ && cache.is_live(page)) cache.evict(page);
            pop();
        }
    }
    std::int64_t space_bytes(const Cache&) const override { return allocated_bytes(); }

  private:
    struct Segment {
        std::int64_t expiry_us = 0;  // of the page written last, the latest
        std::vector<ReplayPage> pages;
    };

    static std::int64_t share_of(std::int64_t bytes, double share) {
        return static_cast<std::int64_t>(static_cast<double>(bytes) * share);
    }
    std::int64_t allocated_bytes() const {
        return static_cast<std::int64_t>(segments_.size()) * segment_bytes_;
    }
    std::uint64_t last_number() const { return first_number_ + segments_.size() - 1; }
    void pop() {
        segments_.pop_front();
        ++first_number_;
    }

    std::int64_t segment_bytes_, slots_, high_bytes_, low_bytes_;
    std::deque<Segment> segments_;  // in the order of expiry, which is the order of writing
    std::uint64_t first_number_ = 1;
    std::vector<std::uint64_t> segment_of_;  // where a page's newest copy is
};

}  // namespace

std::string_view eviction_name(Eviction eviction) {
    constexpr std::string_view kNames[] = {"none", "lru", "s3-fifo", "earliest"};
    return kNames[static_cast<std::size_t>(eviction)];
}

std::unique_ptr<Evictor> Evictor::make(Eviction eviction, const SpaceLimit& limit) {
    FATHOM_CHECK(limit.page_bytes > 0 && limit.capacity_bytes >= 0 && limit.segment_bytes > 0);
    switch (eviction) {
        case Eviction::none:
            return nullptr;
        case Eviction::lru:
            return std::make_unique<LruEvictor>(limit);
        case Eviction::s3_fifo:
            return std::make_unique<S3FifoEvictor>(limit);
        case Eviction::earliest:
            return std::make_unique<SegmentEvictor>(limit);
    }
    return nullptr;
}

}  // namespace fathom
