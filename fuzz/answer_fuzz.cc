// Any output of a model under any options gives an answer of every protocol that is JSON, streamed
// and whole. The first two bytes choose the options, the third the cuts and the protocol; the rest
// is the text.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/json.h"
#include "parsing_case.h"
#include "recipe/protocols/chat_events.h"
#include "recipe/protocols/messages_events.h"
#include "recipe/protocols/responses_events.h"
#include "recipe/utf8_text.h"

namespace {

using namespace fathom;

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
    const std::string text = utf8_lossy({reinterpret_cast<const char*>(data) + 3, size - 3});
    const OutputParser::Events events =
        parse_pieces(rules_of(data[0], data[1]), text, data[2], true);
    check_answer(events, options_of(data[0], data[1]).thinking_initial_stage, data[2] % 6);
    return 0;
}
