#include "cli/print_answer.h"

#include <fmt/core.h>

#include <cstdio>
#include <utility>

#include "cli/text_stream.h"

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

}  // namespace

Result<PrintedAnswer> print_answer(PreparedRequest request, OwnerRegistry& owners,
                                   Interrupts& interrupts, bool terminal) {
    auto stream = std::make_shared<TextStream>();
    FATHOM_ASSIGN(const std::shared_ptr<RequestOwner> owner,
                  owners.start(std::move(request), stream));
    Printer printer(terminal);
    PrintedAnswer answer;
    while (!stream->result()) {
        if (interrupts.take() > 0) owner->cancel();
        const std::optional<GenerationDelta> delta = stream->next(kPollUs);
        if (!delta) continue;
        printer.print(*delta);
        answer.content += delta->content;
    }
    // A SIGINT that came as the answer ended meant the answer, not what follows.
    static_cast<void>(interrupts.take());
    fmt::print("\n");
    std::fflush(stdout);
    answer.result = *stream->result();
    return answer;
}

}  // namespace fathom
