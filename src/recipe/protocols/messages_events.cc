#include "recipe/protocols/messages_events.h"

#include <utility>

#include "base/json.h"
#include "recipe/spaced_json.h"

namespace fathom {

namespace {

using Kind = OutputEvent::Kind;

enum class Block { none, thinking, text, tool_use };

const char* stop_reason(OutputFinish finish) {
    switch (finish) {
        case OutputFinish::stop:
            return "end_turn";
        case OutputFinish::stop_sequence:
            return "stop_sequence";
        case OutputFinish::tool_calls:
            return "tool_use";
        case OutputFinish::length:
            return "max_tokens";
        case OutputFinish::content_filter:
            return "refusal";
    }
    return "end_turn";
}

void write_usage(JsonWriter& writer, const ReadyChunk& prompt, std::int64_t output_tokens) {
    const std::int64_t hits = prompt.prompt_cache_hit_tokens;
    writer.key("usage").begin_object();
    writer.key("input_tokens").value(prompt.prompt_tokens - hits);
    writer.key("cache_creation_input_tokens").value(0);
    writer.key("cache_read_input_tokens").value(hits);
    writer.key("output_tokens").value(output_tokens);
    writer.key("service_tier").value("standard");
    writer.end_object();
}

// The members stop_reason and stop_sequence; null until the end.
void write_stop(JsonWriter& writer, const OutputEvent* last) {
    writer.key("stop_reason");
    if (last == nullptr) {
        writer.null();
    } else {
        writer.value(stop_reason(last->finish));
    }
    writer.key("stop_sequence");
    if (last == nullptr || last->finish != OutputFinish::stop_sequence) {
        writer.null();
    } else {
        writer.value(last->text);
    }
}

// The members of a message up to its content.
void write_message_head(JsonWriter& writer, const AnswerSettings& settings) {
    writer.key("id").value(settings.id).key("type").value("message");
    writer.key("role").value("assistant").key("model").value(settings.model);
    writer.key("content");
}

// Thinking is announced even if there turns out to be none.
bool opens_thinking(const AnswerSettings& settings) {
    return settings.thinking == ThinkingStage::reasoning_start ||
           settings.thinking == ThinkingStage::reasoning_continuation;
}

Block block_of(Kind kind) {
    switch (kind) {
        case Kind::content:
            return Block::text;
        case Kind::reasoning:
            return Block::thinking;
        case Kind::tool_call:
        case Kind::arguments:
            return Block::tool_use;
        case Kind::start:
        case Kind::finish:
            break;
    }
    return Block::none;
}

class MessagesStream : public AnswerBuilder {
  public:
    explicit MessagesStream(AnswerSettings settings) : settings_(std::move(settings)) {}

    void add(const OutputEvent& event, std::vector<StreamPayload>& payloads) override {
        payloads_ = &payloads;
        switch (event.kind) {
            case Kind::start:
                start(event.prompt);
                break;
            case Kind::content:
            case Kind::reasoning:
                if (active_ != block_of(event.kind)) open(block_of(event.kind), {});
                delta(event.text);
                break;
            case Kind::tool_call:
                open(Block::tool_use, event.text);
                break;
            case Kind::arguments:
                delta(event.text);
                break;
            case Kind::finish:
                close();
                stop(event);
                break;
        }
    }

    void fail(const AnswerError& error, std::vector<StreamPayload>& payloads) override {
        payloads_ = &payloads;
        send("error", [&](JsonWriter& writer) {
            writer.key("error").begin_object().key("type").value(error.type);
            writer.key("message").value(error.message).end_object();
        });
    }

    std::string answer() const override { return {}; }

  private:
    // Appends the payload {"type": name, …}; `members` writes the rest.
    template <typename Members>
    void send(std::string_view name, Members members) {
        std::string json;
        JsonWriter writer(json);
        writer.begin_object().key("type").value(name);
        members(writer);
        writer.end_object();
        payloads_->push_back({.name = name, .json = std::move(json)});
    }

    void start(const ReadyChunk& prompt) {
        prompt_ = prompt;
        send("message_start", [&](JsonWriter& writer) {
            writer.key("message").begin_object();
            write_message_head(writer, settings_);
            writer.begin_array().end_array();
            write_stop(writer, nullptr);
            write_usage(writer, prompt_, 0);
            writer.end_object();
        });
        if (opens_thinking(settings_)) open(Block::thinking, {});
    }

