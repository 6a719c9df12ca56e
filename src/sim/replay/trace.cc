#include "sim/replay/trace.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <queue>
#include <unordered_map>
#include <utility>

#include "base/random.h"
#include "sim/replay/trace_file.h"
#include "sim/replay/trace_lines.h"

namespace fathom {
namespace {

// Lines as JSON, with the name of the file and the number of the line in every error.
class JsonLines {
  public:
    JsonLines(std::string name, TraceReader::NextLine next_line, const TraceLimits& limits)
        : name_(std::move(name)), next_line_(std::move(next_line)), limits_(limits) {}

    // The next line that is not blank; false at the end.
    Result<bool> next(Json& json) {
        if (peeked_) {
            json = std::move(*std::exchange(peeked_, std::nullopt));
            return true;
        }
        while (true) {
            FATHOM_ASSIGN(const bool more, next_line_(line_));
            if (!more) return false;
            ++number_;
            if (line_.find_first_not_of(" \t\r") == std::string::npos) continue;
            auto parsed =
                parse_json(line_, {.bytes_max = static_cast<std::size_t>(limits_.line_bytes_max)});
            if (!parsed.ok()) return here(parsed.status());
            json = std::move(*parsed);
            if (json.is_object()) return true;
            return here(invalid_argument("expected an object, got {}", json.kind_name()));
        }
    }

    Result<TraceFormat> detect() {
        Json first;
        FATHOM_ASSIGN(const bool any, next(first));
        if (!any) return invalid_argument("{}: the trace is empty", name_);
        const Result<TraceFormat> format = detect_trace_format(first);
        if (!format.ok()) return here(format.status());
        peeked_ = std::move(first);
        return *format;
    }

    Status here(const Status& status) const {
        return status.with_context(fmt::format("{}:{}", name_, number_));
    }

  private:
    std::string name_;
    TraceReader::NextLine next_line_;
    TraceLimits limits_;
    std::string line_;
    std::int64_t number_ = 0;
    std::optional<Json> peeked_;
};

// Numbers ids densely. Iteration order plays no part: the map is only looked up.
class BlockNumbers {
  public:
    Result<TraceBlock> number(std::uint64_t id, std::int64_t blocks_max, std::int64_t& next) {
        const auto [at, is_new] = numbers_.try_emplace(id, static_cast<TraceBlock>(next));
        if (is_new && ++next > blocks_max)
            return error(StatusCode::resource_exhausted, "more than {} distinct blocks",
                         blocks_max);
        return at->second;
    }
    void clear() { numbers_.clear(); }

  private:
    std::unordered_map<std::uint64_t, TraceBlock> numbers_;
};

// mooncake and lmcache: a request a line.
class RequestReader : public TraceReader {
  public:
    RequestReader(JsonLines lines, TraceFormat format, const TraceLimits& limits)
        : lines_(std::move(lines)), format_(format), limits_(limits) {}

    TraceFormat format() const override { return format_; }
    std::int64_t block_tokens() const override {
        return format_ == TraceFormat::mooncake ? kMooncakeBlockTokens : kLmcacheBlockTokens;
    }

    Result<bool> next(TraceRequest& request) override {
        Json json;
        FATHOM_ASSIGN(const bool more, lines_.next(json));
        if (!more) return false;
        if (Status status = read(json, request); !status.ok()) return lines_.here(status);
        return true;
    }

    std::int64_t bytes_read() const override { return 0; }
    std::int64_t bytes_total() const override { return 0; }

  private:
    Status read(const Json& json, TraceRequest& request) {
        FATHOM_RETURN_IF_ERROR(parse_request_line(json, format_, limits_, row_));
        request.new_scope = !begun_ || row_.suite != suite_;
        if (request.new_scope) {
            begun_ = true;
            suite_ = row_.suite;
            numbers_.clear();
            blocks_ = 0;
        } else if (row_.time_us < time_us_) {
            return invalid_argument("the request at {} us is before the one above it, at {} us",
                                    row_.time_us, time_us_);
        }
        time_us_ = request.time_us = row_.time_us;
        request.input_tokens = row_.input_tokens;
        request.output_tokens = row_.output_tokens;
        request.blocks.clear();
        request.output_blocks.clear();
        for (const std::uint64_t id : row_.ids) {
            FATHOM_ASSIGN(const TraceBlock block, numbers_.number(id, limits_.blocks_max, blocks_));
            request.blocks.push_back(block);
        }
        return {};
    }

