// One choice's token log and the text that follows from it: whole characters, reasoning apart from
// content, up to a stop string, and the log probabilities of the tokens whose text is shown. The
// log only grows; text is made from a token only once the log holds it. Used by owner.cc; its
// thread.
//
// An entry of log probabilities comes with the delta that shows the last byte of its token's text,
// on the side (reasoning or content) where that byte stands. Tokens of the thinking marker, stop
// tokens, and what a stop string takes away have none.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/generation.h"
#include "recipe/detokenizer.h"
#include "recipe/stop_strings.h"
#include "recipe/thinking.h"
#include "recipe/tokenizer.h"

namespace fathom {

class ChoiceLog {
  public:
    // `request` outlives the log.
    ChoiceLog(std::shared_ptr<const Tokenizer> tokenizer, const PreparedRequest& request);

    enum class State { open, stopped, full };
    // Commits a token; `logprobs` may be null. Text that may be shown is added to `delta`.
    State append(TokenId token, const TokenLogprobs* logprobs, GenerationDelta& delta);
    // Adds what was held back while it could still have become a character, a marker or a stop
    // string; to be called at the end, which may turn out to be a stop string.
    void finish(GenerationDelta& delta);

    const std::vector<TokenId>& tokens() const { return tokens_; }
    std::int64_t size() const { return static_cast<std::int64_t>(tokens_.size()); }
    const std::string& matched_stop() const { return matched_stop_; }  // empty: none so far

  private:
    struct PendingEntry {
        LogprobEntry entry;
        std::int64_t end_bytes = -1;  // of its token's text in all text; −1: not released yet
    };

    TokenText token_text(TokenId id, float logprob) const;
    void note_logprobs(TokenId token, const TokenLogprobs& logprobs);
    void show(std::string_view text, GenerationDelta& delta);
    void show_split(const ThinkingSplitter::Output& split, GenerationDelta& delta);
    void show_entries(GenerationDelta& delta);

    const std::shared_ptr<const Tokenizer> tokenizer_;
    const PreparedRequest& request_;
    std::vector<TokenId> tokens_;
    Detokenizer detokenizer_;
    ThinkingSplitter thinking_;
    StopStrings stops_;
    std::string matched_stop_;

    // Bytes that came out of the detokenizer, and of these what was shown or came to the content.
    std::int64_t text_bytes_ = 0, text_characters_ = 0;
    std::int64_t reasoning_bytes_ = 0, content_bytes_ = 0, content_shown_bytes_ = 0;
    std::vector<PendingEntry> entries_;  // in the order of their tokens
};

}  // namespace fathom
