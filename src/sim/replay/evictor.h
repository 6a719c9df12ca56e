// Which pages go when a cache of limited size is full. A model of a cache (cache_model.h) tells an
// evictor what it writes and uses; after each request the evictor names pages to drop until what is
// left fits, so a single request may exceed the limit while it is replayed.
//
//   lru       the page used longest ago
//   s3_fifo   a tenth of the space takes new pages; those used again there move on to the rest,
//             where a page that was used stays for another round; a page that comes back soon after
//             it left goes straight there
//   earliest  what the store does (kvpool.md 6): pages lie in segments of 64 MiB in the order they
//             were written; above 90 % of the space whole segments go, the earliest expiry first,
//             down to 85 %. A page written anew leaves its old copy's space taken until its segment
//             goes.
//
// One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace fathom {

using ReplayPage = std::uint32_t;

enum class Eviction : std::uint8_t { none, lru, s3_fifo, earliest };
std::string_view eviction_name(Eviction eviction);

struct SpaceLimit {
    std::int64_t capacity_bytes = 0;
    std::int64_t page_bytes = 0;
    std::int64_t segment_bytes = std::int64_t{64} << 20;  // earliest
    double high_share = 0.90, low_share = 0.85;           // earliest
};

class Evictor {
  public:
    // What the evictor asks its cache: a page may have expired since it was written.
    class Cache {
      public:
        virtual ~Cache() = default;
        virtual bool is_live(ReplayPage page) const = 0;
        virtual std::int64_t live_pages() const = 0;
        virtual void evict(ReplayPage page) = 0;  // a live page
    };

    // Eviction::none has no evictor.
    static std::unique_ptr<Evictor> make(Eviction eviction, const SpaceLimit& limit);
    virtual ~Evictor() = default;

    virtual void wrote(ReplayPage page, std::int64_t expiry_us) = 0;  // new, or a new copy
    virtual void used(ReplayPage page) = 0;                           // live, found
    virtual void expire(std::int64_t now_us) = 0;  // what ended before now_us takes no space
    virtual void shrink(Cache& cache) = 0;
    // Bytes that the cache takes, for its peak.
    virtual std::int64_t space_bytes(const Cache& cache) const = 0;
};

}  // namespace fathom
