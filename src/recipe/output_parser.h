// From generated text to protocol-neutral events (recipe.md 3): what is reasoning, what is content,
// which tools are called with which arguments, and where a stop sequence ends it all.
//
//   chunks ── Detokenizer (ids only) ──> text ── stages and their patterns ──> pieces ──> events
//
// The parser is always in one stage (in reasoning, in content, in a parameter's value, …). A stage
// has patterns that lead to the next one and says what becomes of other text (output_rules.h).
// Text of one chunk in one stage is a piece and gives one event; a match may give one too.
//
// Joined, the events do not depend on how the text was cut into chunks, except for the number of
// spaces that stand for text around the JSON in JSON mode. An event leaves as soon as nothing that
// follows can change it (recipe.md 3.6, "Release").
//
// Arguments of a call are what the markup says, so damaged markup gives broken JSON. With
// ParsingOptions::valid_arguments they are JSON whenever the model ended by itself: names are
// quoted, a value that claims to be JSON and is not becomes a text (it is held until it is whole),
// and what is still open at the end is closed. What a limit cut off stays open, so that nobody
// takes it for whole.
//
// With ParsingOptions::dsml_recovery calls outside of a block are looked for too (orphan_invoke.h).
//
// Text should be UTF-8 and cut between characters, as the detokenizer gives it; then so are all
// events. Other bytes do no harm. Time is linear in the text; what is held back is a possible
// beginning of a match, and whole chunks around it. One owner.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "recipe/detokenizer.h"
#include "recipe/orphan_invoke.h"
#include "recipe/output_matcher.h"
#include "recipe/output_rules.h"
#include "recipe/parsing_options.h"
#include "recipe/tokenizer.h"

namespace fathom {

// What the generation yields. Ready comes first where counts are known.
struct ReadyChunk {
    std::optional<std::string> system_fingerprint = {};
    std::int64_t prompt_tokens = 0;
    std::int64_t prompt_cache_hit_tokens = 0;  // of prompt_tokens
};
struct TextChunk {
    std::string_view content;
    std::int64_t content_tokens = 0;  // that the text stands for
};
struct TokenLogprob {
    TokenId id = 0;
    double logprob = 0;
    std::vector<std::pair<TokenId, double>> top = {};  // the likeliest at this place, best first
};
// End-of-sequence ids must not be passed on. log_probabilities: none, or one for each id.
struct TokenChunk {
    std::span<const TokenId> ids;
    std::span<const TokenLogprob> logprobs = {};
};
enum class BackendFinish { stop, length, content_filter };

enum class OutputFinish { stop, stop_sequence, tool_calls, length, content_filter };

struct OutputEvent {
    enum class Kind {
        start,      // first, once
        content,    // text
        reasoning,  // text
        tool_call,  // text: the name; a new call begins
        arguments,  // text: more of the JSON of the latest call
        finish,     // last, once; text: the stop sequence, if one was found
    };
    Kind kind = Kind::content;
    std::string text = {};
    std::vector<TokenLogprob> logprobs = {};  // content, reasoning
    ReadyChunk prompt = {};                   // start
    OutputFinish finish = OutputFinish::stop;
    std::int64_t completion_tokens = 0;  // so far
    // Ids whose text came out as reasoning: known when ids, not text, are pushed while thinking.
    std::optional<std::int64_t> reasoning_tokens = {};
    // Which of several answers to one prompt, from 0 on. The parser knows of one; who runs several
    // sets it.
    std::int64_t choice = 0;
};

class OutputParser {
  public:
    // A tokenizer is needed for token chunks only.
    explicit OutputParser(const ParsingOptions& options,
                          std::shared_ptr<const Tokenizer> tokenizer = nullptr);
    // With rules that several parsers share, such as those of all answers to one prompt.
    explicit OutputParser(std::shared_ptr<const OutputRules> rules,
                          std::shared_ptr<const Tokenizer> tokenizer = nullptr);

    using Events = std::vector<OutputEvent>;
    // Each appends the events that this chunk releases. Once finished() all chunks are ignored.
    void push(const ReadyChunk& chunk, Events& events);
    void push(const TextChunk& chunk, Events& events);
    // invalid_argument, and nothing is read, without a tokenizer or when the number of log
    // probabilities is neither 0 nor that of the ids.
    Status push(const TokenChunk& chunk, Events& events);
    void push(BackendFinish finish, Events& events);
    // The source has ended; without a finish before it, as if it had stopped by itself.
    void end(Events& events) { push(BackendFinish::stop, events); }
    // The finish event was given. After a stop sequence the generation is to be cancelled.
    bool finished() const { return finished_; }

