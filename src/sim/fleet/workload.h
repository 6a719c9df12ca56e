// The requests that a fleet gets, one after the other (serving.md 4.3): from a recorded trace,
// whose blocks say what prompts share, or from a generator of sessions.
//
// The generator writes a *book* of whole sessions first: every call with its prompt, answer, the
// part of the prompt that the call before left behind, and the time since. Requests are then drawn
// from all calls of the book at random, at Poisson times: what a fleet sees of very many sessions
// that began at very many times. So a run of minutes has the gaps of days in it, its hit rate is
// that of traffic that never began, and memory does not grow with the fleet.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/result.h"
#include "sim/event_queue.h"
#include "sim/fleet/fleet_config.h"
#include "sim/replay/trace.h"
#include "sim/sim_random.h"

namespace fathom {

// Of a request of a trace: whole blocks, numbered over all copies of the trace.
struct ArrivalBlocks {
    std::vector<TraceBlock> input, output;
};
// Kept small: a large fleet has hundreds of thousands under way.
struct Arrival {
    SimTime time_ns = 0;
    std::int64_t input_tokens = 0, output_tokens = 0;
    // Sessions: of the prompt, what somebody wrote `gap_us` ago, and what others write all the
    // time.
    std::int64_t reusable_tokens = 0, shared_tokens = 0, gap_us = 0;
    std::int64_t answer_tokens = 0;         // of the reusable ones, at their end: the last answer
    std::unique_ptr<ArrivalBlocks> blocks;  // null for sessions
    std::int32_t block_tokens = 0;          // 0 for sessions
    std::int32_t client = -1;               // of a closed loop
    Traffic traffic = Traffic::other;
};

struct SessionCall {
    std::int32_t input_tokens = 0, output_tokens = 0, reusable_tokens = 0, shared_tokens = 0;
    std::int32_t answer_tokens = 0;
    std::int64_t gap_us = 0;
    Traffic traffic = Traffic::agent;
    bool is_first = false;  // of its session
};
inline constexpr std::int64_t kSessionBookCalls = 100'000;  // of a run
// Sessions of both kinds in the proportion of their requests; about `calls` rows, at least one.
std::vector<SessionCall> write_session_book(const WorkloadConfig& config, std::uint64_t seed,
                                            std::int64_t calls);

// Means over a workload, to size a fleet before it runs.
struct WorkloadMeans {
    double input_tokens = 0, output_tokens = 0, hit_tokens = 0;
    double hit_share = 0;  // of input tokens, with the pool's times to live
    double output_p90_tokens = 0;
};
WorkloadMeans session_means(const std::vector<SessionCall>& book, const PoolConfig& pool);

class Workload {
  public:
    virtual ~Workload() = default;
    // The next request in the order of time; false at the end. Reuses the memory of `arrival`.
    virtual Result<bool> next(Arrival& arrival) = 0;
    virtual double rate() const = 0;  // requests a second on average, 0 when unknown before
};

// Clients that each go through sessions of the book, call by call (closed loop). Every client has
// random numbers of its own, so what one meets does not change what another does.
class Clients {
  public:
    Clients(const WorkloadConfig& config, std::uint64_t seed, std::vector<SessionCall> book);

    std::size_t size() const { return clients_.size(); }
    // When it sends its first request; in the middle of a session, as most are.
    SimTime begin_ns(std::size_t client);
    // Its next request, sent now.
    void call(std::size_t client, SimTime now_ns, Arrival& arrival);
    // It has its answer, or was refused: when it sends the next request, or the same again.
    SimTime answered(std::size_t client, SimTime now_ns);
    SimTime refused(SimTime now_ns) const;

  private:
    struct Client {
        SimRandom random;
        std::size_t at = 0;        // in the book
        SimTime answered_ns = -1;  // of the call before; -1: of another life
    };
    WorkloadConfig config_;
    std::vector<SessionCall> book_;
    std::vector<Client> clients_;
};

// From `book`, at `rate` requests a second.
std::unique_ptr<Workload> make_session_workload(const WorkloadConfig& config, std::uint64_t seed,
                                                std::vector<SessionCall> book, double rate);
// Errors of opening or reading the file.
Result<std::unique_ptr<Workload>> open_trace_workload(const WorkloadConfig& config,
                                                      std::uint64_t seed);

}  // namespace fathom
