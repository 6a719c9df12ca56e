// For tests: an engine core that follows a script instead of running a model, a tokenizer of bytes,
// and an executor that a test drives. The core sits in a real Engine, so that threads, mailbox and
// events are those of the product.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/executor.h"
#include "base/queue.h"
#include "engine/core.h"
#include "engine/engine.h"
#include "model/model.h"
#include "recipe/prompt.h"
#include "recipe/tokenizer.h"

namespace fathom::testing {

// Ids 0…255 are bytes, then the special tokens of the template.
class ByteTokenizer : public Tokenizer {
  public:
    ByteTokenizer() {
        for (int byte = 0; byte < 256; ++byte)
            bytes_.emplace_back(1, static_cast<char>(byte));
        for (const char* special :
             {"<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>",
              "<｜System｜>", "<think>", "</think>", "｜DSML｜", "<｜fim▁begin｜>",
              "<｜fim▁hole｜>", "<｜fim▁end｜>", "<｜image｜>", "<｜latest_reminder｜>"}) {
            added_.push_back(
                {.id = static_cast<TokenId>(bytes_.size()), .content = special, .special = true});
            bytes_.emplace_back(special);
        }
    }
    std::vector<TokenId> encode(std::string_view text, bool recognize_added) const override {
        std::vector<TokenId> ids;
        while (!text.empty()) {
            std::size_t used = 0;
            for (const AddedToken& token : added_) {
                if (recognize_added && text.substr(0, token.content.size()) == token.content) {
                    ids.push_back(token.id);
                    used = token.content.size();
                }
            }
            if (used == 0) {
                ids.push_back(static_cast<unsigned char>(text.front()));
                used = 1;
            }
            text.remove_prefix(used);
        }
        return ids;
    }
    std::string_view bytes(TokenId id) const override {
        return id < 0 || id >= vocab_size() ? std::string_view()
                                            : bytes_[static_cast<std::size_t>(id)];
    }
    std::string_view spelling(TokenId id) const override { return bytes(id); }
    std::string decode(std::span<const TokenId> ids) const override {
        std::string text;
        for (const TokenId id : ids)
            text += bytes(id);
        return utf8_lossy(text);
    }
    std::optional<TokenId> added_id(std::string_view content) const override {
        for (const AddedToken& token : added_) {
            if (token.content == content) return token.id;
        }
        return std::nullopt;
    }
    const std::vector<AddedToken>& added_tokens() const override { return added_; }
    std::int64_t vocab_size() const override { return static_cast<std::int64_t>(bytes_.size()); }

    static constexpr TokenId kBos = 256, kEos = 257;

  private:
    std::vector<std::string> bytes_;
    std::vector<AddedToken> added_;
};

// What the core does; shared with the test, which may change it at any time.
struct Script {
    std::mutex mutex;
    // The tokens after the prompt; an EOS behind them is implied.
    std::function<std::vector<TokenId>(const EngineRequest&)> reply = [](const EngineRequest&) {
        return std::vector<TokenId>{};
    };
    std::function<Status(const EngineRequest&)> refuse = [](const EngineRequest&) {
        return Status();
    };
    // May change an event, or answer false to lose it.
    std::function<bool(EngineEvent&)> edit = [](EngineEvent&) { return true; };
    std::size_t tokens_per_step = 1;
    bool hold = false;  // work waits, as behind other requests
    std::int64_t cached_tokens = 0;

    std::vector<EngineRequest> received;
    std::vector<std::uint64_t> cancelled;  // live ones only
    std::size_t live = 0;

    template <typename Read>
    auto with(Read read) {
        std::lock_guard lock(mutex);
        return read(*this);
    }
};

class ConfigOnlyModel : public Model {
  public:
    ConfigOnlyModel() {
        config_.bos_id = ByteTokenizer::kBos;
        config_.eos_id = ByteTokenizer::kEos;
        config_.vocab_size = ByteTokenizer().vocab_size();
        config_.max_positions = 4096;
    }
    const ModelConfig& config() const override { return config_; }
    const KvLayout& kv_layout() const override { return layout_; }
    const ModelOptions& options() const override { return options_; }
    ComputePool& pool() override { return pool_; }
    void forward(std::span<const StepSpan>, Rows, Probe*) override { FATHOM_CHECK(false); }
    std::int64_t packed_bytes() const override { return 0; }
    std::int64_t workspace_bytes() const override { return 0; }

