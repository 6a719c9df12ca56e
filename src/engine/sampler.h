// From logits to a token (SamplingParams in types.h says which tokens survive). Pure: the same
// logits, parameters and position give the same token on every machine, in any batch.
//
// The numbers, so that another implementation can repeat them:
//   order   tokens by descending logit, the lower id first among equals
//   weight  w = exp(float((logit − largest) / temperature)), the quotient in double, exp of
//           kernels/math.h; Z = Σ w in double, ids ascending
//   keep    a prefix of the order: the first top_k, while the mass before a token is <= top_p · Z,
//           while w >= min_p (the largest weight is 1). Masses are double sums in order.
//   draw    the first token whose mass up to and including it exceeds u · S, where S is the mass of
//           the prefix (Z when nothing was cut off) and u the draw of (seed, sample_token,
//           position, block)
// Damaged logits never crash: NaN counts as −inf, −inf is never drawn, +inf beats everything (the
// lowest such id), and when all are −inf the token is id 0.
#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"
#include "base/result.h"
#include "engine/types.h"

namespace fathom {

// Ranges as stated beside the fields; the message names field, value and range.
Status validate_sampling(const SamplingParams& params);

// `logits` holds at least one entry; `params` are valid. `position` is the absolute position of the
// token being drawn; block 0 without speculation.
TokenId sample_token(std::span<const float> logits, const SamplingParams& params,
                     std::int64_t position, std::uint32_t block = 0);

}  // namespace fathom
