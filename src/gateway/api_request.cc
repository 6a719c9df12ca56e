#include "gateway/api_request.h"

#include <utility>

#include "gateway/completion_events.h"
#include "gateway/completion_request.h"
#include "gateway/random_id.h"
#include "recipe/protocols/chat_events.h"
#include "recipe/protocols/chat_request.h"
#include "recipe/protocols/messages_events.h"
#include "recipe/protocols/messages_request.h"

namespace fathom {

namespace {

// What of the settings decides the tokens.
SamplingParams sampling_of(const LoweredRequest& lowered) {
    const InferenceSettings& inference = lowered.inference;
    const OpenSettings& open = lowered.open;
    SamplingParams sampling;
    sampling.temperature = inference.temperature;
    sampling.top_p = inference.top_p;
    sampling.top_k = open.top_k;
    sampling.min_p = open.min_p;
    sampling.seed = static_cast<std::uint64_t>(inference.seed.value_or(0));
    sampling.frequency_penalty = open.frequency_penalty;
    sampling.presence_penalty = open.presence_penalty;
    sampling.repetition_penalty = open.repetition_penalty;
    for (const auto& [id, bias] : open.logit_bias)
        sampling.logit_bias.push_back(
            {.id = static_cast<TokenId>(id), .bias = static_cast<float>(bias)});
    sampling.allowed_tokens.assign(open.allowed_token_ids.begin(), open.allowed_token_ids.end());
    sampling.min_tokens = open.min_tokens;
    if (inference.logprobs) sampling.logprobs = inference.top_logprobs.value_or(0);
    sampling.logprobs_processed = open.logprobs_processed;
    return sampling;
}

// Who gives a seed wants the same answer again, whatever others left in the cache.
PrefixReuse reuse_of(const LoweredRequest& lowered) {
    const std::optional<std::string>& asked = lowered.open.prefix_cache;
    if (!asked) return lowered.inference.seed ? PrefixReuse::exact : PrefixReuse::any;
    if (*asked == "none") return PrefixReuse::none;
    return *asked == "exact" ? PrefixReuse::exact : PrefixReuse::any;
}

void settle_generation(ApiRequest& request, const ApiOptions& options) {
    LoweredRequest& lowered = request.lowered;
    GenerationRequest& generation = request.generation;
    generation.render = options.render;
    generation.render.dialect = lowered.dialect;
    generation.specials = options.specials;
    generation.sampling = sampling_of(lowered);
    generation.choices = lowered.open.choices;
    generation.max_tokens = lowered.inference.max_tokens;
    generation.stop_tokens.assign(lowered.open.stop_token_ids.begin(),
                                  lowered.open.stop_token_ids.end());
    generation.ignore_eos = lowered.open.ignore_eos;
    generation.reuse = reuse_of(lowered);
    generation.cache_salt = lowered.open.cache_salt;
    request.has_seed = lowered.inference.seed.has_value();
    request.stores = request.api == Api::responses && options.lower.profile == Profile::open &&
                     lowered.open.store;
}

Result<LoweredRequest> lower(Api api, std::string_view body, const ApiOptions& options,
                             const EarlierItems& earlier_items) {
    if (api == Api::messages) return lower_messages_request(body, options.lower);
    if (api == Api::responses) return lower_responses_request(body, options.lower, earlier_items);
    return lower_chat_request(body, options.lower);
}

}  // namespace

Result<ApiRequest> read_api_request(Api api, std::string_view body, const ApiOptions& options,
                                    const EarlierItems& earlier_items) {
    ApiRequest request;
    request.api = api;
    if (api == Api::completion) {
        FATHOM_ASSIGN(CompletionRequest completion, lower_completion_request(body, options.lower));
        request.lowered = std::move(completion.settings);
        request.generation.parsing = raw_output();
        request.generation.parsing.stop_sequences =
            std::move(request.lowered.parsing.stop_sequences);
        std::visit([&](auto& prompt) { request.generation.prompt = std::move(prompt); },
                   completion.prompt);
    } else {
        FATHOM_ASSIGN(request.lowered, lower(api, body, options, earlier_items));
        if (!request.lowered.image_sources.empty())
            return invalid_argument("{}: images are not supported: this server has no vision model",
                                    request.lowered.image_sources.front().path);
        request.generation.parsing = std::move(request.lowered.parsing);
        request.generation.prompt = std::move(request.lowered.conversation);
    }
    settle_generation(request, options);
    return request;
}

std::unique_ptr<AnswerBuilder> make_answer(const ApiRequest& request, std::string id,
                                           std::shared_ptr<const Tokenizer> tokenizer,
                                           const std::function<std::int64_t()>& unix_seconds) {
    const LoweredRequest& lowered = request.lowered;
    AnswerSettings settings;
    settings.id = std::move(id);
    settings.created = unix_seconds();
    settings.call_ids = random_call_ids(random_seed());
    settings.tokenizer = std::move(tokenizer);
    settings.model = lowered.model;
    settings.stream = lowered.stream;
    settings.thinking = request.generation.parsing.thinking_initial_stage;
    switch (request.api) {
        case Api::chat:
            return make_chat_answer(std::move(settings), {.include_usage = lowered.include_usage,
                                                          .choices = lowered.open.choices});
        case Api::completion:
            return make_completion_answer(
                std::move(settings), {.include_usage = lowered.include_usage,
                                      .choices = lowered.open.choices,
                                      .top_logprobs = request.generation.sampling.logprobs > 0});
        case Api::messages:
            return make_messages_answer(std::move(settings));
        case Api::responses: {
            ResponsesAnswerOptions options = lowered.responses;
            options.unix_seconds = unix_seconds;
            return make_responses_answer(std::move(settings), std::move(options));
        }
    }
    return nullptr;
}

}  // namespace fathom
