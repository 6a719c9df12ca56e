#include "cli/print_answer.h"

#include <fmt/core.h>

#include <cstdio>
#include <utility>

#include "base/json.h"
#include "cli/text_stream.h"
#include "recipe/protocols/logprobs_json.h"

namespace fathom {
namespace {

constexpr std::int64_t kPollUs = 50'000;

class Printer {
  public:
    explicit Printer(bool terminal) : terminal_(terminal) {}

    void print(const OutputEvent& event) {
        switch (event.kind) {
            case Kind::reasoning:
                part(Kind::reasoning, false);
                fmt::print(aside(), "{}{}{}", terminal_ ? "\x1b[2m" : "", event.text,
                           terminal_ ? "\x1b[0m" : "");
                break;
            case Kind::content:
                part(Kind::content, false);
                fmt::print("{}", event.text);
                break;
            case Kind::tool_call:
                part(Kind::tool_call, true);
                fmt::print("[call {}] ", event.text);
                break;
            case Kind::arguments:
                fmt::print("{}", event.text);
                break;
            case Kind::start:
            case Kind::finish:
                break;
        }
        std::fflush(stdout);
    }

  private:
    using Kind = OutputEvent::Kind;

    std::FILE* aside() const { return terminal_ ? stdout : stderr; }

    // What follows stands on a line of its own.
    void part(Kind kind, bool always) {
        if (last_ != Kind::start && (always || last_ != kind))
            fmt::print(last_ == Kind::reasoning ? aside() : stdout, "\n");
        last_ = kind;
    }

    const bool terminal_;
    Kind last_ = Kind::start;
};

void print_text(const AnswerText& text, Printer& printer) {
    using Kind = OutputEvent::Kind;
    if (!text.reasoning.empty()) printer.print({.kind = Kind::reasoning, .text = text.reasoning});
    if (!text.content.empty()) printer.print({.kind = Kind::content, .text = text.content});
    for (const AnswerText::Call& call : text.calls) {
        printer.print({.kind = Kind::tool_call, .text = call.name});
        printer.print({.kind = Kind::arguments, .text = call.arguments});
    }
}

void print_logprobs(const std::vector<TokenLogprob>& entries, const Tokenizer& tokenizer) {
    const auto shown = [&](TokenId id) { return Json(shown_token(tokenizer.bytes(id))).dump(); };
    for (const TokenLogprob& entry : entries) {
        fmt::print(stderr, "{:12.6f}  {}", entry.logprob, shown(entry.id));
        for (const auto& [id, logprob] : entry.top)
            fmt::print(stderr, "  {} {:.4f}", shown(id), logprob);
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
    std::vector<AnswerText> texts(static_cast<std::size_t>(choices));
    while (!stream->result()) {
        if (interrupts.take() > 0) owner->cancel();
        for (const OutputEvent& event : stream->next(kPollUs)) {
            if (choices == 1) printer.print(event);
            texts[static_cast<std::size_t>(event.choice)].add(event);
        }
    }
    for (std::size_t i = 0; choices > 1 && i < texts.size(); ++i) {
        fmt::print("{}[{}]\n", i == 0 ? "" : "\n", i);
        Printer alone(terminal);
        print_text(texts[i], alone);
    }
    // A SIGINT that came as the answer ended meant the answer, not what follows.
    static_cast<void>(interrupts.take());
    fmt::print("\n");
    std::fflush(stdout);
    for (const AnswerText& text : texts) {
        print_logprobs(text.reasoning_logprobs, *owners.tokenizer());
        print_logprobs(text.content_logprobs, *owners.tokenizer());
    }
    answer.content = texts.front().content;
    answer.result = *stream->result();
    return answer;
}

}  // namespace fathom
