// `fathom serve --pool DIR` as its users see it: what a server computed is found by the next one,
// whatever ended the first, by those who may find it and nobody else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"
#include "gateway_process.h"

namespace fathom {
namespace {

using testing::Child;
using ::testing::HasSubstr;
using testing::http_post;
using testing::ServeProcess;

class PoolServer : public ::testing::Test {
  protected:
    void SetUp() override {
        dir_ = std::filesystem::path(::testing::TempDir()) /
               ("pool_" + std::to_string(::getpid()) + "_" +
                ::testing::UnitTest::GetInstance()->current_test_info()->name());
        std::filesystem::remove_all(dir_);
    }
    void TearDown() override { std::filesystem::remove_all(dir_); }

    // Without a cost model loads may take as long as they like; with one, no longer than a part of
    // the few milliseconds in which this model computes.
    std::vector<std::string> flags(std::vector<std::string> more = {}) const {
        std::vector<std::string> all = {"--pool",
                                        dir_.string(),
                                        "--pool.capacity_mib",
                                        "1024",
                                        "--pool.find_ms",
                                        "5000",
                                        "--pool.load_ms",
                                        "5000",
                                        "--engine.cost_model",
                                        "rows"};
        all.insert(all.end(), more.begin(), more.end());
        return all;
    }

