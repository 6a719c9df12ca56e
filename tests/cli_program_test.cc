// The program as a user meets it: real processes, the model of models/tiny, no network.
#include <sys/wait.h>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/json.h"
#include "cli_process.h"
#include "support.h"

namespace fathom::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const char* const kModel = "models/tiny";

std::vector<std::string> command_line(std::vector<std::string> words) {
    words.insert(words.begin(), FATHOM_PROGRAM);
    for (std::string& word : words)
        if (word == kModel) word = source_path(word);
    return words;
}

struct Outcome {
    int status = -1;
    std::string out, err;
};

Outcome run(std::vector<std::string> words, std::string_view input = {}) {
    Child child(command_line(std::move(words)));
    child.write_input(input);
    const int status = child.finish();
    return {.status = status, .out = child.out(), .err = child.err()};
}

class CliFiles : public ::testing::Test {
  protected:
    CliFiles() {
        const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
        dir_ = ::testing::TempDir() + "fathom_cli_" + test->name() + "_" + std::to_string(getpid());
        std::filesystem::create_directories(dir_);
    }
    ~CliFiles() override { std::filesystem::remove_all(dir_); }

    std::string path(const std::string& name) const { return dir_ + "/" + name; }
    std::string write(const std::string& name, const std::string& text) const {
        std::ofstream(path(name), std::ios::binary) << text;
        return path(name);
    }
    std::string read(const std::string& name) const {
        std::ostringstream text;
        text << std::ifstream(path(name), std::ios::binary).rdbuf();
        return text.str();
    }

    std::string dir_;
};

std::vector<Json> json_lines(const std::string& text) {
    std::vector<Json> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) {
        const Result<Json> json = parse_json(line);
        EXPECT_TRUE(json.ok()) << line;
        if (json.ok()) lines.push_back(*json);
    }
    return lines;
}

TEST(CliProgram, HelpListsEveryCommand) {
    const Outcome help = run({"help"});
    EXPECT_EQ(help.status, 0);
    for (const char* name : {"serve", "chat", "generate", "inspect", "verify", "config"})
        EXPECT_THAT(help.out, HasSubstr(name));
    EXPECT_THAT(run({"version"}).out, StartsWith("fathom "));
    EXPECT_EQ(run({}).status, 2);
}

TEST(CliProgram, EveryCommandExplainsItself) {
    for (const char* name : {"serve", "chat", "generate", "inspect", "verify", "config"}) {
        const Outcome help = run({name, "--help"});
        EXPECT_EQ(help.status, 0) << name;
        EXPECT_THAT(help.out, HasSubstr(std::string("fathom ") + name));
    }
}

TEST(CliProgram, MisspeltWordsNameTheNearest) {
    const Outcome command = run({"serv"});
    EXPECT_EQ(command.status, 2);
    EXPECT_THAT(command.err, HasSubstr("did you mean \"serve\"?"));
    const Outcome flag = run({"serve", "--modle", "x"});
    EXPECT_EQ(flag.status, 2);
    EXPECT_THAT(flag.err, HasSubstr("unknown option \"--modle\", did you mean \"--model\"?"));
}

TEST_F(CliFiles, WhatCannotStartSaysWhy) {
    const std::string unknown_key = write("typo.toml", "[server]\nprot = 1\n");
    const struct {
        std::vector<std::string> words;
        int status;
        std::string message;
    } cases[] = {
        {{"generate", "-p", "x"}, 1, "--model DIR"},
        {{"generate", "--model", kModel}, 2, "needs --prompt"},
        {{"generate", "--model", kModel, "-p", "x", "-i", "y"}, 2, "exclude each other"},
        {{"generate", "--model", kModel, "-i", "y"}, 2, "needs --input and --output"},
        {{"generate", "--model", "/nonexistent", "-p", "x"}, 1, "/nonexistent"},
        {{"serve", "--model", dir_}, 1, "config.json"},
        {{"serve", "--model", kModel, "--config", unknown_key}, 2, "port"},
        {{"serve", "--model", kModel, "--port", "99999"}, 2, "99999"},
        {{"serve", "--model", kModel, "--host", "0.0.0.0", "--port", "0"}, 1, "key"},
        {{"serve", "--model", kModel, "--max-model-len", "9000"}, 1, "8192"},
        {{"generate", "--model", kModel, "-p", "x", "--engine.tail_tokens", "100"}, 1, "134"},
        {{"generate", "--model", kModel, "-p", "x", "--engine.backend", "gpu"}, 1, "gpu"},
        {{"generate", "--model", kModel, "-p", "x", "--engine.prefill", "tial"}, 2, "tail"},
        {{"generate", "--model", kModel, "-p", "x", "-n", "9000"}, 1, "8192 tokens"},
        {{"generate", "--model", kModel, "-p", "x", "--engine.kv_tokens", "9223372036854775807"},
         2,
         "1000000000000"},
        {{"generate", "--model", kModel, "-i", unknown_key, "-o", unknown_key},
         1,
         "but it is read; name another file"},
    };
    for (const auto& bad : cases) {
        const Outcome outcome = run(bad.words);
        EXPECT_EQ(outcome.status, bad.status) << bad.message << "\n" << outcome.err;
        EXPECT_THAT(outcome.err, HasSubstr(bad.message));
        EXPECT_EQ(outcome.out, "") << bad.message;
    }
}

