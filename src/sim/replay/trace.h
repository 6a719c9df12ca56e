// Traces of requests, for studies of what a cache would have kept. A trace says when requests came,
// how long they were and which blocks they began with; it has no text. Three formats, told apart by
// their first line:
//
//   mooncake  {"timestamp" ms, "input_length", "output_length", "hash_ids": […]}
//             ids of 512-token blocks, the last one perhaps partial; one axis of time
//   agentic   {"id", "block", "reqs": [{"a", "t" s, "in", "out", "p", "n": [[first, count], …]}]}
//             a conversation a line, ids and times its own; whole blocks only
//   lmcache   {"suite", "session", "t_us", "in_bytes", "out_bytes", "hash_ids": […]}
//             blocks of 512 bytes, taken as 128 tokens; a suite has its own axis of time
//
// In all of them an id names a block together with everything before it. A *scope* is what has one
// axis of time: the file, a conversation, or a suite. Blocks come out numbered densely from 0
// within their scope, so that a model of a cache can be an array.
//
// Lines are read one by one; memory holds one line, the blocks seen in the scope and, when
// conversations are put on a common axis, all conversations in their compact form.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace fathom {

enum class TraceFormat : std::uint8_t { mooncake, agentic, lmcache };
std::string_view trace_format_name(TraceFormat format);

using TraceBlock = std::uint32_t;

struct TraceRequest {
    bool new_scope = false;  // times and block numbers begin anew
    std::int64_t time_us = 0;
    std::int64_t input_tokens = 0, output_tokens = 0;
    std::vector<TraceBlock> blocks;  // of the input, from its first token
    // The blocks behind the input that this request's output fills, as far as the trace tells:
    // those with which the next request of the same agent goes on. Only agentic traces tell.
    std::vector<TraceBlock> output_blocks;
};

struct TraceLimits {
    std::int64_t line_bytes_max = 64 << 20;
    std::int64_t request_tokens_max = 16 << 20;
    std::int64_t requests_max = std::int64_t{1} << 28;    // of a line
    std::int64_t blocks_max = std::int64_t{1} << 28;      // distinct ones in a scope
    std::int64_t held_bytes_max = std::int64_t{2} << 30;  // conversations held in memory
};

struct TraceOptions {
    // Agentic traces: conversations begin at random within this time and are replayed on one axis,
    // as a cache of limited size sees them. 0: one after another, each on its own axis.
    std::int64_t spread_us = 0;
    std::uint64_t seed = 1;
    TraceLimits limits;
};

class TraceReader {
  public:
    static Result<std::unique_ptr<TraceReader>> open(const std::string& path,
                                                     const TraceOptions& options);
    // The same from lines that `next_line` gives until it returns false; `name` is what messages
    // call them.
    using NextLine = std::function<Result<bool>(std::string& line)>;
    static Result<std::unique_ptr<TraceReader>> from_lines(std::string name, NextLine next_line,
                                                           const TraceOptions& options);
    virtual ~TraceReader() = default;

    virtual TraceFormat format() const = 0;
    virtual std::int64_t block_tokens() const = 0;
    // The next request in the order of time within its scope; false at the end. Reuses the vectors
    // of `request`. invalid_argument names file, line, field, value and expectation.
    virtual Result<bool> next(TraceRequest& request) = 0;
    // Bytes of the file read so far and in all, for progress; 0 where that is unknown.
    virtual std::int64_t bytes_read() const = 0;
    virtual std::int64_t bytes_total() const = 0;
};

}  // namespace fathom
