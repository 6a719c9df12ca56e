#include "gateway/client/completion_stream.h"

#include "base/json.h"

namespace fathom {
namespace {

const Json* member(const Json* object, std::string_view key) {
    const Json* found = object == nullptr ? nullptr : object->find(key);
    return found == nullptr || found->is_null() ? nullptr : found;
}

std::optional<std::int64_t> count(const Json* usage, std::string_view key) {
    const Json* value = member(usage, key);
    if (value == nullptr || value->kind() != Json::Kind::integer) return std::nullopt;
    return value->as_int64();
}

bool is_text(const Json* value) {
    return value != nullptr && value->is_string() && !value->as_string().empty();
}

void read_choice(const Json& choice, CompletionEvent& event) {
    for (const char* part : {"delta", "message"}) {
        const Json* text = member(&choice, part);
        for (const char* name : {"content", "reasoning_content", "reasoning"})
            event.has_text = event.has_text || is_text(member(text, name));
    }
    event.has_text = event.has_text || is_text(member(&choice, "text"));
    event.finished = event.finished || member(&choice, "finish_reason") != nullptr;
}

}  // namespace

Result<CompletionEvent> read_completion_event(std::string_view json) {
    const Result<Json> parsed = parse_json(json);
    if (!parsed.ok() || !parsed->is_object())
        return error(StatusCode::data_loss, "the server sent an event that is no JSON object: {}",
                     json.substr(0, 120));
    CompletionEvent event;
    if (const Json* error = member(&*parsed, "error")) {
        const Json* message = member(error, "message");
        event.error = is_text(message) ? message->as_string()
                      : is_text(error) ? error->as_string()
                                       : error->dump();
        return event;
    }
    const Json* choices = member(&*parsed, "choices");
    if (choices != nullptr && choices->is_array()) {
        for (const Json& choice : choices->items())
            read_choice(choice, event);
    }
    const Json* usage = member(&*parsed, "usage");
    event.prompt_tokens = count(usage, "prompt_tokens");
    event.completion_tokens = count(usage, "completion_tokens");
    event.cached_tokens = count(member(usage, "prompt_tokens_details"), "cached_tokens");
    return event;
}

Result<std::optional<CompletionEvent>> CompletionStream::next() {
    while (true) {
        const std::size_t end = buffer_.find('\n', begin_);
        if (end == std::string::npos) {
            buffer_.erase(0, begin_);
            begin_ = 0;
            if (buffer_.size() + data_.size() > event_bytes_max_)
                return error(StatusCode::data_loss,
                             "the server sent an event of more than {} bytes", event_bytes_max_);
            return std::optional<CompletionEvent>();
        }
        std::string_view line(buffer_.data() + begin_, end - begin_);
        begin_ = end + 1;
        if (line.ends_with('\r')) line.remove_suffix(1);
        constexpr std::string_view kData = "data:";
        if (line.starts_with(kData)) {
            line.remove_prefix(kData.size());
            if (line.starts_with(' ')) line.remove_prefix(1);
            if (!data_.empty()) data_ += '\n';
            data_ += line;
            if (data_.size() > event_bytes_max_)
                return error(StatusCode::data_loss,
                             "the server sent an event of more than {} bytes", event_bytes_max_);
            continue;
        }
        if (!line.empty() || data_.empty()) continue;  // comments, other fields, blank lines
        std::string data;
        data.swap(data_);
        if (data == "[DONE]") {
            CompletionEvent event;
            event.done = true;
            return std::optional<CompletionEvent>(std::move(event));
        }
        FATHOM_ASSIGN(CompletionEvent event, read_completion_event(data));
        return std::optional<CompletionEvent>(std::move(event));
    }
}

}  // namespace fathom
