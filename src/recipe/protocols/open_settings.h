// Members of request bodies that only the profile `open` reads (docs/codec_profiles.md); they have
// the same names and ranges in all three protocols. Faults are invalid_argument and name the
// member, the value and the range.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "recipe/protocols/fields.h"
#include "recipe/protocols/lower_options.h"
#include "recipe/protocols/lowered_request.h"
#include "recipe/protocols/responses_events.h"

namespace fathom {

// Penalties, seed, top_k, min_p, logit_bias, the limits by token ids, and what concerns caches.
// Chat's own checks of penalties and seed come first, so that their faults are told in the
// reference's words.
Status read_open_settings(Fields& body, LoweredRequest& request);

// Chat `n`, in either profile.
Status check_choices(std::uint64_t choices, Profile profile);

// What Responses says about storing: `store`, `previous_response_id`.
Status read_stored_response(Fields& body, OpenSettings& open);
// What the response object repeats of the settings.
void repeat_open_settings(const OpenSettings& open, ResponsesEcho& echo);

}  // namespace fathom
