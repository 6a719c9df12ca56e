// The other end of a server under measurement: a process of its own, so that the server's CPU time
// is that of this process. It opens many connections, sends one request on each and reads the
// answers, which must be HTTP chunks, to their ends.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "base/result.h"

namespace fathom::bench {

class SseClient {
  public:
    struct Answers {
        std::uint64_t bytes = 0;   // of all answers
        std::uint64_t chunks = 0;  // of all answers, without the last empty ones
        std::string first;         // the first connection's answer, head and chunks
    };

    // Forks, so no other thread may run yet. The process keeps to processor `cpu`.
    static Result<SseClient> start(int cpu);
    SseClient(SseClient&& other) noexcept;
    SseClient(const SseClient&) = delete;
    ~SseClient();  // ends the process

    // Connects and sends; returns at once. A port of this machine.
    Status ask(std::uint16_t port, std::uint32_t connections, const std::string& request);
    // Waits for all answers of ask(). unavailable when a connection broke or nothing came for 30 s.
    Result<Answers> answers();

  private:
    SseClient(pid_t process, int socket) : process_(process), socket_(socket) {}

    pid_t process_ = -1;
    int socket_ = -1;
};

}  // namespace fathom::bench
