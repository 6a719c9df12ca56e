#include "gateway/generation.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "engine/sampler.h"

namespace fathom {

namespace {

constexpr std::int64_t kDefaultChatTokens = 8'192;
constexpr std::int64_t kDefaultThinkingTokens = 65'536;
constexpr std::int64_t kDefaultMaxEffortTokens = 131'072;
constexpr std::int64_t kDefaultRawTokens = 16;

// The last thinking marker of the template decides: text that a user typed is never special.
bool opens_thinking(const std::vector<PromptSegment>& segments) {
    for (auto it = segments.rbegin(); it != segments.rend(); ++it) {
        if (!it->special) continue;
        if (it->text == "<think>") return true;
        if (it->text == "</think>") return false;
    }
    return false;
}

struct Rendered {
    std::vector<TokenId> ids;
    bool starts_in_thinking = false;
    std::int64_t default_tokens = kDefaultRawTokens;
};

Result<Rendered> render(const Conversation& conversation, const Tokenizer& tokenizer) {
    FATHOM_ASSIGN(std::vector<PromptSegment> segments, render_prompt(conversation));
    Rendered rendered;
    FATHOM_ASSIGN(rendered.ids, encode_prompt(segments, tokenizer));
    rendered.starts_in_thinking = opens_thinking(segments);
    rendered.default_tokens = !conversation.thinking ? kDefaultChatTokens
                              : conversation.effort == ReasoningEffort::max
                                  ? kDefaultMaxEffortTokens
                                  : kDefaultThinkingTokens;
    return rendered;
}

Rendered render(const RawText& raw, const Tokenizer& tokenizer, TokenId bos_id) {
    Rendered rendered;
    rendered.ids = tokenizer.encode(raw.text, raw.recognize_added);
    if (raw.add_bos && (rendered.ids.empty() || rendered.ids.front() != bos_id))
        rendered.ids.insert(rendered.ids.begin(), bos_id);
    return rendered;
}

Result<Rendered> check_ids(const std::vector<TokenId>& ids, std::int64_t vocab_size) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
        if (ids[i] < 0 || ids[i] >= vocab_size)
            return invalid_argument(
                "Invalid 'prompt[{}]': token id {} is outside the vocabulary [0, {}).", i, ids[i],
                vocab_size);
    }
    return Rendered{.ids = ids};
}

// recipe.md 2.13.
Result<std::int64_t> output_budget(const std::optional<std::int64_t>& requested,
                                   std::int64_t default_tokens, std::int64_t prompt_tokens,
                                   const GenerationLimits& limits) {
    if (requested && (*requested < 1 || *requested > limits.max_tokens))
        return invalid_argument(
            "Invalid max_tokens value, the valid range of max_tokens is [1, {}]",
            limits.max_tokens);
    const std::int64_t context = limits.context_tokens;
    const std::int64_t completion = requested.value_or(0);
    if (completion > context - prompt_tokens || prompt_tokens > context)
        return invalid_argument(
            "This model's maximum context length is {} tokens. However, you requested {} tokens "
            "({} in the messages, {} in the completion). Please reduce the length of the messages "
            "or completion.",
            context, prompt_tokens + completion, prompt_tokens, completion);
    if (requested) return completion;
    return std::max<std::int64_t>(1, std::min(default_tokens, context - prompt_tokens));
}

}  // namespace

Status check_stop_strings(const std::vector<std::string>& stops, bool single) {
    if (stops.size() > kStopStringsMax)
        return invalid_argument("Stop string array too long: {}", stops.size());
    for (std::size_t i = 0; i < stops.size(); ++i) {
        if (!stops[i].empty()) continue;
        const std::string name = single ? "stop" : fmt::format("stop[{}]", i);
        return invalid_argument(
            "Invalid '{}': empty string. Expected a string with minimum length 1, but got an empty "
            "string instead.",
            name);
    }
    return {};
}

Result<PreparedRequest> prepare(const GenerationRequest& request, const Tokenizer& tokenizer,
                                const GenerationLimits& limits) {
    FATHOM_RETURN_IF_ERROR(validate_sampling(request.sampling, limits.vocab_size));
    if (request.choices < 1 || request.choices > static_cast<std::int64_t>(kChoicesMax))
        return invalid_argument("Invalid n value, the valid range of n is [1, {}]", kChoicesMax);
    FATHOM_RETURN_IF_ERROR(check_stop_strings(request.stop_strings, false));
    if (request.timeout_us < 0)
        return invalid_argument("timeout is {} us, expected 0 (none) or more", request.timeout_us);
    if (request.cache_salt.size() > kCacheSaltMax)
        return invalid_argument("Invalid 'cache_salt': expected 1 to {} bytes, got {}.",
                                kCacheSaltMax, request.cache_salt.size());
    for (const TokenId id : request.stop_tokens) {
        if (id < 0 || id >= limits.vocab_size)
            return invalid_argument("stop token {} is outside the vocabulary [0, {})", id,
                                    limits.vocab_size);
    }

    Rendered rendered;
    if (const auto* conversation = std::get_if<Conversation>(&request.prompt)) {
        FATHOM_ASSIGN(rendered, render(*conversation, tokenizer));
    } else if (const auto* raw = std::get_if<RawText>(&request.prompt)) {
        rendered = render(*raw, tokenizer, limits.bos_id);
    } else {
        FATHOM_ASSIGN(rendered,
                      check_ids(std::get<std::vector<TokenId>>(request.prompt), limits.vocab_size));
    }
    if (rendered.ids.empty())
        return invalid_argument("Invalid 'prompt': empty. Expected at least one token.");

    PreparedRequest prepared;
    FATHOM_ASSIGN(prepared.max_tokens,
                  output_budget(request.max_tokens, rendered.default_tokens,
                                static_cast<std::int64_t>(rendered.ids.size()), limits));
    if (request.sampling.min_tokens > prepared.max_tokens)
        return invalid_argument(
            "Invalid min_tokens value, the valid range of min_tokens is [0, {}], where max_tokens "
            "ends",
            prepared.max_tokens);
    prepared.prompt = std::move(rendered.ids);
    prepared.starts_in_thinking = rendered.starts_in_thinking;
    prepared.sampling = request.sampling;
    prepared.choices = request.choices;
    prepared.stop_strings = request.stop_strings;
    prepared.stop_tokens = request.stop_tokens;
    if (!request.ignore_eos) prepared.stop_tokens.push_back(limits.eos_id);
    prepared.timeout_us = request.timeout_us;
    prepared.reuse = request.reuse;
    prepared.cache_salt = request.cache_salt;
    return prepared;
}

void GenerationDelta::append(GenerationDelta next) {
    const auto add = [](std::vector<LogprobEntry>& to, std::vector<LogprobEntry>& from) {
        to.insert(to.end(), std::make_move_iterator(from.begin()),
                  std::make_move_iterator(from.end()));
    };
    reasoning += next.reasoning;
    content += next.content;
    add(reasoning_logprobs, next.reasoning_logprobs);
    add(content_logprobs, next.content_logprobs);
}

const char* generation_finish_name(GenerationFinish finish) {
    switch (finish) {
        case GenerationFinish::stop:
            return "stop";
        case GenerationFinish::length:
            return "length";
        case GenerationFinish::cancelled:
            return "cancelled";
        case GenerationFinish::deadline:
            return "deadline";
        case GenerationFinish::error:
            return "error";
    }
    FATHOM_CHECK(false);
    return "";
}

}  // namespace fathom
