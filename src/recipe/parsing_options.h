// How generated text is to be read (recipe.md 3.2). Lowering a request to a conversation decides
// these; the prompt and they must agree on where the text starts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "recipe/special_tokens.h"

namespace fathom {

// Where the prompt leaves the model.
enum class ThinkingStage {
    none,                    // content; leading line feeds are dropped
    reasoning_start,         // in a fresh thinking section; leading line feeds are dropped
    reasoning_continuation,  // inside reasoning that the request began
    content_continuation,    // inside content that the request began
};

// What becomes of tool calls outside of a block whose markup is damaged (orphan_invoke.h).
enum class DsmlRecovery { off, orphan_invoke };

struct ParsingOptions {
    bool parse_tool_calls = false;      // tools are offered: recognise their markup
    bool starts_in_tool_calls = false;  // the prompt has opened the block of calls
    bool parse_json_output = false;     // show only the JSON of the content
    ThinkingStage thinking_initial_stage = ThinkingStage::none;
    std::vector<std::string> stop_sequences = {};  // empty ones are ignored
    // Damaged markup gives arguments that are JSON all the same (output_parser.h). The reference
    // copies what the model wrote.
    bool valid_arguments = false;
    std::int64_t stops_after_tokens = 0;  // of the output; before, stop sequences are just text
    DsmlRecovery dsml_recovery = DsmlRecovery::off;
    std::vector<std::string> tool_names = {};  // of the request's tools; for the recovery only
    // Ids that count as output but have no text, such as an end of the sentence that is not to end
    // the answer.
    std::vector<TokenId> silent_ids = {};
    // Spellings, should a tokenizer have others.
    std::string thinking_end = std::string(kThinkEnd);
    std::string dsml = std::string(kDsml);
};

}  // namespace fathom
