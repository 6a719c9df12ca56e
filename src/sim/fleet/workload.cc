#include "sim/fleet/workload.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <queue>
#include <utility>

#include "base/check.h"

namespace fathom {
namespace {

constexpr std::int64_t kGapMaxUs = std::int64_t{400} * 86'400 * 1'000'000;
constexpr std::int64_t kBlock = 128;

std::int32_t tokens(double value, std::int64_t max) {
    return static_cast<std::int32_t>(std::clamp(value, 1.0, static_cast<double>(max)));
}

// The calls of one session, appended to the book.
void write_session(const SessionConfig& config, Traffic traffic, std::int64_t context_max,
                   SimRandom random, std::vector<SessionCall>& book) {
    const double drawn = std::round(random.log_normal(config.calls_median, config.calls_sigma));
    const auto calls =
        static_cast<std::int64_t>(std::clamp(drawn, 1.0, static_cast<double>(config.calls_max)));
    double context = 0, answer = 0;
    for (std::int64_t i = 0; i < calls; ++i) {
        SessionCall call;
        call.traffic = traffic;
        const bool is_first = i == 0;
        const double added = is_first ? random.log_normal(config.first_tokens, config.first_sigma)
                                      : random.log_normal(config.added_tokens, config.added_sigma);
        const bool is_pause = random.uniform() < config.pause_share;
        const double gap_s = is_pause ? random.log_normal(config.pause_s, config.pause_sigma)
                                      : random.log_normal(config.gap_s, config.gap_sigma);
        double before = is_first ? config.prefix_tokens : context;
        double reusable = before;
        const double limit =
            config.compact_tokens > 0 ? config.compact_tokens : static_cast<double>(context_max);
        if (!is_first && before + added >= limit) {
            before = std::min(before, config.compacted_tokens > 0 ? config.compacted_tokens
                                                                  : config.prefix_tokens);
            reusable = std::min(before, config.prefix_tokens);
            answer = 0;
        }
        call.input_tokens = tokens(before + added, context_max);
        call.output_tokens =
            tokens(random.log_normal(config.output_tokens, config.output_sigma), context_max);
        call.shared_tokens = std::min(tokens(config.prefix_tokens, context_max), call.input_tokens);
        call.reusable_tokens = std::min(static_cast<std::int32_t>(reusable), call.input_tokens);
        call.gap_us =
            is_first
                ? kGapMaxUs
                : static_cast<std::int64_t>(std::min(gap_s * 1e6, static_cast<double>(kGapMaxUs)));
        call.is_first = is_first;
        call.answer_tokens = static_cast<std::int32_t>(answer);
        answer = call.output_tokens;
        context = static_cast<double>(call.input_tokens) + call.output_tokens;
        book.push_back(call);
    }
}

void describe(const SessionCall& call, Arrival& arrival) {
    arrival.traffic = call.traffic;
    arrival.input_tokens = call.input_tokens;
    arrival.output_tokens = call.output_tokens;
    arrival.reusable_tokens = call.reusable_tokens;
    arrival.shared_tokens = call.shared_tokens;
    arrival.gap_us = call.gap_us;
    arrival.answer_tokens = call.answer_tokens;
    arrival.block_tokens = 0;
}

class SessionWorkload : public Workload {
  public:
    SessionWorkload(const WorkloadConfig& config, std::uint64_t seed, std::vector<SessionCall> book,
                    double rate)
        : book_(std::move(book)),
          rate_(rate),
          burst_(config.burst),
          burst_ns_(config.burst_s * 1e9),
          shape_(config.shape),
          arrivals_(seed, 0, SimPurpose::arrival),
          calls_(seed, 0, SimPurpose::session) {
        FATHOM_CHECK(!book_.empty() && rate > 0);
        draw_call();
    }

    Result<bool> next(Arrival& arrival) override {
        draw_time();
        describe(book_[at_], arrival);
        draw_call();
        arrival.time_ns = static_cast<SimTime>(at_ns_);
        return true;
    }
    double rate() const override { return rate_; }

