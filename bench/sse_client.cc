#include "bench/sse_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

namespace fathom::bench {
namespace {

constexpr int kSilenceMs = 30'000;
constexpr std::string_view kLastChunk = "\r\n0\r\n\r\n";

struct Task {
    std::uint16_t port = 0;
    std::uint32_t connections = 0;
    std::uint32_t request_bytes = 0;  // follow
};
struct Outcome {
    bool complete = false;
    std::uint64_t bytes = 0;
    std::uint64_t chunks = 0;
    std::uint64_t first_bytes = 0;  // follow
};

bool write_all(int fd, const void* from, std::size_t size) {
    const char* at = static_cast<const char*>(from);
    while (size > 0) {
        const ssize_t done = ::send(fd, at, size, MSG_NOSIGNAL);
        if (done <= 0) return false;
        at += done;
        size -= static_cast<std::size_t>(done);
    }
    return true;
}
bool read_all(int fd, void* to, std::size_t size) {
    return size == 0 || ::recv(fd, to, size, MSG_WAITALL) == static_cast<ssize_t>(size);
}

int connect_to(std::uint16_t port) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return fd;
    ::close(fd);
    return -1;
}

struct Connection {
    int fd = -1;
    std::string tail;  // the last bytes, as many as the end is long
    bool done = false;
};

// Reads all answers of one task.
class Reader {
  public:
    explicit Reader(std::uint32_t connections) : connections_(connections) {}
    ~Reader() {
        for (const Connection& connection : connections_)
            if (connection.fd >= 0) ::close(connection.fd);
        ::close(epoll_);
    }

    bool open(std::uint16_t port, const std::string& request) {
        for (std::size_t i = 0; i < connections_.size(); ++i) {
            connections_[i].fd = connect_to(port);
            epoll_event event{.events = EPOLLIN, .data = {.u64 = i}};
            if (connections_[i].fd < 0 ||
                !write_all(connections_[i].fd, request.data(), request.size()) ||
                ::epoll_ctl(epoll_, EPOLL_CTL_ADD, connections_[i].fd, &event) != 0) {
                return false;
            }
        }
        return true;
    }

    Outcome read(std::string& first) {
        std::vector<epoll_event> events(256);
        for (std::size_t left = connections_.size(); left > 0;) {
            const int ready = ::epoll_wait(epoll_, events.data(), 256, kSilenceMs);
            if (ready <= 0) return outcome_;
            for (int i = 0; i < ready; ++i) {
                const std::size_t index = events[static_cast<std::size_t>(i)].data.u64;
                if (!receive(connections_[index], index == 0 ? &first : nullptr)) return outcome_;
                if (connections_[index].done) --left;
            }
        }
        outcome_.complete = true;
        return outcome_;
    }

  private:
    bool receive(Connection& connection, std::string* copy) {
        const ssize_t got = ::recv(connection.fd, buffer_.data(), buffer_.size(), 0);
        if (got <= 0) return connection.done;
        const std::string_view bytes(buffer_.data(), static_cast<std::size_t>(got));
        if (copy != nullptr) *copy += bytes;
        outcome_.bytes += bytes.size();
        // Every chunk holds one event or more, each of which begins so.
        std::string& tail = connection.tail;
        tail += bytes;
        for (std::size_t at = 0; (at = tail.find("\r\ndata: ", at)) != std::string::npos; at += 8) {
            ++outcome_.chunks;
        }
        if (tail.ends_with(kLastChunk)) {
            connection.done = true;
            ::epoll_ctl(epoll_, EPOLL_CTL_DEL, connection.fd, nullptr);
        }
        // What may still be the beginning of a mark.
        tail.erase(0, tail.size() - std::min<std::size_t>(tail.size(), kLastChunk.size()));
        return true;
    }

    std::vector<Connection> connections_;
    int epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
    std::vector<char> buffer_ = std::vector<char>(std::size_t{64} << 10);
    Outcome outcome_;
};

[[noreturn]] void serve_tasks(int socket) {
    for (;;) {
        Task task;
        if (!read_all(socket, &task, sizeof task)) ::_exit(0);
        std::string request(task.request_bytes, '\0');
        if (!read_all(socket, request.data(), request.size())) ::_exit(0);
        Reader reader(task.connections);
        std::string first;
        Outcome outcome;
        if (reader.open(task.port, request)) outcome = reader.read(first);
        outcome.first_bytes = first.size();
        if (!write_all(socket, &outcome, sizeof outcome) ||
            !write_all(socket, first.data(), first.size())) {
            ::_exit(0);
        }
    }
}

}  // namespace

Result<SseClient> SseClient::start(int cpu) {
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
        return Status(StatusCode::unavailable, fmt::format("socketpair: {}", std::strerror(errno)));
    }
    const pid_t process = ::fork();
    if (process < 0)
        return Status(StatusCode::unavailable, fmt::format("fork: {}", std::strerror(errno)));
    if (process == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        ::close(pair[0]);
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(cpu, &set);
        ::sched_setaffinity(0, sizeof set, &set);
        serve_tasks(pair[1]);
    }
    ::close(pair[1]);
    return SseClient(process, pair[0]);
}

SseClient::SseClient(SseClient&& other) noexcept
    : process_(std::exchange(other.process_, -1)), socket_(std::exchange(other.socket_, -1)) {}

SseClient::~SseClient() {
    if (process_ < 0) return;
    ::close(socket_);
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
}

Status SseClient::ask(std::uint16_t port, std::uint32_t connections, const std::string& request) {
    const Task task{.port = port,
                    .connections = connections,
                    .request_bytes = static_cast<std::uint32_t>(request.size())};
    if (!write_all(socket_, &task, sizeof task) ||
        !write_all(socket_, request.data(), request.size())) {
        return Status(StatusCode::unavailable, "the client process has ended");
    }
    return {};
}

Result<SseClient::Answers> SseClient::answers() {
    Outcome outcome;
    if (!read_all(socket_, &outcome, sizeof outcome)) {
        return Status(StatusCode::unavailable, "the client process has ended");
    }
    Answers answers{.bytes = outcome.bytes, .chunks = outcome.chunks, .first = {}};
    answers.first.resize(outcome.first_bytes);
    if (!read_all(socket_, answers.first.data(), answers.first.size()) || !outcome.complete) {
        return Status(StatusCode::unavailable,
                      fmt::format("the answers ended early, after {} bytes", outcome.bytes));
    }
    return answers;
}

}  // namespace fathom::bench
