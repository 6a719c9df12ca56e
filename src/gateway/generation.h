// What a generation is, as plain values: the request before and after preparation, what comes back
// while it runs, and how it ends. HTTP protocols, the terminal chat and the batch program all lower
// to these types; owner.h runs them.
//
//   GenerationRequest ─ prepare() ─► PreparedRequest ─ OwnerRegistry::start() ─► deltas … result
//
// prepare() renders and tokenizes: it is the expensive part and pure, so it may run on any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "engine/types.h"
#include "recipe/prompt.h"
#include "recipe/tokenizer.h"

namespace fathom {

// A prompt that is not a conversation. With recognize_added, special tokens spelled in the text
// become their ids (for a prompt that was rendered elsewhere); without it no text can forge one.
struct RawText {
    std::string text;
    bool add_bos = true;  // begin-of-sentence in front (recipe.md 2.12), unless it is there already
    bool recognize_added = false;
};

// What a generation may take from others that begin alike (docs/prefix_cache.md).
enum class PrefixReuse {
    any,    // whatever saves most
    exact,  // only what changes no bit of the answer
    none,   // nothing, and nothing is left for others
};

struct GenerationRequest {
    std::variant<Conversation, RawText, std::vector<TokenId>> prompt;
    // The seed too: whoever builds the request draws one when none is given. Choice i draws with
    // choice_seed(seed, i).
    SamplingParams sampling;
    std::int64_t choices = 1;  // answers to the one prompt, at most kChoicesMax
    // Output tokens at most. Without a value: recipe.md 2.13 for a conversation (8192; thinking
    // 65536, effort max 131072), 16 for a raw prompt, always lowered to what the context leaves.
    std::optional<std::int64_t> max_tokens;
    std::vector<std::string> stop_strings;  // at most kStopStringsMax, none empty
    std::vector<TokenId> stop_tokens;       // beside the model's end-of-sentence token
    bool ignore_eos = false;                // for measurements: run to max_tokens
    std::int64_t timeout_us = 0;            // for the whole generation, from start(); 0: none
    PrefixReuse reuse = PrefixReuse::any;
    std::string cache_salt;  // EngineRequest::cache_salt
};

inline constexpr std::size_t kStopStringsMax = 16;
// `single` says that the API field held one string, not a list: the message names the field so.
Status check_stop_strings(const std::vector<std::string>& stops, bool single);

// The limits that a request is checked against.
struct GenerationLimits {
    std::int64_t context_tokens = 0;    // prompt and output together
    std::int64_t max_tokens = 393'216;  // largest max_tokens that may be asked for
    TokenId bos_id = 0, eos_id = 1;
    std::int64_t vocab_size = 0;
};

struct PreparedRequest {
    std::vector<TokenId> prompt;
    bool starts_in_thinking = false;  // the prompt opened a thinking section
    SamplingParams sampling;
    std::int64_t choices = 1;
    std::int64_t max_tokens = 16;
    std::vector<std::string> stop_strings;
    std::vector<TokenId> stop_tokens;  // complete: the engine gets exactly these
    std::int64_t timeout_us = 0;
    PrefixReuse reuse = PrefixReuse::any;
    std::string cache_salt;
};

// Checks everything and renders and tokenizes the prompt. Errors are invalid_argument with the
// messages of recipe.md 4.1 and 2.13. Pure; any thread.
Result<PreparedRequest> prepare(const GenerationRequest& request, const Tokenizer& tokenizer,
                                const GenerationLimits& limits);

struct TokenText {
    TokenId id = 0;
    std::string bytes = {};  // of the token alone; need not be whole characters
    float logprob = 0;
};
// A token of the answer with its log probability, and the most probable tokens at its place.
struct LogprobEntry {
    TokenText token = {};
    std::vector<TokenText> top = {};
    std::int64_t text_offset = 0;  // characters of the choice's output before the token's text
};

// New text of one choice, whole UTF-8 characters only. One delta per commit: the log holds the
// tokens it stands for before anybody sees the text. The entries of log probabilities, where they
// were asked for, are those of the tokens whose text is complete with this delta.
struct GenerationDelta {
    std::string reasoning = {};
    std::string content = {};
    std::int64_t choice = 0;
    std::vector<LogprobEntry> reasoning_logprobs = {};
    std::vector<LogprobEntry> content_logprobs = {};

    bool empty() const {
        return reasoning.empty() && content.empty() && reasoning_logprobs.empty() &&
               content_logprobs.empty();
    }
    // Adds the next delta of the same choice.
    void append(GenerationDelta next);
};

struct Usage {
    std::int64_t prompt_tokens = 0;      // once, however many choices
    std::int64_t completion_tokens = 0;  // = length of the token logs (serving.md I9)
    std::int64_t cached_tokens = 0;      // prompt tokens that were not computed
};

enum class GenerationFinish {
    stop,       // a stop token (end of sentence) or a stop string
    length,     // max_tokens reached
    cancelled,  // cancel(), or the engine went away on purpose
    deadline,   // timeout_us or the not-started limit ran out
    error,      // status says what
};
const char* generation_finish_name(GenerationFinish finish);  // "stop", "length", …

struct ChoiceResult {
    GenerationFinish finish = GenerationFinish::error;
    std::string matched_stop = {};     // the stop string that ended it, if one did
    std::vector<TokenId> tokens = {};  // the committed log, a reported stop token included
};

struct GenerationResult {
    // Of the first choice when all came to their end; else what ended those that had not.
    GenerationFinish finish = GenerationFinish::error;
    Status status;                      // ok for stop and length
    std::vector<ChoiceResult> choices;  // all, in order
    Usage usage;
    std::uint32_t attempts = 1;         // how often a choice was given to an engine, at most
    std::int64_t time_to_first_us = 0;  // from start() to the first commit; 0 without one
    std::int64_t total_us = 0;          // from start() to the end
    Anchors anchors;                    // what makes the run repeatable
};

}  // namespace fathom