  private:
    // The next call's place in the book, known early enough to fetch it.
    void draw_call() {
        at_ = static_cast<std::size_t>(calls_.below(static_cast<std::int64_t>(book_.size())));
        __builtin_prefetch(&book_[at_]);
    }
    // A rate that changes: drawn at its highest, and thinned.
    void draw_time() {
        const double most = shape_.most();
        do {
            draw_step(rate_ * most);
        } while (most > 1 && arrivals_.uniform() * most >= shape_.at(at_ns_ * 1e-9));
    }
    // Poisson, with busy and quiet times in turn; both of exponential length.
    void draw_step(double rate) {
        double work = arrivals_.exponential(1e9 / rate);
        while (burst_ > 1) {
            const double pace = is_busy_ ? burst_ : 2 - burst_;
            if (at_ns_ + work / std::max(pace, 1e-9) <= turn_ns_) {
                at_ns_ += work / pace;
                return;
            }
            work -= std::max(0.0, turn_ns_ - at_ns_) * pace;
            at_ns_ = turn_ns_;
            is_busy_ = !is_busy_;
            turn_ns_ += arrivals_.exponential(burst_ns_);
        }
        at_ns_ += work;
    }

    std::vector<SessionCall> book_;
    double rate_, burst_, burst_ns_;
    RateShape shape_;
    SimRandom arrivals_, calls_;
    std::size_t at_ = 0;
    double at_ns_ = 0, turn_ns_ = 0;
    bool is_busy_ = false;
};

// Copies of one trace. Each has a place of its own in time and in the numbers of blocks.
class TraceWorkload : public Workload {
  public:
    TraceWorkload(const WorkloadConfig& config, std::uint64_t seed)
        : traffic_(config.trace_traffic), spread_us_(config.trace_spread_s * 1e6), seed_(seed) {}

    Status open(const WorkloadConfig& config) {
        for (std::int64_t i = 0; i < config.trace_clones; ++i) {
            TraceOptions options;
            options.seed = seed_ + static_cast<std::uint64_t>(i);
            auto reader = TraceReader::open(config.trace, options);
            FATHOM_RETURN_IF_ERROR(reader.status());
            if ((*reader)->format() == TraceFormat::agentic) {
                // Conversations need a common axis of time.
                options.spread_us = std::max<std::int64_t>(1, std::llround(spread_us_));
                reader = TraceReader::open(config.trace, options);
                FATHOM_RETURN_IF_ERROR(reader.status());
            }
            if (i == 0 && (*reader)->format() == TraceFormat::lmcache)
                FATHOM_RETURN_IF_ERROR(check_one_scope(config.trace));
            Copy copy{.reader = std::move(*reader)};
            if (i > 0 && copy.reader->format() != TraceFormat::agentic)
                copy.offset_us = std::llround(
                    SimRandom(seed_, static_cast<std::uint64_t>(i), SimPurpose::arrival).uniform() *
                    spread_us_);
            copies_.push_back(std::move(copy));
            FATHOM_RETURN_IF_ERROR(advance(copies_.size() - 1));
        }
        return {};
    }

    Result<bool> next(Arrival& arrival) override {
        if (due_.empty()) return false;
        const std::size_t at = due_.top().second;
        due_.pop();
        Copy& copy = copies_[at];
        arrival.time_ns = (copy.request.time_us + copy.offset_us) * 1000;
        arrival.traffic = traffic_;
        arrival.input_tokens = std::max<std::int64_t>(1, copy.request.input_tokens);
        arrival.output_tokens = std::max<std::int64_t>(1, copy.request.output_tokens);
        arrival.reusable_tokens = arrival.shared_tokens = arrival.gap_us = 0;
        arrival.block_tokens = static_cast<std::int32_t>(copy.reader->block_tokens());
        if (!arrival.blocks) arrival.blocks = std::make_unique<ArrivalBlocks>();
        ArrivalBlocks& blocks = *arrival.blocks;
        FATHOM_RETURN_IF_ERROR(number(copy.request.blocks, at, blocks.input));
        FATHOM_RETURN_IF_ERROR(number(copy.request.output_blocks, at, blocks.output));
        // Only whole blocks are stored.
        const auto whole = static_cast<std::size_t>(arrival.input_tokens / arrival.block_tokens);
        if (blocks.input.size() > whole) blocks.input.resize(whole);
        FATHOM_RETURN_IF_ERROR(advance(at));
        return true;
    }
    double rate() const override { return 0; }

