// A batch: JSONL requests in, JSONL answers out, in input order. Requests run together, at most a
// window of them; a request that fails gets its error as its answer and the batch goes on, as does
// one whose id an earlier line has. What the output file already holds is not done again.
//
//   {"id": "a", "prompt": "Once", "max_tokens": 20}
//   → {"id": "a", "text": "…", "reasoning": null, "finish_reason": "stop", "usage": {…}}
//   → {"id": "a", "error": {"code": "invalid_argument", "message": "…"}}
//
// Several choices stand as objects of "index", "text", "reasoning" and "finish_reason" in
// "choices", in place of these. Calls of tools stand in "tool_calls", each "name" and "arguments".
// A request for log probabilities gets "logprobs" beside the text, in the shape of its API, and
// "logprobs_mode".
#pragma once

#include <cstdint>

#include "base/result.h"
#include "cli/interrupts.h"
#include "cli/settings.h"
#include "cli/stack.h"

namespace fathom {

struct BatchReport {
    std::int64_t skipped = 0;  // were in the output already
    std::int64_t answered = 0;
    std::int64_t failed = 0;  // answered with an error
    std::int64_t output_tokens = 0;
    bool interrupted = false;  // what is missing can be had by running the same batch again
};

Result<BatchReport> run_batch(const Settings& settings, Stack& stack, Interrupts& interrupts);

}  // namespace fathom
