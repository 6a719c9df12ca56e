// Transcripts: a request, the model's output as it comes, and what the client sees of it
// (tests/data/transcripts/README.md has the form). They are judged by people, not recorded from
// another implementation, so they show what matters: of each payload the part that is not the same
// in every answer, with the chunk that released it.
//
// Beside the recorded outcome each transcript is held to what all answers obey: sequence numbers
// count from 0, and an answer does not depend on how its text was cut (except for spaces in JSON
// mode).
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace fathom {

// The row with `events` and `answer` as the library gives them, or `refused` where the request is.
// invalid_argument says what is wrong with the row itself, or which rule the answer breaks.
Result<Json> transcript_outcome(const Json& row);

// For review: what goes in, and what comes out, one line an event.
std::string transcript_text(const Json& row);

struct TranscriptUpdate {
    std::string text;                  // the file with all outcomes as they are now
    std::vector<std::string> changed;  // transcript_text of each row that was another before
};
// Lines that are no transcripts stay as they are.
Result<TranscriptUpdate> update_transcripts(const std::string& path);

}  // namespace fathom
