#include "recipe/protocols/responses_events.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include <fmt/core.h>

#include "recipe/protocols/custom_tool_input.h"
#include "recipe/protocols/logprobs_json.h"
#include "recipe/spaced_json.h"

namespace fathom {

namespace {

using Kind = OutputEvent::Kind;

enum class ItemType { none, reasoning, message, function_call, custom_tool_call, tool_search_call };

// What the protocol calls an item, the prefix of its id, and the stem of its delta and done events.
struct ItemNames {
    std::string_view type;
    std::string_view id_prefix;
    std::string_view delta_event;
    std::string_view done_event;
    std::string_view text_member;  // of the done event
};

const ItemNames& names_of(ItemType type) {
    static constexpr std::array<ItemNames, 6> kNames{{
        {"", "", "", "", ""},
        {"reasoning", "rs", "response.reasoning_text.delta", "response.reasoning_text.done",
         "text"},
        {"message", "msg", "response.output_text.delta", "response.output_text.done", "text"},
        {"function_call", "fc", "response.function_call_arguments.delta",
         "response.function_call_arguments.done", "arguments"},
        {"custom_tool_call", "ctc", "response.custom_tool_call_input.delta",
         "response.custom_tool_call_input.done", "input"},
        {"tool_search_call", "tsc", "", "", ""},
    }};
    return kNames[static_cast<std::size_t>(type)];
}

struct Item {
    ItemType type = ItemType::none;
    std::int64_t index = 0;
    std::string id = {};
    std::string text = {};  // shown so far; of calls the arguments or the input
    std::string name = {};
    std::optional<std::string> name_space = {};
    std::string call_id = {};
    std::vector<TokenLogprob> logprobs = {};  // of a message
    CustomToolInput input = {};

    bool has_part() const { return type == ItemType::message || type == ItemType::reasoning; }
};

enum class Status { in_progress, completed, incomplete, failed };

const char* status_name(Status status) {
    switch (status) {
        case Status::in_progress:
            return "in_progress";
        case Status::completed:
            return "completed";
        case Status::incomplete:
            return "incomplete";
        case Status::failed:
            return "failed";
    }
    return "incomplete";
}

// Why an answer is incomplete, or null.
const char* incomplete_reason(OutputFinish finish) {
    if (finish == OutputFinish::length) return "max_output_tokens";
    return finish == OutputFinish::content_filter ? "content_filter" : nullptr;
}

void write_optional(JsonWriter& writer, std::string_view key,
                    const std::optional<std::string>& text) {
    writer.key(key);
    if (text) {
        writer.value(*text);
    } else {
        writer.null();
    }
}

// The double with the shortest digits of the float.
double shortest(float number) {
    std::array<char, 32> digits;
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
    double result = 0;
    std::from_chars(digits.data(), end, result);
    return result;
}

class ResponsesAnswer : public AnswerBuilder {
  public:
    ResponsesAnswer(AnswerSettings settings, ResponsesAnswerOptions options)
        : settings_(std::move(settings)), options_(std::move(options)) {}

    void add(const OutputEvent& event, std::vector<StreamPayload>& payloads) override {
        payloads_ = &payloads;
        switch (event.kind) {
            case Kind::start:
                prompt_ = event.prompt;
                for (const std::string_view name : {"response.created", "response.in_progress"}) {
                    send(name, [&](JsonWriter& writer) {
                        write_response(writer.key("response"), nullptr);
                    });
                }
                break;
            case Kind::content:
            case Kind::reasoning: {
                const ItemType type =
                    event.kind == Kind::content ? ItemType::message : ItemType::reasoning;
                if (item_.type != type) open({.type = type});
                append(event.text, event.logprobs);
                break;
            }
            case Kind::tool_call:
                open(called(event.text));
                break;
            case Kind::arguments:
                append(item_.type == ItemType::custom_tool_call ? item_.input.push(event.text)
                                                                : event.text,
                       {});
                break;
            case Kind::finish:
                finish(event);
                break;
        }
    }

