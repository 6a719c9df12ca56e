// The measuring commands as a user meets them: real processes on a made-up tiny model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli_process.h"
#include "gateway_process.h"
#include "support.h"

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

class Bench : public Measure {
  protected:
    std::string write(const std::string& name, const std::string& text) const {
        std::ofstream(path(name), std::ios::binary) << text;
        return path(name);
    }
    Json read_json(const std::string& name) const {
        auto json = parse_json_file(path(name));
        EXPECT_TRUE(json.ok()) << json.status().message();
        return json.ok() ? *json : Json();
    }
    static double number(const Json& object, std::string_view key) {
        const Json* value = object.find(key);
        EXPECT_NE(value, nullptr) << key;
        return value == nullptr ? -1 : value->as_double();
    }
    const std::string model_ = source_path("models/tiny");
};

TEST_F(Bench, SweepsThroughTheEngineAndWritesEveryForm) {
    const Outcome outcome = run({"bench", "--model", model_, "--concurrency", "1,2", "--input-len",
                                 "16,40", "--output-len", "6", "--num-prompts", "4", "--json",
                                 path("r.json"), "--csv", path("r.csv"), "--html", path("r.html")});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("TTFT"));
    const Json report = read_json("r.json");
    const Json& results = *report.find("results");
    ASSERT_EQ(results.items().size(), 4u);
    for (const Json& result : results.items()) {
        EXPECT_EQ(number(result, "completed"), 4);
        EXPECT_EQ(number(result, "failed"), 0);
        EXPECT_EQ(number(result, "total_output_tokens"), 24);
        EXPECT_EQ(number(result, "total_input_tokens"), 4 * number(result, "input_len"));
        EXPECT_GT(number(result, "median_ttft_ms"), 0);
        EXPECT_GT(number(result, "output_throughput"), 0);
    }
    EXPECT_GT(number(*report.find("machine"), "read_bytes_per_s"), 0);
    EXPECT_TRUE(std::filesystem::exists(path("r.html")));
    EXPECT_TRUE(std::filesystem::exists(path("r.csv")));
}

TEST_F(Bench, ComparesShortRequestsWithAndWithoutALongPrompt) {
    const Outcome outcome =
        run({"bench", "--model", model_, "--mixed", "600", "--concurrency", "2", "--input-len", "8",
             "--output-len", "2", "--num-prompts", "20", "--json", path("r.json")});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("p99 TTFT ratio"));
    const Json report = read_json("r.json");
    const Json* mixed = report.find("mixed");
    ASSERT_NE(mixed, nullptr);
    EXPECT_EQ(number(*mixed->find("alone"), "completed"), 20);
    EXPECT_EQ(number(*mixed->find("beside"), "completed"), 20);
    EXPECT_GT(number(*mixed, "ttft_p99_ratio"), 0);
}

TEST_F(Bench, MeasuresAServerWithEveryDataset) {
    const ServeProcess server;
    const std::string sharegpt =
        write("s.json",
              R"([{"conversations": [{"from": "human", "value": "What is the capital of France?"},
                               {"from": "gpt", "value": "It is the city of Paris."}]}])");
    const std::string lines = write("l.jsonl",
                                    "{\"prompt\": \"once upon a time\", \"max_tokens\": 5}\n"
                                    "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}], "
                                    "\"max_tokens\": 5}\n");
    for (const std::string& dataset :
         {"sharegpt:" + sharegpt, "jsonl:" + lines, std::string("random")}) {
        const Outcome outcome = run({"bench",
                                     "--url",
                                     server.url() + "/v1",
                                     "--dataset",
                                     dataset,
                                     "--num-prompts",
                                     "6",
                                     "--concurrency",
                                     "3",
                                     "--request-rate",
                                     "200",
                                     "--input-len",
                                     "12",
                                     "--output-len",
                                     "5",
                                     "--tokenizer",
                                     model_ + "/tokenizer.json",
                                     "--goodput",
                                     "ttft:60000",
                                     "--json",
                                     path("r.json")});
        ASSERT_EQ(outcome.status, 0) << dataset << outcome.out << outcome.err;
        const Json report = read_json("r.json");
        const Json& result = report.find("results")->items().at(0);
        EXPECT_EQ(number(result, "completed"), 6) << dataset;
        EXPECT_GT(number(result, "total_output_tokens"), 0);
        EXPECT_GT(number(result, "total_input_tokens"), 0);
        EXPECT_DOUBLE_EQ(number(result, "request_goodput"), number(result, "request_throughput"));
        if (dataset == "random") {
            EXPECT_EQ(number(result, "total_input_tokens"), 6 * 12);
        }
        EXPECT_EQ(result.find("model_id")->as_string(), "tiny");
    }
}

TEST_F(Bench, CountsWhatAServerRefuses) {
    const ServeProcess server;
    const std::string lines = write("l.jsonl",
                                    "{\"prompt\": \"a b c\", \"max_tokens\": 3}\n"
                                    "{\"prompt\": [99999999], \"max_tokens\": 3}\n");
    const Outcome outcome =
        run({"bench", "--url", server.url(), "--dataset", "jsonl:" + lines, "--num-warmups", "0"});
    EXPECT_EQ(outcome.status, 1);
    EXPECT_THAT(outcome.out, HasSubstr("1 failed: http 4"));
}

TEST_F(Bench, SaysWhatIsWrongWithItsInput) {
    struct Case {
        std::vector<std::string> words;
        int status;
        const char* expected;
    };
    const std::string bad = write("b.jsonl", "{\"prompt\": \"a\"}\n{\"prompt\": 3}\n");
    for (const Case& c : {
             Case{{"bench"}, 2, "needs --model DIR or --url URL"},
             Case{{"bench", "--model", model_, "--concurrency", "1,x"}, 2, "bench.concurrency"},
             Case{{"bench", "--model", model_, "--request-rate", "-3"}, 2, "bench.request_rate"},
             Case{{"bench", "--model", model_, "--goodput", "tbt:1"}, 2, "goodput \"tbt:1\""},
             Case{{"bench", "--model", model_, "--csv", path("absent/a.csv")}, 2, "absent/a.csv"},
             Case{{"bench", "--url", "ftp://x"}, 1, "begins with http://"},
             Case{{"bench", "--url", "http://127.0.0.1:1/v1", "--bench.connect_timeout_s", "5"},
                  1,
                  "cannot connect"},
             Case{
                 {"bench", "--model", model_, "--dataset", "jsonl:" + bad}, 1, "b.jsonl:2: prompt"},
         }) {
        const Outcome outcome = run(c.words);
        EXPECT_EQ(outcome.status, c.status) << outcome.err;
        EXPECT_THAT(outcome.err, HasSubstr(c.expected));
    }
}

TEST_F(Bench, AnInterruptBeforeTheFirstPointKeepsOldFiles) {
    write("old.csv", "kept");
    Child child({FATHOM_PROGRAM, "bench", "--model", model_, "--csv", path("old.csv"),
                 "--num-prompts", "100000", "--output-len", "1000"});
    ASSERT_TRUE(
        child.gather_until([&] { return child.err().find("memory plan") != std::string::npos; }));
    child.send_signal(SIGINT);
    EXPECT_EQ(child.finish(), 130);
    EXPECT_THAT(child.err(), HasSubstr("interrupted after 0 points"));
    std::ifstream file(path("old.csv"));
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "kept");
}

}  // namespace
}  // namespace fathom::testing
