// Any bytes as a picture: decoded or refused, and what is decoded has the size that it says. Sides
// are kept small so that time goes into the parsers.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "recipe/images/image_resolver.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace fathom;
    const std::string_view bytes(reinterpret_cast<const char*>(data), size);
    constexpr std::int64_t kSideMax = 256;
    if (const auto picture = decode_picture(bytes, kSideMax)) {
        const auto pixels = picture->size.width * picture->size.height;
        FATHOM_CHECK(pixels > 0 && static_cast<std::int64_t>(picture->rgb.size()) == 3 * pixels);
    }
    (void)data_url_bytes(bytes);
    return 0;
}
