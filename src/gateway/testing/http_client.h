// For tests: a plain blocking HTTP client over one loopback connection, which can also misbehave.
// Every wait ends after 60 s.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace fathom::testing {

struct HttpAnswer {
    int status = 0;
    std::string head;  // status line and headers
    std::string body;  // chunks joined
    bool complete = false;

    std::string header(std::string_view name) const {
        const std::size_t at = head.find("\r\n" + std::string(name) + ": ");
        if (at == std::string::npos) return {};
        const std::size_t from = at + 2 + name.size() + 2;
        return head.substr(from, head.find("\r\n", from) - from);
    }
};

class HttpClient {
  public:
    explicit HttpClient(std::uint16_t port, int receive_buffer_bytes = 0) {
        socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (receive_buffer_bytes > 0)
            ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes,
                         sizeof receive_buffer_bytes);
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(port);
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        connected_ = ::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    }
    ~HttpClient() { close(); }
    HttpClient(const HttpClient&) = delete;
    HttpClient& operator=(const HttpClient&) = delete;

    bool connected() const { return connected_; }
    bool send(std::string_view bytes) {
        while (!bytes.empty()) {
            const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
            if (sent <= 0) return false;
            bytes.remove_prefix(static_cast<std::size_t>(sent));
        }
        return true;
    }
    void half_close() { ::shutdown(socket_, SHUT_WR); }
    void close() {
        if (socket_ >= 0) ::close(socket_);
        socket_ = -1;
    }
    // Closes with a reset instead of an orderly end.
    void reset() {
        const linger hard = {.l_onoff = 1, .l_linger = 0};
        ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
        close();
    }

    // Reads until the bytes so far contain `mark` (which stays in the buffer).
    bool wait_for(std::string_view mark) {
        while (buffer_.find(mark) == std::string::npos) {
            if (!receive()) return false;
        }
        return true;
    }
    bool wait_for_more() { return receive(); }
    // Reads to the end of the stream; false when the wait ran out.
    bool wait_for_end() {
        while (receive()) {
        }
        return ended_;
    }
    const std::string& buffered() const { return buffer_; }
    bool ended() const { return ended_; }

    // The next answer on this connection; interim 100 answers are skipped.
    HttpAnswer answer(bool without_body = false) {
        HttpAnswer got;
        do {
            if (!wait_for("\r\n\r\n")) return got;
            got.head = take(buffer_.find("\r\n\r\n") + 4);
            got.status = std::atoi(got.head.substr(9, 3).c_str());
        } while (got.status == 100);
        if (without_body) {
            got.complete = true;
        } else if (got.header("transfer-encoding") == "chunked") {
            read_chunks(got);
        } else if (const std::string length = got.header("content-length"); !length.empty()) {
            const auto size = static_cast<std::size_t>(std::atoll(length.c_str()));
            while (buffer_.size() < size && receive()) {
            }
            got.complete = buffer_.size() >= size;
            got.body = take(size);
        } else {
            got.complete = wait_for_end();
            got.body = take(buffer_.size());
        }
        return got;
    }

  private:
    bool receive() {
        if (ended_) return false;
        pollfd waiting = {.fd = socket_, .events = POLLIN, .revents = 0};
        if (::poll(&waiting, 1, 60'000) != 1) return false;
        char bytes[16384];
        const ssize_t got = ::recv(socket_, bytes, sizeof bytes, 0);
        if (got <= 0) {
            ended_ = true;
            return false;
        }
        buffer_.append(bytes, static_cast<std::size_t>(got));
        return true;
    }
    std::string take(std::size_t size) {
        std::string taken = buffer_.substr(0, size);
        buffer_.erase(0, size);
        return taken;
    }
    void read_chunks(HttpAnswer& got) {
        while (wait_for("\r\n")) {
            const std::size_t size = std::strtoul(buffer_.c_str(), nullptr, 16);
            take(buffer_.find("\r\n") + 2);
            while (buffer_.size() < size + 2 && receive()) {
            }
            if (buffer_.size() < size + 2) return;
            got.body += take(size);
            take(2);
            if (size == 0) {
                got.complete = true;
                return;
            }
        }
    }

    int socket_ = -1;
    bool connected_ = false;
    bool ended_ = false;
    std::string buffer_;
};

inline std::string http_get(std::string_view path, std::string_view headers = "") {
    return "GET " + std::string(path) + " HTTP/1.1\r\nHost: test\r\n" + std::string(headers) +
           "\r\n";
}
inline std::string http_post(std::string_view path, std::string_view body,
                             std::string_view headers = "") {
    return "POST " + std::string(path) +
           " HTTP/1.1\r\nHost: test\r\ncontent-type: application/json\r\ncontent-length: " +
           std::to_string(body.size()) + "\r\n" + std::string(headers) + "\r\n" + std::string(body);
}

}  // namespace fathom::testing
