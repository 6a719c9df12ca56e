// The transcripts of tests/data/transcripts (README.md there): what clients see of an output.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "json_lines.h"
#include "recipe/vectors/check_file.h"
#include "recipe/vectors/rows.h"
#include "recipe/vectors/transcript.h"
#include "support.h"

namespace fathom {
namespace {

std::vector<std::string> transcript_files() {
    std::vector<std::string> files;
    for (const auto& entry :
         std::filesystem::directory_iterator(testing::source_path("tests/data/transcripts")))
        if (entry.path().extension() == ".jsonl") files.push_back(entry.path().string());
    std::sort(files.begin(), files.end());
    return files;
}

TEST(CodecTranscripts, AnswersAreAsJudged) {
    std::int64_t passed = 0;
    for (const std::string& path : transcript_files()) {
        const auto report = check_file(path, {});
        ASSERT_TRUE(report.ok()) << report.status().message();
        for (const RowFailure& failure : report->failures)
            ADD_FAILURE() << path << ":" << failure.line << " " << failure.id << "\n  "
                          << failure.difference;
        EXPECT_TRUE(report->skipped.empty()) << path;
        passed += report->passed;
    }
    EXPECT_GE(passed, 220);
}

TEST(CodecTranscripts, CasesHaveDifferentNamesAndSayWhatTheyShow) {
    std::set<std::string> ids;
    std::map<std::string, int> protocols;
    for (const std::string& path : transcript_files()) {
        const std::string theme = std::filesystem::path(path).stem().string();
        for (const Json& row : testing::read_json_lines(path)) {
            const std::string id = row_text(row, "id");
            EXPECT_TRUE(id.starts_with(theme + "/")) << id;
            EXPECT_TRUE(ids.insert(id).second) << id;
            EXPECT_NE(row_text(row, "shows"), "") << id;
            EXPECT_TRUE(row_has(row, "events") || row_has(row, "refused")) << id;
            ++protocols[row_text(row, "protocol")];
        }
    }
    for (const char* protocol : {"chat", "messages", "responses"})
        EXPECT_GE(protocols[protocol], 30) << protocol;
}

TEST(CodecTranscripts, UpdatingChangesNothingThatIsRight) {
    for (const std::string& path : transcript_files()) {
        const auto update = update_transcripts(path);
        ASSERT_TRUE(update.ok()) << update.status().message();
        EXPECT_TRUE(update->changed.empty()) << update->changed.front();
        std::ifstream file(path, std::ios::binary);
        EXPECT_TRUE(update->text == std::string(std::istreambuf_iterator<char>(file), {})) << path;
    }
}

TEST(CodecTranscripts, AWrongOutcomeIsFoundAndReplaced) {
    Json row = parse_json(R"({"id":"x","protocol":"chat","feed":["a</think>b"]})").value();
    EXPECT_EQ(check_row(row, nullptr).kind, RowOutcome::Kind::failed) << "there is no outcome yet";
    row = transcript_outcome(row).value();
    EXPECT_EQ(check_row(row, nullptr).detail, "");
    row.set("answer", Json::object());
    EXPECT_EQ(check_row(row, nullptr).kind, RowOutcome::Kind::failed);
    row = transcript_outcome(row).value();
    Json::Array& events = row.members()[3].second.items();
    ASSERT_EQ(row.members()[3].first, "events");
    std::swap(events[0], events[1]);
    EXPECT_EQ(check_row(row, nullptr).kind, RowOutcome::Kind::failed);
}

}  // namespace
}  // namespace fathom
