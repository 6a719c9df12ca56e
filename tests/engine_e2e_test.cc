// The engine with the model that ships in models/tiny: a request's tokens and logits are compared
// with `==` over company, chunk sizes, threads, preemption, storage and prefill modes (model.md
// section 9; design.md rule 2).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/random.h"
#include "engine/core.h"
#include "engine/engine.h"
#include "model/checkpoint.h"
#include "model/model.h"
#include "recipe/engram_token_map.h"
#include "recipe/tokenizer.h"
#include "support.h"

namespace fathom {
namespace {

constexpr std::int64_t kTail = 140;
constexpr std::int64_t kWindow = 128;

// Everything a request brings out.
struct Answer {
    std::vector<TokenId> tokens;
    std::map<std::int64_t, std::vector<float>> logits;
    FinishReason finish = FinishReason::none;
    Anchors anchors;

    std::map<std::int64_t, std::vector<float>> logits_from(std::int64_t position) const {
        return {logits.lower_bound(position), logits.end()};
    }
};

class Collector final : public EventSink {
  public:
    void on_event(EngineEvent event) override {
        answer.tokens.insert(answer.tokens.end(), event.tokens.begin(), event.tokens.end());
        answer.finish = event.finish;
        answer.anchors = event.anchors;
    }
    void on_logits(std::uint64_t, std::int64_t position, std::span<const float> row) override {
        answer.logits[position].assign(row.begin(), row.end());
    }
    Answer answer;
};

struct Setup {
    std::int64_t chunk = 512;
    std::int64_t pages = 64;
    std::int64_t sequences = 8;
    int threads = 1;
    CacheStorage storage = CacheStorage::packed;
    std::int64_t budget_us = 0;  // with a cost model of 1 ms a row and 1 us a pair; 0: rows alone
    std::int64_t snapshot_bytes = 64 << 20;
};

std::uint64_t checksum(const std::uint8_t* bytes, std::int64_t count) {
    std::uint64_t sum = 14695981039346656037ull;
    for (std::int64_t i = 0; i < count; ++i)
        sum = (sum ^ bytes[i]) * 1099511628211ull;
    return sum;
}

// The model, watched: a step must leave every page below a sequence's store floor as it was.
class GuardedModel final : public Model {
  public:
    explicit GuardedModel(std::unique_ptr<Model> model) : model_(std::move(model)) {}
    const ModelConfig& config() const override { return model_->config(); }
    const KvLayout& kv_layout() const override { return model_->kv_layout(); }
    const ModelOptions& options() const override { return model_->options(); }
    ComputePool& pool() override { return model_->pool(); }
    std::int64_t packed_bytes() const override { return model_->packed_bytes(); }
    std::int64_t workspace_bytes() const override { return model_->workspace_bytes(); }
    void forward(std::span<const StepSpan> spans, Rows logits, Probe* probe) override {
        const std::uint64_t before = shared_pages(spans);
        model_->forward(spans, logits, probe);
        EXPECT_EQ(shared_pages(spans), before);
    }