// With one sentence, however long the output and whoever writes it.
TEST_F(CliFiles, LostOutputIsAFailure) {
    const std::string fleet = "sim run one-box --duration 4 --sim.warmup_s 1 ";
    for (const std::string& words :
         {std::string("help > /dev/full"), std::string("inspect --help > /dev/full"),
          std::string("sim run --help > /dev/full"), fleet + "> /dev/full",
          fleet + "--json > /dev/full", fleet + "--csv /dev/full > /dev/null",
          fleet + "--html /dev/full > /dev/null",
          std::string("sim sweep one-box --duration 4 --sim.warmup_s 1 --vary "
                      "workload.load=0.5 --json > /dev/full")}) {
        const std::string command =
            std::string(FATHOM_PROGRAM) + " " + words + " 2> " + path("err");
        const int status = std::system(command.c_str());
        ASSERT_TRUE(WIFEXITED(status)) << words;
        EXPECT_EQ(WEXITSTATUS(status), 1) << words;
        const std::string said = read("err");
        EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << words << "\n" << said;
    }
}

TEST_F(CliFiles, AnInterruptedSweepKeepsItsRows) {
    Child child(
        command_line({"sim", "sweep", "one-box", "--duration", "2", "--sim.warmup_s", "1", "--vary",
                      "sim.duration_s=2,2000000", "--csv", path("rows"), "--svg", path("plot")}));
    ASSERT_TRUE(child.gather_until(
        [&] { return std::count(child.out().begin(), child.out().end(), '\n') >= 2; }));
    child.send_signal(SIGINT);
    EXPECT_EQ(child.finish(), 130);
    const std::string rows = read("rows");
    EXPECT_EQ(std::count(rows.begin(), rows.end(), '\n'), 2) << rows;
    EXPECT_THAT(read("plot"), HasSubstr("<svg"));
}

TEST(CliProgram, TooLittleMemoryIsRefusedWithTheNumbers) {
    const Outcome outcome =
        run({"generate", "--model", kModel, "-p", "x", "--engine.memory_limit_mib", "1"});
    EXPECT_EQ(outcome.status, 1);
    EXPECT_THAT(outcome.err, HasSubstr("MiB"));
    EXPECT_EQ(outcome.out, "");
}

TEST(CliProgram, ConfigDumpShowsValuesAndOriginsButNoSecrets) {
    const Outcome dump = run({"config", "dump", "--port", "1234", "--api-key", "hunter2"});
    EXPECT_EQ(dump.status, 0);
    EXPECT_THAT(dump.out, HasSubstr("server.port = 1234  # flag"));
    EXPECT_THAT(dump.out, HasSubstr("engine.sequences_max = 64  # default"));
    EXPECT_EQ(dump.out.find("hunter2"), std::string::npos);
}

