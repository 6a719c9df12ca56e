#include "recipe/protocols/chat_events.h"

#include <utility>

#include "base/json.h"
#include "recipe/protocols/logprobs_json.h"

namespace fathom {

namespace {

using Kind = OutputEvent::Kind;

const char* finish_reason(OutputFinish finish) {
    switch (finish) {
        case OutputFinish::stop:
        case OutputFinish::stop_sequence:
            return "stop";
        case OutputFinish::tool_calls:
            return "tool_calls";
        case OutputFinish::length:
            return "length";
        case OutputFinish::content_filter:
            return "content_filter";
    }
    return "stop";
}

void write_usage(JsonWriter& writer, const ReadyChunk& prompt, const OutputEvent& last) {
    const std::int64_t hits = prompt.prompt_cache_hit_tokens;
    writer.begin_object();
    writer.key("prompt_tokens").value(prompt.prompt_tokens);
    writer.key("completion_tokens").value(last.completion_tokens);
    writer.key("total_tokens").value(prompt.prompt_tokens + last.completion_tokens);
    writer.key("prompt_tokens_details").begin_object().key("cached_tokens").value(hits);
    writer.end_object();
    if (last.reasoning_tokens) {
        writer.key("completion_tokens_details").begin_object();
        writer.key("reasoning_tokens").value(*last.reasoning_tokens).end_object();
    }
    writer.key("prompt_cache_hit_tokens").value(hits);
    writer.key("prompt_cache_miss_tokens").value(prompt.prompt_tokens - hits);
    writer.end_object();
}

void write_fingerprint(JsonWriter& writer, const ReadyChunk& prompt) {
    writer.key("system_fingerprint");
    if (prompt.system_fingerprint) {
        writer.value(*prompt.system_fingerprint);
    } else {
        writer.null();
    }
}

bool thinks(ThinkingStage stage) {
    return stage == ThinkingStage::reasoning_start ||
           stage == ThinkingStage::reasoning_continuation;
}

class ChatStream : public AnswerBuilder {
  public:
    ChatStream(AnswerSettings settings, ChatAnswerOptions options)
        : settings_(std::move(settings)), options_(options) {}

    void add(const OutputEvent& event, std::vector<StreamPayload>& payloads) override {
        if (event.kind == Kind::start) start(event.prompt);
        std::string json = head_;
        JsonWriter writer(json);
        writer.begin_object();
        write_delta(writer, event);
        writer.end_object();
        writer.key("logprobs");
        if (event.logprobs.empty() || settings_.tokenizer == nullptr) {
            writer.null();
        } else {
            writer.begin_object();
            writer.key(event.kind == Kind::reasoning ? "reasoning_content" : "content");
            write_logprobs(writer, *settings_.tokenizer, event.logprobs);
            writer.end_object();
        }
        writer.key("finish_reason");
        if (event.kind == Kind::finish) {
            writer.value(finish_reason(event.finish)).end_object().end_array();
            write_usage(writer.key("usage"), prompt_, event);
        } else {
            writer.null().end_object().end_array();
            if (options_.include_usage) writer.key("usage").null();
        }
        writer.end_object();
        payloads.push_back({.name = {}, .json = std::move(json)});
    }

    // The stream ends with it: no `[DONE]` follows.
    void fail(const AnswerError& error, std::vector<StreamPayload>& payloads) override {
        std::string json;
        JsonWriter writer(json);
        writer.begin_object().key("error").begin_object();
        writer.key("message").value(error.message).key("type").value(error.type);
        writer.key("param").null().key("code").value(error.type);
        writer.end_object().end_object();
        payloads.push_back({.name = {}, .json = std::move(json)});
    }

    std::string answer() const override { return {}; }

  private:
    // All chunks begin alike, up to the delta.
    void start(const ReadyChunk& prompt) {
        prompt_ = prompt;
        JsonWriter writer(head_);
        writer.begin_object();
        writer.key("id").value(settings_.id);
        writer.key("object").value("chat.completion.chunk");
        writer.key("created").value(settings_.created);
        writer.key("model").value(settings_.model);
        write_fingerprint(writer, prompt);
        writer.key("choices").begin_array().begin_object();
        writer.key("index").value(0).key("delta");
    }

    void write_delta(JsonWriter& writer, const OutputEvent& event) {
        const bool thinking_mode = settings_.thinking != ThinkingStage::none;
        switch (event.kind) {
            case Kind::start:
                writer.key("role").value("assistant").key("content");
                if (thinks(settings_.thinking)) {
                    writer.null().key("reasoning_content").value("");
                    return;
                }
                writer.value("");
                break;
            case Kind::content:
                writer.key("content").value(event.text);
                break;
            case Kind::finish:
                writer.key("content").value("");
                break;
            case Kind::reasoning:
                writer.key("content").null().key("reasoning_content").value(event.text);
                return;
            case Kind::tool_call:
                ++calls_;
                begin_call(writer);
                writer.key("id").value(settings_.call_ids(calls_ - 1));
                writer.key("type").value("function").key("function").begin_object();
                writer.key("name").value(event.text).key("arguments").value("");
                writer.end_object().end_object().end_array();
                return;
            case Kind::arguments:
                begin_call(writer);
                writer.key("function").begin_object().key("arguments").value(event.text);
                writer.end_object().end_object().end_array();
                return;
        }
        if (thinking_mode) writer.key("reasoning_content").null();
    }

