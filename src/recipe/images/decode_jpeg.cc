#include <turbojpeg.h>

#include <memory>

#include "recipe/images/picture.h"

namespace fathom::images {

namespace {

// Printing colours as stored by Adobe's programs: inverted.
Picture from_cmyk(ImageSize size, const std::uint8_t* cmyk) {
    const std::int64_t pixels = size.width * size.height;
    Picture picture{size, std::vector<std::uint8_t>(static_cast<std::size_t>(pixels * 3))};
    std::uint8_t* out = picture.rgb.data();
    for (std::int64_t i = 0; i < pixels; ++i, cmyk += 4)
        for (int c = 0; c < 3; ++c)
            *out++ = static_cast<std::uint8_t>((cmyk[c] * cmyk[3] + 127) / 255);
    return picture;
}

}  // namespace

ImageResult<Picture> decode_jpeg(std::string_view bytes, std::int64_t side_max) {
    const std::unique_ptr<void, decltype(&tjDestroy)> decoder(tjInitDecompress(), tjDestroy);
    if (decoder == nullptr) return image_error(ImageFault::decode, "no decoder");
    int width = 0, height = 0, subsampling = 0, colours = 0;
    if (tjDecompressHeader3(decoder.get(), data_of(bytes), bytes.size(), &width, &height,
                            &subsampling, &colours) != 0)
        return image_error(ImageFault::decode, tjGetErrorStr2(decoder.get()));
    const ImageResult<ImageSize> size = checked_size(width, height, side_max);
    if (!size) return tl::unexpected(size.error());
    const bool cmyk = colours == TJCS_CMYK || colours == TJCS_YCCK;
    const int format = cmyk ? TJPF_CMYK : TJPF_RGB;
    Picture picture{*size, std::vector<std::uint8_t>(static_cast<std::size_t>(
                               size->width * size->height * tjPixelSize[format]))};
    if (tjDecompress2(decoder.get(), data_of(bytes), bytes.size(), picture.rgb.data(), width, 0,
                      height, format, 0) != 0) {
        // Warnings are common and harmless, but for a picture of which a part is missing.
        const std::string_view message = tjGetErrorStr2(decoder.get());
        if (tjGetErrorCode(decoder.get()) != TJERR_WARNING ||
            message.find("Premature end") != std::string_view::npos)
            return image_error(ImageFault::decode, std::string(message));
    }
    return cmyk ? from_cmyk(*size, picture.rgb.data()) : std::move(picture);
}

}  // namespace fathom::images
