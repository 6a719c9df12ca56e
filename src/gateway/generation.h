// What a generation is, as plain values: the request before and after preparation, what comes back
// while it runs, and how it ends. HTTP protocols, the terminal chat and the batch program all lower
// to these types; owner.h runs them.
//
//   GenerationRequest ─ prepare() ─► PreparedRequest ─ OwnerRegistry::start() ─► events … result
//
// prepare() renders and tokenizes: it is the expensive part and pure, so it may run on any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "engine/types.h"
#include "gateway/kv_sharing.h"
#include "recipe/output_parser.h"
#include "recipe/output_rules.h"
#include "recipe/parsing_options.h"
#include "recipe/prompt.h"
#include "recipe/tokenizer.h"

namespace fathom {

// A prompt that is not a conversation. With recognize_added, special tokens spelled in the text
// become their ids (for a prompt that was rendered elsewhere); without it no text can forge one.
// With a suffix it is a text with a hole between both (recipe.md 2.12).
struct RawText {
    std::string text;
    std::optional<std::string> suffix = {};
    bool add_bos = true;  // begin-of-sentence in front (recipe.md 2.12), unless it is there already
    bool recognize_added = false;
};

// Every byte of the output is content.
ParsingOptions raw_output();

// What a generation may take from others that begin alike (docs/prefix_cache.md).
enum class PrefixReuse {
    any,    // whatever saves most
    exact,  // only what changes no bit of the answer
    none,   // nothing, and nothing is left for others
};

struct GenerationRequest {
    std::variant<Conversation, RawText, std::vector<TokenId>> prompt;
    RenderOptions render;  // of a conversation
    ContentSpecials specials = ContentSpecials::plain;
    // How the output is read. By default it is content and nothing else, as of a raw prompt; stop
    // sequences do not act before min_tokens.
    ParsingOptions parsing = raw_output();
    // The seed too: whoever builds the request draws one when none is given. Choice i draws with
    // choice_seed(seed, i).
    SamplingParams sampling;
    std::int64_t choices = 1;  // answers to the one prompt, at most kChoicesMax
    // Output tokens at most. Without a value: recipe.md 2.13 for a conversation (8192; thinking
    // 65536, effort max 131072), 16 for a raw prompt, always lowered to what the context leaves.
    std::optional<std::int64_t> max_tokens;
    std::vector<TokenId> stop_tokens;  // beside the model's end-of-sentence token
    bool ignore_eos = false;           // for measurements: run to max_tokens
    std::int64_t timeout_us = 0;       // for the whole generation, from start(); 0: none
    PrefixReuse reuse = PrefixReuse::any;
    std::string cache_salt;  // EngineRequest::cache_salt
    KvSharing sharing = {};
};

// The limits that a request is checked against.
struct GenerationLimits {
    std::int64_t context_tokens = 0;    // prompt and output together
    std::int64_t max_tokens = 393'216;  // largest max_tokens that may be asked for
    TokenId bos_id = 0, eos_id = 1;
    std::int64_t vocab_size = 0;
    std::size_t token_bytes_max = 0;  // of the tokenizer's longest token; 0: not known
};

struct PreparedRequest {
    std::vector<TokenId> prompt;
    // One for all choices; never null.
    std::shared_ptr<const OutputRules> output_rules =
        std::make_shared<const OutputRules>(raw_output());
    SamplingParams sampling;
    std::int64_t choices = 1;
    std::int64_t max_tokens = 16;
    std::vector<TokenId> stop_tokens;  // complete: the engine gets exactly these
    std::int64_t timeout_us = 0;
    PrefixReuse reuse = PrefixReuse::any;
    std::string cache_salt;
    KvSharing sharing = {};
    // False: the next turn will not contain this answer as it was generated (recipe.md 2.8), so it
    // is not worth storing.
    bool persist_output = true;
};

// The ids of the prompt alone. Errors as of prepare(). Pure; any thread.
Result<std::vector<TokenId>> encode_request(const GenerationRequest& request,
                                            const Tokenizer& tokenizer,
                                            const GenerationLimits& limits);

// Checks everything and renders and tokenizes the prompt. Errors are invalid_argument with the
// messages of recipe.md 4.1 and 2.13. A prompt that has more bytes than the longest tokens of the
// vocabulary could hold within the context is refused without being tokenized. Pure; any thread.
Result<PreparedRequest> prepare(const GenerationRequest& request, const Tokenizer& tokenizer,
                                const GenerationLimits& limits);

// Events of one choice, joined: what stands in an answer that is not streamed.
struct AnswerText {
    struct Call {
        std::string name;
        std::string arguments = {};
    };
    std::string reasoning = {};
    std::string content = {};
    std::vector<Call> calls = {};
    std::vector<TokenLogprob> reasoning_logprobs = {};
    std::vector<TokenLogprob> content_logprobs = {};

    void add(const OutputEvent& event);
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
