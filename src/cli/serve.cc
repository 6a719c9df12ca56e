// `fathom serve`: the HTTP server over one engine in this process.
#include <fmt/core.h>

#include <cstdio>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/settings.h"
#include "cli/stack.h"
#include "cli/text_stream.h"

namespace fathom {
namespace {

const CommandSpec kSpec = {
    .usage = "fathom serve --model DIR [options]",
    .summary =
        "Answers the HTTP APIs of OpenAI and Anthropic until SIGINT or SIGTERM, then drains.",
    .tables = {"model", "engine", "pool", "server", "codec", "log"},
    .aliases = {},
    .positional_max = 0};

constexpr std::int64_t kFirstTokenUs = 600'000'000;

// A server is ready when one real token has come all the way through: weights paged in, kernels
// run, owner committed.
Status first_token(OwnerRegistry& owners) {
    GenerationRequest request;
    request.prompt = std::vector<TokenId>{owners.limits().bos_id};
    request.max_tokens = 1;
    request.ignore_eos = true;
    request.timeout_us = kFirstTokenUs;
    FATHOM_ASSIGN(PreparedRequest prepared, prepare(request, *owners.tokenizer(), owners.limits()));
    auto stream = std::make_shared<TextStream>();
    FATHOM_ASSIGN(std::shared_ptr<RequestOwner> owner, owners.start(std::move(prepared), stream));
    while (!stream->result())
        static_cast<void>(stream->next(kFirstTokenUs));
    return stream->result()->status.with_context("first token");
}

Status serve(const Settings& settings) {
    FATHOM_RETURN_IF_ERROR(check_key_classes(settings));
    FATHOM_ASSIGN(Stack stack, build_stack(settings.stack));
    FATHOM_ASSIGN(const ServerOptions options, server_options(settings, stack));
    FATHOM_ASSIGN(std::unique_ptr<Server> server,
                  Server::create(options, *stack.engine, stack.tokenizer, *stack.metrics));
    const Status first = first_token(server->owners());
    if (first.code() == StatusCode::cancelled) return {};  // told to stop before it was ready
    FATHOM_RETURN_IF_ERROR(first);
    server->set_ready(true);
    fmt::print("listening on {}\n", server->url());
    std::fflush(stdout);
    server->wait();
    log_info("drained, bye");
    return {};
}

}  // namespace

int run_serve(const std::vector<std::string>& args) {
    Settings settings;
    if (const std::optional<int> stop = read_settings(args, kSpec, settings)) return *stop;
    const Status status = serve(settings);
    if (!status.ok()) fmt::print(stderr, "fathom serve: {}\n", status.message());
    flush_logging();
    return status.ok() ? kExitOk : kExitFailed;
}

}  // namespace fathom
