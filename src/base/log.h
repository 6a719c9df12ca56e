// Logging. One line an event: JSON in services, plain text on a terminal, to stderr, written by a
// background thread with a bounded queue (oldest lines are dropped when full, and counted). Never
// log keys, tokens of users or prompts. Any thread.
//
//   log_info("loaded {} tensors in {} ms", n, ms);
//   log_line(LogLevel::warning, {{"request", id}}, "client went away");
#pragma once

#include <fmt/core.h>

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace fathom {

enum class LogLevel { debug, info, warning, error, off };
enum class LogStyle { text, json };

using LogFields = std::initializer_list<std::pair<std::string_view, std::string_view>>;

// Call once at start (later calls change level and style only); before it, warnings and errors go
// to stderr as text, at once.
void init_logging(LogLevel level, LogStyle style);
// Waits until the lines of before are written, at most two seconds. Also done at exit.
void flush_logging();
LogLevel log_level();
// Writes a line if `level` is enabled. Fields follow the message, in their order; their values are
// text. Control characters are escaped: a message is always one line.
void log_line(LogLevel level, LogFields fields, std::string_view message);

template <typename... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
    if (log_level() <= LogLevel::debug)
        log_line(LogLevel::debug, {}, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
    if (log_level() <= LogLevel::info)
        log_line(LogLevel::info, {}, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
    if (log_level() <= LogLevel::warning)
        log_line(LogLevel::warning, {}, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
    log_line(LogLevel::error, {}, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace fathom
