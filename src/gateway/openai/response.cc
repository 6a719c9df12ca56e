#include "gateway/openai/response.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "gateway/openai/errors.h"
#include "recipe/utf8_text.h"

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

// What makes the answer repeatable, and how it came by its beginning (docs/prefix_cache.md).
void write_anchors(JsonWriter& json, const Anchors& anchors) {
    json.key("fathom").begin_object().key("anchors").begin_object();
    json.key("mode").value(prefill_mode_name(anchors.mode));
    json.key("decoder_floor").value(anchors.decoder_floor);
    json.key("replays").begin_array();
    for (const std::int64_t at : anchors.replays)
        json.value(at);
    json.end_array();
    json.key("encoder_floor").value(anchors.encoder_floor);
    json.key("hit_tokens").value(anchors.hit_tokens);
    json.key("window_source").value(anchors.window_source);
    json.end_object().end_object();
}

// The members of one token, its object left open.
void begin_token(JsonWriter& json, const TokenText& token) {
    json.begin_object();
    json.key("token").value(shown_token(token.bytes));
    json.key("logprob").value(static_cast<double>(token.logprob));
    json.key("bytes").begin_array();
    for (const char byte : token.bytes)
        json.value(static_cast<int>(static_cast<unsigned char>(byte)));
    json.end_array();
}

void write_chat_entries(JsonWriter& json, const char* name,
                        const std::vector<LogprobEntry>& entries) {
    json.key(name).begin_array();
    for (const LogprobEntry& entry : entries) {
        begin_token(json, entry.token);
        json.key("top_logprobs").begin_array();
        for (const TokenText& token : entry.top) {
            begin_token(json, token);
            json.end_object();
        }
        json.end_array().end_object();
    }
    json.end_array();
}

// {"token": logprob}; of tokens that are shown alike the more probable one stands for all.
void write_top_map(JsonWriter& json, const std::vector<TokenText>& top) {
    std::vector<std::string> names;
    json.begin_object();
    for (const TokenText& token : top) {
        std::string name = shown_token(token.bytes);
        if (std::find(names.begin(), names.end(), name) != names.end()) continue;
        json.key(name).value(static_cast<double>(token.logprob));
        names.push_back(std::move(name));
    }
    json.end_object();
}

void write_completion_entries(JsonWriter& json, const std::vector<LogprobEntry>& entries,
                              bool with_top) {
    json.key("tokens").begin_array();
    for (const LogprobEntry& entry : entries)
        json.value(shown_token(entry.token.bytes));
    json.end_array().key("token_logprobs").begin_array();
    for (const LogprobEntry& entry : entries)
        json.value(static_cast<double>(entry.token.logprob));
    json.end_array().key("top_logprobs");
    if (with_top) {
        json.begin_array();
        for (const LogprobEntry& entry : entries)
            write_top_map(json, entry.top);
        json.end_array();
    } else {
        json.null();
    }
    json.key("text_offset").begin_array();
    for (const LogprobEntry& entry : entries)
        json.value(entry.text_offset);
    json.end_array();
}