// The same request gives the same text alone, in a batch, and in any company.
TEST_F(CliFiles, AGreedyPromptAndItsBatchLineAgree) {
    const std::string prompt = "What comes after Friday?";
    const Outcome alone = run(
        {"generate", "--model", kModel, "--chat", "-p", prompt, "--temperature", "0", "-n", "16"});
    ASSERT_EQ(alone.status, 0) << alone.err;
    EXPECT_EQ(alone.out, "Saturday comes after Friday.\n");

    std::string input = "\n";
    for (int i = 0; i < 6; ++i)
        input += fmt::format(
            R"({{"id":"r{}","messages":[{{"role":"user","content":"{}"}}],"max_tokens":16}})"
            "\n",
            i, i % 2 == 0 ? prompt : "Hello");
    const Outcome batch = run({"generate", "--model", kModel, "-i", write("in", input), "-o",
                               path("out"), "--temperature", "0"});
    ASSERT_EQ(batch.status, 0) << batch.err;
    const std::vector<Json> answers = json_lines(read("out"));
    ASSERT_EQ(answers.size(), 6U);
    for (std::size_t i = 0; i < answers.size(); ++i) {
        EXPECT_EQ(answers[i].find("id")->as_string(), fmt::format("r{}", i));
        EXPECT_EQ(answers[i].find("finish_reason")->as_string(), "stop");
        EXPECT_TRUE(answers[i].find("reasoning")->is_null());
        const Json* usage = answers[i].find("usage");
        EXPECT_EQ(usage->find("total_tokens")->as_int64(),
                  usage->find("prompt_tokens")->as_int64() +
                      usage->find("completion_tokens")->as_int64());
        if (i % 2 == 0) {
            EXPECT_EQ(answers[i].find("text")->as_string() + "\n", alone.out);
        } else {
            EXPECT_EQ(*answers[i].find("text"), *answers[1].find("text"));
        }
    }
}

TEST_F(CliFiles, ChoicesAndLogprobsComeFromFlagsAndFromLines) {
    const Outcome alone =
        run({"generate", "--model", kModel, "-p", "Once upon", "-n", "6", "--seed", "5"});
    ASSERT_EQ(alone.status, 0) << alone.err;
    const Outcome both = run({"generate", "--model", kModel, "-p", "Once upon", "-n", "6", "--seed",
                              "5", "--choices", "2", "--logprobs", "1"});
    ASSERT_EQ(both.status, 0) << both.err;
    EXPECT_THAT(both.out, StartsWith("[0]\n" + alone.out + "[1]\n"));
    EXPECT_THAT(both.err, ContainsRegex("-[0-9]+\\.[0-9]{6}  \"[^\n]*\"  \""));  // a line a token

    const std::string input = R"({"id":"a","prompt":"Once upon","max_tokens":6,"n":2,"logprobs":2})"
                              "\n"
                              R"({"id":"b","prompt":"Once upon","max_tokens":6})"
                              "\n";
    const Outcome batch = run({"generate", "--model", kModel, "-i", write("in", input), "-o",
                               path("out"), "--seed", "5", "--logprobs", "0"});
    ASSERT_EQ(batch.status, 0) << batch.err;
    const std::vector<Json> answers = json_lines(read("out"));
    ASSERT_EQ(answers.size(), 2U);
    const Json::Array& choices = answers[0].find("choices")->items();
    ASSERT_EQ(choices.size(), 2U);
    EXPECT_EQ(choices[0].find("text")->as_string() + "\n", alone.out);
    EXPECT_EQ(*choices[0].find("text"), *answers[1].find("text"));
    EXPECT_EQ(choices[1].find("logprobs")->find("top_logprobs")->items().size(), 6U);
    EXPECT_TRUE(answers[1].find("logprobs")->find("top_logprobs")->is_null());
    EXPECT_EQ(answers[1].find("logprobs_mode")->as_string(), "raw");
}

TEST_F(CliFiles, PenaltiesAndBiasesAreFlagsToo) {
    const std::vector<std::string> words = {"generate", "--model",      kModel,  "-p",
                                            "Once",     "-n",           "4",     "--temperature",
                                            "0",        "--logit-bias", "65=100"};
    const Outcome biased = run(words);
    ASSERT_EQ(biased.status, 0) << biased.err;
    ASSERT_EQ(biased.out.size(), 5U);  // one byte four times
    EXPECT_EQ(std::count(biased.out.begin(), biased.out.end(), biased.out[0]), 4);
    std::vector<std::string> wrong = words;
    wrong.back() = "x=1";
    EXPECT_THAT(run(wrong).err, HasSubstr("Invalid logit_bias key \"x\""));
    wrong.back() = "5";
    EXPECT_THAT(run(wrong).err, HasSubstr("logit_bias.5: invalid type: null, expected a number"));
}

