// Readers of traces: what is refused and in which words, and files plain, compressed and damaged.
#include "sim/replay/trace.h"

#include <gtest/gtest.h>
#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "sim/replay/trace_file.h"

namespace fathom {
namespace {

TraceReader::NextLine lines_of(std::vector<std::string> lines) {
    return [lines = std::move(lines), at = std::size_t{0}](std::string& line) mutable {
        if (at == lines.size()) return Result<bool>(false);
        line = lines[at++];
        return Result<bool>(true);
    };
}

// The first error of a trace; ok when there is none.
Status read_all(const std::vector<std::string>& lines, const TraceOptions& options = {}) {
    FATHOM_ASSIGN(auto reader, TraceReader::from_lines("t", lines_of(lines), options));
    TraceRequest request;
    while (true) {
        FATHOM_ASSIGN(const bool more, reader->next(request));
        if (!more) return {};
    }
}

const std::string kGood = R"({"timestamp": 5, "input_length": 600, "output_length": 1, )"
                          R"("hash_ids": [7, 18446744073709551615]})";

std::string conversation(const std::string& requests) {
    return R"({"id": "c", "block": 64, "reqs": [)" + requests + "]}";
}

TEST(Trace, BadLinesAreRefusedWithTheirPlaceAndField) {
    struct Case {
        std::vector<std::string> lines;
        std::string message;
    };
    const std::string first = R"({"a": "m", "t": 5, "in": 128, "out": 1, "p": 0, "n": [[1, 2]]})";
    const std::vector<Case> cases = {
        {{}, "t: the trace is empty"},
        {{"", " "}, "t: the trace is empty"},
        {{"[]"}, "t:1: expected an object, got array"},
        {{R"({"x": 1})"}, "t:1: no known trace"},
        {{kGood, "{"}, "t:2: "},
        {{kGood, "", R"({"timestamp": -1})"}, "t:3: timestamp: expected an integer from 0"},
        {{kGood, R"({"timestamp": 4, "input_length": 1, "output_length": 1, "hash_ids": []})"},
         "t:2: the request at 4000 us is before the one above it, at 5000 us"},
        {{R"({"timestamp": 0, "input_length": 512, "output_length": 1, "hash_ids": [1, 2]})"},
         "t:1: hash_ids: 2 blocks of 512 tokens for an input of 512 tokens, expected at most 1"},
        {{R"({"timestamp": 0, "input_length": 512, "output_length": 1, "hash_ids": [-1]})"},
         "t:1: hash_ids: expected block ids from 0, got -1"},
        {{R"({"timestamp": 0, "input_length": 1e30, "output_length": 1, "hash_ids": []})"},
         "t:1: input_length: expected an integer"},
        {{R"({"timestamp": 0, "input_length": 1, "hash_ids": []})"},
         "t:1: output_length: is missing"},
        {{R"({"suite": 1})"}, "t:1: "},
        {{R"({"reqs": []})"}, "t:1: block: is missing"},
        {{R"({"reqs": [], "block": 1})"}, "t:1: block: expected an integer from 16"},
        {{conversation(first + "," + first), R"({"reqs": [], "block": 128})"},
         "t:2: block: 128, expected 64 as in the first line"},
        {{conversation(R"({"a": "m", "t": 0, "in": 128, "out": 1, "p": 1, "n": []})")},
         "t:1: reqs[0]: p: expected an integer from 0 to 0, got 1"},
        {{conversation(R"({"a": "m", "t": 0, "in": 128, "out": 1, "p": 0, "n": [[1, 3]]})")},
         "t:1: reqs[0]: n: 3 blocks of 64 tokens for an input of 128 tokens, expected at most 2"},
        {{conversation(R"({"a": "m", "t": 0, "in": 128, "out": 1, "p": 0, "n": [[1]]})")},
         "t:1: reqs[0]: n: expected pairs"},
        {{conversation(
             R"({"a": "m", "t": 0, "in": 1, "out": 1, "p": 0, "n": [[18446744073709551615, 1]]})")},
         "t:1: reqs[0]: n: run [18446744073709551615, 1]"},
        {{conversation(first + R"(,{"a": "m", "t": 4, "in": 1, "out": 1, "p": 0, "n": []})")},
         "t:1: reqs[1]: t: 4000000 us is before the same agent's request at 5000000 us"},
        {{conversation(R"({"a": "m", "t": 1e300, "in": 1, "out": 1, "p": 0, "n": []})")},
         "t:1: reqs[0]: t: 1e+300 s"},
    };
    for (const Case& bad : cases) {
        const Status status = read_all(bad.lines);
        EXPECT_EQ(status.code(), StatusCode::invalid_argument) << bad.message;
        EXPECT_EQ(status.message().substr(0, bad.message.size()), bad.message);
    }
    EXPECT_TRUE(read_all({kGood, "", kGood}).ok());
}

TEST(Trace, LimitsHold) {
    TraceOptions options;
    options.limits.blocks_max = 1;
    EXPECT_EQ(read_all({kGood}, options).code(), StatusCode::resource_exhausted);
    options = {};
    options.limits.held_bytes_max = 10;
    options.spread_us = 1;
    const std::string one =
        conversation(R"({"a": "m", "t": 0, "in": 64, "out": 1, "p": 0, "n": [[1, 1]]})");
    EXPECT_EQ(read_all({one}, options).code(), StatusCode::resource_exhausted);
    EXPECT_EQ(read_all({kGood}, options).code(),
              StatusCode::invalid_argument);  // nothing to spread
}

TEST(Trace, ASuiteBeginsAScope) {
    const auto row = [](const std::string& suite, int time) {
        return fmt::format(R"({{"suite": "{}", "session": "s", "t_us": {}, "in_bytes": 1100, )"
                           R"("out_bytes": 8, "hash_ids": [9, 8]}})",
                           suite, time);
    };
    auto reader =
        TraceReader::from_lines("t", lines_of({row("a", 5), row("a", 6), row("b", 0)}), {});
    ASSERT_TRUE(reader.ok());
    EXPECT_EQ((*reader)->block_tokens(), 128);
    TraceRequest request;
    std::vector<bool> scopes;
    while (*(*reader)->next(request)) {
        scopes.push_back(request.new_scope);
        EXPECT_EQ(request.input_tokens, 275);
        EXPECT_EQ(request.blocks, (std::vector<TraceBlock>{0, 1}));
    }
    EXPECT_EQ(scopes, (std::vector<bool>{true, false, true}));
}

class TraceFile : public ::testing::Test {
  protected:
    TraceFile() : path_(::testing::TempDir() + fmt::format("trace_{}", ::getpid())) {}
    ~TraceFile() override { std::filesystem::remove(path_); }

