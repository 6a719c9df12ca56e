// OpenAI Responses request bodies, lowered (recipe.md 4.5).
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "recipe/protocols/lower_options.h"
#include "recipe/protocols/lowered_request.h"

namespace fathom {

// The items that an earlier response stands for: those it was asked with, which include what came
// before them, and those of its answer. Errors are passed on as they are.
using EarlierItems = std::function<Result<Json::Array>(const std::string& response_id)>;

// As lower_chat_request. In the profile `open` the items of `previous_response_id` are asked for
// and stand in front of the input; without `earlier_items` the id is only passed on.
Result<LoweredRequest> lower_responses_request(std::string_view body, const LowerOptions& options,
                                               const EarlierItems& earlier_items = {});

}  // namespace fathom
