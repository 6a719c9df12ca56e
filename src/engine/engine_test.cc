#include "engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/mailbox.h"
#include "engine/marker_model.h"

namespace fathom {
namespace {

using testing::expected_tokens;
using ::testing::HasSubstr;
using testing::make_request;
using testing::MarkerModel;

constexpr auto kPatience = std::chrono::seconds(60);

// A sink that other threads may wait on.
class WaitingSink final : public EventSink {
  public:
    void on_event(EngineEvent event) override {
        std::unique_lock lock(mutex_);
        tokens_.insert(tokens_.end(), event.tokens.begin(), event.tokens.end());
        last_ = std::move(event);
        changed_.notify_all();
        opened_.wait_for(lock, kPatience, [this] { return !gated_; });
    }
    // Holds the engine's thread inside the next event until open().
    void gate() {
        std::lock_guard lock(mutex_);
        gated_ = true;
    }
    void open() {
        std::lock_guard lock(mutex_);
        gated_ = false;
        opened_.notify_all();
    }
    bool wait_tokens(std::size_t count) {
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, kPatience, [&] { return tokens_.size() >= count; });
    }
    FinishReason wait_finish() {
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, kPatience, [&] { return last_.finish != FinishReason::none; });
        return last_.finish;
    }
    std::vector<TokenId> tokens() {
        std::lock_guard lock(mutex_);
        return tokens_;
    }
    Status status() {
        std::lock_guard lock(mutex_);
        return last_.status;
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_, opened_;
    std::vector<TokenId> tokens_;
    EngineEvent last_;
    bool gated_ = false;
};

EngineConfig small_config() {
    EngineConfig config;
    config.pages = 32;
    config.sequences_max = 8;
    config.step_tokens_max = 64;
    config.waiting_max = 64;
    config.tail_tokens = 22;
    return config;
}

std::unique_ptr<EngineCore> make_core(const EngineConfig& config, const Clock& clock) {
    return std::move(*EngineCore::create(std::make_unique<MarkerModel>(config.step_tokens_max),
                                         config, clock, nullptr));
}

TEST(Engine, AnswersRequestsOfManyThreads) {
    Engine engine(make_core(small_config(), real_clock()));
    std::vector<std::thread> owners;
    std::atomic<int> wrong{0};
    for (std::uint64_t owner = 0; owner < 4; ++owner) {
        owners.emplace_back([&, owner] {
            for (std::uint64_t i = 0; i < 6; ++i) {
                const EngineRequest request =
                    make_request(owner * 100 + i, static_cast<std::int64_t>(10 + 40 * i), 30);
                const auto sink = std::make_shared<WaitingSink>();
                if (!engine.submit(request, sink).ok() ||
                    sink->wait_finish() != FinishReason::length ||
                    sink->tokens() != expected_tokens(request))
                    ++wrong;
            }
        });
    }
    for (std::thread& owner : owners)
        owner.join();
    EXPECT_EQ(wrong.load(), 0);
}

TEST(Engine, CancelsFromAnotherThread) {
    Engine engine(make_core(small_config(), real_clock()));
    const auto sink = std::make_shared<WaitingSink>();
    sink->gate();  // so that the request cannot end before it is cancelled
    const EngineRequest request = make_request(1, 10, 600);
    ASSERT_TRUE(engine.submit(request, sink).ok());
    ASSERT_TRUE(sink->wait_tokens(1));
    engine.cancel(1);
    sink->open();
    EXPECT_EQ(sink->wait_finish(), FinishReason::cancelled);
    // A step that ended before the first token went out has brought a second one.
    const std::vector<TokenId> tokens = sink->tokens(), all = expected_tokens(request);
    EXPECT_LE(tokens.size(), 2u);
    EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), all.begin()));
}

// Holds the computing thread inside a forward pass.
class StepGate {
  public:
    void pass() {
        std::unique_lock lock(mutex_);
        ++arrived_;
        changed_.notify_all();
        changed_.wait_for(lock, kPatience, [this] { return open_ || arrived_ <= allowed_; });
    }
    bool wait_arrived(int count) {
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, kPatience, [&] { return arrived_ >= count; });
    }
    void allow(int count) {
        std::lock_guard lock(mutex_);
        allowed_ = count;
        changed_.notify_all();
    }
    void open() {
        std::lock_guard lock(mutex_);
        open_ = true;
        changed_.notify_all();
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    int arrived_ = 0, allowed_ = 0;
    bool open_ = false;
};

TEST(Engine, WhileAStepComputesEventsGoOutAndMessagesAreTaken) {
    StepGate gate;
    auto model = std::make_unique<MarkerModel>(small_config().step_tokens_max);
    model->before_forward = [&] { gate.pass(); };
    Engine engine(
        std::move(*EngineCore::create(std::move(model), small_config(), real_clock(), nullptr)));
    const EngineRequest request = make_request(1, 10, 30);
    const auto sink = std::make_shared<WaitingSink>();
    ASSERT_TRUE(engine.submit(request, sink).ok());
    gate.allow(1);
    ASSERT_TRUE(gate.wait_arrived(2));  // the second step computes …
    EXPECT_TRUE(sink->wait_tokens(1));  // … and the first one's token arrives
    EngineRequest refused = make_request(2, 10, 5);
    refused.prompt.clear();
    const auto second = std::make_shared<WaitingSink>();
    ASSERT_TRUE(engine.submit(refused, second).ok());
    EXPECT_EQ(second->wait_finish(), FinishReason::error);
    engine.cancel(1);
    gate.open();
    EXPECT_EQ(sink->wait_finish(), FinishReason::cancelled);
    EXPECT_LE(sink->tokens().size(), 2u);
}

