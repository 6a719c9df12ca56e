#include "sim/replay/trace_lines.h"

#include <algorithm>
#include <unordered_map>

namespace fathom {
namespace {

constexpr std::int64_t kTimeMaxUs = std::int64_t{1} << 52;  // 142 years
constexpr std::int64_t kBlockTokensMin = 16, kBlockTokensMax = 1 << 16;

// A member that is an integer from `min` to `max`.
Result<std::int64_t> member_int(const Json& object, std::string_view key, std::int64_t min,
                                std::int64_t max) {
    const Json* const value = object.find(key);
    if (value == nullptr) return invalid_argument("{}: is missing", key);
    if (value->kind() != Json::Kind::integer || value->as_int64() < min || value->as_int64() > max)
        return invalid_argument("{}: expected an integer from {} to {}, got {}", key, min, max,
                                value->is_number() ? value->dump() : value->kind_name());
    return value->as_int64();
}

Result<const Json::Array*> member_list(const Json& object, std::string_view key) {
    const Json* const value = object.find(key);
    if (value == nullptr) return invalid_argument("{}: is missing", key);
    if (!value->is_array())
        return invalid_argument("{}: expected a list, got {}", key, value->kind_name());
    return &value->items();
}

Result<std::uint64_t> block_id(const Json& value, std::string_view key) {
    if (value.kind() == Json::Kind::unsigned_integer) return value.as_uint64();
    if (value.kind() != Json::Kind::integer || value.as_int64() < 0)
        return invalid_argument("{}: expected block ids from 0, got {}", key,
                                value.is_number() ? value.dump() : value.kind_name());
    return static_cast<std::uint64_t>(value.as_int64());
}

Status check_fit(std::string_view key, std::size_t blocks, std::int64_t input_tokens,
                 std::int64_t block_tokens) {
    const std::int64_t most = (input_tokens + block_tokens - 1) / block_tokens;
    if (static_cast<std::int64_t>(blocks) <= most) return {};
    return invalid_argument(
        "{}: {} blocks of {} tokens for an input of {} tokens, expected at "
        "most {}",
        key, blocks, block_tokens, input_tokens, most);
}

// "t": seconds, perhaps with a fraction.
Result<std::int64_t> seconds_us(const Json& object) {
    const Json* const value = object.find("t");
    if (value == nullptr || !value->is_number())
        return invalid_argument("t: expected seconds, got {}",
                                value == nullptr ? "nothing" : value->kind_name());
    const double us = value->as_double() * 1e6;
    if (!(us >= 0 && us <= static_cast<double>(kTimeMaxUs)))
        return invalid_argument("t: {} s is not from 0 to {} s", value->dump(),
                                kTimeMaxUs / 1'000'000);
    return static_cast<std::int64_t>(us + 0.5);
}

class ConversationParser {
  public:
    ConversationParser(const TraceLimits& limits, Conversation& conversation)
        : limits_(limits), conversation_(conversation) {}

    Status add(const Json& row) {
        ConversationRequest request;
        const Json* const agent = row.find("a");
        if (agent == nullptr || !agent->is_string())
            return invalid_argument("a: expected the agent's name");
        const auto [at, is_new] = agents_.try_emplace(agent->as_string(), agents_.size());
        request.agent = static_cast<std::uint32_t>(at->second);
        if (is_new) last_.emplace_back();
        Last& last = last_[request.agent];
        FATHOM_ASSIGN(request.time_us, seconds_us(row));
        if (request.time_us < last.time_us)
            return invalid_argument("t: {} us is before the same agent's request at {} us",
                                    request.time_us, last.time_us);
        FATHOM_ASSIGN(request.input_tokens, member_int(row, "in", 0, limits_.request_tokens_max));
        FATHOM_ASSIGN(request.output_tokens, member_int(row, "out", 0, limits_.request_tokens_max));
        FATHOM_ASSIGN(const std::int64_t prefix, member_int(row, "p", 0, last.blocks));
        request.prefix = static_cast<std::uint32_t>(prefix);
        FATHOM_ASSIGN(request.blocks, read_runs(row, request));
        FATHOM_RETURN_IF_ERROR(
            check_fit("n", request.blocks, request.input_tokens, conversation_.block_tokens));
        last = {request.time_us, request.blocks};
        conversation_.agents = static_cast<std::uint32_t>(agents_.size());
        conversation_.requests.push_back(std::move(request));
        return {};
    }

  private:
    struct Last {
        std::int64_t time_us = 0;
        std::uint32_t blocks = 0;
    };

