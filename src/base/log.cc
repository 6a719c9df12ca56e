#include "base/log.h"

#include <fmt/format.h>
#include <spdlog/async.h>
#include <spdlog/sinks/base_sink.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <mutex>

#include "base/clock.h"
#include "base/json.h"

namespace fathom {

namespace {

constexpr std::size_t kQueueLines = 8192;
constexpr auto kFlushDeadline = std::chrono::seconds(2);

const char* level_name(LogLevel level) {
    constexpr const char* kNames[] = {"debug", "info", "warning", "error", "off"};
    return kNames[static_cast<int>(level)];
}

// "2026-01-31T12:00:00.123Z"
std::string time_text(std::int64_t unix_ms) {
    const std::time_t seconds = unix_ms / 1000;
    std::tm utc{};
    ::gmtime_r(&seconds, &utc);
    return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", utc.tm_year + 1900,
                       utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec,
                       unix_ms % 1000);
}

// As JSON text without its quotes: one line, valid UTF-8, no terminal control sequences.
void append_text(std::string& out, std::string_view text) {
    std::string escaped;
    append_json_string(escaped, text);
    out.append(escaped, 1, escaped.size() - 2);
}

std::string format_line(LogStyle style, LogLevel level, LogFields fields,
                        std::string_view message) {
    const std::string time = time_text(real_clock().wall_unix_ms());
    std::string line;
    if (style == LogStyle::json) {
        JsonWriter writer(line);
        writer.begin_object().key("time").value(time).key("level").value(level_name(level));
        writer.key("message").value(message);
        for (const auto& [name, value] : fields)
            writer.key(name).value(value);
        writer.end_object();
    } else {
        line = fmt::format("{} {:<7} ", time, level_name(level));
        append_text(line, message);
        for (const auto& [name, value] : fields) {
            line += fmt::format(" {}=", name);
            append_text(line, value);
        }
    }
    line += '\n';
    return line;
}

// A broken stderr must not stop the program, so failures end here.
void write_stderr(std::string_view text) {
    while (!text.empty()) {
        const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return;
        text.remove_prefix(static_cast<std::size_t>(written));
    }
}

// The end of the queue, on the background thread. Lines come formatted. An empty message with a
// line number is a flush ticket: all that was queued before it has been written when it arrives.
class StderrSink final : public spdlog::sinks::base_sink<std::mutex> {
  public:
    std::weak_ptr<spdlog::details::thread_pool> queue;  // set before the first line
    std::atomic<LogStyle> style{LogStyle::text};

    bool wait_for_ticket(int ticket, std::chrono::steady_clock::time_point deadline) {
        std::unique_lock lock(flush_mutex_);
        return flushed_.wait_until(lock, deadline, [&] { return ticket_ >= ticket; });
    }

  protected:
    void sink_it_(const spdlog::details::log_msg& line) override {
        report_dropped();
        if (line.source.line == 0) {
            write_stderr({line.payload.data(), line.payload.size()});
            return;
        }
        {
            const std::lock_guard lock(flush_mutex_);
            ticket_ = std::max(ticket_, line.source.line);
        }
        flushed_.notify_all();
    }
    void flush_() override {}

  private:
    // Says how many lines are missing at the place where they are missing.
    void report_dropped() {
        const auto pool = queue.lock();
        const std::size_t dropped = pool ? pool->overrun_counter() : reported_;
        if (dropped == reported_) return;
        write_stderr(format_line(style, LogLevel::warning,
                                 {{"lines", std::to_string(dropped - reported_)}},
                                 "log queue full, oldest lines dropped"));
        reported_ = dropped;
    }

    std::size_t reported_ = 0;
    std::mutex flush_mutex_;
    std::condition_variable flushed_;
    int ticket_ = 0;
};

struct AsyncLog {
    std::shared_ptr<StderrSink> sink = std::make_shared<StderrSink>();
    std::shared_ptr<spdlog::details::thread_pool> pool =
        std::make_shared<spdlog::details::thread_pool>(kQueueLines, 1);
    std::shared_ptr<spdlog::async_logger> logger = std::make_shared<spdlog::async_logger>(
        "fathom", sink, pool, spdlog::async_overflow_policy::overrun_oldest);
    std::atomic<int> tickets{0};

    AsyncLog() {
        sink->queue = pool;
        logger->set_level(spdlog::level::trace);  // levels are decided before
    }
};

std::atomic<LogLevel> g_level{LogLevel::warning};
// Lives until the process ends: other threads may log while static objects are destroyed.
std::atomic<AsyncLog*> g_async{nullptr};

}  // namespace

void init_logging(LogLevel level, LogStyle style) {
    static AsyncLog* const log = [] {
        std::atexit(flush_logging);
        return new AsyncLog;
    }();
    log->sink->style.store(style);
    g_level.store(level);
    g_async.store(log, std::memory_order_release);
}

LogLevel log_level() {
    return g_level.load(std::memory_order_relaxed);
}

void log_line(LogLevel level, LogFields fields, std::string_view message) {
    if (level < log_level() || level >= LogLevel::off) return;
    AsyncLog* const log = g_async.load(std::memory_order_acquire);
    const LogStyle style = log == nullptr ? LogStyle::text : log->sink->style.load();
    const std::string line = format_line(style, level, fields, message);
    if (log == nullptr)
        write_stderr(line);
    else
        log->logger->log(spdlog::source_loc{}, spdlog::level::info, line);
}

void flush_logging() {
    AsyncLog* const log = g_async.load(std::memory_order_acquire);
    if (log == nullptr) return;
    const int ticket = ++log->tickets;
    log->logger->log(spdlog::source_loc{"", ticket, ""}, spdlog::level::info, "");
    log->sink->wait_for_ticket(ticket, std::chrono::steady_clock::now() + kFlushDeadline);
}

}  // namespace fathom
