#include "base/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "base/json.h"

namespace fathom {
namespace {

// Puts a pipe in place of stderr until stop().
class StderrPipe {
  public:
    StderrPipe() {
        int ends[2];
        EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
        saved_ = ::dup(STDERR_FILENO);
        ::dup2(ends[1], STDERR_FILENO);
        ::close(ends[1]);
        read_end_ = ends[0];
    }
    void start_reading() {
        reader_ = std::thread([this] {
            char buffer[4096];
            for (ssize_t n; (n = ::read(read_end_, buffer, sizeof buffer)) > 0;)
                text_.append(buffer, static_cast<std::size_t>(n));
        });
    }
    std::string stop() {
        ::dup2(saved_, STDERR_FILENO);  // closes the only write end
        ::close(saved_);
        reader_.join();
        ::close(read_end_);
        return text_;
    }

  private:
    int saved_ = -1, read_end_ = -1;
    std::thread reader_;
    std::string text_;
};

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::size_t start = 0;
    for (std::size_t end; (end = text.find('\n', start)) != std::string::npos; start = end + 1)
        lines.push_back(text.substr(start, end - start));
    EXPECT_EQ(start, text.size()) << "the last line is whole";
    return lines;
}

std::vector<std::string> logged(LogLevel level, LogStyle style, void (*write)()) {
    StderrPipe pipe;
    pipe.start_reading();
    init_logging(level, style);
    write();
    flush_logging();
    return lines_of(pipe.stop());
}

TEST(Log, WritesOneJsonObjectALine) {
    const auto lines = logged(LogLevel::info, LogStyle::json, [] {
        log_debug("hidden {}", 1);
        log_info("loaded {} tensors", 3);
        log_line(LogLevel::error, {{"request", "r\"1"}, {"trace", "t"}}, "went\naway \xff");
    });
    ASSERT_EQ(lines.size(), 2u);
    const Json first = *parse_json(lines[0]);
    EXPECT_EQ(first.find("message")->as_string(), "loaded 3 tensors");
    EXPECT_EQ(first.find("level")->as_string(), "info");
    EXPECT_EQ(first.find("time")->as_string().size(),
              std::string("2026-01-31T12:00:00.123Z").size());
    const Json second = *parse_json(lines[1]);
    EXPECT_EQ(second.find("level")->as_string(), "error");
    EXPECT_EQ(second.find("message")->as_string(), "went\naway \xef\xbf\xbd");
    EXPECT_EQ(second.find("request")->as_string(), "r\"1");
    EXPECT_EQ(second.find("trace")->as_string(), "t");
}

TEST(Log, WritesTextForPeopleAndKeepsAMessageOnOneLine) {
    const auto lines = logged(LogLevel::debug, LogStyle::text, [] {
        log_debug("plain");
        log_line(LogLevel::warning, {{"request", "r1"}}, "a\nb\x1b[31m");
    });
    ASSERT_EQ(lines.size(), 2u);
    EXPECT_EQ(lines[0].substr(24), " debug   plain");
    EXPECT_EQ(lines[1].substr(24), " warning a\\nb\\u001b[31m request=r1");
}

TEST(Log, OffWritesNothing) {
    EXPECT_TRUE(logged(LogLevel::off, LogStyle::text, [] { log_error("unseen"); }).empty());
}

TEST(Log, DropsTheOldestLinesWhenTheQueueIsFullAndCountsThem) {
    StderrPipe pipe;  // nobody reads: the pipe fills, then the queue
    init_logging(LogLevel::info, LogStyle::json);
    constexpr int kLines = 12'000;
    for (int i = 0; i < kLines; ++i)
        log_info("line {} {}", i, std::string(80, 'x'));
    pipe.start_reading();
    flush_logging();
    const auto lines = lines_of(pipe.stop());
    int written = 0;
    std::int64_t dropped = 0;
    for (const std::string& line : lines) {
        const Json json = *parse_json(line);
        if (const Json* count = json.find("lines"))
            dropped += std::stoll(count->as_string());
        else
            ++written;
    }
    EXPECT_GT(dropped, 1000);
    EXPECT_EQ(written + dropped, kLines);
    EXPECT_NE(lines.back().find("line 11999 "), std::string::npos) << "the newest is kept";
}

TEST(Log, LinesOfManyThreadsStayWhole) {
    const auto lines = logged(LogLevel::info, LogStyle::json, [] {
        std::vector<std::thread> threads;
        for (int t = 0; t < 4; ++t)
            threads.emplace_back([t] {
                for (int i = 0; i < 200; ++i)
                    log_info("thread {} line {}", t, i);
                flush_logging();
            });
        for (std::thread& thread : threads)
            thread.join();
    });
    EXPECT_EQ(lines.size(), 800u);
    for (const std::string& line : lines)
        EXPECT_TRUE(parse_json(line).ok()) << line;
}

}  // namespace
}  // namespace fathom
