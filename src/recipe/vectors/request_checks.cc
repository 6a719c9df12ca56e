#include <fmt/core.h>

#include "recipe/protocols/request_error.h"
#include "recipe/vectors/difference.h"
#include "recipe/vectors/request_facts.h"
#include "recipe/vectors/row_checks.h"
#include "recipe/vectors/rows.h"

namespace fathom {
namespace {

std::string rendered(const Conversation& conversation, const RenderOptions& options) {
    const auto segments = render_prompt(conversation, options);
    return segments.ok() ? marked_prompt(*segments) : std::string(segments.status().message());
}

std::string accepted_difference(const Json& row) {
    const auto request = row_request(row);
    if (!request.ok()) return "refused: " + std::string(request.status().message());
    Json golden = row_member(row, "expect");
    const RenderOptions options = row_render_options(row, request->dialect);
    Json facts = request_facts(*request, options.tokens.image);
    if (row_text(row, "protocol") == "responses")
        facts.set("echo", echo_facts(request->responses.echo));
    if (row_lower_options(row).profile == Profile::open)
        golden.set("inference", row_member(facts, "inference"));
    const auto prompt = render_prompt(request->conversation, options);
    if (!prompt.ok()) return "not rendered: " + std::string(prompt.status().message());
    const Json images = image_facts(request->image_sources, *prompt);
    if (images.items().size() != request->image_sources.size())
        return fmt::format("the prompt shows {} of {} images", images.items().size(),
                           request->image_sources.size());
    if (!images.items().empty()) facts.set("image_sources", images);
    std::string difference = json_difference("", golden, facts);
    if (!difference.empty()) return difference;
    return text_difference("prompt", marked_prompt(row_segments(golden)), marked_prompt(*prompt));
}

// Bodies that could not be read: how a parser says so is its own.
bool has_status_only(const Json& row) {
    return row_text(row_member(row, "error"), "phase") == "body";
}

std::string refused_difference(const Json& row) {
    const auto request = row_request(row);
    const Json& golden = row_member(row, "error");
    if (request.ok()) return "accepted, expected " + golden.dump();
    const RequestError error = request_error(request.status());
    const bool unreadable = has_status_only(row);
    const std::int64_t status = unreadable ? 400 : row_integer(golden, "status_code");
    if (error.http_status != status)
        return fmt::format("status {}, expected {}: {}", error.http_status, status, error.body);
    return unreadable ? "" : text_difference("error", row_text(golden, "body"), error.body);
}

// Of one profile.
std::string profile_difference(const Json& row, std::string_view name, Profile profile) {
    const Json& golden = row_member(row, name);
    LowerOptions lower = row_lower_options(row);
    lower.profile = profile;
    if (!golden.is_object()) return fmt::format("{}: missing", name);
    const auto protocol = parse_protocol(row_text(row, "protocol"));
    if (!protocol.ok()) return protocol.status().message();
    const auto request = lower_request(*protocol, row_body(row), lower);
    if (!request.ok())
        return text_difference(fmt::format("{}: error", name), row_text(golden, "error", "none"),
                               request.status().message());
    if (row_has(golden, "error"))
        return fmt::format("{}: accepted, expected: {}", name, row_text(golden, "error"));
    RenderOptions options;
    options.dialect = request->dialect;
    const auto prompt = render_prompt(request->conversation, options);
    if (!prompt.ok()) return "not rendered: " + std::string(prompt.status().message());
    Json facts = request_facts(*request, options.tokens.image);
    facts.set("open", open_facts(request->open));
    facts.set("valid_arguments", request->parsing.valid_arguments);
    facts.set("echo", whole_echo_facts(request->responses.echo));
    facts.set("image_sources", image_facts(request->image_sources, *prompt));
    facts.set("prompt_text", prompt_text(*prompt));
    if (golden.members().empty()) return fmt::format("{}: nothing is expected", name);
    for (const auto& [path, value] : golden.members()) {
        const Json* ours = fact_at(facts, path);
        if (ours == nullptr) return fmt::format("{}: there is no {}", name, path);
        std::string difference = json_difference(fmt::format("{}: .{}", name, path), value, *ours);
        if (!difference.empty()) return difference;
    }
    return "";
}

}  // namespace

RowOutcome RowOutcome::of(std::string difference) {
    const Kind kind = difference.empty() ? Kind::passed : Kind::failed;
    return {.kind = kind, .detail = std::move(difference)};
}

RowOutcome check_accepted_request(const Json& row) {
    return RowOutcome::of(accepted_difference(row));
}

RowOutcome check_conversation(const Json& row) {
    const Conversation conversation =
        row_conversation(row_member(row, "conversation"), kImageToken);
    for (const auto& [name, dialect] : {std::pair{"v41", Dialect::v41}, {"v4", Dialect::v4}}) {
        std::string difference = text_difference(fmt::format("{} prompt", name),
                                                 marked_prompt(row_segments(row_member(row, name))),
                                                 rendered(conversation, {.dialect = dialect}));
        if (!difference.empty()) return RowOutcome::of(std::move(difference));
    }
    return {};
}

RowOutcome check_refused_request(const Json& row) {
    RowOutcome outcome = RowOutcome::of(refused_difference(row));
    outcome.status_only = has_status_only(row);
    return outcome;
}

RowOutcome check_profiles(const Json& row) {
    std::string difference = profile_difference(row, "reference", Profile::reference);
    if (difference.empty()) difference = profile_difference(row, "open", Profile::open);
    return RowOutcome::of(std::move(difference));
}

}  // namespace fathom
