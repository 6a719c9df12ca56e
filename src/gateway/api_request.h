// Request bodies of all POST routes to what the gateway runs, and to what builds their answers:
// lowering (recipe/protocols) on one side, AnswerBuilder on the other. Nothing here knows HTTP.
// Pure; any thread; safe on hostile input.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "gateway/generation.h"
#include "recipe/protocols/answer_builder.h"
#include "recipe/protocols/lower_options.h"
#include "recipe/protocols/lowered_request.h"
#include "recipe/protocols/responses_request.h"

namespace fathom {

enum class Api {
    chat,        // OpenAI Chat Completions
    completion,  // OpenAI Completions: prompts as they are
    messages,    // Anthropic Messages
    responses,   // OpenAI Responses
};

struct ApiOptions {
    LowerOptions lower = {.profile = Profile::open};
    RenderOptions render;  // the dialect is that of the models
    ContentSpecials specials = ContentSpecials::plain;
};

struct ApiRequest {
    Api api = Api::chat;
    LoweredRequest lowered;  // but for what went to `generation`: conversation, parsing
    GenerationRequest generation;
    bool has_seed = false;  // without one the caller draws a seed
    bool stores = false;    // a later request may name the response

    bool stream() const { return lowered.stream; }
};

// Errors are invalid_argument in the words of recipe.md 4, those of `earlier_items` as they are.
Result<ApiRequest> read_api_request(Api api, std::string_view body, const ApiOptions& options,
                                    const EarlierItems& earlier_items = {});

// What the answer of that id is built with. The clock is read now and at the end.
std::unique_ptr<AnswerBuilder> make_answer(const ApiRequest& request, std::string id,
                                           std::shared_ptr<const Tokenizer> tokenizer,
                                           const std::function<std::int64_t()>& unix_seconds);

}  // namespace fathom
