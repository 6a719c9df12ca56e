// Any bytes, cut anywhere, under any options must parse without harm, and what comes out must not
// depend on the cuts. The first two bytes choose the options, the third the cuts and the form of
// the answer; the rest is the text. The builder of one protocol is fed as well: what it gives is
// JSON.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/json.h"
#include "base/utf8.h"
#include "recipe/output_parser.h"
#include "recipe/protocols/chat_events.h"
#include "recipe/protocols/messages_events.h"
#include "recipe/protocols/responses_events.h"
#include "recipe/utf8_text.h"

namespace {

using namespace fathom;
using Kind = OutputEvent::Kind;

ParsingOptions options_of(std::uint8_t flags, std::uint8_t stops) {
    static const std::vector<std::string> kStops = {"STOP", "ST", "\n", "</think>",
                                                    "<｜",  "}",  "é",  ""};
    ParsingOptions options{.parse_tool_calls = (flags & 1) != 0,
                           .starts_in_tool_calls = (flags & 6) == 6,
                           .parse_json_output = (flags & 8) != 0,
                           .thinking_initial_stage = static_cast<ThinkingStage>(flags >> 4 & 3)};
    options.valid_arguments = (stops & 0x80) != 0;
    for (std::size_t i = 0; i < kStops.size(); ++i) {
        if ((stops >> i & 1) != 0) options.stop_sequences.push_back(kStops[i]);
    }
    return options;
}

// Everything that must not depend on the cuts, as one text.
std::string summary(const OutputParser::Events& events, bool ignore_spaces) {
    std::string texts[3];
    for (const OutputEvent& event : events) {
        if (event.kind == Kind::content) texts[0] += event.text;
        if (event.kind == Kind::reasoning) texts[1] += event.text;
        if (event.kind == Kind::tool_call) texts[2] += "\n" + event.text + "\n";
        if (event.kind == Kind::arguments) texts[2] += event.text;
        if (event.kind == Kind::finish) {
            texts[2] += "\n\n" + event.text + std::to_string(static_cast<int>(event.finish));
        }
    }
    if (ignore_spaces) std::erase(texts[0], ' ');
    return texts[0] + "\n\n" + texts[1] + "\n\n" + texts[2];
}

OutputParser::Events parse(const ParsingOptions& options, std::string_view text,
                           std::uint32_t cut_seed, bool at_characters) {
    OutputParser parser(options);
    OutputParser::Events events;
    while (!text.empty()) {
        std::size_t size = text.size();
        if (cut_seed != 0) {
            cut_seed = cut_seed * 1664525 + 1013904223;
            size = 0;
            for (std::uint32_t left = 1 + (cut_seed >> 24) % 5; left > 0 && size < text.size();
                 --left) {
                const int step = utf8_sequence(text.substr(size));
                size += at_characters ? static_cast<std::size_t>(step < 0 ? -step : step) : 1;
            }
        }
        parser.push(TextChunk{.content = text.substr(0, size), .content_tokens = 1}, events);
        text.remove_prefix(size);
    }
    parser.end(events);
    FATHOM_CHECK(parser.finished());
    return events;
}

// Of each call, once the model has ended by itself.
void check_arguments(const OutputParser::Events& events) {
    std::string arguments;
    bool called = false;
    for (const OutputEvent& event : events) {
        if (called && (event.kind == Kind::tool_call || event.kind == Kind::finish))
            FATHOM_CHECK(parse_json(arguments).ok(), arguments);
        if (event.kind == Kind::tool_call) {
            called = true;
            arguments.clear();
        }
        if (event.kind == Kind::arguments) arguments += event.text;
    }
}

// One protocol's answer, streamed or whole: 0 to 5.
void check_answer(const OutputParser::Events& events, ThinkingStage stage, int form) {
    AnswerSettings settings{.id = "ID",
                            .model = "m",
                            .stream = form < 3,
                            .thinking = stage,
                            .call_ids = random_call_ids(1)};
    std::unique_ptr<AnswerBuilder> builder;
    if (form % 3 == 0) builder = make_chat_answer(settings, {});
    if (form % 3 == 1) builder = make_messages_answer(settings);
    if (form % 3 == 2) {
        builder = make_responses_answer(settings, {.custom_tools = {"f", ""}, .tool_search = true});
    }
    std::vector<StreamPayload> payloads;
    for (const OutputEvent& event : events)
        builder->add(event, payloads);
    // All at once, which is several times as fast as one by one.
    std::string array = "[";
    for (const StreamPayload& payload : payloads)
        array += (array.size() == 1 ? "" : ",") + payload.json;
    const auto parsed = parse_json(array + "]");
    FATHOM_CHECK(parsed.ok() && parsed->items().size() == payloads.size(), array);
    if (!settings.stream) FATHOM_CHECK(parse_json(builder->answer()).ok(), builder->answer());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 3) return 0;
    const ParsingOptions options = options_of(data[0], data[1]);
    const std::uint32_t cut_seed = data[2] + 1U;
    const std::string_view bytes(reinterpret_cast<const char*>(data) + 3, size - 3);

    parse(options, bytes, cut_seed, false);
    // Of text that is UTF-8 the result is the same for all cuts between characters.
    const std::string text = utf8_lossy(bytes);
    const OutputParser::Events whole = parse(options, text, 0, true);
    const OutputParser::Events cut = parse(options, text, cut_seed, true);
    FATHOM_CHECK(summary(whole, options.parse_json_output) ==
                 summary(cut, options.parse_json_output));
    if (options.valid_arguments) check_arguments(cut);
    // The parser is what is looked for faults in; answers cost more than it does.
    const int form = data[2] % 16;
    if (form < 6) check_answer(cut, options.thinking_initial_stage, form);
    return 0;
}
