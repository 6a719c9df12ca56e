#include "recipe/protocols/openai_parts.h"

namespace fathom {

const char* chat_finish_reason(OutputFinish finish) {
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

void AnswerCounts::add(const OutputEvent& finish) {
    ++ended;
    completion_tokens += finish.completion_tokens;
    if (finish.reasoning_tokens)
        reasoning_tokens = reasoning_tokens.value_or(0) + *finish.reasoning_tokens;
}

void write_chat_usage(JsonWriter& writer, const ReadyChunk& prompt, const AnswerCounts& counts) {
    const std::int64_t hits = prompt.prompt_cache_hit_tokens;
    writer.begin_object();
    writer.key("prompt_tokens").value(prompt.prompt_tokens);
    writer.key("completion_tokens").value(counts.completion_tokens);
    writer.key("total_tokens").value(prompt.prompt_tokens + counts.completion_tokens);
    writer.key("prompt_tokens_details").begin_object().key("cached_tokens").value(hits);
    writer.end_object();
    if (counts.reasoning_tokens) {
        writer.key("completion_tokens_details").begin_object();
        writer.key("reasoning_tokens").value(*counts.reasoning_tokens).end_object();
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

}  // namespace fathom