  private:
    ModelConfig config_;
    KvLayout layout_;
    ModelOptions options_;
    ComputePool pool_{1};
};

class ScriptedCore : public EngineCore {
  public:
    ScriptedCore(std::shared_ptr<Script> script, const Clock& clock)
        : script_(std::move(script)), clock_(clock) {
        config_.pages = 32;
    }
    Status add(EngineRequest request, std::shared_ptr<EventSink> sink) override {
        std::lock_guard lock(script_->mutex);
        script_->received.push_back(request);
        FATHOM_RETURN_IF_ERROR(script_->refuse(request));
        const std::vector<Branch> branches = std::exchange(request.branches, {});
        start(request, sink);
        for (const Branch& branch : branches) {
            request.id = branch.id;
            request.sampling.seed = branch.seed;
            start(request, sink);
        }
        script_->live = runs_.size();
        return {};
    }
    void cancel(std::uint64_t id) override {
        for (std::size_t i = 0; i < runs_.size(); ++i) {
            if (runs_[i].request.id != id) continue;
            script_->with([id](Script& script) { script.cancelled.push_back(id); });
            EngineEvent event = event_of(runs_[i]);
            event.finish = FinishReason::cancelled;
            runs_[i].sink->on_event(std::move(event));
            erase(i);
            return;
        }
    }
    void cancel_all() override {
        while (!runs_.empty())
            cancel(runs_.front().request.id);
    }
    bool step() override {
        if (!launch()) return false;
        retire();
        return true;
    }
    // Everything happens when the step retires.
    void plan_ahead() override {}
    bool launch() override {
        return !runs_.empty() && !script_->with([](Script& script) { return script.hold; });
    }
    void compute() override {}
    void deliver() override {}
    void retire() override {
        for (std::size_t i = 0; i < runs_.size();) {
            if (advance(runs_[i])) {
                erase(i);
            } else {
                ++i;
            }
        }
    }
    bool idle() const override { return runs_.empty(); }
    EngineStats stats() const override {
        EngineStats stats;
        stats.running = static_cast<std::int64_t>(runs_.size());
        return stats;
    }
    const Model& model() const override { return model_; }
    const EngineConfig& config() const override { return config_; }
    const Clock& clock() const override { return clock_; }
    void set_probe(Probe*) override {}
    void set_waker(std::function<void()>) override {}  // nothing comes from elsewhere

  private:
    // Every choice asks the script for its own reply.
    void start(EngineRequest request, std::shared_ptr<EventSink> sink) {
        std::vector<TokenId> reply = script_->reply(request);
        reply.push_back(ByteTokenizer::kEos);
        const std::size_t next = request.committed.size();
        runs_.push_back({std::move(request), std::move(sink), std::move(reply), next});
    }

    struct Run {
        EngineRequest request;
        std::shared_ptr<EventSink> sink;
        std::vector<TokenId> reply;
        std::size_t next = 0;
    };
    static EngineEvent event_of(const Run& run) {
        EngineEvent event;
        event.id = run.request.id;
        event.attempt = run.request.attempt;
        event.first_index = static_cast<std::int64_t>(run.next);
        return event;
    }
    // True when the run is over.
    bool advance(Run& run) {
        EngineEvent event = event_of(run);
        std::unique_lock lock(script_->mutex);
        event.cached_tokens = script_->cached_tokens;
        const auto& stops = run.request.stop_tokens;
        const auto limit = static_cast<std::size_t>(run.request.max_tokens);
        while (event.finish == FinishReason::none &&
               event.tokens.size() < script_->tokens_per_step) {
            const TokenId token = run.reply[std::min(run.next, run.reply.size() - 1)];
            event.tokens.push_back(token);
            // Token t has log probability −t / 100, and the next ones are listed with it.
            const std::int64_t top = run.request.sampling.logprobs;
            if (top >= 0) {
                TokenLogprobs& logprobs = event.logprobs.emplace_back();
                logprobs.logprob = static_cast<float>(token) / -100;
                for (std::int64_t i = 0; i < top; ++i)
                    logprobs.top.push_back({static_cast<TokenId>(i + 65), -1.0f});
            }
            ++run.next;
            if (std::count(stops.begin(), stops.end(), token) > 0) {
                event.finish = FinishReason::stop_token;
            } else if (run.next >= limit) {
                event.finish = FinishReason::length;
            }
        }
        const bool over = event.finish != FinishReason::none;
        const bool send = script_->edit(event);
        lock.unlock();
        if (send) run.sink->on_event(std::move(event));
        return over;
    }
    void erase(std::size_t i) {
        runs_.erase(runs_.begin() + static_cast<std::ptrdiff_t>(i));
        script_->with([this](Script& script) { script.live = runs_.size(); });
    }

    std::shared_ptr<Script> script_;
    const Clock& clock_;
    ConfigOnlyModel model_;
    EngineConfig config_;
    std::vector<Run> runs_;
};

inline std::vector<TokenId> byte_ids(std::string_view text) {
    return ByteTokenizer().encode(text, true);
}

inline Conversation user_says(const std::string& text, bool thinking) {
    Conversation conversation;
    conversation.messages.emplace_back();
    conversation.messages.back().content = text;
    conversation.thinking = thinking;
    return conversation;
}

// Tasks run on the test's thread, when it waits for something.
class WaitingExecutor : public Executor {
  public:
    void post(std::function<void()> task) override {
        FATHOM_CHECK(tasks_.try_push(std::move(task)));
    }
    // Runs tasks until `done` holds; false after 20 s without.
    bool run_until(const std::function<bool()>& done) {
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (!done()) {
            if (std::chrono::steady_clock::now() > end) return false;
            if (auto task = tasks_.pop(1'000)) (*task)();
        }
        return true;
    }
    void run_all() {
        while (auto task = tasks_.try_pop())
            (*task)();
    }

  private:
    BoundedQueue<std::function<void()>> tasks_{1 << 16};
};

}  // namespace fathom::testing