TEST_F(CliFiles, ABadLineGetsItsErrorAndTheBatchGoesOn) {
    const std::string input =
        "{\"id\":1,\"prompt\":\"a\",\"max_tokens\":1}\n"
        "{torn\n"
        "[1]\n"
        "{\"id\":\"c\"}\n"
        "{\"id\":\"d\",\"prompt\":\"a\",\"temperature\":9}\n"
        "{\"id\":\"e\",\"prompt\":[1,99999999]}\n"
        "{\"id\":\"f\",\"prompt\":\"a\",\"max_tokens\":1}\n"
        "{\"id\":\"f\",\"prompt\":\"b\",\"max_tokens\":1}\n";
    const Outcome batch =
        run({"generate", "--model", kModel, "-i", write("in", input), "-o", path("out")});
    EXPECT_EQ(batch.status, 1) << "some lines failed";
    EXPECT_THAT(batch.err, HasSubstr("8 answered (6 with an error)"));
    const std::vector<Json> answers = json_lines(read("out"));
    ASSERT_EQ(answers.size(), 8U);
    const char* const ids[] = {"1", "2", "3", "\"c\"", "\"d\"", "\"e\"", "\"f\"", "\"f\""};
    for (std::size_t i = 0; i < answers.size(); ++i) {
        EXPECT_EQ(answers[i].find("id")->dump(), ids[i]);
        const bool good = i == 0 || i == 6;
        EXPECT_EQ(answers[i].find("text") != nullptr, good);
        EXPECT_EQ(answers[i].find("error") != nullptr, !good);
    }
    EXPECT_EQ(answers[0].find("text")->as_string(), answers[6].find("text")->as_string());
    EXPECT_EQ(answers[7].find("error")->find("message")->as_string(),
              "id \"f\" stands on an earlier line too, expected one of its own");
    // What is there is told as such when the batch is run again, its errors included.
    const Outcome again = run({"generate", "--model", kModel, "-i", path("in"), "-o", path("out")});
    EXPECT_THAT(again.err, HasSubstr("8 were there already"));
}

std::string story_lines(int count) {
    std::string input;
    for (int i = 0; i < count; ++i)
        input += fmt::format(R"({{"id":{},"prompt":"Once","max_tokens":40,"seed":{}}})"
                             "\n",
                             i, i);
    return input;
}

// Killed in the middle, then run again: the output is what one run gives, byte for byte.
TEST_F(CliFiles, AKilledBatchGoesOnWhereItStopped) {
    const std::string input = write("in", story_lines(24));
    const std::vector<std::string> words = {"generate", "--model",        kModel, "-i",
                                            input,      "--max-num-seqs", "4",    "-o"};
    std::vector<std::string> whole = words;
    whole.push_back(path("whole"));
    ASSERT_EQ(run(whole).status, 0);

    std::vector<std::string> again = words;
    again.push_back(path("killed"));
    {
        Child child(command_line(again));
        // The child's own output is what says how far it is.
        ASSERT_TRUE(child.gather_until(
            [&] { return std::filesystem::exists(path("killed")) && !read("killed").empty(); },
            60'000'000));
        child.send_signal(SIGKILL);
        EXPECT_EQ(child.finish(), 128 + SIGKILL);
    }
    const std::string first = read("killed");
    EXPECT_THAT(read("whole"), StartsWith(first));
    std::ofstream(path("killed"), std::ios::app) << "{\"id\":77,\"te";  // torn by a power cut
    const Outcome rest = run(again);
    ASSERT_EQ(rest.status, 0) << rest.err;
    EXPECT_EQ(read("killed"), read("whole"));
    EXPECT_THAT(rest.err, HasSubstr("were there already"));
    const Outcome nothing = run(again);
    EXPECT_EQ(nothing.status, 0);
    EXPECT_THAT(nothing.err, HasSubstr("0 answered"));
    EXPECT_EQ(read("killed"), read("whole"));
}

