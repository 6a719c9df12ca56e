// `fathom generate`: one prompt to stdout, or a JSONL file of requests to a JSONL file of answers.
#include <fmt/core.h>

#include <cstdio>

#include "cli/batch.h"
#include "cli/commands.h"
#include "cli/interrupts.h"
#include "cli/print_answer.h"
#include "cli/requests.h"
#include "cli/settings.h"
#include "cli/stack.h"

namespace fathom {
namespace {

const CommandSpec kSpec = {
    .usage = "fathom generate --model DIR (-p PROMPT [--chat] | -i IN.jsonl -o OUT.jsonl)",
    .summary =
        "Completes a prompt, or a file of requests: {\"id\", \"prompt\" or \"messages\", "
        "\"max_tokens\", …}.\nAn interrupted batch goes on where it stopped when it is run again.",
    .tables = {"model", "engine", "sampling", "generate", "chat", "codec", "log"},
    .aliases = {},
    .positional_max = 0};

Json body_of_prompt(const Settings& settings) {
    Json body;
    if (!settings.generate.chat) {
        body.set("prompt", Json(settings.generate.prompt));
        return body;
    }
    Json messages = Json::array();
    if (!settings.chat.system.empty())
        messages.push_back(
            Json::object({{"role", Json("system")}, {"content", Json(settings.chat.system)}}));
    messages.push_back(
        Json::object({{"role", Json("user")}, {"content", Json(settings.generate.prompt)}}));
    body.set("messages", std::move(messages));
    return body;
}

Result<int> generate_one(const Settings& settings, Stack& stack, Interrupts& interrupts) {
    LocalOwners owners(stack, stack.owner_options());
    FATHOM_ASSIGN(PreparedRequest prepared, prepare_request(body_of_prompt(settings), settings,
                                                            stack.model_name, owners.registry()));
    FATHOM_ASSIGN(const PrintedAnswer answer,
                  print_answer(std::move(prepared), owners.registry(), interrupts, false));
    if (answer.result.finish == GenerationFinish::cancelled) return kExitInterrupted;
    FATHOM_RETURN_IF_ERROR(answer.result.status);
    return kExitOk;
}

Result<int> generate_batch(const Settings& settings, Stack& stack, Interrupts& interrupts) {
    const std::int64_t start_us = real_clock().now_us();
    FATHOM_ASSIGN(const BatchReport report, run_batch(settings, stack, interrupts));
    const double seconds = static_cast<double>(real_clock().now_us() - start_us) / 1e6;
    fmt::print(stderr,
               "{} answered ({} with an error), {} were there already, {} tokens, {:.1f} s{}\n",
               report.answered, report.failed, report.skipped, report.output_tokens, seconds,
               report.interrupted ? "; interrupted, run it again to go on" : "");
    if (report.interrupted) return kExitInterrupted;
    return report.failed > 0 ? kExitFailed : kExitOk;
}

Status check(const Settings::Generate& generate) {
    const bool batch = !generate.input.empty() || !generate.output.empty();
    if (batch && !generate.prompt.empty())
        return invalid_argument("--prompt and --input exclude each other");
    if (batch && (generate.input.empty() || generate.output.empty()))
        return invalid_argument("a batch needs --input and --output");
    if (!batch && generate.prompt.empty())
        return invalid_argument("needs --prompt TEXT, or --input and --output");
    return {};
}

}  // namespace

int run_generate(const std::vector<std::string>& args) {
    Settings settings;
    settings.log.level = "warning";
    if (const std::optional<int> stop = read_settings(args, kSpec, settings)) return *stop;
    if (const Status status = check(settings.generate); !status.ok()) {
        fmt::print(stderr, "fathom generate: {}\n", status.message());
        return kExitUsage;
    }
    Result<Stack> stack = build_stack(settings.stack);
    if (!stack.ok()) {
        fmt::print(stderr, "fathom generate: {}\n", stack.status().message());
        return kExitFailed;
    }
    Interrupts interrupts;
    const Result<int> done = settings.generate.input.empty()
                                 ? generate_one(settings, *stack, interrupts)
                                 : generate_batch(settings, *stack, interrupts);
    if (!done.ok()) fmt::print(stderr, "fathom generate: {}\n", done.status().message());
    return done.ok() ? *done : kExitFailed;
}

}  // namespace fathom
