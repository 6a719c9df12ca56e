#include "cli/progress.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace fathom {
namespace {
constexpr std::int64_t kRedrawUs = 100'000;
constexpr std::int64_t kBarWidth = 30;
}  // namespace

Progress::Progress(std::string what, std::int64_t total, const Clock& clock)
    : what_(std::move(what)), total_(total), clock_(clock) {}

bool Progress::visible() {
    return isatty(STDERR_FILENO) == 1;
}

Progress::~Progress() {
    clear();
}

void Progress::update(std::int64_t done, std::string_view note) {
    if (!visible()) return;
    const std::int64_t now_us = clock_.now_us();
    if (drawn_us_ >= 0 && now_us - drawn_us_ < kRedrawUs) return;
    drawn_us_ = now_us;
    shown_ = true;
    if (total_ <= 0) {
        fmt::print(stderr, "\r\x1b[K{} {} {}", what_, done, note);
    } else {
        const std::int64_t filled = std::min(kBarWidth, done * kBarWidth / total_);
        fmt::print(stderr, "\r\x1b[K{} [{:<{}}] {}/{} {}", what_,
                   std::string(static_cast<std::size_t>(filled), '#'), kBarWidth, done, total_,
                   note);
    }
    std::fflush(stderr);
}

void Progress::clear() {
    if (!shown_) return;
    fmt::print(stderr, "\r\x1b[K");
    std::fflush(stderr);
    shown_ = false;
}

}  // namespace fathom
