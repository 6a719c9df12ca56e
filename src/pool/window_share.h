// Windows of an engine in memory of the node, and those of other processes that use the same pool
// there (kvpool.md 9): what a server computed a moment ago another one continues from, without
// computing anything again.
//
//   DIR/windows/<boot>-<pid>-<fd>   names the memory of a process; an empty file, nothing of a
//                                   window is ever in it
//
// <boot> tells machines and their lives apart. Names whose process is gone are removed. Memory is
// readable for processes of the same user alone, and an entry only under its block's key.
//
// One owner thread, the engine's.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/metrics.h"
#include "engine/window_tier.h"
#include "pool/window_cache.h"

namespace fathom {

struct WindowShareOptions {
    std::string directory;         // DIR/windows; empty: nobody else's
    std::string layout;            // of an entry, as window_key() wants it
    std::int64_t entry_bytes = 0;  // rows of other sizes are not kept
    std::int64_t budget_bytes = 0;
    std::int64_t life_us = kWindowLifeUs;
    std::int64_t look_us = 1'000'000;  // how often other processes are looked for
};

class WindowShare final : public WindowTier {
  public:
    // Errors as WindowCache::create, and a directory that cannot be made or written.
    static Result<std::unique_ptr<WindowShare>> open(const WindowShareOptions& options,
                                                     const Clock& clock, MetricsRegistry& metrics);
    ~WindowShare() override;

    void keep(const BlockKey& block, std::span<const std::uint8_t> rows) override;
    bool recall(const BlockKey& block, std::vector<std::uint8_t>& rows) override;
    void expire() override;

  private:
    struct Metrics;
    WindowShare(const WindowShareOptions& options, const Clock& clock, MetricsRegistry& metrics);
    Status publish();  // where the directory is
    void look();
    bool recall_from_others(const BlockKey& key, std::span<std::uint8_t> rows) const;

    const WindowShareOptions options_;
    const Clock& clock_;
    std::unique_ptr<Metrics> metrics_;
    std::unique_ptr<WindowCache> own_;
    std::string boot_, own_name_;
    std::map<std::string, std::unique_ptr<WindowReader>> others_;  // by name; null: not readable
    std::int64_t look_after_us_ = 0;
};

}  // namespace fathom
