#include <png.h>

#include <memory>

#include "recipe/images/picture.h"

namespace fathom::images {

ImageResult<Picture> decode_png(std::string_view bytes, std::int64_t side_max) {
    png_image image{};
    image.version = PNG_IMAGE_VERSION;
    const std::unique_ptr<png_image, decltype(&png_image_free)> freed(&image, png_image_free);
    if (png_image_begin_read_from_memory(&image, bytes.data(), bytes.size()) == 0)
        return image_error(ImageFault::decode, image.message);
    const ImageResult<ImageSize> size = checked_size(image.width, image.height, side_max);
    if (!size) return tl::unexpected(size.error());
    image.format = PNG_FORMAT_RGBA;
    std::vector<std::uint8_t> rgba(PNG_IMAGE_SIZE(image));
    if (png_image_finish_read(&image, nullptr, rgba.data(), 0, nullptr) == 0)
        return image_error(ImageFault::decode, image.message);
    return over_grey(*size, rgba.data());
}

}  // namespace fathom::images
