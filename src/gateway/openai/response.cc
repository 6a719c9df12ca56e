#include "gateway/openai/response.h"

#include <optional>

#include "base/json.h"
#include "gateway/openai/errors.h"

namespace fathom {

namespace {

const char* finish_reason(GenerationFinish finish) {
    return finish == GenerationFinish::length ? "length" : "stop";
}

void write_usage(JsonWriter& json, const Usage& usage) {
    json.key("usage").begin_object();
    json.key("prompt_tokens").value(usage.prompt_tokens);
    json.key("completion_tokens").value(usage.completion_tokens);
    json.key("total_tokens").value(usage.prompt_tokens + usage.completion_tokens);
    json.key("prompt_tokens_details").begin_object();
    json.key("cached_tokens").value(usage.cached_tokens);
    json.end_object();
    json.key("prompt_cache_hit_tokens").value(usage.cached_tokens);
    json.key("prompt_cache_miss_tokens").value(usage.prompt_tokens - usage.cached_tokens);
    json.end_object();
}

// What a chunk says; texts that are absent are left out, or null where the other one stands.
struct ChunkBody {
    bool role = false;
    std::optional<std::string_view> content = std::nullopt;
    std::optional<std::string_view> reasoning = std::nullopt;
    bool name_both = false;
    const GenerationResult* last = nullptr;
};

void write_text(JsonWriter& json, const char* name, const std::optional<std::string_view>& text,
                bool name_both) {
    if (text) {
        json.key(name).value(*text);
    } else if (name_both) {
        json.key(name).null();
    }
}

void append_chunk(std::string& out, const AnswerHead& head, const ChunkBody& body) {
    out += "data: ";
    JsonWriter json(out);
    const bool chat = head.kind == ApiKind::chat;
    json.begin_object();
    json.key("id").value(head.id);
    json.key("object").value(chat ? "chat.completion.chunk" : "text_completion");
    json.key("created").value(head.created);
    json.key("model").value(head.model);
    json.key("system_fingerprint").value(head.fingerprint);
    json.key("choices").begin_array().begin_object();
    json.key("index").value(0);
    if (chat) {
        json.key("delta").begin_object();
        if (body.role) json.key("role").value("assistant");
        write_text(json, "content", body.content, body.name_both);
        write_text(json, "reasoning_content", body.reasoning, body.name_both);
        json.end_object();
    } else {
        json.key("text").value(body.content.value_or(""));
    }
    json.key("logprobs").null();
    json.key("finish_reason");
    if (body.last != nullptr) {
        json.value(finish_reason(body.last->finish));
    } else {
        json.null();
    }
    json.end_object().end_array();
    if (body.last != nullptr) {
        write_usage(json, body.last->usage);
    } else if (head.include_usage) {
        json.key("usage").null();
    }
    json.end_object();
    out += "\n\n";
}

void write_model(JsonWriter& json, std::string_view name, std::int64_t created,
                 std::int64_t context_tokens) {
    json.begin_object();
    json.key("id").value(name);
    json.key("object").value("model");
    json.key("created").value(created);
    json.key("owned_by").value("fathom");
    json.key("max_model_len").value(context_tokens);
    json.end_object();
}

}  // namespace

void append_start(std::string& out, const AnswerHead& head) {
    if (head.kind != ApiKind::chat) return;
    if (head.thinking) {
        append_chunk(out, head, {.role = true, .reasoning = "", .name_both = true});
    } else {
        append_chunk(out, head, {.role = true, .content = ""});
    }
}

void append_delta(std::string& out, const AnswerHead& head, const GenerationDelta& delta) {
    if (!delta.reasoning.empty())
        append_chunk(out, head, {.reasoning = delta.reasoning, .name_both = true});
    if (!delta.content.empty())
        append_chunk(out, head, {.content = delta.content, .name_both = head.thinking});
}

void append_last(std::string& out, const AnswerHead& head, const GenerationResult& result) {
    append_chunk(out, head, {.content = "", .name_both = head.thinking, .last = &result});
}

void append_done(std::string& out) {
    out += "data: [DONE]\n\n";
}

void append_stream_error(std::string& out, const Status& status) {
    out += "data: ";
    out += api_error_json(http_status_of(status), status.message());
    out += "\n\n";
}

std::string complete_answer(const AnswerHead& head, const GenerationDelta& text,
                            const GenerationResult& result) {
    std::string out;
    JsonWriter json(out);
    const bool chat = head.kind == ApiKind::chat;
    json.begin_object();
    json.key("id").value(head.id);
    json.key("object").value(chat ? "chat.completion" : "text_completion");
    json.key("created").value(head.created);
    json.key("model").value(head.model);
    json.key("choices").begin_array().begin_object();
    json.key("index").value(0);
    if (chat) {
        json.key("message").begin_object();
        json.key("role").value("assistant");
        json.key("content").value(text.content);
        if (head.thinking) json.key("reasoning_content").value(text.reasoning);
        json.end_object();
    } else {
        json.key("text").value(text.content);
    }
    json.key("logprobs").null();
    json.key("finish_reason").value(finish_reason(result.finish));
    json.end_object().end_array();
    write_usage(json, result.usage);
    json.key("system_fingerprint").value(head.fingerprint);
    json.end_object();
    return out;
}

std::string model_json(std::string_view name, std::int64_t created, std::int64_t context_tokens) {
    std::string out;
    JsonWriter json(out);
    write_model(json, name, created, context_tokens);
    return out;
}

std::string models_json(const std::vector<std::string>& names, std::int64_t created,
                        std::int64_t context_tokens) {
    std::string out;
    JsonWriter json(out);
    json.begin_object();
    json.key("object").value("list");
    json.key("data").begin_array();
    for (const std::string& name : names)
        write_model(json, name, created, context_tokens);
    json.end_array().end_object();
    return out;
}

}  // namespace fathom