  private:
    struct Copy {
        std::unique_ptr<TraceReader> reader;
        TraceRequest request = {};
        std::int64_t offset_us = 0;
    };

    // Suites begin at times of their own: before a run of hours, not in its middle.
    static Status check_one_scope(const std::string& path) {
        FATHOM_ASSIGN(const auto reader, TraceReader::open(path, {}));
        TraceRequest request;
        std::int64_t scopes = 0;
        for (;;) {
            FATHOM_ASSIGN(const bool more, reader->next(request));
            if (!more) return {};
            scopes += request.new_scope ? 1 : 0;
            if (scopes > 1)
                return invalid_argument(
                    "workload.trace: {} has several suites, each with times of its own, and a "
                    "fleet needs one; take the lines with one value of \"suite\" into a file of "
                    "their own, or use `fathom pool replay`, which takes all",
                    path);
        }
    }

    Status advance(std::size_t at) {
        Copy& copy = copies_[at];
        auto more = copy.reader->next(copy.request);
        FATHOM_RETURN_IF_ERROR(more.status());
        if (!*more) return {};
        due_.emplace(copy.request.time_us + copy.offset_us, at);
        return {};
    }

    // Blocks of all copies interleave: copy c's block b is b · copies + c.
    Status number(const std::vector<TraceBlock>& from, std::size_t at,
                  std::vector<TraceBlock>& to) const {
        to.clear();
        const std::uint64_t copies = copies_.size();
        for (const TraceBlock block : from) {
            const std::uint64_t numbered = block * copies + at;
            if (numbered > std::numeric_limits<TraceBlock>::max() / 2)
                return error(StatusCode::resource_exhausted,
                             "workload.trace_clones: {} copies have more than 2^31 blocks", copies);
            to.push_back(static_cast<TraceBlock>(numbered));
        }
        return {};
    }

