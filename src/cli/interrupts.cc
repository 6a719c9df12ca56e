#include "cli/interrupts.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "base/check.h"

namespace fathom {
namespace {

// A handler can reach nothing but statics; `Interrupts` owns them while it lives.
int g_pipe[2] = {-1, -1};
std::atomic<int> g_signals{0};

void on_signal(int) {
    const int saved = errno;
    g_signals.fetch_add(1);
    const char byte = 0;
    // A full pipe is fine: it is readable, which is all that matters.
    [[maybe_unused]] const ssize_t written = write(g_pipe[1], &byte, 1);
    errno = saved;
}

}  // namespace

Interrupts::Interrupts() {
    FATHOM_CHECK(g_pipe[0] < 0, "two Interrupts at a time");
    FATHOM_CHECK(pipe2(g_pipe, O_CLOEXEC | O_NONBLOCK) == 0);
    g_signals = 0;
    struct sigaction action {};
    action.sa_handler = on_signal;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, &old_int_);
    sigaction(SIGTERM, &action, &old_term_);
}

Interrupts::~Interrupts() {
    sigaction(SIGINT, &old_int_, nullptr);
    sigaction(SIGTERM, &old_term_, nullptr);
    for (int& end : g_pipe) {
        close(end);
        end = -1;
    }
}

int Interrupts::take() {
    char bytes[64];
    while (read(g_pipe[0], bytes, sizeof bytes) > 0) {
    }
    return g_signals.exchange(0);
}

bool Interrupts::pending() const {
    return g_signals.load() > 0;
}

int Interrupts::fd() const {
    return g_pipe[0];
}

}  // namespace fathom