TEST(Engine, CancelRightAfterSubmitIsNotLost) {
    Engine engine(make_core(small_config(), real_clock()));
    for (std::uint64_t id = 0; id < 200; ++id) {
        const auto sink = std::make_shared<WaitingSink>();
        sink->gate();
        ASSERT_TRUE(engine.submit(make_request(id, 10, 600), sink).ok());
        engine.cancel(id);
        sink->open();
        ASSERT_EQ(sink->wait_finish(), FinishReason::cancelled);
    }
}

TEST(Engine, AFullMailboxRefusesSubmissionsButTakesCancellations) {
    EngineConfig config = small_config();
    config.waiting_max = 2;
    Engine engine(make_core(config, real_clock()));
    const auto blocking = std::make_shared<WaitingSink>();
    blocking->gate();
    ASSERT_TRUE(engine.submit(make_request(1, 10, 600), blocking).ok());
    ASSERT_TRUE(blocking->wait_tokens(1));  // the engine's thread now waits in the sink
    const auto second = std::make_shared<WaitingSink>();
    ASSERT_TRUE(engine.submit(make_request(2, 10, 600), second).ok());
    ASSERT_TRUE(engine.submit(make_request(3, 10, 5), std::make_shared<WaitingSink>()).ok());
    const Status full = engine.submit(make_request(4, 10, 5), std::make_shared<WaitingSink>());
    EXPECT_EQ(full.code(), StatusCode::resource_exhausted);
    EXPECT_THAT(full.message(), HasSubstr("2 requests were submitted since"));
    for (std::uint64_t id = 1; id < 50; ++id)
        engine.cancel(id);
    blocking->open();
    EXPECT_EQ(blocking->wait_finish(), FinishReason::cancelled);
    EXPECT_EQ(second->wait_finish(), FinishReason::cancelled);
}

TEST(Engine, RefusalsOfTheCoreArriveAsEvents) {
    Engine engine(make_core(small_config(), real_clock()));
    EngineRequest request = make_request(1, 10, 5);
    request.prompt.clear();
    const auto sink = std::make_shared<WaitingSink>();
    ASSERT_TRUE(engine.submit(request, sink).ok());
    EXPECT_EQ(sink->wait_finish(), FinishReason::error);
    EXPECT_EQ(sink->status().message(), "prompt is empty; it must hold at least one token");
}

TEST(Engine, ShutdownCancelsWhatIsLiveAndWhatIsQueued) {
    std::vector<std::shared_ptr<WaitingSink>> sinks;
    {
        Engine engine(make_core(small_config(), real_clock()));
        for (std::uint64_t id = 0; id < 20; ++id) {
            sinks.push_back(std::make_shared<WaitingSink>());
            ASSERT_TRUE(engine.submit(make_request(id, 10, 600), sinks.back()).ok());
        }
        ASSERT_TRUE(sinks.front()->wait_tokens(1));
    }
    for (const auto& sink : sinks) {
        const FinishReason finish = sink->wait_finish();
        EXPECT_TRUE(finish == FinishReason::cancelled || finish == FinishReason::length);
    }
    EXPECT_EQ(sinks.back()->wait_finish(), FinishReason::cancelled);
}

TEST(Engine, StalledTimeIsZeroWhenIdleAndCountsWhileAStepHangs) {
    ManualClock clock;
    Engine engine(make_core(small_config(), clock));
    clock.advance_us(5'000'000);
    EXPECT_EQ(engine.stalled_us(), 0);
    const auto sink = std::make_shared<WaitingSink>();
    sink->gate();
    ASSERT_TRUE(engine.submit(make_request(1, 10, 3), sink).ok());
    ASSERT_TRUE(sink->wait_tokens(1));
    clock.advance_us(700'000);
    EXPECT_EQ(engine.stalled_us(), 700'000);
    sink->open();
    EXPECT_EQ(sink->wait_finish(), FinishReason::length);
}

TEST(Mailbox, ACancellationConcernsOnlyWhatWasSubmittedBeforeIt) {
    Mailbox mailbox(2, real_clock());
    const auto submit = [&](std::uint64_t id) {
        return mailbox.submit({make_request(id, 1, 1), std::make_shared<WaitingSink>()});
    };
    EXPECT_EQ(submit(1), Mailbox::Push::taken);
    mailbox.cancel(1);
    mailbox.cancel(1);
    EXPECT_EQ(submit(1), Mailbox::Push::taken);
    EXPECT_EQ(submit(2), Mailbox::Push::full);
    mailbox.cancel(1);
    const auto messages = mailbox.take(0);
    ASSERT_EQ(messages.size(), 4u);
    EXPECT_TRUE(messages[0].submission.has_value());
    EXPECT_FALSE(messages[1].submission.has_value());
    EXPECT_TRUE(messages[2].submission.has_value());
    EXPECT_FALSE(messages[3].submission.has_value());
    EXPECT_EQ(submit(2), Mailbox::Push::taken);
    mailbox.close();
    EXPECT_EQ(submit(3), Mailbox::Push::closed);
    EXPECT_EQ(mailbox.take(1'000'000).size(), 1u);
    EXPECT_TRUE(mailbox.take(1'000'000).empty());  // closed: no wait
}

}  // namespace
}  // namespace fathom