    Traffic traffic_;
    double spread_us_;
    std::uint64_t seed_;
    std::vector<Copy> copies_;
    using Due = std::pair<std::int64_t, std::size_t>;
    std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
};

}  // namespace

std::vector<SessionCall> write_session_book(const WorkloadConfig& config, std::uint64_t seed,
                                            std::int64_t calls) {
    std::vector<SessionCall> book;
    double shares = 0;
    for (const SessionConfig& session : config.sessions)
        shares += session.share;
    std::uint64_t entity = 0;
    for (std::size_t kind = 0; kind < config.sessions.size(); ++kind) {
        const SessionConfig& session = config.sessions[kind];
        if (session.share <= 0) continue;
        const double wanted = session.share / shares * static_cast<double>(calls);
        const auto end =
            book.size() + static_cast<std::size_t>(std::max<double>(1, std::llround(wanted)));
        while (book.size() < end)
            write_session(session, static_cast<Traffic>(kind), config.context_tokens_max,
                          SimRandom(seed, entity++, SimPurpose::session), book);
        book.resize(end);  // the shares hold exactly
    }
    return book;
}

WorkloadMeans session_means(const std::vector<SessionCall>& book, const PoolConfig& pool) {
    WorkloadMeans means;
    std::vector<std::int32_t> outputs;
    for (const SessionCall& call : book) {
        means.input_tokens += call.input_tokens;
        means.output_tokens += call.output_tokens;
        outputs.push_back(call.output_tokens);
        const double ttl_us = pool.ttl_s[static_cast<std::size_t>(call.traffic)] * 1e6;
        const bool is_there = static_cast<double>(call.gap_us) <= ttl_us;
        const std::int32_t kept =
            call.reusable_tokens - (pool.is_output_persisted ? 0 : call.answer_tokens);
        const std::int32_t hit = is_there ? kept : call.shared_tokens;
        if (pool.keeps(call.traffic))
            means.hit_tokens +=
                std::min<std::int64_t>(hit, call.input_tokens - 1) / kBlock * kBlock;
    }
    const auto count = static_cast<double>(std::max<std::size_t>(1, book.size()));
    means.hit_share = means.input_tokens > 0 ? means.hit_tokens / means.input_tokens : 0;
    means.input_tokens /= count;
    means.output_tokens /= count;
    means.hit_tokens /= count;
    if (!outputs.empty()) {
        const auto p90 = outputs.begin() + static_cast<std::ptrdiff_t>(outputs.size() * 9 / 10);
        std::nth_element(outputs.begin(), p90, outputs.end());
        means.output_p90_tokens = *p90;
    }
    return means;
}

Clients::Clients(const WorkloadConfig& config, std::uint64_t seed, std::vector<SessionCall> book)
    : config_(config), book_(std::move(book)), clients_(static_cast<std::size_t>(config.clients)) {
    FATHOM_CHECK(!book_.empty());
    for (std::size_t c = 0; c < clients_.size(); ++c) {
        clients_[c].random = SimRandom(seed, c, SimPurpose::client);
        clients_[c].at = static_cast<std::size_t>(
            clients_[c].random.below(static_cast<std::int64_t>(book_.size())));
    }
}

SimTime Clients::begin_ns(std::size_t client) {
    return static_cast<SimTime>(clients_[client].random.uniform() * config_.clients_begin_s * 1e9);
}

void Clients::call(std::size_t client, SimTime now_ns, Arrival& arrival) {
    const Client& who = clients_[client];
    describe(book_[who.at], arrival);
    arrival.time_ns = now_ns;
    arrival.client = static_cast<std::int32_t>(client);
    if (who.answered_ns >= 0 && !book_[who.at].is_first)
        arrival.gap_us = (now_ns - who.answered_ns) / 1000;
}

SimTime Clients::answered(std::size_t client, SimTime now_ns) {
    Client& who = clients_[client];
    const std::size_t next = who.at + 1;
    const bool goes_on = next < book_.size() && !book_[next].is_first &&
                         static_cast<double>(book_[next].gap_us) <= config_.think_max_s * 1e6;
    who.answered_ns = now_ns;
    if (goes_on) {
        who.at = next;
        return now_ns + book_[next].gap_us * 1000;
    }
    // Another session, from its beginning: the next one behind a random place of the book.
    who.at = static_cast<std::size_t>(who.random.below(static_cast<std::int64_t>(book_.size())));
    for (std::size_t i = 0; i < book_.size() && !book_[who.at].is_first; ++i)
        who.at = (who.at + 1) % book_.size();
    return now_ns + static_cast<SimTime>(who.random.exponential(config_.retry_s * 1e9));
}

SimTime Clients::refused(SimTime now_ns) const {
    return now_ns + static_cast<SimTime>(config_.retry_s * 1e9);
}

std::unique_ptr<Workload> make_session_workload(const WorkloadConfig& config, std::uint64_t seed,
                                                std::vector<SessionCall> book, double rate) {
    return std::make_unique<SessionWorkload>(config, seed, std::move(book), rate);
}

Result<std::unique_ptr<Workload>> open_trace_workload(const WorkloadConfig& config,
                                                      std::uint64_t seed) {
    auto workload = std::make_unique<TraceWorkload>(config, seed);
    FATHOM_RETURN_IF_ERROR(workload->open(config));
    return std::unique_ptr<Workload>(std::move(workload));
}

}  // namespace fathom
