// One choice's token log and the events that follow from it (recipe/output_parser.h). The log only
// grows; text is made from a token only once the log holds it. Used by owner.cc; its thread.
//
// Stop tokens are in the log but not in the text. The finish event counts the log's tokens, stop
// tokens included.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gateway/generation.h"
#include "recipe/output_parser.h"
#include "recipe/tokenizer.h"

namespace fathom {

class ChoiceLog {
  public:
    using Events = OutputParser::Events;

    // `request` outlives the log.
    ChoiceLog(std::shared_ptr<const Tokenizer> tokenizer, const PreparedRequest& request,
              std::int64_t choice);

    // Before the first token: gives the start event.
    void begin(std::int64_t cached_tokens, Events& events);
    enum class State { open, stopped, full };
    // Commits a token; `logprobs` may be null. Appends what may be shown, and the finish event if a
    // stop sequence was found (`stopped`).
    State append(TokenId token, const TokenLogprobs* logprobs, Events& events);
    // The end, unless a stop sequence was it: appends what was held back, and the finish event.
    void finish(BackendFinish reason, Events& events);

    const std::vector<TokenId>& tokens() const { return tokens_; }
    std::int64_t size() const { return static_cast<std::int64_t>(tokens_.size()); }
    const std::string& matched_stop() const { return matched_stop_; }  // empty: none so far

  private:
    void settle(Events& events, std::size_t from);

    const PreparedRequest& request_;
    const std::int64_t choice_;
    std::vector<TokenId> tokens_;
    OutputParser parser_;
    std::string matched_stop_;
};

}  // namespace fathom
