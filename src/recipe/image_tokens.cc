#include "recipe/image_tokens.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace fathom {
namespace {

constexpr std::int64_t kPatch = 14;              // pixels a side
constexpr std::int64_t kMerge = 3;               // patches a side that become one token
constexpr std::int64_t kCell = kPatch * kMerge;  // pixels a side of a token
constexpr std::int64_t kTokensMax = 1024;
constexpr std::int64_t kFrameTokens = 2;  // besides the rows, which end in one token each
constexpr std::int64_t kCellsMax = kTokensMax - kFrameTokens;
constexpr std::uint64_t kAreaMin = 544 * 544;  // pixels; smaller pictures are enlarged
constexpr int kRoundsMax = 10;

std::int64_t round_up(std::int64_t value, std::int64_t step) {
    return (value + step - 1) / step * step;
}

// Of a size in whole patches.
std::int64_t tokens_of(ImageSize size) {
    const std::int64_t rows = round_up(size.height, kCell) / kCell;
    const std::int64_t columns = round_up(size.width, kCell) / kCell;
    return rows * (columns + 1) + kFrameTokens;
}

// The largest size of the shape width:height that has kTokensMax tokens at most.
ImageSize shrunk(double width, double height) {
    const double shape = height / width;
    const double columns = std::sqrt(static_cast<double>(kCellsMax) / shape + 0.25) - 0.5;
    const double rows = columns * shape;
    if (columns < 1) return {kCell, kCellsMax / 2 * kCell};
    if (rows < 1) return {(kCellsMax - 1) * kCell, kCell};
    const double scale = std::min(std::trunc(columns) * static_cast<double>(kCell) / width,
                                  std::trunc(rows) * static_cast<double>(kCell) / height);
    const auto side = [&](double pixels) {
        return static_cast<std::int64_t>(pixels * scale / static_cast<double>(kPatch)) * kPatch;
    };
    return {side(width), side(height)};
}

ImageSize one_round(ImageSize size) {
    const std::uint64_t area =
        static_cast<std::uint64_t>(size.width) * static_cast<std::uint64_t>(size.height);
    if (area > 0 && area < kAreaMin) {
        const double scale = std::sqrt(static_cast<double>(kAreaMin) / static_cast<double>(area));
        size.width = static_cast<std::int64_t>(static_cast<double>(size.width) * scale);
        size.height = static_cast<std::int64_t>(static_cast<double>(size.height) * scale);
    }
    const ImageSize whole{round_up(size.width, kPatch), round_up(size.height, kPatch)};
    if (tokens_of(whole) <= kTokensMax) return whole;
    return shrunk(static_cast<double>(size.width), static_cast<double>(size.height));
}

}  // namespace

ImageSize encoded_image_size(ImageSize picture) {
    constexpr std::int64_t kSideMax = std::numeric_limits<std::uint32_t>::max();
    FATHOM_CHECK(picture.width >= 0 && picture.width <= kSideMax, "image width");
    FATHOM_CHECK(picture.height >= 0 && picture.height <= kSideMax, "image height");
    for (int round = 0; round < kRoundsMax; ++round) {
        const ImageSize next = one_round(picture);
        if (next == picture) break;
        picture = next;
    }
    return picture;
}

std::int64_t image_token_count(ImageSize picture) {
    return tokens_of(encoded_image_size(picture));
}

}  // namespace fathom