    // Items are closed first, so that the response shows what had come.
    void fail(const AnswerError& error, std::vector<StreamPayload>& payloads) override {
        payloads_ = &payloads;
        close(Status::incomplete, "final_answer");
        options_.echo.store = false;  // what failed can not be continued
        send("response.failed",
             [&](JsonWriter& writer) { write_response(writer.key("response"), nullptr, &error); });
    }

    std::string answer() const override { return response_; }

  private:
    // Appends the payload {"type": name, …, "sequence_number": n, …}. Members in the order of the
    // alphabet stand around the number: `after` writes those behind it.
    template <typename Before, typename After>
    void send(std::string_view name, Before before, After after) {
        if (!settings_.stream) return;
        std::string json;
        JsonWriter writer(json);
        writer.begin_object().key("type").value(name);
        before(writer);
        writer.key("sequence_number").value(sequence_++);
        after(writer);
        writer.end_object();
        payloads_->push_back({.name = name, .json = std::move(json)});
    }
    template <typename Before>
    void send(std::string_view name, Before before) {
        send(name, before, [](JsonWriter&) {});
    }

    Item called(const std::string& name) {
        Item item{
            .type = ItemType::function_call, .name = name, .call_id = settings_.call_ids(calls_++)};
        const auto tool = options_.namespace_tools.find(name);
        const std::vector<std::string>& custom = options_.custom_tools;
        if (tool != options_.namespace_tools.end()) {
            item.name = tool->second.name;
            item.name_space = tool->second.name_space;
        } else if (std::find(custom.begin(), custom.end(), name) != custom.end()) {
            item.type = ItemType::custom_tool_call;
        } else if (options_.tool_search && name == "tool_search") {
            item.type = ItemType::tool_search_call;
        }
        return item;
    }

    void open(Item item) {
        // Text before a call only accompanies it.
        const bool is_call = item.type != ItemType::message && item.type != ItemType::reasoning;
        close(Status::completed, is_call ? "commentary" : "final_answer");
        item.index = static_cast<std::int64_t>(output_.size());
        item.id = fmt::format("{}_{}_{}", names_of(item.type).id_prefix, settings_.id, item.index);
        item_ = std::move(item);
        send("response.output_item.added", [&](JsonWriter& writer) {
            write_item(writer.key("item"), Status::in_progress, "final_answer");
            writer.key("output_index").value(item_.index);
        });
        if (item_.has_part()) send_part("response.content_part.added");
    }

    void send_part(std::string_view name) {
        send(name, [&](JsonWriter& writer) {
            writer.key("content_index").value(0);
            write_place(writer, [] {});
            write_part(writer.key("part"));
        });
    }

    // item_id, what `between` writes, output_index.
    template <typename Between>
    void write_place(JsonWriter& writer, Between between) {
        writer.key("item_id").value(item_.id);
        between();
        writer.key("output_index").value(item_.index);
    }

    void append(std::string_view text, const std::vector<TokenLogprob>& logprobs) {
        if (text.empty() || item_.type == ItemType::none) return;
        item_.text += text;
        if (item_.type == ItemType::tool_search_call) return;
        if (item_.type == ItemType::message) {
            item_.logprobs.insert(item_.logprobs.end(), logprobs.begin(), logprobs.end());
        }
        send(names_of(item_.type).delta_event, [&](JsonWriter& writer) {
            if (item_.has_part()) writer.key("content_index").value(0);
            writer.key("delta").value(text);
            write_place(writer, [&] { write_message_logprobs(writer, logprobs); });
        });
    }

    void write_message_logprobs(JsonWriter& writer,
                                const std::vector<TokenLogprob>& logprobs) const {
        if (item_.type != ItemType::message) return;
        writer.key("logprobs");
        if (settings_.tokenizer == nullptr) {
            writer.begin_array().end_array();
        } else {
            write_logprobs(writer, *settings_.tokenizer, logprobs);
        }
    }

