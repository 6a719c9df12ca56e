// The differences between the profiles `reference` and `open`: docs/codec_profiles.md names each in
// a row, tests/data/codec_profiles.jsonl shows each by requests and what both profiles make of
// them.
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <string>

#include "json_lines.h"
#include "recipe/vectors/row_checks.h"
#include "recipe/vectors/rows.h"
#include "support.h"

namespace fathom {
namespace {

constexpr const char* kCases = "tests/data/codec_profiles.jsonl";

// The first column, in backticks, of every table.
std::set<std::string> documented_rows() {
    std::set<std::string> rows;
    std::ifstream file(testing::source_path("docs/codec_profiles.md"));
    for (std::string line; std::getline(file, line);) {
        if (!line.starts_with("| `")) continue;
        const std::string row = line.substr(3, line.find('`', 3) - 3);
        EXPECT_TRUE(rows.insert(row).second) << row << " stands twice";
    }
    return rows;
}

TEST(CodecProfiles, EachRowHasCasesAndEachCaseItsRow) {
    const std::set<std::string> documented = documented_rows();
    EXPECT_GE(documented.size(), 26);
    std::set<std::string> shown, ids;
    for (const Json& row : testing::read_json_lines(testing::source_path(kCases))) {
        shown.insert(row_text(row, "row"));
        EXPECT_TRUE(ids.insert(row_text(row, "id")).second) << row_text(row, "id");
    }
    EXPECT_EQ(documented, shown);
}

TEST(CodecProfiles, RequestsHaveTheOutcomesOfBothProfiles) {
    std::set<std::string> differ;
    for (const Json& row : testing::read_json_lines(testing::source_path(kCases))) {
        const RowOutcome outcome = check_profiles(row);
        EXPECT_EQ(outcome.detail, "") << row_text(row, "id");
        if (row_member(row, "reference") != row_member(row, "open"))
            differ.insert(row_text(row, "row"));
    }
    EXPECT_EQ(differ, documented_rows()) << "a row whose cases show no difference";
}

}  // namespace
}  // namespace fathom
