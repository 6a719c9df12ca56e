// Many streamed requests at once, short ones and prompts of several chunks, some cancelled at
// random, against the real program with steps planned by time: every finished answer equals the
// same request run alone, pages return to zero, memory stays flat. FATHOM_SOAK_SECONDS says how
// long (10); 1800 is the soak of a release.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/random.h"
#include "gateway_process.h"

namespace fathom {
namespace {

using testing::http_post;
using testing::HttpAnswer;
using testing::HttpClient;
using testing::ServeProcess;

constexpr std::uint64_t kSeed = 20'260'101;
constexpr int kClients = 64;
constexpr int kShortRequests = 24, kLongRequests = 4;

std::int64_t soak_us() {
    const char* seconds = std::getenv("FATHOM_SOAK_SECONDS");
    return 1'000'000 * (seconds != nullptr ? std::atoll(seconds) : 10);
}

std::vector<std::string> requests() {
    const char* const questions[] = {"Hello",           "What comes after Friday?",
                                     "Tell me a story", "What is 12 plus 30?",
                                     "Count to five",   "Translate red to Spanish."};
    std::vector<std::string> all;
    for (int i = 0; i < kShortRequests + kLongRequests; ++i) {
        std::string question = questions[i % 6];
        for (int more = i - kShortRequests; more >= 0; --more)  // 300 tokens or more each time
            for (int line = 0; line < 40; ++line)
                question += " Line " + std::to_string(41 * i + line) + " says nothing new.";
        const bool thinking = i % 3 == 0;
        all.push_back(http_post(
            "/v1/chat/completions",
            R"({"model":"tiny","stream":true,"messages":[{"role":"user","content":")" + question +
                R"("}],"max_tokens":)" + std::to_string(8 + i) + R"(,"seed":)" + std::to_string(i) +
                R"(,"temperature":)" + (i % 4 == 0 ? "0" : "0.8") + R"(,"thinking":{"type":")" +
                (thinking ? "enabled" : "disabled") + "\"}}"));
    }
    return all;
}

// Length of the JSON string whose text begins at `from`.
std::size_t string_bytes(const std::string& json, std::size_t from) {
    std::size_t at = from;
    while (at < json.size() && json[at] != '"')
        at += json[at] == '\\' ? 2 : 1;
    return at - from;
}

// What must not change between runs: the deltas and the end, without id and time. The texts are
// joined, since the cut into events depends on what else runs.
std::string answer_text(const HttpAnswer& answer) {
    std::string text;
    const auto append = [&](const std::string& event, const std::string& name) {
        const std::string key = "\"" + name + "\":\"";
        if (const std::size_t at = event.find(key); at != std::string::npos)
            text += event.substr(at + key.size(), string_bytes(event, at + key.size()));
    };
    for (std::size_t at = 0; at < answer.body.size();) {
        const std::size_t end = std::min(answer.body.find("\n\n", at), answer.body.size());
        const std::string event = answer.body.substr(at, end - at);
        append(event, "reasoning_content");
        append(event, "content");
        append(event, "finish_reason");
        at = end + 2;
    }
    if (answer.body.find("data: [DONE]\n\n") != std::string::npos) text += " [DONE]";
    return text;
}

struct Tally {
    std::atomic<int> finished{0}, cancelled{0}, different{0}, failed{0};
};

void run_client(const ServeProcess& server, int number, const std::vector<std::string>& all,
                const std::vector<std::string>& alone, std::int64_t end_us, Tally& tally) {
    RandomStream random(kSeed + static_cast<std::uint64_t>(number));
    while (real_clock().now_us() < end_us) {
        const std::size_t which = random.next_below(all.size());
        HttpClient client(server.port());
        if (!client.send(all[which])) {
            ++tally.failed;
            continue;
        }
        if (random.next_below(3) == 0) {  // leave in the middle, sometimes before the first byte
            const std::size_t bytes = random.next_below(2000);
            while (client.buffered().size() < bytes && client.wait_for_more()) {
            }
            if (random.next_below(2) == 0) client.reset();
            ++tally.cancelled;
            continue;
        }
        const HttpAnswer answer = client.answer();
        if (!answer.complete || answer.status != 200) {
            ++tally.failed;
            ADD_FAILURE() << "seed " << kSeed << " client " << number << ": " << answer.head
                          << answer.body.substr(0, 300);
        } else if (answer_text(answer) != alone[which]) {
            ++tally.different;
            ADD_FAILURE() << "seed " << kSeed << " request " << which
                          << "\nalone:    " << alone[which]
                          << "\nin company: " << answer_text(answer);
        } else {
            ++tally.finished;
        }
    }
}

TEST(GatewaySoak, RandomCancelsLeakNothingAndChangeNoAnswer) {
    ServeProcess server({"--engine.prefill_chunk_max", "256", "--engine.step_budget_ms", "20"});
    ASSERT_NE(server.port(), 0);
    const std::vector<std::string> all = requests();
    std::vector<std::string> alone;
    for (const std::string& request : all)
        alone.push_back(answer_text(server.ask(request)));
    for (const std::string& text : alone)
        ASSERT_NE(text.find("[DONE]"), std::string::npos) << text;

    Tally tally;
    const auto round = [&](std::int64_t length_us) {
        const std::int64_t end_us = real_clock().now_us() + length_us;
        std::vector<std::thread> clients;
        for (int i = 0; i < kClients; ++i)
            clients.emplace_back([&, i] { run_client(server, i, all, alone, end_us, tally); });
        for (std::thread& client : clients)
            client.join();
    };
    round(soak_us() / 3);  // memory reaches its working size
    const std::int64_t before_kib = server.resident_kib();
    round(soak_us() - soak_us() / 3);
    const std::int64_t after_kib = server.resident_kib();

    const std::int64_t idle_until_us = real_clock().now_us() + 60'000'000;
    while (server.metric("vllm:num_requests_running") + server.metric("vllm:num_requests_waiting") >
               0 &&
           real_clock().now_us() < idle_until_us)
        std::this_thread::yield();
    EXPECT_EQ(server.metric("vllm:num_requests_running"), 0);
    EXPECT_EQ(server.metric("vllm:num_requests_waiting"), 0);
    EXPECT_EQ(server.metric("vllm:kv_cache_usage_perc"), 0);
    EXPECT_LE(after_kib, before_kib + before_kib / 10 + (16 << 10))
        << "resident KiB, before and after";
    EXPECT_EQ(tally.failed, 0);
    EXPECT_EQ(tally.different, 0);
    EXPECT_GT(tally.finished, 0);
    EXPECT_GT(tally.cancelled, 0);
    printf("finished %d, cancelled %d, resident %lld -> %lld KiB\n", tally.finished.load(),
           tally.cancelled.load(), static_cast<long long>(before_kib),
           static_cast<long long>(after_kib));
}

}  // namespace
}  // namespace fathom
