// fathom recipe render|tokenize|parse|image|check [FILE]: the codec without a model. What a
// request's prompt looks like, which ids a text has, how generated text is read, and whether all
// that is as recorded.
#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/input_file.h"
#include "base/json.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/recipe_check.h"
#include "cli/recipe_image.h"
#include "recipe/output_parser.h"
#include "recipe/prompt.h"
#include "recipe/protocols/request_error.h"
#include "recipe/recipe.h"
#include "recipe/tokenizer.h"

namespace fathom {
namespace {

const CommandSpec kSpec = {
    .usage =
        "fathom recipe render|tokenize|parse [FILE] [options]\n"
        "       fathom recipe image|check FILE… [options]",
    .summary =
        "The codec without a model; FILE absent or - is standard input.\n"
        "render: a request body of --protocol as the prompt that the model reads, and with\n"
        "--tokenizer its ids. tokenize: a text's ids. parse: generated text as events.\n"
        "image: how many tokens pictures take, and in which size the model sees them.\n"
        "check: files of recorded results (requests, ids, streams, transcripts, one JSON object a\n"
        "line), or folders of them; prints the first difference of each row that differs.",
    .tables = {"recipe"},
    .aliases = {{"--protocol", "recipe.protocol"},
                {"--tokenizer", "recipe.tokenizer"},
                {"--dialect", "recipe.dialect"},
                {"--special", "recipe.special"},
                {"--thinking", "recipe.thinking"},
                {"--tools", "recipe.tools"},
                {"--json-mode", "recipe.json_mode"},
                {"--stop", "recipe.stop"},
                {"--dsml-recovery", "recipe.dsml_recovery"},
                {"--tool-name", "recipe.tool_names"},
                {"--profile", "recipe.profile"},
                {"--update", "recipe.update"},
                {"--low-detail", "recipe.low_detail"},
                {"--out", "recipe.out"},
                {"--json", "recipe.json"}},
    .positional_max = 1000};

struct Recipe {
    std::string protocol = "chat", tokenizer, dialect = "v41", thinking = "on";
    std::string profile = "open", dsml_recovery = "off";
    bool special = false, tools = true, json_mode = false, json = false, update = false;
    bool low_detail = false;
    std::string out;
    std::vector<std::string> stop, tool_names;
};

Result<std::string> read_text(const std::vector<std::string>& words) {
    if (words.size() < 2 || words[1] == "-") return read_input(STDIN_FILENO, "standard input");
    return read_input_file(words[1]);
}

// Special tokens stand out on a terminal; elsewhere the text is as it is.
std::string shown(std::string_view text, bool special) {
    if (!special || ::isatty(STDOUT_FILENO) == 0) return std::string(text);
    return fmt::format("\x1b[7;36m{}\x1b[0m", text);
}

Result<std::shared_ptr<const Tokenizer>> load_tokenizer(const Recipe& recipe) {
    if (recipe.tokenizer.empty())
        return invalid_argument("--tokenizer FILE is needed: a tokenizer.json");
    return Tokenizer::load(recipe.tokenizer);
}

Json ids_json(const std::vector<TokenId>& ids) {
    Json list = Json::array();
    for (const TokenId id : ids)
        list.push_back(static_cast<std::int64_t>(id));
    return list;
}

Result<LoweredRequest> lower(const std::string& body, const Recipe& recipe) {
    LowerOptions options;
    options.profile = recipe.profile == "open" ? Profile::open : Profile::reference;
    // Any model is known here, and speaks the dialect that was asked for unless the name says more.
    const Result<Json> request = parse_json(body);
    const Json* const model = request.ok() ? request->find("model") : nullptr;
    if (model != nullptr && model->is_string())
        options.models.emplace(model->as_string(),
                               recipe.dialect == "v4" ? Dialect::v4 : Dialect::v41);
    FATHOM_ASSIGN(const Protocol protocol, parse_protocol(recipe.protocol));
    return lower_request(protocol, body, options);
}

Status render(const std::string& body, const Recipe& recipe) {
    const Result<LoweredRequest> request = lower(body, recipe);
    if (!request.ok()) {
        const RequestError refused = request_error(request.status());
        if (recipe.json) fmt::print("{}\n", refused.body);
        return error(request.status().code(), "refused with status {}: {}", refused.http_status,
                     request.status().message());
    }
    std::shared_ptr<const Tokenizer> tokenizer;
    if (!recipe.tokenizer.empty()) {
        FATHOM_ASSIGN(tokenizer, load_tokenizer(recipe));
    }
    RenderOptions options;
    options.dialect = request->dialect;
    if (tokenizer != nullptr) options.tokens = special_tokens_of(*tokenizer);
    FATHOM_ASSIGN(const std::vector<PromptSegment> segments,
                  render_prompt(request->conversation, options));
    std::vector<TokenId> ids;
    if (tokenizer != nullptr) {
        FATHOM_ASSIGN(ids, encode_prompt(segments, *tokenizer));
    }
    if (!recipe.json) {
        for (const PromptSegment& segment : segments)
            fmt::print("{}", shown(segment.text, segment.special));
        fmt::print("\n");
        if (tokenizer != nullptr) fmt::print(stderr, "{} tokens\n", ids.size());
        return {};
    }
    Json report = Json::object(), ranges = Json::array();
    std::int64_t at = 0;
    for (const PromptSegment& segment : segments) {
        const auto end = at + static_cast<std::int64_t>(segment.text.size());
        if (segment.special) ranges.push_back(Json(Json::Array{at, end}));
        at = end;
    }
    report.set("model", request->model);
    report.set("thinking", request->conversation.thinking);
    report.set("prompt", prompt_text(segments));
    report.set("special_ranges", std::move(ranges));
    report.set("images", static_cast<std::int64_t>(request->image_sources.size()));
    if (tokenizer != nullptr) report.set("ids", ids_json(ids));
    fmt::print("{}\n", report.dump());
    return {};
}

Status tokenize(const std::string& text, const Recipe& recipe) {
    FATHOM_ASSIGN(const std::shared_ptr<const Tokenizer> tokenizer, load_tokenizer(recipe));
    const std::vector<TokenId> ids = tokenizer->encode(text, recipe.special);
    if (recipe.json) {
        Json report = Json::object(), pieces = Json::array();
        for (const TokenId id : ids)
            pieces.push_back(tokenizer->decode(std::span(&id, 1)));
        report.set("ids", ids_json(ids));
        report.set("pieces", std::move(pieces));
        fmt::print("{}\n", report.dump());
        return {};
    }
    for (const TokenId id : ids) {
        const std::string piece = tokenizer->decode(std::span(&id, 1));
        const auto added = tokenizer->added_id(piece);
        fmt::print("{:>7}  {}\n", id, shown(Json(piece).dump(), added && *added == id));
    }
    fmt::print(stderr, "{} tokens of {} bytes\n", ids.size(), text.size());
    return {};
}

const char* kind_name(OutputEvent::Kind kind) {
    constexpr const char* kNames[] = {"start",     "content",   "reasoning",
                                      "tool_call", "arguments", "finish"};
    return kNames[static_cast<std::size_t>(kind)];
}

const char* finish_name(OutputFinish finish) {
    constexpr const char* kNames[] = {"stop", "stop_sequence", "tool_calls", "length",
                                      "content_filter"};
    return kNames[static_cast<std::size_t>(finish)];
}

Status parse(const std::string& text, const Recipe& recipe) {
    ParsingOptions options;
    options.parse_tool_calls = recipe.tools;
    options.parse_json_output = recipe.json_mode;
    options.thinking_initial_stage =
        recipe.thinking == "on" ? ThinkingStage::reasoning_start : ThinkingStage::none;
    options.stop_sequences = recipe.stop;
    if (recipe.dsml_recovery == "orphan_invoke")
        options.dsml_recovery = DsmlRecovery::orphan_invoke;
    options.tool_names = recipe.tool_names;
    OutputParser parser(options);
    OutputParser::Events events;
    parser.push(TextChunk{.content = text, .content_tokens = 0}, events);
    parser.end(events);
    for (const OutputEvent& event : events) {
        if (event.kind == OutputEvent::Kind::start) continue;
        const bool is_end = event.kind == OutputEvent::Kind::finish;
        if (recipe.json) {
            Json line = Json::object();
            line.set("kind", kind_name(event.kind));
            line.set("text", event.text);
            if (is_end) line.set("finish", finish_name(event.finish));
            fmt::print("{}\n", line.dump());
        } else {
            fmt::print("{:<10} {}\n", kind_name(event.kind),
                       is_end ? finish_name(event.finish) : Json(event.text).dump());
        }
    }
    return {};
}

Status run(const std::vector<std::string>& words, const Recipe& recipe) {
    if (words[0] == "check") {
        return check_recipe_files(
            {words.begin() + 1, words.end()},
            {.tokenizer = recipe.tokenizer, .json = recipe.json, .update = recipe.update});
    }
    if (words[0] == "image") {
        return show_recipe_images(
            {words.begin() + 1, words.end()},
            {.low_detail = recipe.low_detail, .json = recipe.json, .out = recipe.out});
    }
    if (words.size() > 2) return invalid_argument("\"{}\" is one word too many", words[2]);
    using Part = Status (*)(const std::string&, const Recipe&);
    struct Named {
        const char* name;
        Part part;
    };
    for (const Named& known : {Named{"render", render}, {"tokenize", tokenize}, {"parse", parse}}) {
        if (words[0] != known.name) continue;
        FATHOM_ASSIGN(const std::string input, read_text(words));
        return known.part(input, recipe);
    }
    return invalid_argument("\"{}\" is none of render, tokenize, parse, image, check", words[0]);
}

}  // namespace

int run_recipe(const std::vector<std::string>& args) {
    Recipe recipe;
    ConfigSchema schema;
    schema.add_choice("recipe.protocol", &recipe.protocol, {"chat", "messages", "responses"},
                      "render: whose request body it is");
    schema.add("recipe.tokenizer", &recipe.tokenizer, "a tokenizer.json");
    schema.add_choice("recipe.dialect", &recipe.dialect, {"v41", "v4"},
                      "render: how a model of another name is written to");
    schema.add("recipe.special", &recipe.special,
               "tokenize: special tokens spelled in the text are special");
    schema.add_choice("recipe.thinking", &recipe.thinking, {"on", "off"},
                      "parse: whether the text begins inside a thinking section");
    schema.add("recipe.tools", &recipe.tools, "parse: tool calls are recognised");
    schema.add("recipe.json_mode", &recipe.json_mode, "parse: only the JSON of the content");
    schema.add("recipe.stop", &recipe.stop, "parse: a stop sequence; may be repeated");
    schema.add_choice("recipe.dsml_recovery", &recipe.dsml_recovery, {"off", "orphan_invoke"},
                      "parse: damaged calls outside of a block, as codec.dsml_recovery; they need "
                      "--tool-name");
    schema.add("recipe.tool_names", &recipe.tool_names,
               "parse: a tool of the request, for --dsml-recovery; may be repeated");
    schema.add_choice("recipe.profile", &recipe.profile, {"open", "reference"},
                      "render: what is accepted, docs/codec_profiles.md");
    schema.add("recipe.update", &recipe.update,
               "check: transcripts get the outcome they have now; what changed is printed");
    schema.add("recipe.low_detail", &recipe.low_detail, "image: as with detail \"low\"");
    schema.add("recipe.out", &recipe.out,
               "image: a folder for the pictures as they are handed on, NAME.webp");
    schema.add("recipe.json", &recipe.json, "JSON instead of text; parse: one line an event");
    const Result<CommandLine> line = parse_command_line(args, schema, kSpec);
    if (!line.ok()) {
        fmt::print(stderr, "fathom recipe: {}\n", line.status().message());
        return kExitUsage;
    }
    if (line->help || line->positional.empty()) {
        fmt::print("{}", help_text(schema, kSpec));
        return line->help ? kExitOk : kExitUsage;
    }
    const Status status = run(line->positional, recipe);
    if (status.ok()) return kExitOk;
    fmt::print(stderr, "fathom recipe: {}\n", status.message());
    return kExitFailed;
}

}  // namespace fathom
