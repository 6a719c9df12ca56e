#include "recipe/protocols/chat_events.h"

#include <utility>

#include "base/json.h"
#include "recipe/protocols/logprobs_json.h"
#include "recipe/protocols/openai_parts.h"
#include "recipe/protocols/request_error.h"

namespace fathom {

namespace {

using Kind = OutputEvent::Kind;

std::int64_t call_number(std::int64_t choice, std::int64_t index) {
    return (choice << 32) + index;
}

bool thinks(ThinkingStage stage) {
    return stage == ThinkingStage::reasoning_start ||
           stage == ThinkingStage::reasoning_continuation;
}

class ChatStream : public AnswerBuilder {
  public:
    ChatStream(AnswerSettings settings, ChatAnswerOptions options)
        : settings_(std::move(settings)),
          options_(options),
          calls_(static_cast<std::size_t>(options.choices)) {}

    void add(const OutputEvent& event, std::vector<StreamPayload>& payloads) override {
        if (event.kind == Kind::start && head_.empty()) start(event.prompt);
        if (event.kind == Kind::finish) counts_.add(event);
        std::string json = head_;
        JsonWriter writer(json);
        writer.value(event.choice).key("delta").begin_object();
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
            writer.value(chat_finish_reason(event.finish)).end_object().end_array();
        } else {
            writer.null().end_object().end_array();
        }
        if (counts_.ended == options_.choices) {
            write_chat_usage(writer.key("usage"), prompt_, counts_);
        } else if (options_.include_usage) {
            writer.key("usage").null();
        }
        writer.end_object();
        payloads.push_back({.name = {}, .json = std::move(json)});
    }

    // The stream ends with it: no `[DONE]` follows.
    void fail(const AnswerError& error, std::vector<StreamPayload>& payloads) override {
        payloads.push_back({.name = {}, .json = request_error_body(error.type, error.message)});
    }

    std::string answer() const override { return {}; }

  private:
    // All chunks begin alike, up to the choice.
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
        writer.key("index");
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
                begin_call(writer, calls_of(event)++);
                writer.key("id").value(
                    settings_.call_ids(call_number(event.choice, calls_of(event) - 1)));
                writer.key("type").value("function").key("function").begin_object();
                writer.key("name").value(event.text).key("arguments").value("");
                writer.end_object().end_object().end_array();
                return;
            case Kind::arguments:
                begin_call(writer, calls_of(event) - 1);
                writer.key("function").begin_object().key("arguments").value(event.text);
                writer.end_object().end_object().end_array();
                return;
        }
        if (thinking_mode) writer.key("reasoning_content").null();
    }

    std::int64_t& calls_of(const OutputEvent& event) {
        return calls_.at(static_cast<std::size_t>(event.choice));
    }

    static void begin_call(JsonWriter& writer, std::int64_t index) {
        writer.key("tool_calls").begin_array().begin_object().key("index").value(index);
    }

    AnswerSettings settings_;
    ChatAnswerOptions options_;
    ReadyChunk prompt_;
    std::string head_;
    std::vector<std::int64_t> calls_;  // of each choice, so far
    AnswerCounts counts_;
};

class ChatAnswer : public AnswerBuilder {
  public:
    ChatAnswer(AnswerSettings settings, ChatAnswerOptions options)
        : settings_(std::move(settings)), choices_(static_cast<std::size_t>(options.choices)) {}

    void add(const OutputEvent& event, std::vector<StreamPayload>& /*payloads*/) override {
        Choice& choice = choices_.at(static_cast<std::size_t>(event.choice));
        switch (event.kind) {
            case Kind::start:
                if (event.choice == 0) prompt_ = event.prompt;
                break;
            case Kind::content:
                choice.content += event.text;
                append(choice.content_logprobs, event.logprobs);
                break;
            case Kind::reasoning:
                choice.reasoning += event.text;
                append(choice.reasoning_logprobs, event.logprobs);
                break;
            case Kind::tool_call: {
                const auto index = static_cast<std::int64_t>(choice.calls.size());
                choice.calls.push_back({.id = settings_.call_ids(call_number(event.choice, index)),
                                        .name = event.text});
                break;
            }
            case Kind::arguments:
                choice.calls.back().arguments += event.text;
                break;
            case Kind::finish:
                choice.finish = event.finish;
                counts_.add(event);
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
        writer.key("choices").begin_array();
        std::int64_t index = 0;
        for (const Choice& choice : choices_) {
            writer.begin_object().key("index").value(index++).key("message");
            write_message(writer, choice);
            writer.key("logprobs");
            write_all_logprobs(writer, choice);
            writer.key("finish_reason").value(chat_finish_reason(choice.finish)).end_object();
        }
        writer.end_array();
        write_chat_usage(writer.key("usage"), prompt_, counts_);
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
    struct Choice {
        std::string content;
        std::string reasoning;
        std::vector<TokenLogprob> content_logprobs;
        std::vector<TokenLogprob> reasoning_logprobs;
        std::vector<Call> calls;
        OutputFinish finish = OutputFinish::stop;
    };

    static void append(std::vector<TokenLogprob>& all, const std::vector<TokenLogprob>& more) {
        all.insert(all.end(), more.begin(), more.end());
    }

    void write_message(JsonWriter& writer, const Choice& choice) const {
        writer.begin_object().key("role").value("assistant");
        writer.key("content").value(choice.content);
        if (thinks(settings_.thinking)) writer.key("reasoning_content").value(choice.reasoning);
        if (!choice.calls.empty()) {
            writer.key("tool_calls").begin_array();
            std::int64_t index = 0;
            for (const Call& call : choice.calls) {
                writer.begin_object().key("index").value(index++).key("id").value(call.id);
                writer.key("type").value("function").key("function").begin_object();
                writer.key("name").value(call.name).key("arguments").value(call.arguments);
                writer.end_object().end_object();
            }
            writer.end_array();
        }
        writer.end_object();
    }

    void write_all_logprobs(JsonWriter& writer, const Choice& choice) const {
        const bool none = choice.content_logprobs.empty() && choice.reasoning_logprobs.empty();
        if (none || settings_.tokenizer == nullptr) {
            writer.null();
            return;
        }
        writer.begin_object();
        if (!choice.content_logprobs.empty()) {
            write_logprobs(writer.key("content"), *settings_.tokenizer, choice.content_logprobs);
        }
        if (!choice.reasoning_logprobs.empty()) {
            write_logprobs(writer.key("reasoning_content"), *settings_.tokenizer,
                           choice.reasoning_logprobs);
        }
        writer.end_object();
    }

    AnswerSettings settings_;
    ReadyChunk prompt_;
    std::vector<Choice> choices_;
    AnswerCounts counts_;
};

}  // namespace

std::unique_ptr<AnswerBuilder> make_chat_answer(AnswerSettings settings,
                                                ChatAnswerOptions options) {
    if (settings.stream) return std::make_unique<ChatStream>(std::move(settings), options);
    return std::make_unique<ChatAnswer>(std::move(settings), options);
}

}  // namespace fathom