    void begin_call(JsonWriter& writer) const {
        writer.key("tool_calls").begin_array().begin_object().key("index").value(calls_ - 1);
    }

    AnswerSettings settings_;
    ChatAnswerOptions options_;
    ReadyChunk prompt_;
    std::string head_;
    std::int64_t calls_ = 0;
};

class ChatAnswer : public AnswerBuilder {
  public:
    explicit ChatAnswer(AnswerSettings settings) : settings_(std::move(settings)) {}

    void add(const OutputEvent& event, std::vector<StreamPayload>& /*payloads*/) override {
        switch (event.kind) {
            case Kind::start:
                prompt_ = event.prompt;
                break;
            case Kind::content:
                content_ += event.text;
                append(content_logprobs_, event.logprobs);
                break;
            case Kind::reasoning:
                reasoning_ += event.text;
                append(reasoning_logprobs_, event.logprobs);
                break;
            case Kind::tool_call:
                calls_.push_back(
                    {.id = settings_.call_ids(static_cast<std::int64_t>(calls_.size())),
                     .name = event.text});
                break;
            case Kind::arguments:
                calls_.back().arguments += event.text;
                break;
            case Kind::finish:
                last_ = event;
                break;
        }
    }

    void fail(const AnswerError& /*error*/, std::vector<StreamPayload>& /*payloads*/) override {}

    std::string answer() const override {
        std::string json;
        JsonWriter writer(json);
        writer.begin_object();
        writer.key("id").value(settings_.id);
        writer.key("object").value("chat.completion");
        writer.key("created").value(settings_.created);
        writer.key("model").value(settings_.model);
        writer.key("choices").begin_array().begin_object();
        writer.key("index").value(0).key("message");
        write_message(writer);
        writer.key("logprobs");
        write_all_logprobs(writer);
        writer.key("finish_reason").value(finish_reason(last_.finish));
        writer.end_object().end_array();
        write_usage(writer.key("usage"), prompt_, last_);
        write_fingerprint(writer, prompt_);
        writer.end_object();
        return json;
    }

  private:
    struct Call {
        std::string id;
        std::string name;
        std::string arguments = {};
    };

    static void append(std::vector<TokenLogprob>& all, const std::vector<TokenLogprob>& more) {
        all.insert(all.end(), more.begin(), more.end());
    }

    void write_message(JsonWriter& writer) const {
        writer.begin_object().key("role").value("assistant").key("content").value(content_);
        if (thinks(settings_.thinking)) writer.key("reasoning_content").value(reasoning_);
        if (!calls_.empty()) {
            writer.key("tool_calls").begin_array();
            std::int64_t index = 0;
            for (const Call& call : calls_) {
                writer.begin_object().key("index").value(index++).key("id").value(call.id);
                writer.key("type").value("function").key("function").begin_object();
                writer.key("name").value(call.name).key("arguments").value(call.arguments);
                writer.end_object().end_object();
            }
            writer.end_array();
        }
        writer.end_object();
    }

    void write_all_logprobs(JsonWriter& writer) const {
        const bool none = content_logprobs_.empty() && reasoning_logprobs_.empty();
        if (none || settings_.tokenizer == nullptr) {
            writer.null();
            return;
        }
        writer.begin_object();
        if (!content_logprobs_.empty()) {
            write_logprobs(writer.key("content"), *settings_.tokenizer, content_logprobs_);
        }
        if (!reasoning_logprobs_.empty()) {
            write_logprobs(writer.key("reasoning_content"), *settings_.tokenizer,
                           reasoning_logprobs_);
        }
        writer.end_object();
    }

    AnswerSettings settings_;
    ReadyChunk prompt_;
    OutputEvent last_;
    std::string content_;
    std::string reasoning_;
    std::vector<TokenLogprob> content_logprobs_;
    std::vector<TokenLogprob> reasoning_logprobs_;
    std::vector<Call> calls_;
};

}  // namespace

std::unique_ptr<AnswerBuilder> make_chat_answer(AnswerSettings settings,
                                                ChatAnswerOptions options) {
    if (settings.stream) return std::make_unique<ChatStream>(std::move(settings), options);
    return std::make_unique<ChatAnswer>(std::move(settings));
}

}  // namespace fathom
