// Request bodies of the three protocols against the recorded results of the reference
// (golden/recipe/prompts.jsonl and errors.jsonl; the README there explains the fields). Each
// failing row tells its first difference. The numbers of rows are asserted, so that none is lost
// unseen.
#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "json_lines.h"
#include "recipe/protocols/chat_request.h"
#include "recipe/protocols/messages_request.h"
#include "recipe/protocols/request_error.h"
#include "recipe/protocols/responses_request.h"
#include "recipe_rows.h"
#include "support.h"

namespace fathom {
namespace {

using testing::golden_segments;
using testing::marked;
using testing::read_json_lines;
using testing::render_options_of;
using testing::shared_path;
using testing::text_of;

using Lower = std::function<Result<LoweredRequest>(std::string_view, const LowerOptions&)>;

std::string decode_base64(std::string_view text) {
    constexpr std::string_view kDigits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string bytes;
    unsigned bits = 0;
    int count = 0;
    for (const char c : text) {
        const std::size_t digit = kDigits.find(c);
        if (digit == std::string_view::npos) continue;
        bits = bits << 6 | static_cast<unsigned>(digit);
        count += 6;
        if (count >= 8) bytes += static_cast<char>(bits >> (count -= 8) & 0xff);
    }
    return bytes;
}

std::string body_of(const Json& row) {
    if (const Json* body = row.find("body")) return body->dump();
    if (row.find("body_text") != nullptr) return text_of(row, "body_text");
    return decode_base64(text_of(row, "body_base64"));
}

LowerOptions options_of(const Json& row) {
    LowerOptions options;
    const Json* changed = row.find("options");
    if (changed == nullptr) return options;
    const auto dialect = [](const Json& name) {
        return name.as_string() == "v4" ? Dialect::v4 : Dialect::v41;
    };
    for (const auto& [key, value] : changed->members()) {
        if (key == "default_thinking_mode") options.default_thinking = value.as_bool();
        if (key == "reasoning_content" && value.as_string() == "reject")
            options.missing_reasoning = MissingReasoning::reject;
        if (key == "responses_web_search" && value.as_string() == "reject")
            options.responses_web_search = ServerTools::reject;
        if (key == "messages_web_search" && value.as_string() == "drop")
            options.messages_web_search = ServerTools::drop;
        if (key == "thinking_max_tokens_upper_bound")
            options.thinking_max_tokens = value.as_int64();
        if (key == "non_thinking_max_tokens_upper_bound")
            options.chat_max_tokens = value.as_int64();
        if (key == "model_versions") options.models.clear();
        if (key == "model_versions" || key == "model_alias")
            for (const auto& [name, version] : value.members())
                options.models[name] = dialect(version);
    }
    return options;
}

// ------------------------------------------------------------- lowered requests, as the vectors
// say it

template <typename T>
Json or_null(const std::optional<T>& value) {
    return value ? Json(*value) : Json();
}

Json tools_facts(const std::vector<Tool>& tools) {
    Json facts = Json::array();
    for (const Tool& tool : tools) {
        Json fact = Json::object();
        fact.set("name", tool.name);
        fact.set("description", or_null(tool.description));
        fact.set("parameters", or_null(tool.parameters));
        fact.set("strict", or_null(tool.strict));
        if (tool.defer_loading) fact.set("defer_loading", true);
        facts.push_back(std::move(fact));
    }
    return facts;
}

std::string with_images(const MessageText& content, const std::string& spelling) {
    std::string text;
    std::size_t done = 0;
    for (const std::size_t at : content.images) {
        text += content.text.substr(done, at - done) + spelling;
        done = at;
    }
    return text + content.text.substr(done);
}

Json message_facts(const Message& message, const std::string& spelling) {
    constexpr const char* kRoles[] = {"system", "user", "assistant", "tool", "latest_reminder"};
    Json fact = Json::object();
    fact.set("role", kRoles[static_cast<int>(message.role)]);
    fact.set("content", with_images(message.content, spelling));
    if (message.reasoning_content) fact.set("reasoning_content", *message.reasoning_content);
    if (message.role == Role::tool) fact.set("tool_call_id", message.tool_call_id);
    if (!message.content.images.empty())
        fact.set("images", static_cast<std::int64_t>(message.content.images.size()));
    if (message.prefix) fact.set("prefix", true);
    if (!message.tools.empty()) fact.set("tools", tools_facts(message.tools));
    Json calls = Json::array();
    for (const ToolCall& call : message.tool_calls)
        calls.push_back(Json::array({call.id, call.name, call.arguments}));
    if (!message.tool_calls.empty()) fact.set("tool_calls", std::move(calls));
    return fact;
}

Json inference_facts(const InferenceSettings& inference) {
    constexpr const char* kKinds[] = {"", "json", "regex", "tool_call", "tool_call_required"};
    Json facts = Json::object();
    facts.set("max_tokens", or_null(inference.max_tokens));
    facts.set("temperature", double{inference.temperature});
    facts.set("top_p", double{inference.top_p});
    facts.set("logprobs", inference.logprobs);
    facts.set("top_logprobs", or_null(inference.top_logprobs));
    facts.set("seed", or_null(inference.seed));
    Json constraint;
    if (inference.output_constraint.kind != ConstraintKind::none) {
        constraint.set("kind", kKinds[static_cast<int>(inference.output_constraint.kind)]);
        constraint.set("schema", inference.output_constraint.schema);
    }
    facts.set("output_constraint", std::move(constraint));
    return facts;
}

Json parsing_facts(const ParsingOptions& parsing) {
    constexpr const char* kStages[] = {"", "reasoning_start", "reasoning_continuation",
                                       "content_continuation"};
    Json facts = Json::object();
    facts.set("parse_tool_calls", parsing.parse_tool_calls);
    facts.set("starts_in_tool_calls", parsing.starts_in_tool_calls);
    facts.set("parse_json_output", parsing.parse_json_output);
    const bool has_stage = parsing.thinking_initial_stage != ThinkingStage::none;
    facts.set("thinking_initial_stage",
              has_stage ? Json(kStages[static_cast<int>(parsing.thinking_initial_stage)]) : Json());
    Json stops = Json::array();
    for (const std::string& stop : parsing.stop_sequences)
        stops.push_back(stop);
    facts.set("stop_sequences", std::move(stops));
    return facts;
}

// In the order of the prompt.
Json image_facts(const std::vector<ImageSource>& sources,
                 const std::vector<PromptSegment>& prompt) {
    constexpr const char* kDetails[] = {"low", "high", "original", "auto"};
    Json facts = Json::array();
    for (const PromptSegment& segment : prompt) {
        if (!segment.image) continue;
        EXPECT_LT(*segment.image, sources.size());
        const ImageSource& source = sources[*segment.image];
        const char* kind = source.kind == ImageSource::Kind::url ? "url" : "data_url";
        Json fact = Json::object();
        fact.set("kind", kind);
        fact.set("detail", kDetails[static_cast<int>(source.detail)]);
        fact.set("path", source.path);
        fact.set(kind, source.location);
        facts.push_back(std::move(fact));
    }
    return facts;
}

void set_format_facts(const ResponseFormat& format, Json& facts) {
    constexpr const char* kFormats[] = {"text", "json_object", "json_schema", "regex"};
    facts.set("response_format", kFormats[static_cast<int>(format.kind)]);
    if (format.kind == ResponseFormatKind::json_schema) facts.set("response_schema", format.schema);
    if (format.kind == ResponseFormatKind::regex) facts.set("response_regex", format.regex);
}

// The part of the echo that the rows of prompts.jsonl tell.
Json echo_facts(const ResponsesEcho& echo) {
    Json facts = Json::object();
    facts.set("instructions", or_null(echo.instructions));
    facts.set("max_output_tokens", or_null(echo.max_output_tokens));
    facts.set("temperature", double{echo.temperature});
    facts.set("top_p", double{echo.top_p});
    facts.set("top_logprobs", echo.top_logprobs);
    facts.set("user", or_null(echo.user));
    return facts;
}

Json facts_of(const LoweredRequest& request, const std::string& spelling) {
    constexpr const char* kEfforts[] = {"", "low", "high", "xhigh", "max"};
    constexpr const char* kChoices[] = {"auto", "none", "required"};
    const Conversation& conversation = request.conversation;
    Json facts = Json::object();
    facts.set("model_version", request.dialect == Dialect::v4 ? "v4" : "v41");
    facts.set("thinking_mode", conversation.thinking);
    const bool has_effort = conversation.effort != ReasoningEffort::none;
    facts.set("reasoning_effort",
              has_effort ? Json(kEfforts[static_cast<int>(conversation.effort)]) : Json());
    facts.set("tool_choice", kChoices[static_cast<int>(conversation.tool_choice)]);
    set_format_facts(conversation.response_format, facts);
    facts.set("tools", tools_facts(conversation.tools));
    Json messages = Json::array();
    for (const Message& message : conversation.messages)
        messages.push_back(message_facts(message, spelling));
    facts.set("messages", std::move(messages));
    facts.set("inference", inference_facts(request.inference));
    facts.set("parsing", parsing_facts(request.parsing));
    facts.set("stream", request.stream);
    if (!request.responses.namespace_tools.empty()) {
        Json tools = Json::object();
        for (const auto& [full, home] : request.responses.namespace_tools)
            tools.set(full, Json::array({home.name_space, home.name}));
        facts.set("namespace_tool_map", std::move(tools));
    }
    return facts;
}

// ----------------------------------------------------------------------------------------
// comparing

// Where the order of keys says something.
bool is_ordered(std::string_view key) {
    return key == "parameters" || key == "response_schema";
}

// Empty when equal. Floats of the vectors are 32-bit floats.
std::string first_difference(const std::string& path, const Json& golden, const Json& ours) {
    const auto differ = [&] {
        return path + ": expected " + golden.dump() + ", got " + ours.dump();
    };
    if (path.ends_with(".temperature") || path.ends_with(".top_p")) {
        const bool same =
            golden.is_number() && ours.is_number() &&
            static_cast<float>(golden.as_double()) == static_cast<float>(ours.as_double());
        return same ? "" : differ();
    }
    const bool ordered = is_ordered(std::string_view(path).substr(path.rfind('.') + 1));
    if (golden.is_object() && ours.is_object() && !ordered) {
        for (const auto& [key, value] : golden.members()) {
            if (key == "prompt" || key == "special_ranges") continue;
            const Json* member = ours.find(key);
            if (member == nullptr) return path + "." + key + ": missing, expected " + value.dump();
            const std::string difference = first_difference(path + "." + key, value, *member);
            if (!difference.empty()) return difference;
        }
        for (const auto& [key, value] : ours.members())
            if (golden.find(key) == nullptr) return path + "." + key + ": got " + value.dump();
        return "";
    }
    if (golden.is_array() && ours.is_array() && golden.items().size() == ours.items().size()) {
        for (std::size_t i = 0; i < golden.items().size(); ++i) {
            const std::string difference = first_difference(path + "[" + std::to_string(i) + "]",
                                                            golden.items()[i], ours.items()[i]);
            if (!difference.empty()) return difference;
        }
        return "";
    }
    return golden == ours ? "" : differ();
}

std::string prompt_difference(const std::string& golden, const std::string& ours) {
    if (golden == ours) return "";
    std::size_t at = 0;
    while (at < golden.size() && at < ours.size() && golden[at] == ours[at])
        ++at;
    const std::size_t from = at < 60 ? 0 : at - 60;
    return "prompt: expected … " + golden.substr(from, 160) + "\n  got … " + ours.substr(from, 160);
}

std::string accepted_difference(const Json& row, const Lower& lower) {
    const auto request = lower(body_of(row), options_of(row));
    if (!request.ok()) return "refused: " + request.status().message();
    const Json& golden = *row.find("expect");
    const RenderOptions options = render_options_of(row, request->dialect);
    Json facts = facts_of(*request, options.tokens.image);
    if (text_of(row, "protocol") == "responses")
        facts.set("echo", echo_facts(request->responses.echo));
    const auto prompt = render_prompt(request->conversation, options);
    if (!prompt.ok()) return "not rendered: " + prompt.status().message();
    Json images = image_facts(request->image_sources, *prompt);
    EXPECT_EQ(images.items().size(), request->image_sources.size()) << text_of(row, "id");
    if (!images.items().empty()) facts.set("image_sources", std::move(images));
    const std::string difference = first_difference("", golden, facts);
    if (!difference.empty()) return difference;
    return prompt_difference(marked(golden_segments(golden)), marked(*prompt));
}

std::string refused_difference(const Json& row, const Lower& lower) {
    const auto request = lower(body_of(row), options_of(row));
    if (request.ok()) return "accepted, expected " + row.find("error")->dump();
    const RequestError error = request_error(request.status());
    const Json& golden = *row.find("error");
    const std::int64_t status =
        text_of(golden, "phase") == "body" ? 400 : golden.find("status_code")->as_int64();
    if (error.http_status != status)
        return "status " + std::to_string(error.http_status) + ": " + error.body;
    if (text_of(golden, "phase") == "body" || text_of(golden, "body") == error.body) return "";
    return "expected " + text_of(golden, "body") + "\n  got      " + error.body;
}

void expect_rows(const std::string& file, const std::string& protocol, int count,
                 const std::function<std::string(const Json&)>& difference) {
    constexpr std::size_t kShownMax = 40;
    int rows = 0;
    std::vector<std::string> failures;
    for (const Json& row : read_json_lines(shared_path("golden/recipe/" + file))) {
        if (text_of(row, "protocol") != protocol) continue;
        ++rows;
        const std::string text = difference(row);
        if (!text.empty()) failures.push_back(text_of(row, "id") + "\n  " + text);
    }
    EXPECT_EQ(rows, count);
    for (std::size_t i = 0; i < failures.size() && i < kShownMax; ++i)
        ADD_FAILURE() << failures[i];
    EXPECT_EQ(failures.size(), 0) << "of " << rows << " rows of " << protocol << " in " << file;
}

void expect_accepted(const std::string& protocol, int count, const Lower& lower) {
    expect_rows("prompts.jsonl", protocol, count,
                [&](const Json& row) { return accepted_difference(row, lower); });
}

void expect_refused(const std::string& protocol, int count, const Lower& lower) {
    expect_rows("errors.jsonl", protocol, count,
                [&](const Json& row) { return refused_difference(row, lower); });
}

TEST(RecipeRequests, ChatRequestsLowerAsTheReference) {
    FATHOM_NEED_SHARED("golden/recipe/prompts.jsonl");
    expect_accepted("chat", 692, lower_chat_request);
}

TEST(RecipeRequests, ChatRequestsAreRefusedAsTheReference) {
    FATHOM_NEED_SHARED("golden/recipe/errors.jsonl");
    expect_refused("chat", 379, lower_chat_request);
}

TEST(RecipeRequests, MessagesRequestsLowerAsTheReference) {
    FATHOM_NEED_SHARED("golden/recipe/prompts.jsonl");
    expect_accepted("messages", 275, lower_messages_request);
}

TEST(RecipeRequests, MessagesRequestsAreRefusedAsTheReference) {
    FATHOM_NEED_SHARED("golden/recipe/errors.jsonl");
    expect_refused("messages", 214, lower_messages_request);
}

TEST(RecipeRequests, ResponsesRequestsLowerAsTheReference) {
    FATHOM_NEED_SHARED("golden/recipe/prompts.jsonl");
    expect_accepted("responses", 223, lower_responses_request);
}

// What the answers of streams.jsonl repeat of their requests.
Json repeated_facts(const ResponsesEcho& echo) {
    Json facts = echo_facts(echo);
    facts.set("reasoning", Json::object({{"effort", or_null(echo.reasoning_effort)},
                                         {"summary", or_null(echo.reasoning_summary)}}));
    facts.set("text", Json::object({{"format", echo.text_format},
                                    {"verbosity", or_null(echo.text_verbosity)}}));
    facts.set("tool_choice", echo.tool_choice);
    facts.set("tools", echo.tools);
    return facts;
}

TEST(RecipeRequests, ResponsesAnswersRepeatTheirRequests) {
    FATHOM_NEED_SHARED("golden/recipe/streams.jsonl");
    int rows = 0;
    for (const Json& row : read_json_lines(shared_path("golden/recipe/streams.jsonl"))) {
        const Json* body = row.find("requests")->find("responses");
        if (body == nullptr) continue;
        const Json& whole = row.find("chunkings")->items()[0];
        const Json* answer = whole.find("protocols")->find("responses")->find("response");
        const auto request = lower_responses_request(body->dump(), LowerOptions());
        ASSERT_TRUE(request.ok()) << text_of(row, "id") << request.status().message();
        ASSERT_NE(answer, nullptr) << text_of(row, "id");
        const Json parsed = answer->is_string() ? parse_json(answer->as_string()).value() : *answer;
        const Json facts = repeated_facts(request->responses.echo);
        for (const auto& [key, ours] : facts.members())
            EXPECT_EQ(first_difference("." + key, *parsed.find(key), ours), "")
                << text_of(row, "id");
        ++rows;
    }
    EXPECT_EQ(rows, 136);
}

TEST(RecipeRequests, ResponsesRequestsAreRefusedAsTheReference) {
    FATHOM_NEED_SHARED("golden/recipe/errors.jsonl");
    expect_refused("responses", 225, lower_responses_request);
}

}  // namespace
}  // namespace fathom