    void write_part(JsonWriter& writer) const {
        writer.begin_object().key("type");
        if (item_.type == ItemType::message) {
            writer.value("output_text").key("annotations").begin_array().end_array();
            write_message_logprobs(writer, item_.logprobs);
        } else {
            writer.value("reasoning_text");
        }
        writer.key("text").value(item_.text).end_object();
    }

    void close(Status status, std::string_view phase) {
        if (item_.type == ItemType::none) return;
        const ItemNames& names = names_of(item_.type);
        if (item_.has_part()) {
            send(
                names.done_event,
                [&](JsonWriter& writer) {
                    writer.key("content_index").value(0);
                    write_place(writer, [&] { write_message_logprobs(writer, item_.logprobs); });
                },
                [&](JsonWriter& writer) { writer.key("text").value(item_.text); });
            send_part("response.content_part.done");
        } else if (item_.type != ItemType::tool_search_call) {
            send(names.done_event, [&](JsonWriter& writer) {
                writer.key(names.text_member).value(item_.text);
                write_place(writer, [] {});
            });
        }
        std::string json;
        JsonWriter item_writer(json);
        write_item(item_writer, status, phase);
        send("response.output_item.done", [&](JsonWriter& writer) {
            writer.key("item").raw(json).key("output_index").value(item_.index);
        });
        output_.push_back(std::move(json));
        item_ = {};
    }

    void write_item(JsonWriter& writer, Status status, std::string_view phase) const {
        const bool done = status != Status::in_progress;
        std::optional<Json> found;  // of a tool search: its arguments, if they are an object
        if (item_.type == ItemType::tool_search_call && done) {
            auto arguments = parse_json(item_.text);
            if (arguments.ok() && arguments->is_object()) {
                found = *std::move(arguments);
            } else {
                status = Status::incomplete;
            }
        }
        writer.begin_object().key("type").value(names_of(item_.type).type);
        writer.key("id").value(item_.id).key("status").value(status_name(status));
        if (item_.type == ItemType::message) {
            writer.key("role").value("assistant").key("phase").value(phase);
        }
        if (item_.has_part()) {
            writer.key("content").begin_array();
            if (done) write_part(writer);
            writer.end_array();
            if (item_.type == ItemType::reasoning) {
                writer.key("summary").begin_array().end_array().key("encrypted_content");
                writer.value(fmt::format("{}-{}", settings_.id, item_.index));
            }
        } else {
            writer.key("call_id").value(item_.call_id);
            if (item_.type == ItemType::tool_search_call) {
                writer.key("execution").value("client");
                writer.key("arguments").raw(found ? wire_json(*found) : "{}");
            } else {
                writer.key("name").value(item_.name);
                if (item_.name_space) writer.key("namespace").value(*item_.name_space);
                writer.key(names_of(item_.type).text_member).value(item_.text);
            }
        }
        writer.end_object();
    }

    void finish(const OutputEvent& last) {
        const bool complete = incomplete_reason(last.finish) == nullptr;
        close(complete ? Status::completed : Status::incomplete, "final_answer");
        write_finished(last);
        if (options_.echo.store && response_.size() > options_.stored_bytes_max) {
            options_.echo.store = false;
            write_finished(last);
        }
        send(complete ? "response.completed" : "response.incomplete",
             [&](JsonWriter& writer) { writer.key("response").raw(response_); });
    }

    void write_finished(const OutputEvent& last) {
        response_.clear();
        JsonWriter writer(response_);
        write_response(writer, &last);
    }

