#include <webp/decode.h>
#include <webp/demux.h>
#include <webp/encode.h>

#include <memory>

#include "recipe/images/encode_webp.h"
#include "recipe/images/picture.h"

namespace fathom {

namespace images {

ImageResult<Picture> decode_webp(std::string_view bytes, std::int64_t side_max) {
    WebPBitstreamFeatures features;
    if (WebPGetFeatures(data_of(bytes), bytes.size(), &features) != VP8_STATUS_OK)
        return image_error(ImageFault::decode, "a damaged WebP header");
    const ImageResult<ImageSize> size = checked_size(features.width, features.height, side_max);
    if (!size) return tl::unexpected(size.error());
    if (features.has_animation != 0) {
        const WebPData data{data_of(bytes), bytes.size()};
        const std::unique_ptr<WebPAnimDecoder, decltype(&WebPAnimDecoderDelete)> decoder(
            WebPAnimDecoderNew(&data, nullptr), WebPAnimDecoderDelete);
        std::uint8_t* frame = nullptr;
        int time_ms = 0;
        if (decoder == nullptr || WebPAnimDecoderGetNext(decoder.get(), &frame, &time_ms) == 0)
            return image_error(ImageFault::decode, "a damaged first frame");
        return over_grey(*size, frame);
    }
    std::vector<std::uint8_t> rgba(static_cast<std::size_t>(size->width * size->height * 4));
    const auto stride = static_cast<int>(size->width * 4);
    if (WebPDecodeRGBAInto(data_of(bytes), bytes.size(), rgba.data(), rgba.size(), stride) ==
        nullptr)
        return image_error(ImageFault::decode, "a damaged WebP picture");
    return over_grey(*size, rgba.data());
}

}  // namespace images

Result<std::string> encode_webp(const Picture& picture) {
    constexpr float kQuality = 90;
    std::uint8_t* out = nullptr;
    const std::size_t bytes =
        WebPEncodeRGB(picture.rgb.data(), static_cast<int>(picture.size.width),
                      static_cast<int>(picture.size.height),
                      static_cast<int>(picture.size.width * 3), kQuality, &out);
    const std::unique_ptr<std::uint8_t, decltype(&WebPFree)> freed(out, WebPFree);
    if (bytes == 0)
        return error(StatusCode::internal, "no WebP of a picture of {}x{}", picture.size.width,
                     picture.size.height);
    return std::string(reinterpret_cast<const char*>(out), bytes);
}

}  // namespace fathom