// What a chunk says; texts that are absent are left out, or null where the other one stands.
struct ChunkBody {
    std::int64_t choice = 0;
    bool role = false;
    std::optional<std::string_view> content = std::nullopt;
    std::optional<std::string_view> reasoning = std::nullopt;
    bool name_both = false;
    const GenerationDelta* logprobs = nullptr;
    std::optional<GenerationFinish> finish = std::nullopt;
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
    json.key("index").value(body.choice);
    if (chat) {
        json.key("delta").begin_object();
        if (body.role) json.key("role").value("assistant");
        write_text(json, "content", body.content, body.name_both);
        write_text(json, "reasoning_content", body.reasoning, body.name_both);
        json.end_object();
    } else {
        json.key("text").value(body.content.value_or(""));
    }
    json.key("logprobs");
    write_logprobs(json, head, body.logprobs != nullptr ? *body.logprobs : GenerationDelta());
    json.key("finish_reason");
    if (body.finish) {
        json.value(finish_reason(*body.finish));
    } else {
        json.null();
    }
    json.end_object().end_array();
    if (body.last != nullptr) {
        write_usage(json, body.last->usage);
        write_anchors(json, body.last->anchors);
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

std::string shown_token(std::string_view bytes) {
    std::string shown;
    for (std::size_t at = 0; at < bytes.size();) {
        const Utf8Step step = utf8_step(bytes, at);
        const std::string_view part = bytes.substr(at, step.byte_count);
        at += step.byte_count;
        if (step.kind == Utf8Step::Kind::character) {
            shown += part;
            continue;
        }
        for (const char byte : part)
            shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
    }
    return shown;
}

void write_logprobs(JsonWriter& json, const AnswerHead& head, const GenerationDelta& delta) {
    const bool any = !delta.content_logprobs.empty() || !delta.reasoning_logprobs.empty();
    if (head.logprobs < 0 || !any) {
        json.null();
        return;
    }
    json.begin_object();
    if (head.kind == ApiKind::completion) {
        write_completion_entries(json, delta.content_logprobs, head.logprobs > 0);
    } else {
        if (!delta.content_logprobs.empty())
            write_chat_entries(json, "content", delta.content_logprobs);
        if (!delta.reasoning_logprobs.empty())
            write_chat_entries(json, "reasoning_content", delta.reasoning_logprobs);
    }
    json.key("mode").value(head.logprobs_processed ? "processed" : "raw");
    json.end_object();
}

void append_start(std::string& out, const AnswerHead& head) {
    if (head.kind != ApiKind::chat) return;
    for (std::int64_t choice = 0; choice < head.choices; ++choice) {
        if (head.thinking) {
            append_chunk(out, head,
                         {.choice = choice, .role = true, .reasoning = "", .name_both = true});
        } else {
            append_chunk(out, head, {.choice = choice, .role = true, .content = ""});
        }
    }
}

void append_delta(std::string& out, const AnswerHead& head, const GenerationDelta& delta) {
    if (!delta.reasoning.empty() || !delta.reasoning_logprobs.empty()) {
        GenerationDelta logprobs;
        logprobs.reasoning_logprobs = delta.reasoning_logprobs;
        append_chunk(out, head,
                     {.choice = delta.choice,
                      .reasoning = delta.reasoning,
                      .name_both = true,
                      .logprobs = &logprobs});
    }
    if (!delta.content.empty() || !delta.content_logprobs.empty()) {
        GenerationDelta logprobs;
        logprobs.content_logprobs = delta.content_logprobs;
        append_chunk(out, head,
                     {.choice = delta.choice,
                      .content = delta.content,
                      .name_both = head.thinking,
                      .logprobs = &logprobs});
    }
}

void append_end(std::string& out, const AnswerHead& head, std::int64_t choice,
                GenerationFinish finish, const GenerationResult* last) {
    append_chunk(out, head,
                 {.choice = choice,
                  .content = "",
                  .name_both = head.thinking,
                  .finish = finish,
                  .last = last});
}

void append_done(std::string& out) {
    out += "data: [DONE]\n\n";
}

void append_stream_error(std::string& out, const Status& status) {
    out += "data: ";
    out += api_error_json(http_status_of(status), status.message());
    out += "\n\n";
}

std::string complete_answer(const AnswerHead& head, const std::vector<GenerationDelta>& texts,
                            const GenerationResult& result) {
    std::string out;
    JsonWriter json(out);
    const bool chat = head.kind == ApiKind::chat;
    json.begin_object();
    json.key("id").value(head.id);
    json.key("object").value(chat ? "chat.completion" : "text_completion");
    json.key("created").value(head.created);
    json.key("model").value(head.model);
    json.key("choices").begin_array();
    for (std::size_t i = 0; i < texts.size(); ++i) {
        const GenerationDelta& text = texts[i];
        json.begin_object().key("index").value(static_cast<std::int64_t>(i));
        if (chat) {
            json.key("message").begin_object();
            json.key("role").value("assistant");
            json.key("content").value(text.content);
            if (head.thinking) json.key("reasoning_content").value(text.reasoning);
            json.end_object();
        } else {
            json.key("text").value(text.content);
        }
        json.key("logprobs");
        write_logprobs(json, head, text);
        json.key("finish_reason").value(finish_reason(result.choices[i].finish));
        json.end_object();
    }
    json.end_array();
    write_usage(json, result.usage);
    write_anchors(json, result.anchors);
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
