// Runs one request and prints its answer as it comes, the end of every terminal program's turn. The
// answer goes to stdout, tool calls as lines "[call NAME] ARGUMENTS"; reasoning goes to stderr, or
// dimmed to stdout when both are one terminal.
// Several choices are printed one after the other when all are there, each behind a line "[i]". Log
// probabilities go to stderr, a line a token. SIGINT cancels the request.
#pragma once

#include <string>

#include "base/result.h"
#include "cli/interrupts.h"
#include "gateway/owner.h"

namespace fathom {

struct PrintedAnswer {
    std::string content;  // of the first choice
    GenerationResult result;
};

// A Status when the request could not be started; later failures are in the result.
Result<PrintedAnswer> print_answer(PreparedRequest request, OwnerRegistry& owners,
                                   Interrupts& interrupts, bool terminal);

}  // namespace fathom
