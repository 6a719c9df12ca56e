// Checks rows of recorded results, each of one form, against what the library gives. A check is
// pure; its outcome says how ours differs, or why the row says nothing about this library.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/json.h"
#include "recipe/tokenizer.h"

namespace fathom {

struct RowOutcome {
    enum class Kind { passed, failed, skipped };
    Kind kind = Kind::passed;
    std::string detail = {};   // the first difference, or the reason
    bool status_only = false;  // of an error whose words are not recorded

    // Empty: passed.
    static RowOutcome of(std::string difference);
    static RowOutcome skip(std::string reason) {
        return {.kind = Kind::skipped, .detail = std::move(reason)};
    }
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

// parser.jsonl and streams.jsonl: text in pieces, and what each piece releases.
RowOutcome check_parser(const Json& row);
RowOutcome check_stream(const Json& row);
// token_streams.jsonl: ids in groups; or the error of a faulty chunk.
RowOutcome check_token_stream(const Json& row, const std::shared_ptr<const Tokenizer>& tokenizer);
RowOutcome check_token_fault(const Json& row, const std::shared_ptr<const Tokenizer>& tokenizer);

// encode.jsonl: the ids of a prompt, or why it has none.
RowOutcome check_encoded(const Json& row, const std::shared_ptr<const Tokenizer>& tokenizer);
RowOutcome check_encoding_fault(const Json& row, const std::shared_ptr<const Tokenizer>& tokenizer);
// tokenizer.jsonl: text to ids and back, and ids of any kind to text.
RowOutcome check_token_text(const Json& row, const std::shared_ptr<const Tokenizer>& tokenizer);
RowOutcome check_decoded(const Json& row, const std::shared_ptr<const Tokenizer>& tokenizer);

// tests/data/transcripts: a request, what the model gave, and what the client gets (transcript.h).
RowOutcome check_transcript(const Json& row);

// images.jsonl: token counts, pictures brought to size, sources read. Pictures that a row only
// describes are made here, so that their sizes in bytes are not the recorded ones.
RowOutcome check_image(const Json& row);
// limits.jsonl and strict.jsonl.
RowOutcome check_limit(const Json& row);
RowOutcome check_strict_schema(const Json& row);

}  // namespace fathom