    void open(Block block, std::string_view tool_name) {
        close();
        active_ = block;
        send("content_block_start", [&](JsonWriter& writer) {
            writer.key("index").value(index_).key("content_block").begin_object().key("type");
            if (block == Block::thinking) {
                writer.value("thinking").key("thinking").value("").key("signature").value("");
            } else if (block == Block::text) {
                writer.value("text").key("text").value("");
            } else {
                writer.value("tool_use").key("id").value(settings_.call_ids(calls_++));
                writer.key("name").value(tool_name).key("input").begin_object().end_object();
            }
            writer.end_object();
        });
        if (index_ == 0) send("ping", [](JsonWriter&) {});
    }

    void send_delta(const char* type, const char* member, std::string_view text) {
        send("content_block_delta", [&](JsonWriter& writer) {
            writer.key("index").value(index_).key("delta").begin_object();
            writer.key("type").value(type).key(member).value(text).end_object();
        });
    }

    void delta(std::string_view text) {
        if (active_ == Block::thinking) send_delta("thinking_delta", "thinking", text);
        if (active_ == Block::text) send_delta("text_delta", "text", text);
        if (active_ == Block::tool_use) send_delta("input_json_delta", "partial_json", text);
    }

    void close() {
        if (active_ == Block::none) return;
        if (active_ == Block::thinking) send_delta("signature_delta", "signature", settings_.id);
        send("content_block_stop", [&](JsonWriter& writer) { writer.key("index").value(index_); });
        ++index_;
        active_ = Block::none;
    }

    void stop(const OutputEvent& last) {
        send("message_delta", [&](JsonWriter& writer) {
            writer.key("delta").begin_object();
            write_stop(writer, &last);
            writer.end_object();
            write_usage(writer, prompt_, last.completion_tokens);
        });
        send("message_stop", [](JsonWriter&) {});
    }

    AnswerSettings settings_;
    std::vector<StreamPayload>* payloads_ = nullptr;  // during add() only
    ReadyChunk prompt_;
    Block active_ = Block::none;
    std::int64_t index_ = 0;  // of the active block, or the next one
    std::int64_t calls_ = 0;
};

class MessagesAnswer : public AnswerBuilder {
  public:
    explicit MessagesAnswer(AnswerSettings settings) : settings_(std::move(settings)) {
        if (opens_thinking(settings_)) blocks_.push_back({.type = Block::thinking});
    }

    void add(const OutputEvent& event, std::vector<StreamPayload>& /*payloads*/) override {
        if (event.kind == Kind::start) {
            prompt_ = event.prompt;
        } else if (event.kind == Kind::finish) {
            last_ = event;
        } else if (event.kind == Kind::tool_call) {
            blocks_.push_back({.type = Block::tool_use,
                               .name = event.text,
                               .call_id = settings_.call_ids(calls_++)});
        } else {
            const Block type = block_of(event.kind);
            if (blocks_.empty() || blocks_.back().type != type) blocks_.push_back({.type = type});
            blocks_.back().text += event.text;
        }
    }

    void fail(const AnswerError& /*error*/, std::vector<StreamPayload>& /*payloads*/) override {}

    std::string answer() const override {
        std::string json;
        JsonWriter writer(json);
        writer.begin_object();
        write_message_head(writer, settings_);
        writer.begin_array();
        for (const ContentBlock& block : blocks_)
            write_block(writer, block);
        writer.end_array();
        write_stop(writer, &last_);
        write_usage(writer, prompt_, last_.completion_tokens);
        writer.end_object();
        return json;
    }

  private:
    struct ContentBlock {
        Block type = Block::none;
        std::string text = {};  // tool_use: the arguments
        std::string name = {};
        std::string call_id = {};
    };

    void write_block(JsonWriter& writer, const ContentBlock& block) const {
        writer.begin_object().key("type");
        if (block.type == Block::thinking) {
            writer.value("thinking").key("thinking").value(block.text);
            writer.key("signature").value(settings_.id);
        } else if (block.type == Block::text) {
            writer.value("text").key("text").value(block.text);
        } else {
            writer.value("tool_use").key("id").value(block.call_id).key("name").value(block.name);
            // Arguments that the model left broken or unfinished are no value at all.
            const Result<Json> input = parse_json(block.text);
            writer.key("input").raw(input.ok() ? wire_json(*input) : "{}");
        }
        writer.end_object();
    }

    AnswerSettings settings_;
    ReadyChunk prompt_;
    OutputEvent last_;
    std::vector<ContentBlock> blocks_;
    std::int64_t calls_ = 0;
};

}  // namespace

std::unique_ptr<AnswerBuilder> make_messages_answer(AnswerSettings settings) {
    if (settings.stream) return std::make_unique<MessagesStream>(std::move(settings));
    return std::make_unique<MessagesAnswer>(std::move(settings));
}

}  // namespace fathom
