// `fathom chat`: a conversation in the terminal. Answers stream; Ctrl-C ends the current answer
// (what was said stays in the history) and, at the prompt, the program. With a pipe for input every
// line is a turn and nothing but answers is written to stdout.
#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <optional>

#include "cli/commands.h"
#include "cli/interrupts.h"
#include "cli/print_answer.h"
#include "cli/requests.h"
#include "cli/settings.h"
#include "cli/stack.h"

namespace fathom {
namespace {

const CommandSpec kSpec = {
    .usage = "fathom chat --model DIR [options]",
    .summary = "Talks to a model. Commands: /system TEXT, /think on|off, /clear, /exit, /help.",
    .tables = {"model", "engine", "sampling", "chat", "codec", "log"},
    .aliases = {},
    .positional_max = 0};

constexpr std::size_t kLineBytesMax = 16 << 20;

enum class Input { line, end, interrupted };

// Lines from stdin that a signal can cut short, which no buffered reader allows.
class LineReader {
  public:
    explicit LineReader(const Interrupts& interrupts) : interrupts_(interrupts) {}

    Input read_line(std::string& line) {
        for (;;) {
            const std::size_t newline = buffer_.find('\n');
            if (newline != std::string::npos || (ended_ && !buffer_.empty())) {
                line = buffer_.substr(0, newline);
                buffer_.erase(0, newline == std::string::npos ? newline : newline + 1);
                return Input::line;
            }
            if (ended_ || buffer_.size() > kLineBytesMax) return Input::end;
            if (interrupts_.pending()) return Input::interrupted;
            fill();
        }
    }

  private:
    void fill() {
        pollfd entries[2] = {{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0},
                             {.fd = interrupts_.fd(), .events = POLLIN, .revents = 0}};
        if (poll(entries, 2, -1) < 0 || entries[0].revents == 0) return;
        char bytes[4096];
        const ssize_t got = read(STDIN_FILENO, bytes, sizeof bytes);
        if (got > 0) buffer_.append(bytes, static_cast<std::size_t>(got));
        if (got == 0) ended_ = true;
    }

    const Interrupts& interrupts_;
    std::string buffer_;
    bool ended_ = false;
};

class ChatSession {
  public:
    ChatSession(const Settings& settings, std::string model_name, OwnerRegistry& owners,
                Interrupts& interrupts)
        : settings_(settings),
          owners_(owners),
          interrupts_(interrupts),
          terminal_(isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1),
          model_name_(std::move(model_name)),
          thinking_(settings.chat.thinking) {
        begin(settings.chat.system);
    }

    int run() {
        LineReader reader(interrupts_);
        if (terminal_) fmt::print("{}\n", kSpec.summary);
        for (;;) {
            if (terminal_) fmt::print("\n> ");
            std::fflush(stdout);
            std::string line;
            switch (reader.read_line(line)) {
                case Input::end:
                    return kExitOk;
                case Input::interrupted:
                    if (terminal_) fmt::print("\n");
                    return kExitInterrupted;
                case Input::line:
                    break;
            }
            if (line.empty()) continue;
            if (line == "/exit") return kExitOk;
            if (line[0] == '/')
                run_command(line);
            else
                answer(std::move(line));
        }
    }

  private:
    static Json message(const char* role, std::string text) {
        return Json::object({{"role", Json(role)}, {"content", Json(std::move(text))}});
    }

    // Begins a new conversation under this system message.
    void begin(std::string system) {
        system_ = std::move(system);
        messages_ = Json::array();
        if (!system_.empty()) messages_.push_back(message("system", system_));
    }

    void run_command(const std::string& line) {
        if (line == "/clear")
            begin(system_);
        else if (line == "/think on" || line == "/think off")
            thinking_ = line == "/think on";
        else if (line == "/system" || line.rfind("/system ", 0) == 0)
            begin(line.size() > 8 ? line.substr(8) : "");
        else
            fmt::print(stderr, "{}\n", kSpec.summary);
    }

    // One turn. A failed or refused turn leaves the history as it was.
    void answer(std::string text) {
        messages_.push_back(message("user", std::move(text)));
        std::string content;
        const Status status = generate(content);
        if (status.ok()) {
            messages_.push_back(message("assistant", std::move(content)));
        } else {
            messages_.items().pop_back();
            fmt::print(stderr, "error: {}\n", status.message());
        }
    }

    Status generate(std::string& content) {
        Json body;
        body.set("messages", messages_);
        body.set("thinking", thinking_body(thinking_));
        // A conversation goes on from one answer, and shows its text only.
        body.set("n", Json(1));
        body.set("logprobs", Json(false));
        FATHOM_ASSIGN(PreparedRequest prepared,
                      prepare_request(std::move(body), settings_, model_name_, owners_));
        FATHOM_ASSIGN(PrintedAnswer answer,
                      print_answer(std::move(prepared), owners_, interrupts_, terminal_));
        content = std::move(answer.content);
        if (answer.result.finish != GenerationFinish::cancelled) return answer.result.status;
        fmt::print(stderr, "[interrupted]\n");
        return {};
    }

    const Settings& settings_;
    OwnerRegistry& owners_;
    Interrupts& interrupts_;
    const bool terminal_;
    const std::string model_name_;
    std::string system_;
    Json messages_;
    bool thinking_;
};

}  // namespace

int run_chat(const std::vector<std::string>& args) {
    Settings settings;
    settings.log.level = "warning";
    if (const std::optional<int> stop = read_settings(args, kSpec, settings)) return *stop;
    Result<Stack> stack = build_stack(settings.stack);
    if (!stack.ok()) {
        fmt::print(stderr, "fathom chat: {}\n", stack.status().message());
        return kExitFailed;
    }
    Interrupts interrupts;
    LocalOwners owners(*stack, stack->owner_options());
    return ChatSession(settings, stack->model_name, owners.registry(), interrupts).run();
}

}  // namespace fathom
