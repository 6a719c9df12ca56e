#include "base/utf8.h"

#include <cstdint>
#include <cstring>

#include "base/check.h"

namespace fathom {

int utf8_sequence(std::string_view text) {
    FATHOM_CHECK(!text.empty());
    // Past the end stands a byte that continues nothing.
    const auto byte = [&](std::size_t i) {
        return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
    };
    const unsigned lead = byte(0);
    if (lead < 0x80) return 1;
    if (lead < 0xc2 || lead > 0xf4) return -1;
    const int length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    const unsigned low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    const unsigned high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    if (byte(1) < low || byte(1) > high) return -1;
    for (int i = 2; i < length; ++i)
        if ((byte(static_cast<std::size_t>(i)) & 0xc0u) != 0x80) return -i;
    return length;
}

std::size_t utf8_valid_bytes(std::string_view text) {
    std::size_t used = 0;
    while (used < text.size()) {
        std::uint64_t eight = 0;
        if (text.size() - used >= sizeof(eight)) {
            std::memcpy(&eight, text.data() + used, sizeof(eight));
            if ((eight & 0x8080808080808080u) == 0) {
                used += sizeof(eight);
                continue;
            }
        }
        const int length = utf8_sequence(text.substr(used));
        if (length < 0) break;
        used += static_cast<std::size_t>(length);
    }
    return used;
}

}  // namespace fathom
