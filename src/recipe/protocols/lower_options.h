// What a server decides about lowering requests; the same for all three protocols.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "recipe/conversation.h"
#include "recipe/parsing_options.h"

namespace fathom {

// Whose behaviour is wanted where the reference refuses or overrides what a request asks for.
// `reference` is that of the public component, byte for byte; `open` gives the same wherever the
// reference accepts, takes more than it does, and lets the request's sampling values hold. Each
// difference is a row of docs/codec_profiles.md.
enum class Profile { open, reference };
// An assistant message with tool calls but without its reasoning, in thinking mode (recipe.md 2.8).
enum class MissingReasoning { fill_empty, reject };
// Tools and history blocks of tools that a server would have to run itself (recipe.md 4.4, 4.5).
enum class ServerTools { drop, reject };

struct LowerOptions {
    Profile profile = Profile::reference;
    // Names that a request may ask for, and how each model's prompt is written.
    std::map<std::string, Dialect, std::less<>> models = {
        {"DeepSeek-V4-Pro", Dialect::v4},
        {"DeepSeek-V4.1-Flash", Dialect::v41},
    };
    bool default_thinking = true;  // where the request does not say
    MissingReasoning missing_reasoning = MissingReasoning::fill_empty;
    ServerTools responses_web_search = ServerTools::drop;
    ServerTools messages_web_search = ServerTools::reject;
    DsmlRecovery dsml_recovery = DsmlRecovery::off;
    // Largest max_tokens that may be asked for, with and without thinking.
    std::int64_t thinking_max_tokens = 393'216;
    std::int64_t chat_max_tokens = 393'216;
};

}  // namespace fathom
