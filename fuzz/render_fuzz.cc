// Messages of any bytes: the prompt's text comes back from its ids, and no special token arises
// from the text. Each byte 0xFF ends a message, whose first byte chooses role and flags.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "recipe/prompt.h"

namespace {

using namespace fathom;

Message message_of(std::string_view bytes) {
    const std::uint8_t head = bytes.empty() ? 0 : static_cast<std::uint8_t>(bytes[0]);
    Message message;
    message.role = static_cast<Role>(head % 5);
    message.content = std::string(bytes.empty() ? "" : bytes.substr(1));
    message.prefix = (head & 0x08) != 0;
    if ((head & 0x10) != 0) message.reasoning_content = message.content.text;
    if ((head & 0x20) != 0) message.tool_calls = {{"1", "f", message.content.text}};
    if ((head & 0x40) != 0) message.content.append_image();
    if ((head & 0x80) != 0) message.tool_call_id = message.content.text;
    return message;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view input(reinterpret_cast<const char*>(data), size);
    Conversation conversation;
    conversation.thinking = size % 2 == 0;
    for (std::size_t begin = 0; begin < size;) {
        const std::size_t end = std::min(input.find('\xFF', begin), size);
        conversation.messages.push_back(message_of(input.substr(begin, end - begin)));
        begin = end + 1;
    }
    if (size % 3 == 0) conversation.tools = {{.name = std::string(input)}};
    const auto segments =
        render_prompt(conversation, {.dialect = size % 5 == 0 ? Dialect::v4 : Dialect::v41});
    if (!segments.ok()) return 0;
    for (std::size_t i = 0; i < segments->size(); ++i) {
        FATHOM_CHECK(!(*segments)[i].text.empty());
        FATHOM_CHECK(i == 0 || (*segments)[i].special || (*segments)[i - 1].special);
    }
    return 0;
}
