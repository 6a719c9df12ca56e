#include "gateway/generation.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/sampler.h"
#include "recipe/output_budget.h"

namespace fathom {

namespace {

constexpr std::int64_t kDefaultRawTokens = 16;

// Whether a prompt that cannot fit is encoded all the same, to be counted or shown.
enum class Beyond { encoded, refused };

Status check_prompt_bytes(std::size_t bytes, const GenerationLimits& limits) {
    if (limits.token_bytes_max == 0) return {};
    const auto tokens_min = static_cast<std::int64_t>(bytes / limits.token_bytes_max);
    if (tokens_min <= limits.context_tokens) return {};
    return invalid_argument(
        "This model's maximum context length is {} tokens. However, you requested at least {} "
        "tokens ({} bytes in the messages). Please reduce the length of the messages or "
        "completion.",
        limits.context_tokens, tokens_min, bytes);
}

Result<std::vector<TokenId>> encode(const GenerationRequest& request, const Conversation& text,
                                    const Tokenizer& tokenizer, const GenerationLimits& limits,
                                    Beyond beyond) {
    FATHOM_ASSIGN(const std::vector<PromptSegment> segments, render_prompt(text, request.render));
    std::size_t bytes = 0;
    for (const PromptSegment& segment : segments)
        bytes += segment.text.size();
    if (beyond == Beyond::refused) FATHOM_RETURN_IF_ERROR(check_prompt_bytes(bytes, limits));
    return encode_prompt(segments, tokenizer, request.specials);
}

Result<std::vector<TokenId>> encode(const GenerationRequest& request, const RawText& raw,
                                    const Tokenizer& tokenizer, const GenerationLimits& limits,
                                    Beyond beyond) {
    if (beyond == Beyond::refused) {
        const std::size_t bytes = raw.text.size() + (raw.suffix ? raw.suffix->size() : 0);
        FATHOM_RETURN_IF_ERROR(check_prompt_bytes(bytes, limits));
    }
    if (raw.suffix) {
        const std::vector<PromptSegment> segments =
            render_completion_prompt(raw.text, raw.suffix, request.render.tokens);
        for (const PromptSegment& segment : segments) {
            if (segment.special && !tokenizer.added_id(segment.text))
                return invalid_argument(
                    "Invalid 'suffix': this model cannot fill in, it has no token {}.",
                    segment.text);
        }
        return encode_prompt(segments, tokenizer);
    }
    std::vector<TokenId> ids = tokenizer.encode(raw.text, raw.recognize_added);
    if (raw.add_bos && (ids.empty() || ids.front() != limits.bos_id))
        ids.insert(ids.begin(), limits.bos_id);
    return ids;
}

Result<std::vector<TokenId>> encode(const GenerationRequest& /*request*/,
                                    const std::vector<TokenId>& ids, const Tokenizer& /*tokenizer*/,
                                    const GenerationLimits& limits, Beyond /*beyond*/) {
    const std::int64_t vocab_size = limits.vocab_size;
    for (std::size_t i = 0; i < ids.size(); ++i) {
        if (ids[i] < 0 || ids[i] >= vocab_size)
            return invalid_argument(
                "Invalid 'prompt[{}]': token id {} is outside the vocabulary [0, {}).", i, ids[i],
                vocab_size);
    }
    return ids;
}

Result<std::vector<TokenId>> encode(const GenerationRequest& request, const Tokenizer& tokenizer,
                                    const GenerationLimits& limits, Beyond beyond) {
    return std::visit(
        [&](const auto& prompt) { return encode(request, prompt, tokenizer, limits, beyond); },
        request.prompt);
}

Result<std::int64_t> output_budget(const GenerationRequest& request, std::size_t prompt_tokens,
                                   const GenerationLimits& limits) {
    const std::optional<std::int64_t>& requested = request.max_tokens;
    const auto* conversation = std::get_if<Conversation>(&request.prompt);
    FATHOM_ASSIGN(const std::int64_t budget,
                  resolve_output_budget({.prompt_tokens = static_cast<std::int64_t>(prompt_tokens),
                                         .context_tokens_max = limits.context_tokens,
                                         .max_tokens = requested},
                                        conversation != nullptr ? *conversation : Conversation()));
    const bool by_default = conversation == nullptr && !requested;
    return by_default ? std::min(kDefaultRawTokens, budget) : budget;
}

}  // namespace

Result<std::vector<TokenId>> encode_request(const GenerationRequest& request,
                                            const Tokenizer& tokenizer,
                                            const GenerationLimits& limits) {
    return encode(request, tokenizer, limits, Beyond::encoded);
}

Result<PreparedRequest> prepare(const GenerationRequest& request, const Tokenizer& tokenizer,
                                const GenerationLimits& limits) {
    FATHOM_RETURN_IF_ERROR(validate_sampling(request.sampling, limits.vocab_size));
    if (request.choices < 1 || request.choices > static_cast<std::int64_t>(kChoicesMax))
        return invalid_argument("Invalid n value, the valid range of n is [1, {}]", kChoicesMax);
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

    const std::optional<std::int64_t>& max_tokens = request.max_tokens;
    if (max_tokens && (*max_tokens < 1 || *max_tokens > limits.max_tokens))
        return invalid_argument(
            "Invalid max_tokens value, the valid range of max_tokens is [1, {}]",
            limits.max_tokens);

    PreparedRequest prepared;
    FATHOM_ASSIGN(prepared.prompt, encode(request, tokenizer, limits, Beyond::refused));
    if (prepared.prompt.empty())
        return invalid_argument("Invalid 'prompt': empty. Expected at least one token.");
    FATHOM_ASSIGN(prepared.max_tokens, output_budget(request, prepared.prompt.size(), limits));
    if (request.sampling.min_tokens > prepared.max_tokens)
        return invalid_argument(
            "Invalid min_tokens value, the valid range of min_tokens is [0, {}], where max_tokens "
            "ends",
            prepared.max_tokens);
    ParsingOptions parsing = request.parsing;
    parsing.stops_after_tokens = request.sampling.min_tokens;
    parsing.silent_ids = {limits.eos_id};  // seen only where it does not end the answer
    prepared.output_rules = std::make_shared<const OutputRules>(parsing);
    prepared.sampling = request.sampling;
    prepared.choices = request.choices;
    prepared.stop_tokens = request.stop_tokens;
    if (!request.ignore_eos) prepared.stop_tokens.push_back(limits.eos_id);
    prepared.timeout_us = request.timeout_us;
    prepared.reuse = request.reuse;
    prepared.cache_salt = request.cache_salt;
    prepared.sharing = request.sharing;
    const bool thinks = request.parsing.thinking_initial_stage != ThinkingStage::none;
    prepared.persist_output = request.sharing.traffic_class != TrafficClass::chatbot || !thinks;
    return prepared;
}

ParsingOptions raw_output() {
    ParsingOptions options;
    options.thinking_initial_stage = ThinkingStage::content_continuation;
    // Text is UTF-8, so it never has this byte: nothing ends a thinking section.
    options.thinking_end.assign(1, '\xff');
    return options;
}

void AnswerText::add(const OutputEvent& event) {
    const auto append = [](std::vector<TokenLogprob>& to, const std::vector<TokenLogprob>& from) {
        to.insert(to.end(), from.begin(), from.end());
    };
    switch (event.kind) {
        case OutputEvent::Kind::content:
            content += event.text;
            return append(content_logprobs, event.logprobs);
        case OutputEvent::Kind::reasoning:
            reasoning += event.text;
            return append(reasoning_logprobs, event.logprobs);
        case OutputEvent::Kind::tool_call:
            calls.push_back({.name = event.text});
            return;
        case OutputEvent::Kind::arguments:
            calls.back().arguments += event.text;
            return;
        case OutputEvent::Kind::start:
        case OutputEvent::Kind::finish:
            return;
    }
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
