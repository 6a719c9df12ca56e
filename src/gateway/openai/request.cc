#include "gateway/openai/request.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/json.h"
#include "gateway/openai/fields.h"
#include "gateway/openai/messages.h"

namespace fathom {

namespace {

Status check_model(const Json& body, const ApiOptions& options, ApiRequest& request) {
    FATHOM_ASSIGN(std::optional<std::string> model, string_field(body, "model"));
    if (!model) return invalid_argument("invalid request body: missing field `model`");
    request.model = std::move(*model);
    const auto& known = options.model_names;
    if (std::find(known.begin(), known.end(), request.model) != known.end()) return {};
    std::vector<std::string> names = known;
    std::sort(names.begin(), names.end());
    std::string list;
    for (const std::string& name : names)
        list += (list.empty() ? "" : ", ") + name;
    return invalid_argument("The supported API model names are {}, but you passed {}.", list,
                            request.model);
}

Status refuse_tools(const Json& body) {
    const Json* tools = field(body, "tools");
    if (tools == nullptr) return {};
    if (!tools->is_array()) return wrong_kind("tools", "an array", *tools);
    if (!tools->items().empty()) return not_supported("`tools` are");
    return {};
}

Status check_response_format(const Json& body) {
    const Json* format = field(body, "response_format");
    if (format == nullptr) return {};
    if (!format->is_object()) return wrong_kind("response_format", "an object", *format);
    FATHOM_ASSIGN(const std::optional<std::string> type, string_field(*format, "type"));
    if (!type)
        return invalid_argument("invalid request body: response_format: missing field `type`");
    if (*type == "text") return {};
    return not_supported(fmt::format("response_format `{}` is", *type));
}

Status read_thinking(const Json& body, Conversation& conversation) {
    struct Name {
        const char* name;
        ReasoningEffort effort;
    };
    static constexpr Name kEfforts[] = {
        {"none", ReasoningEffort::none}, {"minimal", ReasoningEffort::low},
        {"low", ReasoningEffort::low},   {"medium", ReasoningEffort::high},
        {"high", ReasoningEffort::high}, {"xhigh", ReasoningEffort::xhigh},
        {"ultra", ReasoningEffort::max}, {"max", ReasoningEffort::max}};
    std::optional<ReasoningEffort> effort;
    FATHOM_ASSIGN(const std::optional<std::string> effort_name,
                  string_field(body, "reasoning_effort"));
    if (effort_name) {
        for (const Name& known : kEfforts) {
            if (*effort_name == known.name) effort = known.effort;
        }
        if (!effort)
            return invalid_argument(
                "invalid request body: reasoning_effort: unknown variant `{}`, expected one of "
                "`none`, `minimal`, `low`, `medium`, `high`, `xhigh`, `ultra`, `max`",
                *effort_name);
    }

    std::optional<bool> enabled;
    if (const Json* thinking = field(body, "thinking")) {
        if (!thinking->is_object()) return wrong_kind("thinking", "an object", *thinking);
        FATHOM_ASSIGN(const std::optional<std::string> type, string_field(*thinking, "type"));
        if (!type) return invalid_argument("invalid request body: thinking: missing field `type`");
        if (*type != "enabled" && *type != "adaptive" && *type != "disabled")
            return invalid_argument(
                "invalid request body: thinking.type: unknown variant `{}`, expected one of "
                "`adaptive`, `enabled`, `disabled`",
                *type);
        FATHOM_RETURN_IF_ERROR(int_field(*thinking, "budget_tokens").status());  // not used
        enabled = *type != "disabled";
    }

    conversation.thinking =
        enabled.value_or(effort.value_or(ReasoningEffort::high) != ReasoningEffort::none);
    if (!conversation.thinking) {
        conversation.effort = ReasoningEffort::none;
    } else if (!effort || *effort == ReasoningEffort::none) {
        conversation.effort = ReasoningEffort::high;
    } else {
        conversation.effort = *effort;
    }
    return {};
}

Status read_stop(const Json& body, GenerationRequest& generation) {
    const Json* stop = field(body, "stop");
    if (stop == nullptr) return {};
    if (!stop->is_string() && !stop->is_array())
        return wrong_kind("stop", "a string or an array", *stop);
    if (stop->is_string()) {
        generation.stop_strings.push_back(stop->as_string());
    } else {
        for (std::size_t i = 0; i < stop->items().size(); ++i) {
            const Json& item = stop->items()[i];
            if (!item.is_string()) return wrong_kind(fmt::format("stop[{}]", i), "a string", item);
            generation.stop_strings.push_back(item.as_string());
        }
    }
    return check_stop_strings(generation.stop_strings, stop->is_string());
}

Status read_stream(const Json& body, ApiRequest& request) {
    FATHOM_ASSIGN(const std::optional<bool> stream, bool_field(body, "stream"));
    request.stream = stream.value_or(false);
    const Json* options = field(body, "stream_options");
    if (options == nullptr) return {};
    if (!options->is_object()) return wrong_kind("stream_options", "an object", *options);
    if (!request.stream)
        return invalid_argument("stream_options should be set along with stream = true");
    FATHOM_ASSIGN(const std::optional<bool> usage, bool_field(*options, "include_usage"));
    request.include_usage = usage.value_or(false);
    return {};
}

// Choices that are computed and not returned are no feature of this server: best_of must be n.
Status read_choices(const Json& body, const ApiOptions& options, ApiRequest& request) {
    FATHOM_ASSIGN(const std::optional<std::int64_t> n, int_field(body, "n"));
    std::int64_t& choices = request.generation.choices;
    choices = n.value_or(1);
    if (options.reference_sampling && choices != 1)
        return invalid_argument("Invalid n value (currently only n = 1 is supported)");
    if (choices < 1 || choices > static_cast<std::int64_t>(kChoicesMax))
        return invalid_argument("Invalid n value, the valid range of n is [1, {}]", kChoicesMax);
    if (request.kind == ApiKind::chat) return {};
    FATHOM_ASSIGN(const std::optional<std::int64_t> best_of, int_field(body, "best_of"));
    if (best_of.value_or(choices) != choices)
        return invalid_argument("Invalid best_of value (currently only best_of = n is supported)");
    return {};
}

// A number in [low, high], where `range` is how messages spell that. Written so that NaN fails.
Result<std::optional<double>> ranged(const Json& body, std::string_view name, double low,
                                     double high, std::string_view range) {
    FATHOM_ASSIGN(const std::optional<double> value, number_field(body, name));
    if (value && !(*value >= low && *value <= high))
        return invalid_argument("Invalid {} value, the valid range of {} is {}", name, name, range);
    return value;
}

constexpr std::uint64_t kTokenIdMax = (std::uint64_t{1} << 31) - 1;

Result<std::vector<TokenId>> parse_ids(std::string_view field_name, const Json::Array& items) {
    std::vector<TokenId> ids;
    ids.reserve(items.size());
    for (std::size_t i = 0; i < items.size(); ++i) {
        const std::string name = fmt::format("{}[{}]", field_name, i);
        if (!items[i].is_integer()) return wrong_kind(name, "a token id", items[i]);
        const std::optional<std::uint64_t> id = integer_up_to(items[i], kTokenIdMax);
        if (!id) return invalid_argument("Invalid '{}': expected a token id in [0, 2^31)", name);
        ids.push_back(static_cast<TokenId>(*id));
    }
    if (ids.empty())
        return invalid_argument("Invalid '{}': empty. Expected at least one token.", field_name);
    return ids;
}

Status read_penalties(const Json& body, SamplingParams& sampling) {
    FATHOM_ASSIGN(const std::optional<double> presence,
                  ranged(body, "presence_penalty", -2, 2, "[-2, 2]"));
    FATHOM_ASSIGN(const std::optional<double> frequency,
                  ranged(body, "frequency_penalty", -2, 2, "[-2, 2]"));
    FATHOM_ASSIGN(const std::optional<double> repetition,
                  ranged(body, "repetition_penalty", 0.01, 10, "[0.01, 10]"));
    sampling.presence_penalty = presence.value_or(0.0);
    sampling.frequency_penalty = frequency.value_or(0.0);
    sampling.repetition_penalty = repetition.value_or(1.0);
    return {};
}

// {"token id": bias}
Status read_logit_bias(const Json& body, SamplingParams& sampling) {
    const Json* biases = field(body, "logit_bias");
    if (biases == nullptr) return {};
    if (!biases->is_object()) return wrong_kind("logit_bias", "an object", *biases);
    const Json::Object& members = biases->members();
    if (members.size() > kLogitBiasMax)
        return invalid_argument("Invalid logit_bias: {} entries, at most {} are allowed",
                                members.size(), kLogitBiasMax);
    for (const auto& [name, value] : members) {
        std::uint64_t id = 0;
        const char* end = name.data() + name.size();
        const auto [stop, fault] = std::from_chars(name.data(), end, id);
        if (fault != std::errc() || stop != end || id > kTokenIdMax)
            return invalid_argument(
                "Invalid logit_bias key {}: expected a token id in [0, 2^31) as a string",
                Json(name).dump());
        if (!value.is_number()) return wrong_kind("logit_bias." + name, "a number", value);
        const double bias = value.as_double();
        if (!(bias >= -100 && bias <= 100))
            return invalid_argument(
                "Invalid logit_bias value of token {}, the valid range of logit_bias is "
                "[-100, 100]",
                id);
        sampling.logit_bias.push_back(
            {.id = static_cast<TokenId>(id), .bias = static_cast<float>(bias)});
    }
    return {};
}

// min_tokens and allowed_token_ids, which other servers offer under these names.
Status read_token_limits(const Json& body, SamplingParams& sampling) {
    FATHOM_ASSIGN(const std::optional<std::int64_t> min_tokens, int_field(body, "min_tokens"));
    sampling.min_tokens = min_tokens.value_or(0);
    if (sampling.min_tokens < 0)
        return invalid_argument("Invalid min_tokens value, expected 0 or a positive number");
    const Json* allowed = field(body, "allowed_token_ids");
    if (allowed == nullptr) return {};
    if (!allowed->is_array())
        return wrong_kind("allowed_token_ids", "an array of token ids", *allowed);
    if (allowed->items().size() > kAllowedTokensMax)
        return invalid_argument("Invalid allowed_token_ids: {} entries, at most {} are allowed",
                                allowed->items().size(), kAllowedTokensMax);
    FATHOM_ASSIGN(sampling.allowed_tokens, parse_ids("allowed_token_ids", allowed->items()));
    return {};
}

Status read_sampling(const Json& body, SamplingParams& sampling) {
    FATHOM_RETURN_IF_ERROR(read_penalties(body, sampling));
    FATHOM_ASSIGN(const std::optional<double> temperature,
                  ranged(body, "temperature", 0, 2, "[0, 2]"));
    FATHOM_ASSIGN(const std::optional<double> top_p, ranged(body, "top_p", 0, 1, "(0, 1.0]"));
    if (top_p && !(*top_p > 0))
        return invalid_argument("Invalid top_p value, the valid range of top_p is (0, 1.0]");
    FATHOM_ASSIGN(const std::optional<double> min_p, ranged(body, "min_p", 0, 1, "[0, 1]"));
    FATHOM_ASSIGN(const std::optional<std::int64_t> top_k, int_field(body, "top_k"));
    if (top_k && *top_k < -1)
        return invalid_argument(
            "Invalid top_k value, expected a positive number, or 0 or -1 for no limit");
    sampling.temperature = temperature.value_or(1.0);
    sampling.top_p = top_p.value_or(1.0);
    sampling.min_p = min_p.value_or(0.0);
    sampling.top_k = std::max<std::int64_t>(0, top_k.value_or(0));
    FATHOM_RETURN_IF_ERROR(read_logit_bias(body, sampling));
    return read_token_limits(body, sampling);
}

// A chat says `logprobs`: true and how many others in `top_logprobs`; a completion says how many in
// `logprobs`.
Status read_logprobs(const Json& body, ApiKind kind, SamplingParams& sampling) {
    FATHOM_ASSIGN(const std::optional<std::string> mode, string_field(body, "logprobs_mode"));
    if (mode && *mode != "raw" && *mode != "processed")
        return invalid_argument(
            "invalid request body: logprobs_mode: unknown variant `{}`, expected one of `raw`, "
            "`processed`",
            *mode);
    sampling.logprobs_processed = mode.value_or("raw") == "processed";
    if (field(body, "prompt_logprobs") != nullptr) return not_supported("`prompt_logprobs` is");
    if (kind == ApiKind::completion) {
        FATHOM_ASSIGN(const std::optional<std::int64_t> count, int_field(body, "logprobs"));
        if (count && (*count < 0 || *count > kTopLogprobsMax))
            return invalid_argument(
                "Invalid logprobs value, the valid range of logprobs is [0, {}].", kTopLogprobsMax);
        sampling.logprobs = count.value_or(-1);
        return {};
    }
    FATHOM_ASSIGN(const std::optional<bool> logprobs, bool_field(body, "logprobs"));
    FATHOM_ASSIGN(const std::optional<std::int64_t> top, int_field(body, "top_logprobs"));
    if (top && (*top < 0 || *top > kTopLogprobsMax))
        return invalid_argument(
            "Invalid top_logprobs value, the valid range of top_logprobs is [0, {}].",
            kTopLogprobsMax);
    if (top && !logprobs.value_or(false))
        return invalid_argument(
            "Invalid top_logprobs and logprobs value, logprobs must be set to true if top_logprobs "
            "is used.");
    if (logprobs.value_or(false)) sampling.logprobs = top.value_or(0);
    return {};
}

// `max_completion_tokens` is what newer OpenAI clients send; `max_tokens` wins.
Status read_max_tokens(const Json& body, const ApiOptions& options, GenerationRequest& generation) {
    FATHOM_ASSIGN(generation.max_tokens, int_field(body, "max_tokens"));
    if (!generation.max_tokens) {
        FATHOM_ASSIGN(generation.max_tokens, int_field(body, "max_completion_tokens"));
    }
    if (generation.max_tokens &&
        (*generation.max_tokens < 1 || *generation.max_tokens > options.max_tokens))
        return invalid_argument(
            "Invalid max_tokens value, the valid range of max_tokens is [1, {}]",
            options.max_tokens);
    // For measurements, as other servers have it: the answer runs to max_tokens.
    FATHOM_ASSIGN(const std::optional<bool> ignore_eos, bool_field(body, "ignore_eos"));
    generation.ignore_eos = ignore_eos.value_or(false);
    return {};
}

constexpr std::uint64_t kSeedMax = (std::uint64_t{1} << 63) - 1;
Status read_seed(const Json& body, ApiRequest& request) {
    const Json* value = field(body, "seed");
    if (value == nullptr) return {};
    if (!value->is_integer()) return wrong_kind("seed", "an integer", *value);
    const std::optional<std::uint64_t> seed = integer_up_to(*value, kSeedMax);
    if (!seed) return invalid_argument("Invalid seed value, the valid range of seed is [0, 2^63)");
    request.generation.sampling.seed = *seed;
    request.has_seed = true;
    return {};
}

// Read after the seed: who gives one wants the same answer again, whatever others left in the
// cache.
Status read_reuse(const Json& body, ApiRequest& request) {
    GenerationRequest& generation = request.generation;
    generation.reuse = request.has_seed ? PrefixReuse::exact : PrefixReuse::any;
    FATHOM_ASSIGN(const std::optional<std::string> reuse, string_field(body, "prefix_cache"));
    if (reuse == "any") {
        generation.reuse = PrefixReuse::any;
    } else if (reuse == "exact") {
        generation.reuse = PrefixReuse::exact;
    } else if (reuse == "none") {
        generation.reuse = PrefixReuse::none;
    } else if (reuse) {
        return invalid_argument(
            "invalid request body: prefix_cache: unknown variant `{}`, expected one of `any`, "
            "`exact`, `none`",
            *reuse);
    }
    FATHOM_ASSIGN(const std::optional<std::string> salt, string_field(body, "cache_salt"));
    if (!salt) return {};
    if (salt->empty() || salt->size() > kCacheSaltMax)
        return invalid_argument("Invalid 'cache_salt': expected 1 to {} bytes, got {}.",
                                kCacheSaltMax, salt->size());
    generation.cache_salt = *salt;
    return {};
}

Status read_chat(const Json& body, ApiRequest& request) {
    FATHOM_RETURN_IF_ERROR(refuse_tools(body));
    const Json* messages = body.find("messages");
    if (messages == nullptr)
        return invalid_argument("invalid request body: missing field `messages`");
    if (!messages->is_array()) return wrong_kind("messages", "an array", *messages);
    Conversation conversation;
    FATHOM_ASSIGN(conversation.messages, parse_messages(*messages));
    FATHOM_RETURN_IF_ERROR(read_thinking(body, conversation));
    request.thinking = conversation.thinking;
    request.generation.prompt = std::move(conversation);
    return check_response_format(body);
}

// A text, a list of token ids, or a list of one of these.
Status read_prompt(const Json& body, GenerationRequest& generation) {
    const Json* prompt = field(body, "prompt");
    if (prompt == nullptr) return invalid_argument("invalid request body: missing field `prompt`");
    if (prompt->is_array() && !prompt->items().empty() &&
        (prompt->items().front().is_string() || prompt->items().front().is_array())) {
        if (prompt->items().size() > 1)
            return not_supported(fmt::format("A list of {} prompts is", prompt->items().size()));
        prompt = &prompt->items().front();
    }
    if (prompt->is_string()) {
        // The whole prompt is the client's, so special tokens that it spells are meant.
        generation.prompt = RawText{.text = prompt->as_string(), .recognize_added = true};
        return {};
    }
    if (!prompt->is_array())
        return wrong_kind("prompt", "a string or an array of token ids", *prompt);
    FATHOM_ASSIGN(generation.prompt, parse_ids("prompt", prompt->items()));
    return {};
}

Status read_completion(const Json& body, ApiRequest& request) {
    FATHOM_RETURN_IF_ERROR(read_prompt(body, request.generation));
    FATHOM_ASSIGN(const std::optional<std::string> suffix, string_field(body, "suffix"));
    if (suffix && !suffix->empty()) return not_supported("`suffix` is");
    FATHOM_ASSIGN(const std::optional<bool> echo, bool_field(body, "echo"));
    if (echo.value_or(false)) return not_supported("`echo` is");
    return {};
}

// recipe.md 4.1, "Sampling after conversion", V4.1. What the service does not pass on has no
// effect.
void apply_reference_sampling(ApiRequest& request) {
    if (request.kind != ApiKind::chat) return;
    SamplingParams& sampling = request.generation.sampling;
    const SamplingParams given = sampling;
    sampling = {};
    sampling.temperature = given.temperature;
    sampling.top_p = given.top_p;
    sampling.seed = given.seed;
    sampling.logprobs = given.logprobs;
    sampling.logprobs_processed = given.logprobs_processed;
    if (request.thinking) {
        sampling.temperature = 1.0;
        sampling.top_p = std::max(0.95, sampling.top_p);
    } else {
        sampling.top_p = 1.0;
    }
}

}  // namespace

Result<ApiRequest> parse_api_request(ApiKind kind, std::string_view text,
                                     const ApiOptions& options) {
    Result<Json> parsed = parse_json(text);
    if (!parsed.ok())
        return invalid_argument("invalid JSON request: {}", parsed.status().message());
    const Json& body = *parsed;
    if (!body.is_object())
        return invalid_argument("invalid request body: expected an object, got {}",
                                body.kind_name());
    ApiRequest request;
    request.kind = kind;
    FATHOM_RETURN_IF_ERROR(check_model(body, options, request));
    FATHOM_RETURN_IF_ERROR(kind == ApiKind::chat ? read_chat(body, request)
                                                 : read_completion(body, request));
    FATHOM_RETURN_IF_ERROR(read_stop(body, request.generation));
    FATHOM_RETURN_IF_ERROR(read_stream(body, request));
    FATHOM_RETURN_IF_ERROR(read_choices(body, options, request));
    FATHOM_RETURN_IF_ERROR(read_sampling(body, request.generation.sampling));
    FATHOM_RETURN_IF_ERROR(read_logprobs(body, kind, request.generation.sampling));
    FATHOM_RETURN_IF_ERROR(read_max_tokens(body, options, request.generation));
    FATHOM_RETURN_IF_ERROR(read_seed(body, request));
    FATHOM_RETURN_IF_ERROR(read_reuse(body, request));
    if (options.reference_sampling) apply_reference_sampling(request);
    return request;
}

}  // namespace fathom