    Result<std::uint32_t> read_runs(const Json& row, ConversationRequest& request) const {
        FATHOM_ASSIGN(const Json::Array* const runs, member_list(row, "n"));
        std::int64_t blocks = request.prefix;
        for (const Json& run : *runs) {
            if (!run.is_array() || run.items().size() != 2)
                return invalid_argument("n: expected pairs [first id, count]");
            FATHOM_ASSIGN(const std::uint64_t first, block_id(run.items()[0], "n"));
            const Json& count = run.items()[1];
            const std::int64_t most = limits_.request_tokens_max / kBlockTokensMin;
            if (count.kind() != Json::Kind::integer || count.as_int64() < 1 ||
                count.as_int64() > most || first > UINT64_MAX - static_cast<std::uint64_t>(most))
                return invalid_argument("n: run [{}, {}]: expected a count from 1 to {}", first,
                                        count.dump(), most);
            blocks += count.as_int64();
            // Checked here as well: many runs must not add up beyond what fits.
            FATHOM_RETURN_IF_ERROR(check_fit("n", static_cast<std::size_t>(blocks),
                                             request.input_tokens, conversation_.block_tokens));
            request.runs.push_back({first, static_cast<std::uint32_t>(count.as_int64())});
        }
        return static_cast<std::uint32_t>(blocks);
    }

    const TraceLimits& limits_;
    Conversation& conversation_;
    std::unordered_map<std::string, std::size_t> agents_;  // name to number; only looked up
    std::vector<Last> last_;
};

}  // namespace

std::string_view trace_format_name(TraceFormat format) {
    constexpr std::string_view kNames[] = {"mooncake", "agentic", "lmcache"};
    return kNames[static_cast<std::size_t>(format)];
}

Result<TraceFormat> detect_trace_format(const Json& line) {
    if (line.find("reqs") != nullptr) return TraceFormat::agentic;
    if (line.find("suite") != nullptr) return TraceFormat::lmcache;
    if (line.find("timestamp") != nullptr) return TraceFormat::mooncake;
    return invalid_argument(
        "no known trace: expected the fields of mooncake (timestamp), agentic (reqs) or lmcache "
        "(suite)");
}

Status parse_request_line(const Json& line, TraceFormat format, const TraceLimits& limits,
                          RequestLine& request) {
    std::int64_t block_tokens = kMooncakeBlockTokens;
    if (format == TraceFormat::mooncake) {
        FATHOM_ASSIGN(const std::int64_t time_ms,
                      member_int(line, "timestamp", 0, kTimeMaxUs / 1000));
        request.time_us = time_ms * 1000;
        FATHOM_ASSIGN(request.input_tokens,
                      member_int(line, "input_length", 0, limits.request_tokens_max));
        FATHOM_ASSIGN(request.output_tokens,
                      member_int(line, "output_length", 0, limits.request_tokens_max));
    } else {
        block_tokens = kLmcacheBlockTokens;
        FATHOM_ASSIGN(request.suite, json_string(line, "suite", "line"));
        FATHOM_ASSIGN(request.time_us, member_int(line, "t_us", 0, kTimeMaxUs));
        const std::int64_t bytes_max = limits.request_tokens_max * kLmcacheBytesPerToken;
        FATHOM_ASSIGN(const std::int64_t in_bytes, member_int(line, "in_bytes", 0, bytes_max));
        FATHOM_ASSIGN(const std::int64_t out_bytes, member_int(line, "out_bytes", 0, bytes_max));
        request.input_tokens = in_bytes / kLmcacheBytesPerToken;
        request.output_tokens = out_bytes / kLmcacheBytesPerToken;
    }
    FATHOM_ASSIGN(const Json::Array* const ids, member_list(line, "hash_ids"));
    FATHOM_RETURN_IF_ERROR(check_fit("hash_ids", ids->size(), request.input_tokens, block_tokens));
    request.ids.clear();
    for (const Json& id : *ids) {
        FATHOM_ASSIGN(const std::uint64_t value, block_id(id, "hash_ids"));
        request.ids.push_back(value);
    }
    return {};
}

Status parse_conversation_line(const Json& line, const TraceLimits& limits,
                               Conversation& conversation) {
    conversation = {};
    FATHOM_ASSIGN(conversation.block_tokens,
                  member_int(line, "block", kBlockTokensMin, kBlockTokensMax));
    FATHOM_ASSIGN(const Json::Array* const rows, member_list(line, "reqs"));
    if (static_cast<std::int64_t>(rows->size()) > limits.requests_max)
        return invalid_argument("reqs: {} requests, expected at most {}", rows->size(),
                                limits.requests_max);
    ConversationParser parser(limits, conversation);
    for (std::size_t i = 0; i < rows->size(); ++i) {
        if (Status status = parser.add((*rows)[i]); !status.ok())
            return status.with_context(fmt::format("reqs[{}]", i));
    }
    // Agents overlap; what one request left must be there for the next of another.
    std::stable_sort(conversation.requests.begin(), conversation.requests.end(),
                     [](const ConversationRequest& a, const ConversationRequest& b) {
                         return a.time_us < b.time_us;
                     });
    return {};
}

}  // namespace fathom
