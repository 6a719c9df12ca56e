#include "cli/print_answer.h"

#include <fmt/core.h>

#include <cstdio>
#include <utility>

#include "base/json.h"
#include "cli/text_stream.h"
#include "gateway/openai/response.h"

namespace fathom {
namespace {

constexpr std::int64_t kPollUs = 50'000;

class Printer {
  public:
    explicit Printer(bool terminal) : terminal_(terminal) {}

    void print(const GenerationDelta& delta) {
        std::FILE* aside = terminal_ ? stdout : stderr;
        if (!delta.reasoning.empty()) {
            fmt::print(aside, "{}{}{}", terminal_ ? "\x1b[2m" : "", delta.reasoning,
                       terminal_ ? "\x1b[0m" : "");
            in_reasoning_ = true;
        }
        if (!delta.content.empty() && std::exchange(in_reasoning_, false)) fmt::print(aside, "\n");
        fmt::print("{}", delta.content);
        std::fflush(stdout);
    }

  private:
    const bool terminal_;
    bool in_reasoning_ = false;  // the last line is reasoning
};

void print_logprobs(const std::vector<LogprobEntry>& entries) {
    for (const LogprobEntry& entry : entries) {
        fmt::print(stderr, "{:12.6f}  {}", entry.token.logprob,
                   Json(shown_token(entry.token.bytes)).dump());
        for (const TokenText& token : entry.top)
            fmt::print(stderr, "  {} {:.4f}", Json(shown_token(token.bytes)).dump(), token.logprob);
        fmt::print(stderr, "\n");
    }
}

}  // namespace

Result<PrintedAnswer> print_answer(PreparedRequest request, OwnerRegistry& owners,
                                   Interrupts& interrupts, bool terminal) {
    const std::int64_t choices = request.choices;
    PrintedAnswer answer;
    auto stream = std::make_shared<TextStream>();
    FATHOM_ASSIGN(const std::shared_ptr<RequestOwner> owner,
                  owners.start(std::move(request), stream));
    Printer printer(terminal);
    std::vector<GenerationDelta> texts(static_cast<std::size_t>(choices));
    while (!stream->result()) {
        if (interrupts.take() > 0) owner->cancel();
        const std::optional<GenerationDelta> delta = stream->next(kPollUs);
        if (!delta) continue;
        if (choices == 1) printer.print(*delta);
        texts[static_cast<std::size_t>(delta->choice)].append(*delta);
    }
    for (std::size_t i = 0; choices > 1 && i < texts.size(); ++i) {
        fmt::print("{}[{}]\n", i == 0 ? "" : "\n", i);
        printer.print(texts[i]);
    }
    // A SIGINT that came as the answer ended meant the answer, not what follows.
    static_cast<void>(interrupts.take());
    fmt::print("\n");
    std::fflush(stdout);
    for (const GenerationDelta& text : texts) {
        print_logprobs(text.reasoning_logprobs);
        print_logprobs(text.content_logprobs);
    }
    answer.content = texts.front().content;
    answer.result = *stream->result();
    return answer;
}

}  // namespace fathom