    JsonLines lines_;
    TraceFormat format_;
    TraceLimits limits_;
    RequestLine row_;
    bool begun_ = false;
    std::string suite_;
    std::int64_t time_us_ = 0, blocks_ = 0;
    BlockNumbers numbers_;
};

// The requests of one conversation, expanded one at a time.
class ConversationWalk {
  public:
    ConversationWalk(Conversation conversation, std::int64_t start_us)
        : conversation_(std::move(conversation)),
          start_us_(start_us),
          agents_(conversation_.agents),
          following_(conversation_.requests.size(), kNone) {
        std::vector<std::size_t> later(agents_.size(), kNone);
        for (std::size_t i = conversation_.requests.size(); i-- > 0;) {
            std::size_t& next = later[conversation_.requests[i].agent];
            following_[i] = std::exchange(next, i);
        }
    }

    bool done() const { return at_ == conversation_.requests.size(); }
    std::int64_t next_time_us() const { return start_us_ + conversation_.requests[at_].time_us; }

    Status next(TraceRequest& request, std::int64_t blocks_max, std::int64_t& blocks) {
        const ConversationRequest& row = conversation_.requests[at_];
        std::vector<TraceBlock>& chain = agents_[row.agent];
        chain.resize(row.prefix);
        for (const IdRun& run : row.runs)
            FATHOM_RETURN_IF_ERROR(append(run, run.count, chain, blocks_max, blocks));
        request.time_us = next_time_us();
        request.input_tokens = row.input_tokens;
        request.output_tokens = row.output_tokens;
        request.blocks = chain;
        request.output_blocks.clear();
        FATHOM_RETURN_IF_ERROR(read_output(row, request, blocks_max, blocks));
        ++at_;
        return {};
    }

  private:
    static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

    Status append(const IdRun& run, std::uint32_t count, std::vector<TraceBlock>& to,
                  std::int64_t blocks_max, std::int64_t& blocks) {
        for (std::uint32_t i = 0; i < count; ++i) {
            FATHOM_ASSIGN(const TraceBlock block,
                          numbers_.number(run.first + i, blocks_max, blocks));
            to.push_back(block);
        }
        return {};
    }

    // The output lies behind the input: the agent's next request, if it keeps all whole blocks of
    // this one, has the output's blocks next, as many as the output fills.
    Status read_output(const ConversationRequest& row, TraceRequest& request,
                       std::int64_t blocks_max, std::int64_t& blocks) {
        if (following_[at_] == kNone) return {};
        const ConversationRequest& next = conversation_.requests[following_[at_]];
        const std::int64_t whole = row.input_tokens / conversation_.block_tokens;
        if (next.prefix != row.blocks || row.blocks != whole) return {};
        std::int64_t left =
            (row.input_tokens + row.output_tokens) / conversation_.block_tokens - whole;
        for (const IdRun& run : next.runs) {
            const auto count = static_cast<std::uint32_t>(std::min<std::int64_t>(run.count, left));
            FATHOM_RETURN_IF_ERROR(append(run, count, request.output_blocks, blocks_max, blocks));
            left -= count;
        }
        return {};
    }

    Conversation conversation_;
    std::int64_t start_us_;
    std::size_t at_ = 0;
    std::vector<std::vector<TraceBlock>> agents_;  // the chain of each agent's last request
    std::vector<std::size_t> following_;           // the next request of the same agent
    BlockNumbers numbers_;
};

class AgenticReader : public TraceReader {
  public:
    AgenticReader(JsonLines lines, const TraceOptions& options)
        : lines_(std::move(lines)), options_(options) {}

    Status start() {
        FATHOM_ASSIGN(const bool more, read_conversation());
        if (!more || options_.spread_us == 0) return {};
        do {
            held_.push_back(begin(std::move(conversation_), start_us(held_.size())));
            FATHOM_ASSIGN(const bool another, read_conversation());
            if (!another) break;
        } while (true);
        for (std::size_t i = 0; i < held_.size(); ++i)
            if (!held_[i]->done()) queue_.emplace(held_[i]->next_time_us(), i);
        return {};
    }

    TraceFormat format() const override { return TraceFormat::agentic; }
    std::int64_t block_tokens() const override { return block_tokens_; }
    std::int64_t bytes_read() const override { return 0; }
    std::int64_t bytes_total() const override { return 0; }

    Result<bool> next(TraceRequest& request) override {
        return options_.spread_us > 0 ? next_of_all(request) : next_in_turn(request);
    }

  private:
    using Walk = std::unique_ptr<ConversationWalk>;

    Walk begin(Conversation conversation, std::int64_t start_us) {
        return std::make_unique<ConversationWalk>(std::move(conversation), start_us);
    }

    std::int64_t start_us(std::size_t index) const {
        const double share = random_uniform(
            {.seed = options_.seed, .purpose = RandomPurpose::test_data, .index = index});
        return static_cast<std::int64_t>(share * static_cast<double>(options_.spread_us));
    }