TEST_F(CliFiles, AnInterruptedBatchEndsCleanly) {
    Child child(command_line({"generate", "--model", kModel, "-i", write("in", story_lines(5000)),
                              "-o", path("out"), "--max-num-seqs", "4"}));
    ASSERT_TRUE(child.gather_until(
        [&] { return std::filesystem::exists(path("out")) && !read("out").empty(); }));
    child.send_signal(SIGINT);
    EXPECT_EQ(child.finish(), 130);
    EXPECT_THAT(child.err(), HasSubstr("run it again to go on"));
    const std::vector<Json> answers = json_lines(read("out"));
    for (std::size_t i = 0; i < answers.size(); ++i) {
        EXPECT_EQ(answers[i].find("id")->as_int64(), static_cast<std::int64_t>(i));
        EXPECT_NE(answers[i].find("text"), nullptr);
    }
}

TEST_F(CliFiles, AnOutputOfAnotherInputIsRefused) {
    const Outcome batch =
        run({"generate", "--model", kModel, "-i", write("in", "{\"id\":\"a\",\"prompt\":\"x\"}\n"),
             "-o", write("out", "{\"id\":\"b\",\"text\":\"x\"}\n")});
    EXPECT_EQ(batch.status, 1);
    EXPECT_THAT(batch.err, HasSubstr("belongs to another input"));
    EXPECT_EQ(read("out"), "{\"id\":\"b\",\"text\":\"x\"}\n");
}

TEST(CliProgram, ChatAnswersLineByLineInAPipe) {
    const Outcome chat = run({"chat", "--model", kModel, "--temperature", "0", "-n", "24"},
                             "What comes after Friday?\n/think off\n/clear\n"
                             "What comes after Friday?\n/exit\nHello\n");
    EXPECT_EQ(chat.status, 0) << chat.err;
    EXPECT_EQ(chat.out, "Saturday comes after Friday.\nSaturday comes after Friday.\n");
}

TEST(CliProgram, ChatEndsWithItsInputAndRemembersTheConversation) {
    // The second turn sees the first: it is the answer of the whole conversation in one request.
    const Outcome chat = run({"chat", "--model", kModel, "--temperature", "0", "-n", "24"},
                             "Hello\nWhat comes after Friday?");
    EXPECT_EQ(chat.status, 0) << chat.err;
    EXPECT_THAT(chat.out, StartsWith("Hello"));
    EXPECT_EQ(std::count(chat.out.begin(), chat.out.end(), '\n'), 2);
}

TEST(CliProgram, RecipeRendersTokenizesAndParses) {
    const std::string tokenizer = source_path("models/tiny/tokenizer.json");
    const Outcome rendered = run({"recipe", "render", "--json", "--tokenizer", tokenizer},
                                 R"({"model":"any","thinking":{"type":"disabled"},)"
                                 R"("messages":[{"role":"user","content":"Hi <think>"}]})");
    ASSERT_EQ(rendered.status, 0) << rendered.err;
    const auto report = parse_json(rendered.out);
    ASSERT_TRUE(report.ok());
    EXPECT_EQ(report->find("prompt")->as_string(),
              "<｜begin▁of▁sentence｜><｜User｜>Hi <think><｜Assistant｜></think>");
    EXPECT_EQ(report->find("special_ranges")->items().size(), 4u) << "typed text is none";
    const Outcome refused = run({"recipe", "render"}, R"({"model":"any","messages":[]})");
    EXPECT_EQ(refused.status, 1);
    EXPECT_THAT(refused.err, HasSubstr("refused with status 400: Empty input messages"));

    const Outcome ids = run({"recipe", "tokenize", "--json", "--tokenizer", tokenizer}, "Hello");
    EXPECT_EQ(ids.status, 0) << ids.err;
    EXPECT_THAT(ids.out, HasSubstr("\"pieces\":[\"Hello\"]"));
    const Outcome parsed = run({"recipe", "parse", "--stop", "END"}, "why</think>So.END more");
    EXPECT_EQ(parsed.out, "reasoning  \"why\"\ncontent    \"So.\"\nfinish     stop_sequence\n");
    EXPECT_EQ(run({"recipe", "render", "/absent/file"}).status, 1);
    EXPECT_EQ(run({"recipe", "dance"}).status, 1);
}

