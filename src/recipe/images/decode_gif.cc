#include <gif_lib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include "recipe/images/picture.h"

namespace fathom::images {

namespace {

int read_some(GifFileType* file, GifByteType* out, int bytes) {
    auto& rest = *static_cast<std::string_view*>(file->UserData);
    const std::size_t count = std::min(rest.size(), static_cast<std::size_t>(std::max(bytes, 0)));
    std::memcpy(out, rest.data(), count);
    rest.remove_prefix(count);
    return static_cast<int>(count);
}

struct Close {
    void operator()(GifFileType* file) const { DGifCloseFile(file, nullptr); }
};

tl::unexpected<ImageError> damaged(int code) {
    const char* text = GifErrorString(code);
    return image_error(ImageFault::decode, text != nullptr ? text : "a damaged GIF");
}

// Reads records up to the first picture; its transparent colour, or −1.
ImageResult<int> find_picture(GifFileType* file) {
    int transparent = -1;
    for (;;) {
        GifRecordType type = UNDEFINED_RECORD_TYPE;
        if (DGifGetRecordType(file, &type) == GIF_ERROR) return damaged(file->Error);
        if (type == IMAGE_DESC_RECORD_TYPE) return transparent;
        if (type != EXTENSION_RECORD_TYPE) return image_error(ImageFault::decode, "no picture");
        int code = 0;
        GifByteType* block = nullptr;
        if (DGifGetExtension(file, &code, &block) == GIF_ERROR) return damaged(file->Error);
        while (block != nullptr) {
            GraphicsControlBlock control;
            if (code == GRAPHICS_EXT_FUNC_CODE &&
                DGifExtensionToGCB(block[0], block + 1, &control) == GIF_OK)
                transparent = control.TransparentColor;
            if (DGifGetExtensionNext(file, &block) == GIF_ERROR) return damaged(file->Error);
        }
    }
}

}  // namespace

ImageResult<Picture> decode_gif(std::string_view bytes, std::int64_t side_max) {
    int code = 0;
    const std::unique_ptr<GifFileType, Close> file(DGifOpen(&bytes, read_some, &code));
    if (file == nullptr) return damaged(code);
    const ImageResult<ImageSize> size = checked_size(file->SWidth, file->SHeight, side_max);
    if (!size) return tl::unexpected(size.error());
    const ImageResult<int> transparent = find_picture(file.get());
    if (!transparent) return tl::unexpected(transparent.error());
    if (DGifGetImageDesc(file.get()) == GIF_ERROR) return damaged(file->Error);
    const GifImageDesc& frame = file->Image;
    const ColorMapObject* colours = frame.ColorMap != nullptr ? frame.ColorMap : file->SColorMap;
    if (colours == nullptr) return image_error(ImageFault::decode, "no colours");
    const ImageResult<ImageSize> inner = checked_size(frame.Width, frame.Height, side_max);
    if (!inner) return tl::unexpected(inner.error());

    const auto width = static_cast<std::size_t>(size->width);
    std::vector<std::uint8_t> rgba(width * static_cast<std::size_t>(size->height) * 4);
    std::vector<GifByteType> line(static_cast<std::size_t>(frame.Width));
    // The rows of an interlaced picture come in four passes.
    static constexpr std::array kFirst = {0, 4, 2, 1};
    static constexpr std::array kStep = {8, 8, 4, 2};
    for (std::size_t pass = frame.Interlace ? 0 : 3; pass < 4; ++pass) {
        const int first = frame.Interlace ? kFirst[pass] : 0;
        const int step = frame.Interlace ? kStep[pass] : 1;
        for (int y = first; y < frame.Height; y += step) {
            if (DGifGetLine(file.get(), line.data(), frame.Width) == GIF_ERROR)
                return damaged(file->Error);
            const std::int64_t row = std::int64_t{frame.Top} + y;
            if (row < 0 || row >= size->height) continue;
            for (int x = 0; x < frame.Width; ++x) {
                const std::int64_t column = std::int64_t{frame.Left} + x;
                const int index = line[static_cast<std::size_t>(x)];
                if (column < 0 || column >= size->width || index == *transparent ||
                    index >= colours->ColorCount)
                    continue;
                const GifColorType& colour = colours->Colors[index];
                std::uint8_t* out =
                    rgba.data() +
                    (static_cast<std::size_t>(row) * width + static_cast<std::size_t>(column)) * 4;
                out[0] = colour.Red;
                out[1] = colour.Green;
                out[2] = colour.Blue;
                out[3] = 255;
            }
        }
    }
    return over_grey(*size, rgba.data());
}

}  // namespace fathom::images
