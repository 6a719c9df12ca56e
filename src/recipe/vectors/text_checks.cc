#include <fmt/core.h>

#include "recipe/detokenizer.h"
#include "recipe/image_tokens.h"
#include "recipe/output_budget.h"
#include "recipe/protocols/request_error.h"
#include "recipe/vectors/difference.h"
#include "recipe/vectors/row_checks.h"
#include "recipe/vectors/rows.h"

namespace fathom {
namespace {

std::string joined(const std::vector<TokenId>& ids) {
    std::string text;
    for (const TokenId id : ids)
        text += fmt::format("{} ", static_cast<std::int64_t>(id));
    return text;
}

std::string joined(const Json& pieces) {
    std::string text;
    if (!pieces.is_array()) return text;
    for (const Json& piece : pieces.items())
        if (piece.is_string()) text += piece.as_string();
    return text;
}

// ---------------------------------------------------------------------------------- ids of prompts

std::string encoded_difference(const Json& row, const Tokenizer& tokenizer) {
    RenderOptions options;
    options.tokens = special_tokens_of(tokenizer);
    Conversation conversation;
    if (const Json* given = row.find("conversation")) {
        conversation = row_conversation(*given, options.tokens.image);
    } else {
        auto request = row_request(row);
        if (!request.ok()) return "refused: " + request.status().message();
        options.dialect = request->dialect;
        conversation = std::move(request->conversation);
    }
    const auto segments = render_prompt(conversation, options);
    if (!segments.ok()) return "not rendered: " + segments.status().message();
    std::string difference =
        text_difference("prompt", marked_prompt(row_segments(row)), marked_prompt(*segments));
    if (!difference.empty()) return difference;
    const auto ids = encode_prompt(*segments, tokenizer);
    if (!ids.ok()) return "not encoded: " + ids.status().message();
    return text_difference("ids", joined(row_ids(row_member(row, "ids"))), joined(*ids));
}

// ------------------------------------------------------------------------------------- token texts

// Recorded pieces have passed the reference's parser in a stage that only drops `</think>`.
std::string without_think_end(std::string text) {
    for (std::size_t at = text.find(kThinkEnd); at != std::string::npos; at = text.find(kThinkEnd))
        text.erase(at, kThinkEnd.size());
    return text;
}

struct Streamed {
    std::vector<std::string> texts;  // after each group
    std::string rest;                // what was still pending
    std::int64_t token_count = 0;    // before that
};

Streamed streamed(const std::shared_ptr<const Tokenizer>& tokenizer,
                  const std::vector<std::vector<TokenId>>& groups) {
    Streamed result;
    Detokenizer detokenizer(tokenizer);
    for (const std::vector<TokenId>& group : groups) {
        std::string text;
        for (const TokenId id : group) {
            const Detokenizer::Piece piece = detokenizer.push(id);
            text += without_think_end(piece.text);
            result.token_count += piece.token_count;
        }
        result.texts.push_back(std::move(text));
    }
    result.rest = detokenizer.finish().text;
    return result;
}

std::string pieces_difference(const Json& row, const Json::Array& golden, const Streamed& ours) {
    std::vector<std::string> expected;
    for (const Json& pieces : golden)
        expected.push_back(joined(pieces));
    expected.resize(ours.texts.size());  // one more entry stands for the end of the stream
    std::string difference = lines_difference("text of group", expected, ours.texts);
    if (!difference.empty()) return difference;
    return json_difference(".completion_tokens", row_member(row, "completion_tokens"),
                           ours.token_count);
}

RowOutcome streamed_outcome(const Json& row, const Json::Array& golden, const Streamed& ours,
                            const std::string& whole) {
    std::string all;
    for (const std::string& text : ours.texts)
        all += text;
    std::string difference = text_difference("text", without_think_end(whole), all + ours.rest);
    if (difference.empty()) difference = pieces_difference(row, golden, ours);
    return RowOutcome::of(std::move(difference));
}

}  // namespace

RowOutcome check_encoded(const Json& row, const std::shared_ptr<const Tokenizer>& tokenizer) {
    return RowOutcome::of(encoded_difference(row, *tokenizer));
}

RowOutcome check_encoding_fault(const Json& row,
                                const std::shared_ptr<const Tokenizer>& tokenizer) {
    if (row_text(row, "id").ends_with("no_tokenizer"))
        return RowOutcome::skip("here nothing is encoded without a tokenizer");
    const auto ids = encode_prompt({{true, std::string(kImageToken)}}, *tokenizer);
    return RowOutcome::of(
        text_difference("error", row_text(row, "error"),
                        "failed to encode conversation: " + ids.status().message()));
}

RowOutcome check_token_text(const Json& row, const std::shared_ptr<const Tokenizer>& tokenizer) {
    const std::string text = row_text(row, "text");
    const std::vector<TokenId> ids = row_ids(row_member(row, "ids"));
    std::string difference =
        text_difference("ids", joined(ids), joined(tokenizer->encode(text, true)));
    if (difference.empty()) difference = text_difference("text", text, tokenizer->decode(ids));
    if (!difference.empty()) return RowOutcome::of(std::move(difference));
    std::vector<std::vector<TokenId>> groups;
    for (const TokenId id : ids)
        groups.push_back({id});
    return streamed_outcome(row, row_items(row, "per_token"), streamed(tokenizer, groups), text);
}

RowOutcome check_decoded(const Json& row, const std::shared_ptr<const Tokenizer>& tokenizer) {
    std::vector<std::vector<TokenId>> groups;
    std::vector<TokenId> all;
    for (const Json& group : row_items(row, "groups")) {
        groups.push_back(row_ids(group));
        all.insert(all.end(), groups.back().begin(), groups.back().end());
    }
    return streamed_outcome(row, row_items(row, "per_group"), streamed(tokenizer, groups),
                            tokenizer->decode(all));
}

// ------------------------------------------------------------------------------- limits

RowOutcome check_limit(const Json& row) {
    const Json& golden = row_member(row, "error");
    const auto request = row_request(row);
    Result<std::int64_t> resolved = std::int64_t{0};
    if (request.ok()) {
        const OutputBudget budget{.prompt_tokens = row_integer(row, "prompt_tokens"),
                                  .context_tokens_max = row_integer(row, "context_limit"),
                                  .max_tokens = request->inference.max_tokens};
        if (budget.prompt_tokens < 0 || budget.context_tokens_max < 0)
            return RowOutcome::of("prompt_tokens or context_limit is negative");
        resolved = resolve_output_budget(budget, request->conversation);
    } else {
        resolved = request.status();
    }
    if (!resolved.ok())
        return RowOutcome::of(text_difference("error", row_text(golden, "body", "none"),
                                              request_error(resolved.status()).body));
    return RowOutcome::of(json_difference(".max_tokens", row_member(row, "max_tokens"), *resolved));
}

// --------------------------------------------------------------------------------- strict schemas

namespace {

// As the rows were made: one tool, or an answer format.
std::string schema_body(const Json& schema, bool is_format, bool strict) {
    Json body = Json::object({{"model", "DeepSeek-V4.1-Flash"}});
    body.set("messages", Json::array({Json::object({{"role", "user"}, {"content", "x"}})}));
    if (is_format) {
        const Json format = Json::object({{"name", "x"}, {"strict", strict}, {"schema", schema}});
        body.set("response_format",
                 Json::object({{"type", "json_schema"}, {"json_schema", format}}));
    } else {
        const Json function =
            Json::object({{"name", "get_weather"}, {"parameters", schema}, {"strict", strict}});
        body.set("tools",
                 Json::array({Json::object({{"type", "function"}, {"function", function}})}));
    }
    return body.dump();
}

std::string schema_difference(const Json& row, std::string_view use) {
    const Json& golden = row_member(row, use);
    const Json& schema = row_member(row, "schema");
    const bool is_format = use == "format_strict";
    const auto request =
        lower_request(Protocol::chat, schema_body(schema, is_format, use != "loose"), {});
    if (!request.ok())
        return text_difference(use, row_text(golden, "error", "none"), request.status().message());
    if (row_has(golden, "error"))
        return fmt::format("{}: accepted, expected: {}", use, row_text(golden, "error"));
    const Conversation& conversation = request->conversation;
    const Json ours = is_format ? conversation.response_format.schema
                                : conversation.tools.at(0).parameters.value_or(Json());
    const Json& expected =
        row_has(golden, "parameters") ? row_member(golden, "parameters") : schema;
    return text_difference(use, expected.dump(), ours.dump());
}

}  // namespace

RowOutcome check_strict_schema(const Json& row) {
    for (const std::string_view use : {"strict", "loose", "format_strict"}) {
        std::string difference = schema_difference(row, use);
        if (!difference.empty()) return RowOutcome::of(std::move(difference));
    }
    return {};
}

}  // namespace fathom
