#include "gateway/inspection.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <vector>

#include "base/json.h"
#include "recipe/prompt.h"
#include "recipe/protocols/fields.h"

namespace fathom {

namespace {

void write_ids(JsonWriter& json, const std::vector<TokenId>& ids) {
    json.begin_array();
    for (const TokenId id : ids)
        json.value(static_cast<std::int64_t>(id));
    json.end_array();
}

std::string tokens_json(const std::vector<TokenId>& ids, const Tokenizer& tokenizer) {
    std::string text;
    JsonWriter json(text);
    json.begin_object().key("count").value(static_cast<std::int64_t>(ids.size())).key("ids");
    write_ids(json, ids);
    json.key("pieces").begin_array();
    for (const TokenId id : ids)
        json.value(tokenizer.decode(std::span(&id, 1)));
    json.end_array().end_object();
    return text;
}

std::string count_json(Inspection kind, std::size_t count) {
    std::string text;
    JsonWriter json(text);
    json.begin_object();
    if (kind == Inspection::count_responses) json.key("object").value("response.input_tokens");
    json.key("input_tokens").value(static_cast<std::int64_t>(count)).end_object();
    return text;
}

const char* stage_name(ThinkingStage stage) {
    static constexpr std::array<const char*, 4> kNames = {
        "none", "reasoning_start", "reasoning_continuation", "content_continuation"};
    return kNames[static_cast<std::size_t>(stage)];
}

const char* constraint_name(ConstraintKind kind) {
    static constexpr std::array<const char*, 5> kNames = {"none", "json", "regex", "tool_call",
                                                          "tool_call_required"};
    return kNames[static_cast<std::size_t>(kind)];
}

void write_settings(JsonWriter& json, const ApiRequest& request) {
    const SamplingParams& sampling = request.generation.sampling;
    const OutputConstraint& constraint = request.lowered.inference.output_constraint;
    json.key("settings").begin_object();
    json.key("max_tokens");
    if (request.generation.max_tokens) {
        json.value(*request.generation.max_tokens);
    } else {
        json.null();
    }
    json.key("temperature").value(sampling.temperature).key("top_p").value(sampling.top_p);
    json.key("top_k").value(sampling.top_k).key("min_p").value(sampling.min_p);
    json.key("seed");
    if (request.has_seed) {
        json.value(sampling.seed);
    } else {
        json.null();
    }
    json.key("frequency_penalty").value(sampling.frequency_penalty);
    json.key("presence_penalty").value(sampling.presence_penalty);
    json.key("repetition_penalty").value(sampling.repetition_penalty);
    json.key("min_tokens").value(sampling.min_tokens);
    json.key("logprobs").value(sampling.logprobs);
    json.key("n").value(request.generation.choices);
    json.key("constraint").begin_object().key("kind").value(constraint_name(constraint.kind));
    json.key("schema").value(constraint.schema).end_object();
    json.end_object();
}

void write_parsing(JsonWriter& json, const ParsingOptions& parsing) {
    json.key("parsing").begin_object();
    json.key("begins_in").value(stage_name(parsing.thinking_initial_stage));
    json.key("tool_calls").value(parsing.parse_tool_calls);
    json.key("begins_in_tool_calls").value(parsing.starts_in_tool_calls);
    json.key("json_output").value(parsing.parse_json_output);
    json.key("stop_sequences").begin_array();
    for (const std::string& stop : parsing.stop_sequences)
        json.value(stop);
    json.end_array().end_object();
}

Result<std::string> prompt_json(const ApiRequest& request, const Tokenizer& tokenizer) {
    const auto* conversation = std::get_if<Conversation>(&request.generation.prompt);
    if (conversation == nullptr)
        return invalid_argument("the body is no conversation: its prompt is what it says");
    FATHOM_ASSIGN(const std::vector<PromptSegment> segments,
                  render_prompt(*conversation, request.generation.render));
    FATHOM_ASSIGN(const std::vector<TokenId> ids,
                  encode_prompt(segments, tokenizer, request.generation.specials));
    std::string text;
    JsonWriter json(text);
    json.begin_object().key("model").value(request.lowered.model);
    json.key("prompt").value(prompt_text(segments)).key("segments").begin_array();
    for (const PromptSegment& segment : segments) {
        json.begin_object().key("special").value(segment.special);
        json.key("text").value(segment.text).end_object();
    }
    json.end_array().key("tokens").value(static_cast<std::int64_t>(ids.size()));
    json.key("thinking").value(conversation->thinking);
    write_settings(json, request);
    write_parsing(json, request.generation.parsing);
    json.end_object();
    return text;
}

// {"text", "special"}, or nothing when the body is a request.
Result<std::optional<std::string>> tokenized_text(std::string_view body,
                                                  const Tokenizer& tokenizer) {
    FATHOM_ASSIGN(Json parsed, parse_request_body(body, "an object"));
    FATHOM_ASSIGN(Fields fields, Fields::of(parsed, "an object"));
    const Json* text = fields.present("text");
    if (text == nullptr) {
        static constexpr std::array<std::string_view, 3> kOfRequests = {"messages", "input",
                                                                        "prompt"};
        const bool is_request =
            std::any_of(kOfRequests.begin(), kOfRequests.end(),
                        [&](std::string_view key) { return fields.present(key) != nullptr; });
        if (!is_request)
            return invalid_argument(
                "missing field `text`, or a request with `messages`, `input` "
                "or `prompt`");
        return std::optional<std::string>();
    }
    if (text->is_object()) return std::optional<std::string>();  // settings of a Responses body
    if (!text->is_string()) return wrong_type_of("text", *text, "a string");
    FATHOM_ASSIGN(const std::optional<bool> special, fields.optional_bool("special"));
    return std::optional<std::string>(
        tokens_json(tokenizer.encode(text->as_string(), special.value_or(false)), tokenizer));
}

}  // namespace

Result<std::string> inspect_request(const InspectionCall& call, const ApiOptions& options,
                                    const EarlierItems& earlier_items, const Tokenizer& tokenizer,
                                    const GenerationLimits& limits) {
    if (call.kind == Inspection::tokenize) {
        FATHOM_ASSIGN(std::optional<std::string> text, tokenized_text(call.body, tokenizer));
        if (text) return std::move(*text);
    }
    FATHOM_ASSIGN(const ApiRequest request,
                  read_api_request(call.api, call.body, options, earlier_items));
    if (call.kind == Inspection::prompt) return prompt_json(request, tokenizer);
    FATHOM_ASSIGN(const std::vector<TokenId> ids,
                  encode_request(request.generation, tokenizer, limits));
    if (call.kind == Inspection::tokenize) return tokens_json(ids, tokenizer);
    return count_json(call.kind, ids.size());
}

}  // namespace fathom
