// One line of a trace as numbers that were checked: sizes are within the limits and fit each other.
// Pure functions; messages name the field, the value and the expectation, callers add the line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "sim/replay/trace.h"

namespace fathom {

inline constexpr std::int64_t kMooncakeBlockTokens = 512;
inline constexpr std::int64_t kLmcacheBlockTokens = 128;
inline constexpr std::int64_t kLmcacheBytesPerToken = 4;

// Which format a line is of, by its fields.
Result<TraceFormat> detect_trace_format(const Json& line);

// A line of mooncake or lmcache: one request.
struct RequestLine {
    std::string suite;  // lmcache
    std::int64_t time_us = 0, input_tokens = 0, output_tokens = 0;
    std::vector<std::uint64_t> ids;
};
Status parse_request_line(const Json& line, TraceFormat format, const TraceLimits& limits,
                          RequestLine& request);

// A line of agentic: a conversation, its requests in the order of time. Requests of one agent never
// go back in time; a request begins with `prefix` blocks of the one before it of its agent.
struct IdRun {
    std::uint64_t first = 0;
    std::uint32_t count = 0;
};
struct ConversationRequest {
    std::uint32_t agent = 0;  // counted from 0
    std::int64_t time_us = 0, input_tokens = 0, output_tokens = 0;
    std::uint32_t prefix = 0, blocks = 0;  // blocks = prefix + those of the runs
    std::vector<IdRun> runs;
};
struct Conversation {
    std::int64_t block_tokens = 0;
    std::uint32_t agents = 0;
    std::vector<ConversationRequest> requests;
};
Status parse_conversation_line(const Json& line, const TraceLimits& limits,
                               Conversation& conversation);

}  // namespace fathom
