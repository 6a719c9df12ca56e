// From logits to a token (SamplingParams in types.h says the rule). Pure: the same logits,
// parameters and position give the same token on every machine, in any batch. fp32 softmax with the
// project's own exp, cumulative masses in double in descending order.
#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"
#include "base/result.h"
#include "engine/types.h"

namespace fathom {

// Ranges as stated beside the fields; the message names field, value and range.
Status validate_sampling(const SamplingParams& params);

// `position` is the absolute position of the token being drawn; block 0 without speculation.
TokenId sample_token(std::span<const float> logits, const SamplingParams& params,
                     std::int64_t position, std::uint32_t block = 0);

}  // namespace fathom