    // The response object. `last` is null while it is in progress or when it has failed.
    void write_response(JsonWriter& writer, const OutputEvent* last,
                        const AnswerError* error = nullptr) const {
        const char* reason = last == nullptr ? nullptr : incomplete_reason(last->finish);
        Status status = reason == nullptr ? Status::completed : Status::incomplete;
        if (last == nullptr) status = error == nullptr ? Status::in_progress : Status::failed;
        writer.begin_object().key("id").value(settings_.id).key("object").value("response");
        writer.key("created_at").value(settings_.created);
        writer.key("status").value(status_name(status)).key("background").value(false);
        writer.key("completed_at");
        if (last == nullptr) {
            writer.null();
        } else {
            writer.value(options_.unix_seconds ? options_.unix_seconds() : settings_.created);
        }
        writer.key("content_filters").null().key("error");
        if (error == nullptr) {
            writer.null();
        } else {
            writer.begin_object().key("code").value(error->type);
            writer.key("message").value(error->message).end_object();
        }
        writer.key("frequency_penalty").value(options_.echo.frequency_penalty);
        writer.key("incomplete_details");
        if (reason == nullptr) {
            writer.null();
        } else {
            writer.begin_object().key("reason").value(reason).end_object();
        }
        write_limits(writer);
        writer.key("output").begin_array();
        if (status != Status::in_progress) {
            for (const std::string& item : output_)
                writer.raw(item);
        }
        writer.end_array();
        write_settings(writer);
        write_usage(writer.key("usage"), last);
        write_optional(writer, "user", options_.echo.user);
        writer.key("metadata").begin_object().end_object().end_object();
    }

    void write_limits(JsonWriter& writer) const {
        write_optional(writer, "instructions", options_.echo.instructions);
        writer.key("max_output_tokens");
        if (options_.echo.max_output_tokens) {
            writer.value(*options_.echo.max_output_tokens);
        } else {
            writer.null();
        }
        writer.key("max_tool_calls").null();
        writer.key("model").value(settings_.model).key("moderation").null();
    }

    void write_settings(JsonWriter& writer) const {
        const ResponsesEcho& echo = options_.echo;
        writer.key("parallel_tool_calls").value(true);
        writer.key("presence_penalty").value(echo.presence_penalty);
        write_optional(writer, "previous_response_id", echo.previous_response_id);
        writer.key("prompt_cache_key").null().key("prompt_cache_retention").null();
        writer.key("reasoning").begin_object();
        writer.key("effort").value(echo.reasoning_effort);
        write_optional(writer, "summary", echo.reasoning_summary);
        writer.end_object();
        writer.key("safety_identifier").null().key("service_tier").value("default");
        writer.key("store").value(echo.store);
        writer.key("temperature").raw(wire_json(shortest(echo.temperature)));
        writer.key("text").begin_object().key("format").raw(wire_json(echo.text_format));
        write_optional(writer, "verbosity", echo.text_verbosity);
        writer.end_object();
        writer.key("tool_choice")
            .raw(wire_json(echo.tool_choice))
            .key("tools")
            .raw(wire_json(echo.tools));
        writer.key("top_logprobs").value(echo.top_logprobs);
        writer.key("top_p")
            .raw(wire_json(shortest(echo.top_p)))
            .key("truncation")
            .value("disabled");
    }

    void write_usage(JsonWriter& writer, const OutputEvent* last) const {
        if (last == nullptr) {
            writer.null();
            return;
        }
        writer.begin_object().key("input_tokens").value(prompt_.prompt_tokens);
        writer.key("input_tokens_details").begin_object();
        writer.key("cached_tokens").value(prompt_.prompt_cache_hit_tokens).end_object();
        writer.key("output_tokens").value(last->completion_tokens);
        writer.key("output_tokens_details").begin_object();
        writer.key("reasoning_tokens").value(last->reasoning_tokens.value_or(0)).end_object();
        writer.key("total_tokens").value(prompt_.prompt_tokens + last->completion_tokens);
        writer.end_object();
    }

    AnswerSettings settings_;
    ResponsesAnswerOptions options_;
    std::vector<StreamPayload>* payloads_ = nullptr;  // during add() only
    ReadyChunk prompt_;
    Item item_;                        // the open one; type none: no item is open
    std::vector<std::string> output_;  // the closed items, as JSON
    std::string response_;             // once finished
    std::int64_t sequence_ = 0;
    std::int64_t calls_ = 0;
};

}  // namespace

std::unique_ptr<AnswerBuilder> make_responses_answer(AnswerSettings settings,
                                                     ResponsesAnswerOptions options) {
    return std::make_unique<ResponsesAnswer>(std::move(settings), std::move(options));
}

}  // namespace fathom
