#include "cli/requests.h"

#include "gateway/api_request.h"

namespace fathom {
namespace {

bool given(const Json& body, std::string_view name) {
    const Json* value = body.find(name);
    return value != nullptr && !value->is_null();
}

void set_default(Json& body, std::string_view name, Json value) {
    if (!given(body, name)) body.set(name, std::move(value));
}

// {"ID": BIAS} from words ID=BIAS; what is no number is left for the request's parser to refuse.
Json bias_body(const std::vector<std::string>& words) {
    Json biases = Json::object();
    for (const std::string& word : words) {
        const std::size_t sign = word.find('=');
        const Result<Json> bias =
            parse_json(sign == std::string::npos ? "null" : word.substr(sign + 1));
        biases.set(word.substr(0, sign), bias.ok() ? *bias : Json(word));
    }
    return biases;
}

void set_logprobs(Json& body, const Settings::Generate& generate) {
    set_default(body, "logprobs_mode", Json(generate.logprobs_mode));
    if (given(body, "logprobs") || generate.logprobs < 0) return;
    if (given(body, "messages")) {
        body.set("logprobs", Json(true));
        body.set("top_logprobs", Json(generate.logprobs));
    } else {
        body.set("logprobs", Json(generate.logprobs));
    }
}

void set_defaults(Json& body, const Settings& settings) {
    const Settings::Sampling& sampling = settings.sampling;
    set_default(body, "temperature", Json(sampling.temperature));
    set_default(body, "top_p", Json(sampling.top_p));
    set_default(body, "top_k", Json(sampling.top_k));
    set_default(body, "min_p", Json(sampling.min_p));
    set_default(body, "seed", Json(sampling.seed));
    set_default(body, "frequency_penalty", Json(sampling.frequency_penalty));
    set_default(body, "presence_penalty", Json(sampling.presence_penalty));
    set_default(body, "repetition_penalty", Json(sampling.repetition_penalty));
    set_default(body, "min_tokens", Json(sampling.min_tokens));
    if (!sampling.logit_bias.empty())
        set_default(body, "logit_bias", bias_body(sampling.logit_bias));
    set_default(body, "n", Json(settings.generate.choices));
    set_logprobs(body, settings.generate);
    if (sampling.max_tokens > 0 && !given(body, "max_completion_tokens"))
        set_default(body, "max_tokens", Json(sampling.max_tokens));
    if (!sampling.stop.empty() && !given(body, "stop")) {
        for (const std::string& stop : sampling.stop) {
            Json list = given(body, "stop") ? *body.find("stop") : Json::array();
            list.push_back(Json(stop));
            body.set("stop", std::move(list));
        }
    }
}

}  // namespace

Json thinking_body(bool enabled) {
    return Json::object({{"type", Json(enabled ? "enabled" : "disabled")}});
}

Result<PreparedRequest> prepare_request(Json body, const Settings& settings,
                                        const std::string& model_name,
                                        const OwnerRegistry& owners) {
    if (!body.is_object())
        return invalid_argument("expected a JSON object, got {}", body.kind_name());
    const bool chat = given(body, "messages");
    if (!chat && !given(body, "prompt"))
        return invalid_argument("the request has neither `prompt` nor `messages`");
    set_default(body, "model", Json(model_name));
    set_defaults(body, settings);
    if (chat && !given(body, "reasoning_effort"))
        set_default(body, "thinking", thinking_body(settings.chat.thinking));
    // How an answer travels is the HTTP server's concern.
    body.set("stream", Json(false));
    body.set("stream_options", Json());
    ApiOptions options = api_options(settings);
    options.lower.models = {{model_name, options.render.dialect}};
    options.lower.thinking_max_tokens = options.lower.chat_max_tokens = owners.limits().max_tokens;
    FATHOM_ASSIGN(const ApiRequest request,
                  read_api_request(chat ? Api::chat : Api::completion, body.dump(), options));
    return prepare(request.generation, *owners.tokenizer(), owners.limits());
}

}  // namespace fathom
