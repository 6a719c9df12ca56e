#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <thread>
#include <vector>

#include "base/check.h"
#include "bench/codec_benches.h"
#include "bench/sse_client.h"
#include "gateway/server.h"
#include "gateway/testing/scripted_engine.h"

namespace fathom::bench {
namespace {

constexpr std::uint32_t kStreams = 1000;
constexpr std::size_t kTokens = 100;  // of each stream
constexpr auto kStep = std::chrono::milliseconds(25);
constexpr std::int64_t kPatienceUs = 60'000'000;

double process_seconds() {
    rusage use{};
    ::getrusage(RUSAGE_SELF, &use);
    const auto seconds = [](const timeval& t) {
        return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
    };
    return seconds(use.ru_utime) + seconds(use.ru_stime);
}

void keep_to_cpu(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    ::sched_setaffinity(0, sizeof set, &set);
}

// A token for every stream each kStep, as an engine would; faster, tokens would go out together.
class PacedCore : public testing::ScriptedCore {
  public:
    using ScriptedCore::ScriptedCore;
    void compute() override { std::this_thread::sleep_for(kStep); }
};

std::string request_text(std::uint16_t port) {
    const std::string body = fmt::format(
        R"({{"model":"bench","messages":[{{"role":"user","content":"Hi"}}],"max_tokens":{},)"
        R"("stream":true,"thinking":{{"type":"disabled"}}}})",
        kTokens);
    return fmt::format(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{}\r\n"
        "content-type: application/json\r\ncontent-length: {}\r\n\r\n{}",
        port, body.size(), body);
}

struct Run {
    double seconds = 0;  // of CPU, of the server, once all requests had come
    SseClient::Answers answers;
};

// Polls, since what is waited for happens on the server's threads.
template <typename Done>
Status wait_until(const Done& done) {
    const std::int64_t end = real_clock().now_us() + kPatienceUs;
    while (!done()) {
        if (real_clock().now_us() > end)
            return Status(StatusCode::unavailable, "the streams did not all begin");
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return {};
}

Result<Run> run_gateway(SseClient& client) {
    const auto script = std::make_shared<testing::Script>();
    script->hold = true;
    script->reply = [](const EngineRequest&) {
        return testing::byte_ids(std::string(kTokens, 'a'));
    };
    Engine engine(std::make_unique<PacedCore>(script, real_clock()));
    MetricsRegistry metrics;
    ServerOptions options;
    options.port = 0;
    options.owner.model_name = "bench";
    options.owner.in_flight_max = kStreams + 8;
    options.connections_max = kStreams + 8;
    FATHOM_ASSIGN(
        const auto server,
        Server::create(options, engine, std::make_shared<testing::ByteTokenizer>(), metrics));
    FATHOM_RETURN_IF_ERROR(client.ask(server->port(), kStreams, request_text(server->port())));
    FATHOM_RETURN_IF_ERROR(wait_until(
        [&] { return script->with([](testing::Script& s) { return s.live; }) == kStreams; }));
    const double start = process_seconds();
    script->with([](testing::Script& s) { s.hold = false; });
    FATHOM_ASSIGN(SseClient::Answers answers, client.answers());
    return Run{.seconds = process_seconds() - start, .answers = std::move(answers)};
}

// The parts of an answer that a server writes one by one: the head, and each chunk.
std::vector<std::string_view> writes_of(std::string_view answer) {
    std::vector<std::string_view> writes;
    std::size_t at = answer.find("\r\n\r\n") + 4;
    writes.push_back(answer.substr(0, at));
    while (at < answer.size()) {
        const std::size_t size = std::strtoul(answer.data() + at, nullptr, 16);
        const std::size_t end = answer.find("\r\n", at) + 2 + size + 2;
        writes.push_back(answer.substr(at, end - at));
        at = end;
    }
    // The last chunk is empty and goes with the one before it.
    const std::size_t empty = writes.back().size();
    writes.pop_back();
    writes.back() = {writes.back().data(), writes.back().size() + empty};
    return writes;
}

// Writes the same parts to all connections by plain blocking calls, and does nothing else: no
// server can do with less.
class BareServer {
  public:
    BareServer() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof address;
        FATHOM_CHECK(::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     ::listen(listener_, kStreams) == 0 &&
                     ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
        port_ = ntohs(address.sin_port);
    }
    ~BareServer() {
        for (const int fd : connections_)
            ::close(fd);
        ::close(listener_);
    }
    std::uint16_t port() const { return port_; }

    // Takes all connections and their requests.
    void accept_all(std::size_t request_bytes) {
        std::string request(request_bytes, '\0');
        while (connections_.size() < kStreams) {
            const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
            FATHOM_CHECK(fd >= 0, "accept failed");
            FATHOM_CHECK(::recv(fd, request.data(), request.size(), MSG_WAITALL) ==
                         static_cast<ssize_t>(request.size()));
            const int on = 1;
            ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
            connections_.push_back(fd);
        }
    }

    void stream(const std::vector<std::string_view>& writes) {
        for (std::size_t i = 0; i < writes.size(); ++i) {
            if (i > 1) std::this_thread::sleep_for(kStep);  // the head goes with the first chunk
            for (const int fd : connections_)
                FATHOM_CHECK(::send(fd, writes[i].data(), writes[i].size(), MSG_NOSIGNAL) ==
                             static_cast<ssize_t>(writes[i].size()));
        }
    }

  private:
    int listener_;
    std::uint16_t port_ = 0;
    std::vector<int> connections_;
};

Result<Run> run_bare(SseClient& client, const std::string& answer) {
    BareServer server;
    const std::string request = request_text(server.port());
    FATHOM_RETURN_IF_ERROR(client.ask(server.port(), kStreams, request));
    server.accept_all(request.size());
    const double start = process_seconds();
    server.stream(writes_of(answer));
    const double seconds = process_seconds() - start;
    FATHOM_ASSIGN(SseClient::Answers answers, client.answers());
    return Run{.seconds = seconds, .answers = std::move(answers)};
}

}  // namespace

Status bench_sse(Report& report) {
    constexpr int kRounds = 3;
    cpu_set_t before;
    ::sched_getaffinity(0, sizeof before, &before);
    std::vector<int> cpus;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
        if (CPU_ISSET(cpu, &before)) cpus.push_back(cpu);
    FATHOM_ASSIGN(SseClient client, SseClient::start(cpus.back()));
    keep_to_cpu(cpus.front());
    std::vector<double> rates, bare_rates, ratios;
    for (int round = 0; round < kRounds; ++round) {
        FATHOM_ASSIGN(const Run gateway, run_gateway(client));
        FATHOM_ASSIGN(const Run bare, run_bare(client, gateway.answers.first));
        // Where tokens went out together some streams may have fewer chunks than the first.
        const double more = std::abs(static_cast<double>(bare.answers.chunks) /
                                         static_cast<double>(gateway.answers.chunks) -
                                     1);
        if (more > 0.1) {
            return {StatusCode::unavailable,
                    fmt::format("the server fell behind: {} and {} chunks came",
                                gateway.answers.chunks, bare.answers.chunks)};
        }
        rates.push_back(static_cast<double>(gateway.answers.chunks) / gateway.seconds);
        bare_rates.push_back(static_cast<double>(bare.answers.chunks) / bare.seconds);
        ratios.push_back(rates.back() / bare_rates.back());
    }
    ::sched_setaffinity(0, sizeof before, &before);
    for (std::vector<double>* values : {&rates, &bare_rates, &ratios})
        std::sort(values->begin(), values->end());
    report.add("sse.events_per_cpu_s", rates[kRounds / 2], "1/s", bare_rates[kRounds / 2]);
    report.add("sse.vs_socket", ratios[kRounds / 2], "x");
    return {};
}

}  // namespace fathom::bench