  private:
    std::uint64_t shared_pages(std::span<const StepSpan> spans) const {
        std::uint64_t sum = 0;
        for (const StepSpan& span : spans)
            for (std::int64_t i = 0; i < span.sequence->store_floor / kPageTokens; ++i)
                sum = sum * 31 + checksum(span.sequence->pages[static_cast<std::size_t>(i)],
                                          kv_layout().page_bytes);
        return sum;
    }
    std::unique_ptr<Model> model_;
};

std::shared_ptr<const Checkpoint> tiny_checkpoint() {
    static const std::shared_ptr<const Checkpoint> checkpoint = [] {
        auto opened = Checkpoint::open(testing::source_path("models/tiny"));
        EXPECT_TRUE(opened.ok()) << opened.status().to_string();
        return *opened;
    }();
    return checkpoint;
}

const std::vector<std::int32_t>& tiny_token_map() {
    static const std::vector<std::int32_t> map = [] {
        auto tokenizer = Tokenizer::load(testing::source_path("models/tiny/tokenizer.json"));
        EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
        return make_engram_token_map(**tokenizer, tiny_checkpoint()->config().vocab_size).map;
    }();
    return map;
}

std::unique_ptr<EngineCore> make_core(const Setup& setup) {
    auto backend = make_backend("reference", std::make_shared<ComputePool>(setup.threads));
    EXPECT_TRUE(backend.ok()) << backend.status().to_string();
    auto model = Model::load(tiny_checkpoint(), tiny_token_map(), std::move(*backend),
                             {.numerics = {}, .storage = setup.storage, .rows_max = 512});
    EXPECT_TRUE(model.ok()) << model.status().to_string();
    EngineConfig config;
    config.pages = setup.pages;
    config.sequences_max = setup.sequences;
    config.step_tokens_max = std::min<std::int64_t>(512, setup.chunk + setup.sequences);
    config.prefill_chunk_max = setup.chunk;
    config.tail_tokens = kTail;
    if (setup.budget_us > 0) {
        config.step_budget_us = setup.budget_us;
        config.cost.k_us[static_cast<std::size_t>(CostFeature::rows)] = 1000;
        config.cost.k_us[static_cast<std::size_t>(CostFeature::attention_pairs)] = 1;
    }
    config.snapshot_bytes_max = setup.snapshot_bytes;
    auto core = EngineCore::create(std::make_unique<GuardedModel>(std::move(*model)), config,
                                   real_clock(), nullptr);
    EXPECT_TRUE(core.ok()) << core.status().to_string();
    return std::move(*core);
}

std::vector<Answer> run(EngineCore& core, const std::vector<EngineRequest>& requests) {
    std::vector<std::shared_ptr<Collector>> sinks;
    for (const EngineRequest& request : requests) {
        sinks.push_back(std::make_shared<Collector>());
        const Status status = core.add(request, sinks.back());
        EXPECT_TRUE(status.ok()) << status.to_string();
    }
    while (core.step()) {
    }
    EXPECT_TRUE(core.idle());
    std::vector<Answer> answers;
    for (const auto& sink : sinks)
        answers.push_back(std::move(sink->answer));
    return answers;
}

Answer run_one(EngineCore& core, const EngineRequest& request) {
    return std::move(run(core, {request})[0]);
}

EngineRequest request_of(std::uint64_t id, std::int64_t prompt, std::int64_t max_tokens) {
    EngineRequest request;
    request.id = id;
    RandomStream random(500 + id);
    request.prompt.push_back(0);
    while (static_cast<std::int64_t>(request.prompt.size()) < prompt)
        request.prompt.push_back(static_cast<TokenId>(random.next_below(4060)));
    request.max_tokens = max_tokens;
    request.sampling.temperature = id % 2 == 0 ? 0.0 : 1.0;
    request.sampling.top_p = id % 3 == 0 ? 1.0 : 0.95;
    request.sampling.seed = 40 + id;
    request.logits_begin = std::max<std::int64_t>(0, prompt - kTail);
    request.use_cache = false;
    return request;
}

// Greedy and sampled, shorter and longer than window and tail, at and beside block boundaries.
std::vector<EngineRequest> mixed_requests() {
    return {request_of(0, 5, 20),   request_of(1, 129, 9), request_of(2, 300, 12),
            request_of(3, 150, 16), request_of(4, 128, 8), request_of(5, 1, 24)};
}

void expect_equal(const Answer& got, const Answer& wanted) {
    EXPECT_EQ(got.tokens, wanted.tokens);
    EXPECT_TRUE(got.logits == wanted.logits);
    EXPECT_EQ(got.finish, wanted.finish);
}

const std::vector<Answer>& answers_alone() {
    static const std::vector<Answer> answers = [] {
        const auto core = make_core({});
        std::vector<Answer> all;
        for (const EngineRequest& request : mixed_requests())
            all.push_back(run_one(*core, request));
        return all;
    }();
    return answers;
}

void expect_answers_alone(const Setup& setup) {
    const auto core = make_core(setup);
    const std::vector<Answer> answers = run(*core, mixed_requests());
    for (std::size_t i = 0; i < answers.size(); ++i) {
        SCOPED_TRACE(fmt::format("request {} chunk {} threads {} pages {}", i, setup.chunk,
                                 setup.threads, setup.pages));
        expect_equal(answers[i], answers_alone()[i]);
    }
    EXPECT_EQ(core->stats().pages_used, 0);
}

TEST(EngineBits, AloneEveryRequestObservesEachPositionOfItsTail) {
    const std::vector<EngineRequest> requests = mixed_requests();
    for (std::size_t i = 0; i < requests.size(); ++i) {
        const Answer& answer = answers_alone()[i];
        EXPECT_EQ(answer.finish, FinishReason::length);
        EXPECT_EQ(static_cast<std::int64_t>(answer.tokens.size()), requests[i].max_tokens);
        const auto prompt = static_cast<std::int64_t>(requests[i].prompt.size());
        EXPECT_EQ(static_cast<std::int64_t>(answer.logits.size()),
                  std::min(prompt, kTail) + requests[i].max_tokens - 1);
    }
}

TEST(EngineBits, DoNotDependOnCompanyOrChunkSize) {
    for (const std::int64_t chunk : {1, 7, 128, 129, 504})
        expect_answers_alone({.chunk = chunk});
}

TEST(EngineBits, DoNotDependOnTheTimeOfAStep) {
    for (const std::int64_t budget_us : {1, 200'000, 400'000})
        expect_answers_alone({.chunk = 504 / 128 * 128, .budget_us = budget_us});
}

TEST(EngineBits, DoNotDependOnThreads) {
    for (const int threads : {2, 3})
        expect_answers_alone({.chunk = 200, .threads = threads});
}

TEST(EngineBits, DoNotDependOnOrderOfArrivalOrPlacesInTheStep) {
    std::vector<EngineRequest> requests = mixed_requests();
    std::reverse(requests.begin(), requests.end());
    const auto core = make_core({.chunk = 64, .sequences = 3});
    const std::vector<Answer> answers = run(*core, requests);
    for (std::size_t i = 0; i < answers.size(); ++i)
        expect_equal(answers[i], answers_alone()[answers.size() - 1 - i]);
}

TEST(EngineBits, DoNotDependOnPreemption) {
    std::vector<EngineRequest> requests = mixed_requests();
    for (EngineRequest& request : requests)
        request.max_tokens += 130;  // every sequence needs a further page on the way
    const auto roomy = make_core({});
    const auto tight = make_core({.chunk = 100, .pages = 8, .sequences = 6});
    const std::vector<Answer> wanted = run(*roomy, requests);
    const std::vector<Answer> got = run(*tight, requests);
    EXPECT_EQ(roomy->stats().preemptions, 0u);
    EXPECT_GT(tight->stats().preemptions, 0u);
    for (std::size_t i = 0; i < requests.size(); ++i)
        expect_equal(got[i], wanted[i]);
    EXPECT_EQ(tight->stats().pages_used, 0);
}

TEST(EngineBits, DoNotDependOnWhereARequestWasResumed) {
    const auto core = make_core({.chunk = 130});
    for (const std::size_t i : {std::size_t{2}, std::size_t{3}}) {
        const Answer& whole = answers_alone()[i];
        EngineRequest request = mixed_requests()[i];
        request.committed.assign(whole.tokens.begin(), whole.tokens.begin() + 7);
        const Answer resumed = run_one(*core, request);
        EXPECT_EQ(resumed.tokens,
                  std::vector<TokenId>(whole.tokens.begin() + 7, whole.tokens.end()));
        EXPECT_TRUE(resumed.logits == whole.logits);
    }
}

// Every choice's tokens and log probabilities, by id.
class ChoiceCollector final : public EventSink {
  public:
    void on_event(EngineEvent event) override {
        EXPECT_NE(event.finish, FinishReason::error) << event.status.to_string();
        auto& [tokens, logprobs] = choices[event.id];
        tokens.insert(tokens.end(), event.tokens.begin(), event.tokens.end());
        for (const TokenLogprobs& entry : event.logprobs) {
            logprobs.push_back(entry.logprob);
            for (const TopLogprob& top : entry.top)
                logprobs.push_back(top.logprob + static_cast<float>(top.id));
        }
    }
    std::map<std::uint64_t, std::pair<std::vector<TokenId>, std::vector<float>>> choices;
};

EngineRequest request_of_choices(std::uint64_t id, std::int64_t prompt, std::int64_t choices) {
    EngineRequest request = request_of(id, prompt, 14);
    request.logits_begin = -1;
    request.sampling.temperature = 1.2;
    request.sampling.frequency_penalty = 0.5;
    request.sampling.repetition_penalty = 1.2;
    request.sampling.logprobs = 4;
    request.sampling.logprobs_processed = id % 2 == 0;
    for (std::int64_t i = 1; i < choices; ++i)
        request.branches.push_back({.id = 100 * id + static_cast<std::uint64_t>(i),
                                    .seed = choice_seed(request.sampling.seed, i)});
    return request;
}

TEST(EngineBits, AChoiceEqualsARequestAloneWithItsSeedInAnyCompany) {
    const std::vector<EngineRequest> requests = {
        request_of_choices(1, 5, 3), request_of_choices(2, 128, 2), request_of_choices(3, 300, 4)};
    const auto solo = std::make_shared<ChoiceCollector>();
    const auto lonely = make_core({});
    for (const EngineRequest& request : requests) {
        std::vector<Branch> all = request.branches;
        all.push_back({.id = request.id, .seed = request.sampling.seed});
        for (const Branch& choice : all) {
            EngineRequest alone = request;
            alone.branches.clear();
            alone.id = choice.id;
            alone.sampling.seed = choice.seed;
            ASSERT_TRUE(lonely->add(alone, solo).ok());
            while (lonely->step()) {
            }
        }
    }
    ASSERT_EQ(solo->choices.size(), 9u);
    // Together: enough places; few places; few pages, so that some are preempted.
    struct Setup places, few_places, few_pages;
    few_places.chunk = 50;
    few_places.sequences = 3;
    few_places.threads = 2;
    few_pages.chunk = 129;
    few_pages.pages = 8;
    const auto expect_alone = [&](const auto& setup) {
        const auto core = make_core(setup);
        const auto together = std::make_shared<ChoiceCollector>();
        for (const EngineRequest& request : requests)
            ASSERT_TRUE(core->add(request, together).ok());
        for (const EngineRequest& company : mixed_requests()) {
            EngineRequest other = company;
            other.id += 5000;
            ASSERT_TRUE(core->add(other, std::make_shared<Collector>()).ok());
        }
        while (core->step()) {
        }
        EXPECT_EQ(core->stats().pages_used, 0);
        EXPECT_TRUE(together->choices == solo->choices)
            << "chunk " << setup.chunk << ", pages " << setup.pages;
    };
    expect_alone(places);
    expect_alone(few_places);
    expect_alone(few_pages);
}

TEST(EngineBits, PackedAndBf16StorageAreEqual) {
    expect_answers_alone({.storage = CacheStorage::bf16});
}

TEST(EngineModes, MaskedEqualsTailOnTheKeptRowsAndAfterwards) {
    const auto core = make_core({.chunk = 77});
    for (const std::int64_t tail : {std::int64_t{1}, kWindow, kTail, std::int64_t{200}}) {
        EngineRequest request = request_of(7, 300, 10);
        request.override_prefill = true;
        request.tail_tokens = tail;
        request.logits_begin = 300 - tail;
        request.prefill = PrefillMode::tail;
        const Answer kept = run_one(*core, request);
        request.prefill = PrefillMode::masked;
        expect_equal(run_one(*core, request), kept);
        EXPECT_EQ(kept.anchors.decoder_floor, 300 - tail);
    }
}

TEST(EngineModes, TheLastRowOfHaloEqualsExact) {
    const auto core = make_core({});
    EngineRequest request = request_of(8, 900, 6);
    request.override_prefill = true;
    request.logits_begin = 899;
    request.prefill = PrefillMode::exact;
    const Answer exact = run_one(*core, request);
    request.prefill = PrefillMode::halo;
    const Answer halo = run_one(*core, request);
    EXPECT_EQ(halo.anchors.decoder_floor, 900 - (128 + 5 * 127));
    EXPECT_TRUE(halo.logits.at(899) == exact.logits.at(899));
    request.prefill = PrefillMode::tail;
    request.tail_tokens = kTail;
    EXPECT_FALSE(run_one(*core, request).logits.at(899) == exact.logits.at(899));
}

TEST(EngineModes, APromptWithinTheTailEqualsExact) {
    const auto core = make_core({});
    EngineRequest request = request_of(9, kWindow, 40);
    const Answer tail = run_one(*core, request);
    request.override_prefill = true;
    request.prefill = PrefillMode::exact;
    expect_equal(run_one(*core, request), tail);
}

TEST(EngineModes, DecodingEqualsPrefillOfTheLongerPrompt) {
    const auto core = make_core({});
    EngineRequest request = request_of(10, 140, 60);
    request.override_prefill = true;
    request.prefill = PrefillMode::exact;
    request.logits_begin = 140;
    const Answer decoded = run_one(*core, request);
    request.prompt.insert(request.prompt.end(), decoded.tokens.begin(), decoded.tokens.end() - 1);
    request.max_tokens = 1;
    const Answer prefilled = run_one(*core, request);
    EXPECT_TRUE(prefilled.logits == decoded.logits);
    EXPECT_EQ(prefilled.tokens.at(0), decoded.tokens.back());
}

EngineRequest cached(EngineRequest request) {
    request.use_cache = true;
    return request;
}

// The same request with the same history, on an engine that shares nothing.
Answer repeated(EngineRequest request, const Anchors& anchors) {
    static const std::unique_ptr<EngineCore> core = make_core({});
    request.use_cache = false;
    request.replays = anchors.replays;
    Answer answer = run_one(*core, request);
    EXPECT_EQ(answer.anchors.decoder_floor, anchors.decoder_floor);
    return answer;
}

TEST(EnginePrefix, AHitWithASnapshotEqualsNoHit) {
    // At 396 a replay at 384 would cost as many rows as the snapshot at 256.
    for (const std::int64_t prompt : {396, 411}) {
        const auto core = make_core({.chunk = 100 + prompt % 2 * 404});
        const EngineRequest request = request_of(static_cast<std::uint64_t>(prompt), prompt, 8);
        const Answer cold = run_one(*core, cached(request));
        const Answer warm = run_one(*core, cached(request));
        EXPECT_STREQ(warm.anchors.window_source, "snapshot");
        EXPECT_EQ(warm.anchors.hit_tokens, 256);
        EXPECT_EQ(warm.anchors.replays, cold.anchors.replays);
        expect_equal(warm, cold);
        expect_equal(repeated(request, warm.anchors), cold);
    }
}

TEST(EnginePrefix, ReplayIsIndependentOfChunksAndOfWhereThePagesCameFrom) {
    for (const std::int64_t prompt : {256, 257, 400}) {
        for (const std::int64_t chunk : {9, 504}) {
            const auto core = make_core({.chunk = chunk, .snapshot_bytes = 0});
            EngineRequest first = request_of(12, prompt, 1);
            first.prompt.resize(256);
            run_one(*core, cached(first));
            const EngineRequest request = request_of(12, prompt, 4);
            std::vector<EngineRequest> pair = {cached(request), cached(request)};
            pair[1].id = 99;
            const std::vector<Answer> answers = run(*core, pair);
            EXPECT_STREQ(answers[0].anchors.window_source, "replay");
            EXPECT_EQ(answers[0].anchors.encoder_floor, 128);
            expect_equal(answers[1], answers[0]);
            expect_equal(answers[0], repeated(request, answers[0].anchors));
        }
    }
}

TEST(EnginePrefix, PagesOfDecodedTokensEqualPagesOfAPrompt) {
    const auto core = make_core({.chunk = 100});
    const EngineRequest first = request_of(14, 200, 190);
    const Answer said = run_one(*core, cached(first));
    EngineRequest next = request_of(15, 160, 12);
    next.prompt.insert(next.prompt.begin(), said.tokens.begin(), said.tokens.end());
    next.prompt.insert(next.prompt.begin(), first.prompt.begin(), first.prompt.end());
    next.logits_begin = static_cast<std::int64_t>(next.prompt.size()) - kTail;
    const Answer cold = run_one(*core, next);
    const Answer warm = run_one(*core, cached(next));
    EXPECT_EQ(warm.anchors.hit_tokens, 384);
    EXPECT_STREQ(warm.anchors.window_source, "snapshot");
    expect_equal(warm, cold);
}

// Equal anchors give equal bits, whatever was found, evicted, preempted and found again.
TEST(EnginePrefix, EveryAnswerIsRepeatedFromItsAnchorsAlone) {
    for (std::uint64_t round = 0; round < 2; ++round) {
        SCOPED_TRACE(fmt::format("round {}", round));
        RandomStream random(900 + round);
        const auto core = make_core({.chunk = 60,
                                     .pages = 7,
                                     .sequences = 3,
                                     .snapshot_bytes = round % 2 == 0 ? 0 : 300'000});
        std::vector<EngineRequest> requests;
        for (std::uint64_t id = 0; id < 6; ++id) {
            EngineRequest request = request_of(20 + random.next_below(2), 620, 150);
            request.id = id;
            request.prompt.resize(250 + random.next_below(200));
            request.max_tokens = 1 + static_cast<std::int64_t>(random.next_below(60));
            request.logits_begin = static_cast<std::int64_t>(request.prompt.size()) - 1;
            requests.push_back(cached(request));
        }
        const std::vector<Answer> answers = run(*core, requests);
        std::int64_t found = 0;
        for (std::size_t i = 0; i < requests.size(); ++i) {
            found += answers[i].anchors.hit_tokens;
            expect_equal(answers[i], repeated(requests[i], answers[i].anchors));
        }
        EXPECT_GT(found, 0);
        EXPECT_EQ(core->stats().pages_used, 0);
    }
}

// Counts the ends of many requests; the test's thread waits for all.
class EndCounter {
  public:
    void add() {
        std::lock_guard lock(mutex_);
        ++ends_;
        changed_.notify_all();
    }
    bool wait(int count) {
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, std::chrono::minutes(10), [&] { return ends_ >= count; });
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    int ends_ = 0;
};

class CountingSink final : public EventSink {
  public:
    CountingSink(EndCounter& ends, Engine& engine, std::size_t cancel_at)
        : ends_(ends), engine_(engine), cancel_at_(cancel_at) {}
    void on_event(EngineEvent event) override {
        tokens.insert(tokens.end(), event.tokens.begin(), event.tokens.end());
        if (cancel_at_ != 0 && tokens.size() == cancel_at_) engine_.cancel(event.id);
        finish = event.finish;
        if (finish != FinishReason::none) ends_.add();
    }
    std::vector<TokenId> tokens;  // read after the end
    FinishReason finish = FinishReason::none;

  private:
    EndCounter& ends_;
    Engine& engine_;
    std::size_t cancel_at_;
};

TEST(EngineThread, ManyRequestsWithCancellationsEndRightAndLeaveNoPage) {
    EndCounter ends;
    Engine engine(make_core({.chunk = 64, .pages = 10, .threads = 2}));
    const std::vector<EngineRequest> kinds = mixed_requests();
    std::vector<std::shared_ptr<CountingSink>> sinks;
    constexpr int kRequests = 24;
    for (int i = 0; i < kRequests; ++i) {
        EngineRequest request = kinds[static_cast<std::size_t>(i) % kinds.size()];
        request.id = 1000 + static_cast<std::uint64_t>(i);
        request.logits_begin = -1;
        sinks.push_back(std::make_shared<CountingSink>(ends, engine, i % 4 == 3 ? 3 : 0));
        ASSERT_TRUE(engine.submit(request, sinks.back()).ok());
    }
    ASSERT_TRUE(ends.wait(kRequests));
    for (int i = 0; i < kRequests; ++i) {
        const CountingSink& sink = *sinks[static_cast<std::size_t>(i)];
        const std::vector<TokenId>& alone =
            answers_alone()[static_cast<std::size_t>(i) % kinds.size()].tokens;
        if (i % 4 == 3) {
            EXPECT_EQ(sink.finish, FinishReason::cancelled);
            EXPECT_TRUE(std::equal(sink.tokens.begin(), sink.tokens.end(), alone.begin()));
        } else {
            EXPECT_EQ(sink.finish, FinishReason::length);
            EXPECT_EQ(sink.tokens, alone);
        }
    }
    EXPECT_EQ(engine.stats().pages_used, 0);
}

}  // namespace
}  // namespace fathom
