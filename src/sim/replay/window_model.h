// How often a node-local cache of windows (kvpool.md 9) would have held what a request needs: the
// window at the boundary where its prefix hit ends. Every request leaves that window and the one of
// its last whole page on the node that prefilled it; they live for a TTL from their last use. Two
// ways to choose a node are counted side by side: at random, and with affinity (a node that has the
// window, where one has; at random otherwise). One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>

#include "sim/replay/evictor.h"

namespace fathom {

struct WindowOptions {
    std::int64_t nodes = 0;  // 0: not studied
    std::int64_t ttl_us = 180'000'000;
    std::uint64_t seed = 1;
};

struct WindowCounts {
    std::int64_t wanted = 0;  // requests with a prefix hit
    std::int64_t hits_random = 0, hits_affinity = 0;
};

class WindowModel {
  public:
    explicit WindowModel(const WindowOptions& options) : options_(options) {}

    struct Request {
        std::int64_t time_us = 0;
        std::span<const ReplayPage> pages;
        std::size_t hit_pages = 0, whole_pages = 0;
    };
    void begin_scope();
    void replay(const Request& request);
    const WindowCounts& counts() const { return counts_; }

  private:
    using Key = std::pair<ReplayPage, std::int64_t>;  // boundary (its last page), node
    using Windows = std::map<Key, std::int64_t>;      // time of the last use

    bool is_live(Windows::const_iterator window, std::int64_t time_us) const;
    bool find(Windows& windows, Key key, std::int64_t time_us);
    std::int64_t node_with(const Windows& windows, ReplayPage boundary, std::int64_t time_us,
                           std::int64_t otherwise) const;

    WindowOptions options_;
    WindowCounts counts_;
    std::uint64_t requests_ = 0;
    Windows random_, affinity_;
};

}  // namespace fathom