    void write(const std::string& bytes) {
        std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
    }
    static std::string compressed(const std::string& text) {
        std::string out(ZSTD_compressBound(text.size()), '\0');
        out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 1));
        return out;
    }
    // All lines joined by "|", or the error's words.
    std::string read(std::int64_t line_bytes_max = 1 << 20) {
        auto file = LineFile::open(path_, line_bytes_max);
        if (!file.ok()) return file.status().message();
        std::string all, line;
        while (true) {
            const Result<bool> more = (*file)->next(line);
            if (!more.ok()) return more.status().message();
            if (!*more) return all;
            all += line + "|";
        }
    }
    std::string path_;
};

TEST_F(TraceFile, IsReadPlainOrCompressed) {
    const std::string many(300'000, 'x');  // longer than a part
    for (const std::string& text : {std::string(), std::string("a\n\nb"), "a\n" + many + "\nc\n"}) {
        write(text);
        const std::string expected = read();
        EXPECT_EQ(std::count(expected.begin(), expected.end(), '|'),
                  std::count(text.begin(), text.end(), '\n') +
                      (text.empty() || text.back() == '\n' ? 0 : 1));
        write(compressed(text));
        EXPECT_EQ(read(), expected);
    }
}

TEST_F(TraceFile, FramesInARowAreOneStream) {
    write(compressed("a\nb") + compressed("c\n"));
    EXPECT_EQ(read(), "a|bc|");
}

TEST_F(TraceFile, SaysWhatIsWrong) {
    EXPECT_NE(read().find("cannot be opened"), std::string::npos);
    const std::string whole = compressed("line\n" + std::string(100'000, 'y') + "\n");
    write(whole.substr(0, whole.size() - 3));
    EXPECT_NE(read().find("ends within its data"), std::string::npos);
    std::string bad = whole;
    bad[bad.size() / 2] = static_cast<char>(bad[bad.size() / 2] ^ 0x55);
    bad[5] = static_cast<char>(0xff);
    write(bad);
    EXPECT_NE(read().find("damaged behind line"), std::string::npos);
    write("short\nlonger than that\n");
    EXPECT_NE(read(8).find(":2: the line is longer than 8 bytes"), std::string::npos);
}

}  // namespace
}  // namespace fathom
