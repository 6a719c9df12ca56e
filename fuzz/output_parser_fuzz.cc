// Any bytes, cut anywhere, under any options must parse without harm, and what comes out must not
// depend on the cuts. The first two bytes choose the options, the third the cuts; the rest is the
// text.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "parsing_case.h"
#include "recipe/utf8_text.h"

namespace {

using namespace fathom;
using Kind = OutputEvent::Kind;

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

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 3) return 0;
    const auto rules = rules_of(data[0], data[1]);
    const bool json = (data[0] & 8) != 0;
    const std::uint32_t cut_seed = data[2] + 1U;
    const std::string_view bytes(reinterpret_cast<const char*>(data) + 3, size - 3);

    // Of text that is UTF-8 the result is the same for all cuts between characters.
    const std::string text = utf8_lossy(bytes);
    if (text != bytes) parse_pieces(rules, bytes, cut_seed, false);
    const OutputParser::Events whole = parse_pieces(rules, text, 0, true);
    const OutputParser::Events cut = parse_pieces(rules, text, cut_seed, true);
    FATHOM_CHECK(summary(whole, json) == summary(cut, json));
    if (rules->valid_arguments()) check_arguments(cut);
    return 0;
}