TEST(CliProgram, AFolderInPlaceOfAFileIsAnError) {
    const std::string folder = std::filesystem::temp_directory_path();
    const std::vector<std::vector<std::string>> commands = {
        {"recipe", "render", folder},
        {"recipe", "tokenize", folder, "--tokenizer", source_path("models/tiny/tokenizer.json")},
        {"recipe", "tokenize", "--tokenizer", folder},
        {"recipe", "parse", folder},
        {"recipe", "image", folder},
        {"recipe", "check", "--tokenizer", folder, source_path("tests/data/transcripts")},
        {"recipe", "check", "--update", folder + "/absent"},
        {"generate", "--model", kModel, "-i", folder, "-o", "/dev/null"},
        {"generate", "--config", folder},
        {"inspect", source_path("README.md")},
        {"bench", "--url", "http://127.0.0.1:9", "--dataset", folder},
    };
    for (const auto& command : commands) {
        const Outcome outcome = run(command);
        EXPECT_TRUE(outcome.status == 1 || outcome.status == 2)
            << command[1] << ": " << outcome.status;
        EXPECT_THAT(outcome.err, HasSubstr("fathom"));
    }
}

TEST(CliProgram, RecipeImageTellsTheTokensOfPictures) {
    const std::string picture = source_path("fuzz/corpus/image/striped_gif");  // 2×10
    const Outcome shown = run({"recipe", "image", "--json", picture, picture});
    ASSERT_EQ(shown.status, 0) << shown.err;
    const auto report = parse_json(shown.out);
    ASSERT_TRUE(report.ok()) << shown.out;
    ASSERT_EQ(report->items().size(), 2u);
    EXPECT_EQ(report->items()[0].find("width")->as_int64(), 252);
    EXPECT_EQ(report->items()[0].find("height")->as_int64(), 1218);
    EXPECT_EQ(report->items()[0].find("tokens")->as_int64(), 205);
    const Outcome refused = run({"recipe", "image", source_path("README.md")});
    EXPECT_EQ(refused.status, 1);
    EXPECT_THAT(refused.err, HasSubstr("README.md: UnsupportedMediaType: "));
    EXPECT_EQ(run({"recipe", "image"}).status, 1);
}

TEST(CliProgram, RecipeCheckTellsTheFirstDifferenceOfEachRow) {
    const Outcome good = run({"recipe", "check", source_path("tests/data/transcripts")});
    EXPECT_EQ(good.status, 0) << good.out;
    EXPECT_THAT(good.out, HasSubstr("tests/data/transcripts/tokens.jsonl: 22 rows, 22 passed, 0 "));
    EXPECT_EQ(good.err, "") << "no progress bar in a pipe";

    const std::filesystem::path path = std::filesystem::temp_directory_path() /
                                       ("fathom_check_" + std::to_string(::getpid()) + ".jsonl");
    std::ofstream(path) << "{}\n"
                        << R"({"id":"t","kind":"token_count","width":1,"height":1,"tokens":1})"
                        << "\n"
                        << R"({"id":"r","prompt":"x","ids":[1]})"
                        << "\n"
                        << R"({"id":"n","protocol":"chat","feed":["</think>a"]})"
                        << "\n";
    const Outcome bad = run({"recipe", "check", "--json", path.string()});
    EXPECT_EQ(bad.status, 1);
    const auto report = parse_json(bad.out);
    ASSERT_TRUE(report.ok()) << bad.out;
    EXPECT_EQ(report->find("failed")->as_int64(), 3);
    EXPECT_THAT(bad.out, HasSubstr("\"line\":1,\"id\":\"\",\"difference\":\"a row of no known "));
    EXPECT_THAT(bad.out, HasSubstr(".tokens: expected 1"));
    EXPECT_THAT(bad.out, HasSubstr("and none is named\":1"));

    const Outcome updated = run({"recipe", "check", "--update", path.string()});
    EXPECT_EQ(updated.status, 0) << updated.err;
    EXPECT_THAT(updated.out, HasSubstr("1 transcripts changed"));
    EXPECT_THAT(run({"recipe", "check", path.string()}).err, HasSubstr("2 rows differ"));
    std::ofstream(path) << R"({"id":"b","protocol":"chat","body":{"messages":5},)"
                        << R"("error":{"phase":"body"}})"
                        << "\n";
    EXPECT_THAT(run({"recipe", "check", path.string()}).out,
                HasSubstr("1 rows, 1 passed, 0 failed\n  1 passed by their status alone"));
    std::ofstream(path) << "\n";
    const Outcome empty = run({"recipe", "check", path.string()});
    EXPECT_EQ(empty.status, 1);
    EXPECT_THAT(empty.err, HasSubstr(path.string() + ": no rows"));
    std::filesystem::remove(path);
    EXPECT_EQ(run({"recipe", "check", "/absent.jsonl"}).status, 1);
    EXPECT_EQ(run({"recipe", "check"}).status, 1);
}