    std::filesystem::path dir_;
};

// About 600 tokens, a different text for every number.
std::string body(int number, int max_tokens = 8) {
    std::string prompt;
    for (int i = 0; i < 60; ++i)
        prompt += "Day " + std::to_string(number * 1000 + i) + " comes after the day before. ";
    return R"({"model":"tiny","prompt":")" + prompt + R"(","temperature":0,"max_tokens":)" +
           std::to_string(max_tokens) + "}";
}

struct Answer {
    std::string text;
    std::int64_t prompt_tokens = 0, cached_tokens = 0;
    std::string window_source;  // of its anchors
    std::size_t replays = 0;
};

Answer complete(const ServeProcess& server, const std::string& request,
                const std::string& headers = {}) {
    const auto answer = server.ask(http_post("/v1/completions", request, headers));
    EXPECT_EQ(answer.status, 200) << answer.body;
    const auto json = parse_json(answer.body);
    if (answer.status != 200 || !json.ok()) return {};
    const Json& usage = *json->find("usage");
    Answer result;
    result.text = json->find("choices")->items().at(0).find("text")->as_string();
    result.prompt_tokens = usage.find("prompt_tokens")->as_int64();
    if (const Json* details = usage.find("prompt_tokens_details"))
        result.cached_tokens = details->find("cached_tokens")->as_int64();
    const Json& anchors = *json->find("fathom")->find("anchors");
    result.window_source = anchors.find("window_source")->as_string();
    result.replays = anchors.find("replays")->items().size();
    return result;
}

// Until nothing waits to be stored any more.
void wait_stored(const ServeProcess& server, const std::string& headers = {}) {
    double waiting = 1;
    while (waiting > 0) {
        waiting = server.metric("kvpool_put_queue_depth", headers);
        std::this_thread::yield();
    }
    EXPECT_EQ(waiting, 0);
}

void end(ServeProcess& server) {
    kill(server.child().pid(), SIGTERM);
    EXPECT_EQ(server.child().finish(), 0) << server.child().err();
}

TEST_F(PoolServer, ARestartedServerFindsWhatTheFirstComputed) {
    Answer cold;
    {
        ServeProcess server(flags());
        cold = complete(server, body(1));
        EXPECT_EQ(cold.cached_tokens, 0);
        EXPECT_GT(cold.prompt_tokens, 300);
        end(server);
    }
    Answer warm;
    {
        ServeProcess server(flags());
        warm = complete(server, body(1));
        EXPECT_GE(warm.cached_tokens, cold.prompt_tokens / 128 * 128 - 128);
        EXPECT_EQ(warm.cached_tokens % 128, 0);
        EXPECT_GT(server.metric("kvpool_hit_tokens_total"), 0);
        end(server);
    }
    // Equal anchors, equal bits: as often as one likes.
    ServeProcess server(flags());
    const Answer again = complete(server, body(1));
    EXPECT_EQ(again.text, warm.text);
    EXPECT_EQ(again.cached_tokens, warm.cached_tokens);
}

// However little time there is for lookups and loads.
TEST_F(PoolServer, WithTheUsualBudgetsAnswersAreThereWhateverWasFound) {
    const std::vector<std::string> usual = {"--pool", dir_.string(), "--pool.capacity_mib", "1024"};
    const std::vector<std::string> tight = {
        "--pool",         dir_.string(), "--pool.capacity_mib", "1024",
        "--pool.find_ms", "1",           "--pool.load_ms",      "1"};
    for (const std::vector<std::string>& with : {usual, usual, tight}) {
        ServeProcess server(with);
        for (int number = 1; number <= 3; ++number) {
            const Answer answer = complete(server, body(number));
            EXPECT_FALSE(answer.text.empty());
            EXPECT_LE(answer.cached_tokens, answer.prompt_tokens);
            EXPECT_EQ(answer.cached_tokens % 128, 0);
        }
        end(server);
    }
}

// Three disks, one of them gone between two runs, then replaced, then another one gone.
TEST_F(PoolServer, ALostDiskOfACodeLosesNoPrompt) {
    std::vector<std::string> with = {"--pool.ec",           "2+1",  "--pool.capacity_mib", "1024",
                                     "--pool.find_ms",      "5000", "--pool.load_ms",      "5000",
                                     "--engine.cost_model", "rows"};
    for (const char* name : {"a", "b", "c"})
        with.insert(with.end(), {"--pool.dirs", (dir_ / name).string()});
    std::vector<Answer> cold;
    {
        ServeProcess server(with);
        for (int i = 0; i < 3; ++i)
            cold.push_back(complete(server, body(i)));
        end(server);
    }
    const auto expect_found = [&] {
        ServeProcess server(with);
        for (int i = 0; i < 3; ++i) {
            const Answer warm = complete(server, body(i));
            const std::int64_t prompt = cold[static_cast<std::size_t>(i)].prompt_tokens;
            EXPECT_GE(warm.cached_tokens, prompt / 128 * 128 - 128);
        }
        const double rebuilt = server.metric("kvpool_degraded_reads_total") +
                               server.metric("kvpool_repair_blocks_total");
        end(server);
        return rebuilt;
    };
    EXPECT_EQ(expect_found(), 0);
    std::filesystem::remove_all(dir_ / "b");
    EXPECT_GT(expect_found(), 0);
    EXPECT_FALSE(std::filesystem::exists(dir_ / "b"));
    std::filesystem::create_directory(dir_ / "b");
    EXPECT_GT(expect_found(), 0);
}

TEST_F(PoolServer, AKilledServerLosesOnlyTime) {
    Answer cold;
    {
        ServeProcess server(flags());
        cold = complete(server, body(1));
        complete(server, body(2, 200));
        kill(server.child().pid(), SIGKILL);
        server.child().finish();
    }
    ServeProcess server(flags());
    const Answer warm = complete(server, body(1));
    EXPECT_GT(warm.cached_tokens, 0);
    EXPECT_EQ(complete(server, body(3)).cached_tokens, 0);
}

TEST_F(PoolServer, ServersOfOnePoolFindEachOthersBlocks) {
    ServeProcess first(flags());
    const Answer cold = complete(first, body(1));
    EXPECT_EQ(cold.cached_tokens, 0);
    wait_stored(first);
    Answer warm, again;
    {
        ServeProcess second(flags());
        warm = complete(second, body(1));
        EXPECT_GE(warm.cached_tokens, cold.prompt_tokens / 128 * 128 - 128);
        EXPECT_EQ(warm.cached_tokens % 128, 0);
        EXPECT_TRUE(std::filesystem::exists(dir_ / "peers" / "1"));
        // Both compute one prompt at the same time, and both may store it.
        Answer one, two;
        std::thread other([&] { one = complete(first, body(2)); });
        two = complete(second, body(2));
        other.join();
        if (one.cached_tokens == two.cached_tokens) {
            EXPECT_EQ(one.text, two.text);
        }
        complete(second, body(3));
        kill(second.child().pid(), SIGKILL);
        second.child().finish();
    }
    // The first goes on, a third finds what all had.
    EXPECT_EQ(complete(first, body(4)).cached_tokens, 0);
    wait_stored(first);
    ServeProcess third(flags());
    again = complete(third, body(1));
    EXPECT_GT(again.cached_tokens, 0);
    if (again.cached_tokens == warm.cached_tokens) {
        EXPECT_EQ(again.text, warm.text);
    }
    for (const int number : {2, 4})
        EXPECT_GT(complete(third, body(number)).cached_tokens, 0) << number;
    end(third);
    end(first);
}

TEST_F(PoolServer, APoolOfOneProcessIsRefusedToASecond) {
    ServeProcess first(flags({"--pool.store", "embedded"}));
    std::vector<std::string> args = {
        FATHOM_PROGRAM, "serve", "--model",      testing::source_path("models/tiny"),
        "--port",       "0",     "--pool.store", "embedded"};
    for (const std::string& flag : flags())
        args.push_back(flag);
    Child second(args);
    EXPECT_EQ(second.finish(), 1);
    EXPECT_THAT(second.err(), HasSubstr("in use by another process"));
    end(first);
}

TEST_F(PoolServer, KeysDoNotFindEachOthersPrompts) {
    const std::string alpha = "authorization: Bearer alpha\r\n", beta = "x-api-key: beta\r\n";
    const std::vector<std::string> keys = {"--api-key", "alpha", "--api-key", "beta"};
    {
        ServeProcess server(flags(keys));
        EXPECT_EQ(complete(server, body(1), alpha).cached_tokens, 0);
        EXPECT_EQ(complete(server, body(1), beta).cached_tokens, 0);  // in memory
        EXPECT_GT(complete(server, body(1), alpha).cached_tokens, 0);
        EXPECT_EQ(complete(server, body(2), alpha).cached_tokens, 0);
        end(server);
    }
    ServeProcess server(flags(keys));
    EXPECT_EQ(complete(server, body(2), beta).cached_tokens, 0);  // in the pool
    EXPECT_GT(complete(server, body(2), alpha).cached_tokens, 0);
}

TEST_F(PoolServer, AClassIsTheHeadersOrRefused) {
    ServeProcess server(flags());
    complete(server, body(1), "x-fathom-traffic-class: ephemeral\r\n");
    const auto refused =
        server.ask(http_post("/v1/completions", body(2), "x-fathom-traffic-class: system\r\n"));
    EXPECT_EQ(refused.status, 400);
    EXPECT_THAT(refused.body, HasSubstr("expected agent, chatbot or ephemeral"));
    end(server);
    EXPECT_TRUE(std::filesystem::exists(dir_ / "seg" / "ephemeral"));
    EXPECT_FALSE(std::filesystem::exists(dir_ / "seg" / "agent") &&
                 !std::filesystem::is_empty(dir_ / "seg" / "agent"));
}

TEST_F(PoolServer, AnEncryptedPoolIsReadWithItsKeysAndNotWithout) {
    const auto keys = [&] {
        return static_cast<std::size_t>(
            std::distance(std::filesystem::directory_iterator(dir_ / "keys"),
                          std::filesystem::directory_iterator()));
    };
    {
        ServeProcess server(flags({"--pool.encrypt"}));
        EXPECT_EQ(complete(server, body(1)).cached_tokens, 0);
        end(server);
    }
    EXPECT_EQ(keys(), 1U);
    {
        ServeProcess server(flags({"--pool.encrypt"}));
        EXPECT_GT(complete(server, body(1)).cached_tokens, 0);
        end(server);
    }
    std::filesystem::remove_all(dir_ / "keys");
    ServeProcess server(flags({"--pool.encrypt"}));
    EXPECT_EQ(complete(server, body(1)).cached_tokens, 0);
    EXPECT_GT(server.metric(R"(kvpool_corrupt_total{backend="embedded",where="tag"})"), 0);
}

TEST_F(PoolServer, AKeysKvIsDroppedByWhoHasTheKey) {
    const std::vector<std::string> keys = {"--api-key", "alpha", "--api-key", "beta"};
    const std::string alpha = "authorization: Bearer alpha\r\n", beta = "x-api-key: beta\r\n";
    {
        ServeProcess server(flags(keys));
        complete(server, body(1), alpha);
        complete(server, body(2), beta);
        end(server);
    }
    std::ofstream(dir_ / "key") << "alpha\n";
    Child drop({FATHOM_PROGRAM, "pool", "drop", dir_.string(), "--model",
                testing::source_path("models/tiny"), "--key-file", (dir_ / "key").string()});
    EXPECT_EQ(drop.finish(), 0) << drop.err();
    EXPECT_THAT(drop.out(), ::testing::Not(HasSubstr("it had no block here"))) << drop.out();
    ServeProcess server(flags(keys));
    EXPECT_EQ(complete(server, body(1), alpha).cached_tokens, 0);
    EXPECT_GT(complete(server, body(2), beta).cached_tokens, 0);
}

TEST_F(PoolServer, AKeysKvIsDroppedUnderServersThatRun) {
    const std::vector<std::string> keys = {"--api-key", "alpha", "--api-key", "beta"};
    const std::string alpha = "authorization: Bearer alpha\r\n", beta = "x-api-key: beta\r\n";
    ServeProcess server(flags(keys));
    complete(server, body(1), alpha);
    const Answer kept = complete(server, body(2), beta);
    {
        ServeProcess other(flags(keys));  // its pool is free then
        complete(other, body(3), alpha);
        end(other);
    }
    wait_stored(server, alpha);
    std::ofstream(dir_ / "key") << "alpha\n";
    Child drop({FATHOM_PROGRAM, "pool", "drop", dir_.string(), "--model",
                testing::source_path("models/tiny"), "--key-file", (dir_ / "key").string(),
                "--json"});
    EXPECT_EQ(drop.finish(), 0) << drop.out() << drop.err();
    const auto report = parse_json(drop.out());
    ASSERT_TRUE(report.ok()) << drop.out();
    EXPECT_GE(report->find("dropped_blocks")->as_int64(), kept.prompt_tokens / 128 * 2);
    EXPECT_EQ(report->find("left_blocks")->as_int64(), 0);
    ServeProcess late(flags(keys));
    EXPECT_EQ(complete(late, body(1), alpha).cached_tokens, 0);
    EXPECT_EQ(complete(late, body(3), alpha).cached_tokens, 0);
    EXPECT_GT(complete(late, body(2), beta).cached_tokens, 0);
    EXPECT_EQ(complete(server, body(2), beta).text, kept.text);
    end(late);
    end(server);
}

// Two on one machine: what the first computed the second continues from as if it had computed it
// itself. When the first has gone, its windows go too and its blocks stay.
TEST_F(PoolServer, AServerContinuesFromTheWindowsOfAnother) {
    constexpr const char* kOthers = R"(kvpool_swa_hit_total{from="other"})";
    const std::vector<std::string> keys = {"--api-key", "alpha", "--api-key", "beta"};
    const std::string alpha = "authorization: Bearer alpha\r\n", beta = "x-api-key: beta\r\n";
    const auto names = [&] {
        return std::distance(std::filesystem::directory_iterator(dir_ / "windows"),
                             std::filesystem::directory_iterator());
    };
    ServeProcess first(flags(keys));
    const Answer cold = complete(first, body(1), alpha);
    const Answer later = complete(first, body(2), alpha);
    EXPECT_EQ(cold.window_source, "none");
    wait_stored(first, alpha);

    ServeProcess second(flags(keys));
    EXPECT_EQ(names(), 2);
    EXPECT_EQ(complete(second, body(1), beta).cached_tokens, 0);
    EXPECT_EQ(second.metric(kOthers, alpha), 0);
    const Answer warm = complete(second, body(1), alpha);
    EXPECT_EQ(warm.text, cold.text);
    EXPECT_EQ(warm.window_source, "snapshot");
    EXPECT_EQ(warm.replays, 0U);
    EXPECT_GT(warm.cached_tokens, 0);
    EXPECT_EQ(warm.cached_tokens % 128, 0);
    EXPECT_EQ(warm.cached_tokens, complete(first, body(1), alpha).cached_tokens);
    EXPECT_GT(second.metric(kOthers, alpha), 0);

    kill(first.child().pid(), SIGKILL);
    first.child().finish();
    EXPECT_TRUE(second.child().gather_until([&] { return names() == 1; }));
    const double had = second.metric(kOthers, alpha);
    const Answer replayed = complete(second, body(2), alpha);
    EXPECT_EQ(replayed.window_source, "replay");
    EXPECT_EQ(replayed.cached_tokens, later.prompt_tokens / 128 * 128 - 128);
    EXPECT_EQ(second.metric(kOthers, alpha), had);
    EXPECT_EQ(complete(second, body(1), alpha).text, cold.text);
    end(second);
    EXPECT_EQ(names(), 0);
}

TEST_F(PoolServer, WhatCannotBeOpenedSaysWhy) {
    const auto refused = [&](const std::string& dir) {
        Child child({FATHOM_PROGRAM, "serve", "--model", testing::source_path("models/tiny"),
                     "--port", "0", "--pool", dir});
        EXPECT_EQ(child.finish(), 1);
        return child.err();
    };
    EXPECT_THAT(refused("/proc/nothing/pool"), HasSubstr("/proc/nothing/pool"));
    std::filesystem::create_directories(dir_);
    std::ofstream(dir_ / "SECRET") << "short";
    std::filesystem::permissions(dir_ / "SECRET", std::filesystem::perms(0600));
    EXPECT_THAT(refused(dir_.string()), HasSubstr("has 5 bytes, expected 32"));
    std::filesystem::permissions(dir_ / "SECRET", std::filesystem::perms(0644));
    EXPECT_THAT(refused(dir_.string()), HasSubstr("may be read by others"));
    std::filesystem::permissions(dir_ / "SECRET", std::filesystem::perms(0600));
    std::filesystem::remove(dir_ / "SECRET");
    std::ofstream(dir_ / "keys") << "a file";
    EXPECT_THAT(refused(dir_.string()), HasSubstr("keys: is not a directory"));
}

}  // namespace
}  // namespace fathom
