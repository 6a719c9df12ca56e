// A trace through any number of cache policies at once: the file is read one time, every request
// goes to every model. Pages of other sizes than the trace's blocks follow from those: a larger
// page is a group of blocks, named by its last one; a smaller one is a part of a block.
//
// A trace's last block may be partial (mooncake). `keep_tail` treats it as a page, which is how the
// published figures of these traces count; the pool keeps whole pages only, and without `keep_tail`
// so does the model. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "sim/replay/cache_model.h"
#include "sim/replay/gap_survival.h"
#include "sim/replay/trace.h"

namespace fathom {

struct ReplayOptions {
    TraceOptions trace;
    bool keep_tail = true;
    // Called now and then with the bytes of the file that were read and its size, 0 when unknown;
    // false ends the replay as cancelled.
    std::function<bool(std::int64_t done, std::int64_t total)> progress;
    GapSurvival* gaps = nullptr;  // sees every block of every input, where it is wanted
};

struct ReplayRow {
    CachePolicy policy;
    CacheCounts counts;
};
struct ReplayResult {
    TraceFormat format{};
    std::int64_t block_tokens = 0;
    std::vector<ReplayRow> rows;  // beside the policies
};

// Policies with page_tokens 0 get the trace's own block. invalid_argument when a page size and the
// trace's block do not divide each other, a policy is wrong, or the trace is.
Result<ReplayResult> replay_trace(const std::string& path, std::span<const CachePolicy> policies,
                                  const ReplayOptions& options);
Result<ReplayResult> replay_trace(TraceReader& reader, std::span<const CachePolicy> policies,
                                  const ReplayOptions& options);

}  // namespace fathom
