// Pictures as a request brings them, decoded. PNG, JPEG, GIF and WebP are told apart by their first
// bytes, whatever a media type says; of an animation the first frame counts. Any bytes are safe:
// the size that a header claims is checked before anything is decoded.
//
// What is transparent shows the grey that the encoder's margins have (resize.h). Orientation tags
// are not looked at, as the reference does not.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "recipe/image_tokens.h"

namespace fathom {

// What can be wrong with a picture or with the place where it should be. The names are those of the
// reference (golden/recipe, images.jsonl).
enum class ImageFault {
    empty,                 // no bytes
    unsupported_type,      // no known beginning, or a data URL of another type
    decode,                // damaged
    dimensions_too_large,  // a side beyond the limit
    too_large,             // one picture's bytes
    total_too_large,       // all pictures' bytes
    too_many,
    invalid_data_url,
    invalid_url,
    url_too_long,
    fetch,  // the download failed: the one fault that may pass
};
const char* image_fault_name(ImageFault fault);

struct ImageError {
    ImageFault fault = ImageFault::decode;
    std::string detail = {};  // for the log: what the decoder said
};
template <class T>
using ImageResult = tl::expected<T, ImageError>;
inline tl::unexpected<ImageError> image_error(ImageFault fault, std::string detail) {
    return tl::unexpected(ImageError{fault, std::move(detail)});
}

inline constexpr std::uint8_t kImageGrey = 127;

struct Picture {
    ImageSize size = {};
    std::vector<std::uint8_t> rgb = {};  // rows from the top, three bytes a pixel
};

// Neither side may exceed side_max.
ImageResult<Picture> decode_picture(std::string_view bytes, std::int64_t side_max);

// What decoders have in common.
namespace images {

inline const std::uint8_t* data_of(std::string_view bytes) {
    return reinterpret_cast<const std::uint8_t*>(bytes.data());
}
// ok for 1..side_max in both directions.
ImageResult<ImageSize> checked_size(std::int64_t width, std::int64_t height, std::int64_t side_max);
// Four bytes a pixel, the last one opacity, over grey.
Picture over_grey(ImageSize size, const std::uint8_t* rgba);

ImageResult<Picture> decode_png(std::string_view bytes, std::int64_t side_max);
ImageResult<Picture> decode_jpeg(std::string_view bytes, std::int64_t side_max);
ImageResult<Picture> decode_gif(std::string_view bytes, std::int64_t side_max);
ImageResult<Picture> decode_webp(std::string_view bytes, std::int64_t side_max);

}  // namespace images
}  // namespace fathom