TEST_F(CliFiles, SimCheckBudgetCountsEqualCases) {
    const std::string row = R"({"id":"a","drafts":2,"curve":[],"updates":[],)"
                            R"("sequences":[{"paired":true,"drafted":true,"rates":[],"prev":[]}],)";
    const std::string good = write("good.jsonl", row + R"("lengths":[3]})" + "\n\n");
    const Outcome equal = run({"sim", "check-budget", good});
    EXPECT_EQ(equal.status, 0) << equal.err;
    EXPECT_EQ(equal.out, good + ": 1 of 1 cases are equal\n");
    const std::string bad =
        write("bad.jsonl", row + R"("lengths":[3]})" + "\n" + row + R"("lengths":[2]})");
    const Outcome differs = run({"sim", "check-budget", bad, "--json"});
    EXPECT_EQ(differs.status, 1);
    EXPECT_THAT(differs.out, HasSubstr(R"("cases":2,"equal":1,"differences":[{"line":2,"id":"a",)"
                                       R"("difference":"sequence 0: length 3, recorded 2"}])"));
    const Outcome broken = run({"sim", "check-budget", write("broken.jsonl", "{}\n")});
    EXPECT_EQ(broken.status, 1);
    EXPECT_THAT(broken.err, HasSubstr("broken.jsonl:1: id: "));
    EXPECT_THAT(run({"sim", "check-bugdet", bad}).err, HasSubstr("did you mean \"check-budget\"?"));
}

TEST(CliProgram, ChatInterruptEndsTheAnswerThenTheProgram) {
    Child child(command_line({"chat", "--model", kModel, "-n", "2000", "--temperature", "0"}));
    child.write_input("Tell me a story about a fox.\n");
    ASSERT_TRUE(child.gather_until([&] { return child.out().size() > 2; })) << child.err();
    child.send_signal(SIGINT);
    // Where the story had ended by itself the program ends now, and its streams with it.
    child.gather_until([&] { return child.err().find("[interrupted]") != std::string::npos; });
    child.send_signal(SIGINT);
    // Until it ends by itself: closing its input first would be another reason to end.
    child.gather_until([] { return false; });
    EXPECT_EQ(child.finish(), 130);
}

TEST(CliProgram, ServeSaysWhereItListensAndDrainsOnSigterm) {
    Child child(command_line({"serve", "--model", kModel, "--port", "0"}));
    ASSERT_TRUE(child.gather_until([&] { return child.out().find('\n') != std::string::npos; }))
        << child.err();
    EXPECT_THAT(child.out(), StartsWith("listening on http://127.0.0.1:"));
    child.send_signal(SIGTERM);
    EXPECT_EQ(child.finish(), 0);
}

// The same fleet in two processes has the same hash and the same report, byte for byte; another
// seed has another.
TEST_F(CliFiles, SimulatesAFleetToTheBitInAnyProcess) {
    const auto fleet = [&](const std::string& seed) {
        return run({"sim", "run", "one-box", "--json", "--duration", "20", "--set",
                    "sim.warmup_s=5", "--set=decode.groups=2", "--seed", seed});
    };
    const Outcome one = fleet("7"), again = fleet("7"), other = fleet("8");
    ASSERT_EQ(one.status, 0) << one.err;
    EXPECT_EQ(one.out, again.out);
    const auto hash = [](const Outcome& outcome) {
        const auto json = parse_json(outcome.out);
        return json.ok() ? std::string(json->find("hash")->as_string()) : outcome.out;
    };
    EXPECT_EQ(hash(one).size(), 16U);
    EXPECT_NE(hash(one), hash(other));
    EXPECT_THAT(run({"sim", "run", "one-bix"}).err, HasSubstr("\"one-bix\" is not known"));
    EXPECT_THAT(run({"sim", "run", "one-box", "--set", "decode.group=2"}).err,
                HasSubstr("did you mean \"decode.groups\"?"));
    EXPECT_THAT(run({"sim", "run", "one-box", "--set", "decode.groups=0"}).err,
                HasSubstr("decode.groups is 0; the limits are 1..65536"));
}

}  // namespace
}  // namespace fathom::testing
