// Checks rows of recorded results, each of one form, against what the library gives. A check is
// pure; its outcome says how ours differs, or why the row says nothing about this library.
#pragma once

#include <string>

#include "base/json.h"

namespace fathom {

struct RowOutcome {
    enum class Kind { passed, failed, skipped };
    Kind kind = Kind::passed;
    std::string detail = {};  // the first difference, or the reason

    // Empty: passed.
    static RowOutcome of(std::string difference);
    static RowOutcome skip(std::string reason) { return {Kind::skipped, std::move(reason)}; }
};

// prompts.jsonl: a request with its facts and its prompt, or a conversation in both dialects. In
// the profile `open` sampling may differ, and is not compared.
RowOutcome check_accepted_request(const Json& row);
RowOutcome check_conversation(const Json& row);
// errors.jsonl. Messages of bodies that could not be read are not compared.
RowOutcome check_refused_request(const Json& row);
// codec_profiles.jsonl: what both profiles make of a request, as an error message or as some of its
// facts by path.
RowOutcome check_profiles(const Json& row);

}  // namespace fathom
