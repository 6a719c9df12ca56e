#include "recipe/images/picture.h"

#include <array>

namespace fathom {

const char* image_fault_name(ImageFault fault) {
    static constexpr std::array kNames = {
        "EmptyImage",    "UnsupportedMediaType", "Decode",        "ImageDimensionsTooLarge",
        "ImageTooLarge", "ImagesTooLarge",       "TooManyImages", "InvalidDataUrl",
        "InvalidUrl",    "UrlTooLong",           "Fetch"};
    return kNames[static_cast<std::size_t>(fault)];
}

ImageResult<Picture> decode_picture(std::string_view bytes, std::int64_t side_max) {
    if (bytes.empty()) return image_error(ImageFault::empty, "no bytes");
    if (bytes.starts_with("\x89PNG\r\n\x1a\n")) return images::decode_png(bytes, side_max);
    if (bytes.starts_with("\xff\xd8\xff")) return images::decode_jpeg(bytes, side_max);
    if (bytes.starts_with("GIF87a") || bytes.starts_with("GIF89a"))
        return images::decode_gif(bytes, side_max);
    if (bytes.starts_with("RIFF") && bytes.substr(0, 12).ends_with("WEBP"))
        return images::decode_webp(bytes, side_max);
    return image_error(ImageFault::unsupported_type, "the first bytes are of no known format");
}

namespace images {

ImageResult<ImageSize> checked_size(std::int64_t width, std::int64_t height,
                                    std::int64_t side_max) {
    if (width < 1 || height < 1)
        return image_error(ImageFault::decode, fmt::format("a size of {}x{}", width, height));
    if (width > side_max || height > side_max) {
        return image_error(
            ImageFault::dimensions_too_large,
            fmt::format("a size of {}x{}, beyond {} pixels a side", width, height, side_max));
    }
    return ImageSize{width, height};
}

Picture over_grey(ImageSize size, const std::uint8_t* rgba) {
    const std::int64_t pixels = size.width * size.height;
    Picture picture{size, std::vector<std::uint8_t>(static_cast<std::size_t>(pixels * 3))};
    std::uint8_t* out = picture.rgb.data();
    for (std::int64_t i = 0; i < pixels; ++i, rgba += 4) {
        const int opacity = rgba[3];
        for (int c = 0; c < 3; ++c)
            *out++ = static_cast<std::uint8_t>(
                (rgba[c] * opacity + kImageGrey * (255 - opacity) + 127) / 255);
    }
    return picture;
}

}  // namespace images
}  // namespace fathom
