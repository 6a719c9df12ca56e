// Traces of requests, in turn and spread on one axis. An accepted trace gives requests whose blocks
// fit their input, and a replay of it whose sums add up.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "sim/replay/replay.h"

namespace {

fathom::TraceReader::NextLine lines_of(std::string_view text) {
    return [text](std::string& line) mutable {
        if (text.empty()) return fathom::Result<bool>(false);
        const std::size_t end = text.find('\n');
        line = text.substr(0, end);
        text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
        return fathom::Result<bool>(true);
    };
}

fathom::CachePolicy policy_of(fathom::Expiry expiry, fathom::Eviction eviction) {
    fathom::CachePolicy policy;
    policy.expiry = expiry;
    policy.ttl_us = 1'000'000;
    policy.eviction = eviction;
    policy.capacity_bytes = std::int64_t{1} << 27;
    policy.window.nodes = 3;
    return policy;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    fathom::ReplayOptions options;
    options.trace.limits = {.line_bytes_max = 1 << 20,
                            .request_tokens_max = 1 << 14,
                            .requests_max = 1000,
                            .blocks_max = 1 << 16,
                            .held_bytes_max = 1 << 20};
    options.trace.spread_us = (data[0] & 1) != 0 ? 1000 : 0;
    options.keep_tail = (data[0] & 2) != 0;
    const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
    auto reader = fathom::TraceReader::from_lines("fuzz", lines_of(text), options.trace);
    if (!reader.ok()) {
        if (reader.status().message().empty()) std::abort();
        return 0;
    }
    using fathom::Eviction;
    using fathom::Expiry;
    const std::vector<fathom::CachePolicy> policies = {
        policy_of(Expiry::unlimited, Eviction::none), policy_of(Expiry::refresh, Eviction::lru),
        policy_of(Expiry::fixed, Eviction::s3_fifo), policy_of(Expiry::renew, Eviction::earliest)};
    const auto result = fathom::replay_trace(**reader, policies, options);
    if (!result.ok()) return 0;
    for (const fathom::ReplayRow& row : result->rows) {
        const fathom::CacheCounts& counts = row.counts;
        if (counts.hit_tokens < 0 || counts.hit_tokens > result->rows[0].counts.hit_tokens ||
            counts.input_tokens != counts.hit_tokens + counts.absent_tokens +
                                       counts.expired_tokens + counts.evicted_tokens +
                                       counts.tail_tokens)
            std::abort();
    }
    return 0;
}
