// The measuring commands as a user meets them: real processes on a made-up tiny model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli_process.h"

namespace fathom::testing {
namespace {

using ::testing::HasSubstr;

struct Outcome {
    int status = -1;
    std::string out, err;
};

Outcome run(std::vector<std::string> words) {
    words.insert(words.begin(), FATHOM_PROGRAM);
    Child child(std::move(words));
    const int status = child.finish();
    return {.status = status, .out = child.out(), .err = child.err()};
}

class Measure : public ::testing::Test {
  protected:
    Measure() : dir_(::testing::TempDir() + "fathom_measure_" + std::to_string(getpid())) {
        std::filesystem::create_directories(dir_);
    }
    ~Measure() override { std::filesystem::remove_all(dir_); }
    std::string path(const std::string& name) const { return dir_ + "/" + name; }

    std::string dir_;
};

TEST_F(Measure, AMadeModelIsInspectedAndGenerates) {
    const Outcome made = run({"make-model", path("m"), "--preset", "tiny", "--seed", "5"});
    ASSERT_EQ(made.status, 0) << made.err;
    EXPECT_THAT(made.out, HasSubstr("routed experts"));
    const Outcome inspected = run({"inspect", path("m"), "--json"});
    ASSERT_EQ(inspected.status, 0) << inspected.err;
    const auto report = parse_json(inspected.out);
    ASSERT_TRUE(report.ok());
    EXPECT_TRUE(report->find("ok")->as_bool());
    const std::vector<std::string> words = {"generate", "--model", path("m"), "--chat",
                                            "-p",       "tell me", "-n",      "12"};
    const Outcome first = run(words);
    ASSERT_EQ(first.status, 0) << first.err;
    EXPECT_FALSE(first.out.empty());
    EXPECT_EQ(run(words).out, first.out);

    const Outcome again = run({"make-model", path("m"), "--preset", "tiny"});
    EXPECT_EQ(again.status, 1);
    EXPECT_THAT(again.err, HasSubstr("not empty"));
}

TEST_F(Measure, MakeModelNamesAWrongPreset) {
    const Outcome outcome = run({"make-model", path("m"), "--preset", "huge"});
    EXPECT_EQ(outcome.status, 2);
    EXPECT_THAT(outcome.err, HasSubstr("huge"));
    EXPECT_FALSE(std::filesystem::exists(path("m")));
}

}  // namespace
}  // namespace fathom::testing
