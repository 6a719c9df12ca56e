// What `fathom pool replay` was asked for: its settings as text, and the policies that they mean.
// Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "sim/replay/replay.h"

namespace fathom {

struct ReplaySettings {
    std::string policy = "unlimited,refresh,fixed,renew";
    std::string ttl = "1h,5h,1d,3d", bucket = "0s", rewrite = "miss";
    double renew_at = 0.25;
    std::string capacity, eviction = "lru,s3-fifo,earliest";
    std::string page, output = "drop", tail = "keep", spread = "0s";
    std::int64_t token_bytes = 890, nodes = 0, seed = 1;
    std::string window_ttl = "180s";
    std::string study = "none", csv, svg;
    bool json = false;
};

struct ReplayPlan {
    std::vector<CachePolicy> policies;
    ReplayOptions options;
    std::int64_t left_out = 0;  // combinations that do not go together
};

// Every combination of the lists, each once. invalid_argument names the setting, the word and the
// expectation.
Result<ReplayPlan> make_replay_plan(const ReplaySettings& settings);

// "90s", "15m", "1h", "3d", with a fraction if need be.
Result<std::int64_t> parse_duration_us(std::string_view name, std::string_view text);
// "4GiB", "512MiB", "1.5TiB", "1000" (bytes).
Result<std::int64_t> parse_bytes(std::string_view name, std::string_view text);
std::string duration_text(std::int64_t us);  // the same spelling, in the largest whole unit

}  // namespace fathom
