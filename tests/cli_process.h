// Runs a program as a child: its input is written, its outputs are gathered, and every wait has a
// deadline. Destroying a Child kills what still runs. One thread.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace fathom::testing {

class Child {
  public:
    explicit Child(std::vector<std::string> words) {
        signal(SIGPIPE, SIG_IGN);  // a child that ends early must not end the test
        int in[2], out[2], err[2];
        EXPECT_EQ(pipe2(in, O_CLOEXEC), 0);
        EXPECT_EQ(pipe2(out, O_CLOEXEC), 0);
        EXPECT_EQ(pipe2(err, O_CLOEXEC), 0);
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
        posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
        posix_spawn_file_actions_adddup2(&actions, err[1], STDERR_FILENO);
        std::vector<char*> argv;
        for (std::string& word : words)
            argv.push_back(word.data());
        argv.push_back(nullptr);
        EXPECT_EQ(posix_spawnp(&pid_, argv[0], &actions, nullptr, argv.data(), environ), 0)
            << words[0];
        posix_spawn_file_actions_destroy(&actions);
        for (const int fd : {in[0], out[1], err[1]})
            close(fd);
        in_ = in[1];
        streams_[0].fd = out[0];
        streams_[1].fd = err[0];
    }
    ~Child() {
        if (pid_ > 0 && !ended_) {
            kill(pid_, SIGKILL);
            waitpid(pid_, nullptr, 0);
        }
        close_input();
        for (const Stream& stream : streams_)
            if (stream.fd >= 0) close(stream.fd);
    }
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;

    const std::string& out() const { return streams_[0].text; }
    const std::string& err() const { return streams_[1].text; }

    void write_input(std::string_view text) {
        while (!text.empty()) {
            const ssize_t n = write(in_, text.data(), text.size());
            ASSERT_GT(n, 0);
            text.remove_prefix(static_cast<std::size_t>(n));
        }
    }
    void close_input() {
        if (in_ >= 0) close(std::exchange(in_, -1));
    }
    void send_signal(int number) const { kill(pid_, number); }
    pid_t pid() const { return pid_; }

    // Gathers output until `done` or the deadline; says whether it was done.
    template <typename Done>
    bool gather_until(Done done, std::int64_t timeout_us = 60'000'000) {
        const std::int64_t deadline_us = real_clock().now_us() + timeout_us;
        while (!done()) {
            const std::int64_t left_us = deadline_us - real_clock().now_us();
            if (left_us <= 0) return false;
            pollfd entries[2];
            for (int i = 0; i < 2; ++i)
                entries[i] = {.fd = streams_[i].fd, .events = POLLIN, .revents = 0};
            if (streams_[0].fd < 0 && streams_[1].fd < 0) return done();
            // `done` may look at files too, so the wait is cut into slices.
            poll(entries, 2, static_cast<int>(std::clamp<std::int64_t>(left_us / 1000, 1, 20)));
            for (int i = 0; i < 2; ++i)
                if (entries[i].revents != 0) read_some(streams_[i]);
        }
        return true;
    }

    // Closes the input and waits for the end: the exit status, 128 + signal, or -1 at the deadline.
    int finish(std::int64_t timeout_us = 120'000'000) {
        close_input();
        if (!gather_until([this] { return streams_[0].fd < 0 && streams_[1].fd < 0; }, timeout_us))
            return -1;
        int status = 0;
        EXPECT_EQ(waitpid(pid_, &status, 0), pid_);  // both ends are closed: it has ended
        ended_ = true;
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }

  private:
    struct Stream {
        int fd = -1;
        std::string text;
    };
    static void read_some(Stream& stream) {
        char bytes[4096];
        const ssize_t n = read(stream.fd, bytes, sizeof bytes);
        if (n > 0)
            stream.text.append(bytes, static_cast<std::size_t>(n));
        else
            close(std::exchange(stream.fd, -1));
    }

    pid_t pid_ = -1;
    bool ended_ = false;
    int in_ = -1;
    Stream streams_[2];
};

}  // namespace fathom::testing
