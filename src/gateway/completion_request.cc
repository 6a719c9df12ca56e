#include "gateway/completion_request.h"

#include <algorithm>
#include <array>
#include <utility>

#include "recipe/protocols/chat_request.h"
#include "recipe/protocols/fields.h"

namespace fathom {

namespace {

constexpr std::int64_t kTokenIdMax = (std::int64_t{1} << 31) - 1;
constexpr std::uint64_t kCountMax = (std::uint64_t{1} << 31) - 1;  // of n, best_of, logprobs

Result<std::vector<TokenId>> read_ids(const Json::Array& items) {
    std::vector<TokenId> ids;
    ids.reserve(items.size());
    for (const Json& item : items) {
        const bool is_id = item.kind() == Json::Kind::integer && item.as_int64() >= 0 &&
                           item.as_int64() <= kTokenIdMax;
        if (!is_id)
            return invalid_argument("Invalid 'prompt[{}]': {}, expected a token id in [0, 2^31)",
                                    ids.size(), item.dump().substr(0, 100));
        ids.push_back(static_cast<TokenId>(item.as_int64()));
    }
    if (ids.empty())
        return invalid_argument("Invalid 'prompt': empty. Expected at least one token.");
    return ids;
}

// A text, a list of ids, or a list of one of these.
Status read_prompt(Fields& body, CompletionRequest& request) {
    FATHOM_ASSIGN(Json * prompt, body.required("prompt"));
    if (prompt->is_array() && !prompt->items().empty() &&
        (prompt->items().front().is_string() || prompt->items().front().is_array())) {
        if (prompt->items().size() > 1)
            return invalid_argument("Invalid 'prompt': {} prompts, expected one a request.",
                                    prompt->items().size());
        prompt = &prompt->items().front();
    }
    FATHOM_ASSIGN(std::optional<std::string> suffix, body.optional_string("suffix"));
    if (suffix && suffix->empty()) suffix.reset();
    if (prompt->is_string()) {
        // The whole prompt is the client's, so special tokens that it spells are meant; around a
        // hole the template's are.
        request.prompt = RawText{
            .text = prompt->as_string(), .suffix = std::move(suffix), .recognize_added = true};
        return {};
    }
    if (!prompt->is_array()) return wrong_type(*prompt, "a string or a list of token ids");
    if (suffix) return invalid_argument("Invalid 'suffix': the prompt must be a text then.");
    FATHOM_ASSIGN(request.prompt, read_ids(prompt->items()));
    return {};
}

Status refuse_unsupported(Fields& body, std::uint64_t choices) {
    FATHOM_ASSIGN(const std::optional<bool> echo, body.optional_bool("echo"));
    if (echo.value_or(false)) return invalid_argument("`echo` is not supported by this server.");
    FATHOM_ASSIGN(const std::optional<std::uint64_t> best_of,
                  body.optional_unsigned("best_of", kCountMax, "u32"));
    if (best_of.value_or(choices) != choices)
        return invalid_argument("Invalid best_of value (only best_of = n is supported)");
    return {};
}

// The body as one of Chat: what concerns conversations is taken out, and `logprobs` counts.
Result<Json> chat_body(Json body) {
    static constexpr std::array<std::string_view, 10> kDropped = {
        "prompt",      "suffix",          "echo",     "best_of",          "messages", "tools",
        "tool_choice", "response_format", "thinking", "reasoning_effort",
    };
    FATHOM_ASSIGN(Fields fields, Fields::of(body, "struct CompletionRequest"));
    FATHOM_ASSIGN(const std::optional<std::uint64_t> logprobs,
                  fields.optional_unsigned("logprobs", kCountMax, "u32"));
    std::erase_if(body.members(), [](const Json::Member& member) {
        return std::find(kDropped.begin(), kDropped.end(), member.first) != kDropped.end() ||
               member.first == "logprobs" || member.first == "top_logprobs";
    });
    body.set("messages",
             Json::array({Json::object({{"role", Json("user")}, {"content", Json("")}})}));
    body.set("thinking", Json::object({{"type", Json("disabled")}}));
    if (!logprobs) return body;
    if (*logprobs > static_cast<std::uint64_t>(kTopLogprobsMax))
        return invalid_argument("Invalid logprobs value, the valid range of logprobs is [0, {}].",
                                kTopLogprobsMax);
    body.set("logprobs", Json(true));
    body.set("top_logprobs", Json(*logprobs));
    return body;
}

}  // namespace

Result<CompletionRequest> lower_completion_request(std::string_view text,
                                                   const LowerOptions& options) {
    FATHOM_ASSIGN(Json body, parse_request_body(text, "struct CompletionRequest"));
    FATHOM_ASSIGN(Fields fields, Fields::of(body, "struct CompletionRequest"));
    CompletionRequest request;
    FATHOM_RETURN_IF_ERROR(read_prompt(fields, request));
    FATHOM_ASSIGN(const std::optional<std::uint64_t> choices,
                  fields.optional_unsigned("n", kCountMax, "u32"));
    FATHOM_RETURN_IF_ERROR(refuse_unsupported(fields, choices.value_or(1)));
    FATHOM_ASSIGN(const Json chat, chat_body(std::move(body)));
    LowerOptions open = options;
    open.profile = Profile::open;
    FATHOM_ASSIGN(request.settings, lower_chat_request(chat.dump(), open));
    return request;
}

}  // namespace fathom