  private:
    using Stage = OutputRules::Stage;
    using Unmatched = OutputRules::Unmatched;
    using Action = OutputRules::Action;
    using Branch = OutputRules::Branch;
    // The part of a chunk that is not decided yet. Positions count bytes of the whole output.
    struct Share {
        std::uint64_t end = 0;                       // of the chunk; identifies it
        std::vector<std::uint64_t> token_ends = {};  // of token chunks
        std::size_t tokens_seen = 0;                 // of token_ends, for reasoning_tokens
        std::vector<TokenLogprob> logprobs = {};     // one a token, or none
        std::size_t logprobs_used = 0;               // given to a piece, or lost in a match
    };
    struct Pending {
        OutputEvent event = {};
        std::uint64_t segment = 0;    // pieces: stretch between two matches
        std::uint64_t chunk_end = 0;  // leaves when its chunk is decided up to here, or when
        bool closed = false;          //   a match has ended its segment (pieces)
        std::uint64_t match_end = 0;  //   something behind the match is decided (matches)
    };

    void enter(Stage stage);
    // Position up to which text has come.
    std::uint64_t arrived() const { return text_begin_ + text_.size(); }
    bool looks_for_orphans() const { return orphans_ && is_content(stage_); }
    static bool is_content(Stage stage) {
        return stage == Stage::common_lead || stage == Stage::common;
    }
    void advance(bool at_end);
    void feed(std::uint64_t until);
    void take_orphan();
    Share& share_of(std::uint64_t end);
    void begin_stops();
    void start(const ReadyChunk& chunk, Events& events);
    void read(std::string_view text, std::int64_t tokens, Share share, Events& events);
    void decide_unmatched(std::uint64_t until);
    void take_unmatched(Share& share, std::string_view text);
    void add_piece(Share& share, OutputEvent::Kind kind, std::string_view text);
    void count_reasoning(Share& share, std::uint64_t begin, std::uint64_t end);
    void match(const Branch& branch, std::size_t length);
    std::optional<OutputEvent> event_of(const Branch& branch);
    std::string collected_value();
    std::string missing_end();
    Pending* open_piece(const Share& share);
    void give_logprobs(Share& share, std::size_t count);
    void settle_logprobs(Share& share, Action action, std::uint64_t match_end);
    void drop_decided_shares();
    void release(bool all, Events& events);
    void emit(OutputEvent event, Events& events);
    void finish(OutputFinish finish, std::string stop_sequence, Events& events);

    const OutputRules::StageRules& rules() const { return rules_->stage(stage_, stops_act_); }

    std::shared_ptr<const OutputRules> rules_;
    bool stops_act_;
    Stage stage_ = Stage::common_lead;
    OutputMatcher matcher_ = {};                 // of the current stage
    std::optional<OrphanScanner> orphans_ = {};  // reads content ahead of the matcher
    std::shared_ptr<const Tokenizer> tokenizer_;
    std::optional<Detokenizer> detokenizer_ = {};
    // Of ids that the detokenizer holds.
    std::vector<std::uint64_t> held_token_bytes_ = {};
    std::vector<TokenLogprob> held_logprobs_ = {};

    std::string text_ = {};         // from text_begin_ on; holds all that is undecided
    std::uint64_t text_begin_ = 0;  // position of text_[0]
    std::uint64_t received_ = 0;    // position up to which the matcher was fed
    std::uint64_t decided_ = 0;
    std::deque<Share> shares_ = {};  // of chunks that are not wholly decided, and the current one
    std::deque<Pending> pending_ = {};  // events that have not left
    std::uint64_t segment_ = 0;

    std::string tool_name_ = {};
    bool called_tool_ = false;
    std::string parameter_ = {};  // what stands before the value that is being collected
    std::string collected_ = {};
    std::string stop_sequence_ = {};  // not empty: found
    bool started_ = false;
    bool finished_ = false;
    std::int64_t completion_tokens_ = 0;
    std::int64_t reasoning_tokens_ = 0;
    bool reads_tokens_ = false;
};

}  // namespace fathom