    // The next line, into conversation_; false at the end.
    Result<bool> read_conversation() {
        Json json;
        FATHOM_ASSIGN(const bool more, lines_.next(json));
        if (!more) return false;
        Status status = parse_conversation_line(json, options_.limits, conversation_);
        if (status.ok() && block_tokens_ != 0 && conversation_.block_tokens != block_tokens_)
            status = invalid_argument("block: {}, expected {} as in the first line",
                                      conversation_.block_tokens, block_tokens_);
        if (!status.ok()) return lines_.here(status);
        block_tokens_ = conversation_.block_tokens;
        for (const ConversationRequest& row : conversation_.requests)
            held_bytes_ += static_cast<std::int64_t>(sizeof row + sizeof(IdRun) * row.runs.size());
        if (options_.spread_us > 0 && held_bytes_ > options_.limits.held_bytes_max)
            return lines_.here(error(StatusCode::resource_exhausted,
                                     "conversations take more than {} bytes; without a common "
                                     "axis of time they need not be held",
                                     options_.limits.held_bytes_max));
        return true;
    }

    Result<bool> next_in_turn(TraceRequest& request) {
        request.new_scope = walk_ == nullptr;
        while (walk_ == nullptr || walk_->done()) {
            if (walk_ != nullptr) {
                FATHOM_ASSIGN(const bool more, read_conversation());
                if (!more) return false;
            }
            walk_ = begin(std::move(conversation_), 0);
            blocks_ = 0;
            request.new_scope = true;
        }
        return step(*walk_, request);
    }

    Result<bool> next_of_all(TraceRequest& request) {
        if (queue_.empty()) return false;
        const std::size_t index = queue_.top().second;
        queue_.pop();
        request.new_scope = !std::exchange(begun_, true);
        FATHOM_ASSIGN(const bool read, step(*held_[index], request));
        if (held_[index]->done())
            held_[index].reset();
        else
            queue_.emplace(held_[index]->next_time_us(), index);
        return read;
    }

    Result<bool> step(ConversationWalk& walk, TraceRequest& request) {
        Status status = walk.next(request, options_.limits.blocks_max, blocks_);
        if (!status.ok()) return lines_.here(status);
        return true;
    }

    JsonLines lines_;
    TraceOptions options_;
    Conversation conversation_;
    std::int64_t block_tokens_ = 0, held_bytes_ = 0, blocks_ = 0;
    Walk walk_;  // conversations in turn
    // All at once, the earliest request first; of equal times the earlier line.
    std::vector<Walk> held_;
    using Due = std::pair<std::int64_t, std::size_t>;
    std::priority_queue<Due, std::vector<Due>, std::greater<>> queue_;
    bool begun_ = false;
};

// A reader of a file, which also knows how far it is.
class FileTraceReader : public TraceReader {
  public:
    FileTraceReader(std::shared_ptr<LineFile> file, std::unique_ptr<TraceReader> reader)
        : file_(std::move(file)), reader_(std::move(reader)) {}
    TraceFormat format() const override { return reader_->format(); }
    std::int64_t block_tokens() const override { return reader_->block_tokens(); }
    Result<bool> next(TraceRequest& request) override { return reader_->next(request); }
    std::int64_t bytes_read() const override { return file_->bytes_read(); }
    std::int64_t bytes_total() const override { return file_->bytes_total(); }

  private:
    std::shared_ptr<LineFile> file_;  // shared with the function that reads its lines
    std::unique_ptr<TraceReader> reader_;
};

}  // namespace

Result<std::unique_ptr<TraceReader>> TraceReader::from_lines(std::string name, NextLine next_line,
                                                             const TraceOptions& options) {
    JsonLines lines(name, std::move(next_line), options.limits);
    FATHOM_ASSIGN(const TraceFormat format, lines.detect());
    if (format != TraceFormat::agentic) {
        if (options.spread_us > 0)
            return invalid_argument(
                "{}: requests of a trace of format {} have one axis of time already, conversations "
                "cannot be spread",
                name, trace_format_name(format));
        return std::unique_ptr<TraceReader>(
            std::make_unique<RequestReader>(std::move(lines), format, options.limits));
    }
    auto reader = std::make_unique<AgenticReader>(std::move(lines), options);
    FATHOM_RETURN_IF_ERROR(reader->start());
    return std::unique_ptr<TraceReader>(std::move(reader));
}

Result<std::unique_ptr<TraceReader>> TraceReader::open(const std::string& path,
                                                       const TraceOptions& options) {
    FATHOM_ASSIGN(std::unique_ptr<LineFile> opened,
                  LineFile::open(path, options.limits.line_bytes_max));
    const std::shared_ptr<LineFile> file = std::move(opened);
    FATHOM_ASSIGN(std::unique_ptr<TraceReader> reader,
                  from_lines(
                      path, [file](std::string& line) { return file->next(line); }, options));
    return std::unique_ptr<TraceReader>(std::make_unique<FileTraceReader>(file, std::move(reader)));
}

}  // namespace fathom
