#include "recipe/images/image_resolver.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "base/json.h"
#include "recipe/images/encode_webp.h"
#include "recipe/images/resize.h"

namespace fathom {

namespace {

constexpr std::int64_t kPatch = 14;
// The largest multiple of the encoder's patch that a WebP can hold.
constexpr std::int64_t kWebpSideMax = 16'380;
constexpr std::size_t kSourceShownMax = 256;

ImageSize shrunk(ImageSize size, std::int64_t side) {
    const std::int64_t longer = std::max(size.width, size.height);
    if (longer <= side) return size;
    const double ratio = static_cast<double>(side) / static_cast<double>(longer);
    const auto scaled = [&](std::int64_t length) {
        return std::max<std::int64_t>(std::llround(static_cast<double>(length) * ratio), 1);
    };
    return {scaled(size.width), scaled(size.height)};
}

// The size of what is handed on. One that no WebP can hold is shrunk, its sides rounded up to whole
// patches; the smaller one may then be too small in area, so the rule is asked again. How it goes
// on was found from the recorded sizes of very long pictures.
ImageSize handed_on_size(ImageSize picture) {
    ImageSize size = encoded_image_size(picture);
    constexpr int kRoundsMax = 10;
    for (int round = 0; round < kRoundsMax; ++round) {
        const std::int64_t longer = std::max(size.width, size.height);
        if (longer <= kWebpSideMax) return size;
        const auto scaled = [&](std::int64_t side) {
            const std::int64_t patches = kPatch * longer;
            return (side * kWebpSideMax + patches - 1) / patches * kPatch;
        };
        size = encoded_image_size({scaled(size.width), scaled(size.height)});
    }
    return {std::min(size.width, kWebpSideMax), std::min(size.height, kWebpSideMax)};
}

bool is_web_url(std::string_view url) {
    const std::size_t colon = url.find("://");
    if (colon == std::string_view::npos) return false;
    std::string scheme(url.substr(0, colon));
    std::transform(scheme.begin(), scheme.end(), scheme.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
    return scheme == "http" || scheme == "https";
}

ImageResult<std::string> read_source(const ImageSource& source, const ImageLimits& limits,
                                     const FetchImage& fetch) {
    if (source.kind == ImageSource::Kind::data_url) return data_url_bytes(source.location);
    if (!is_web_url(source.location)) return image_error(ImageFault::invalid_url, "not http(s)");
    if (source.location.size() > limits.url_bytes) return image_error(ImageFault::url_too_long, "");
    if (!fetch) return image_error(ImageFault::fetch, "downloads are off");
    Result<std::string> bytes = fetch(source.location, limits.image_bytes);
    if (!bytes.ok()) return image_error(ImageFault::fetch, bytes.status().to_string());
    return std::move(*bytes);
}

}  // namespace

std::int64_t ResolvedImages::token_adjustment() const {
    std::int64_t sum = 0;
    for (const ResolvedImage& image : images)
        sum += image.tokens - 1;
    return sum;
}

std::string image_fault_message(ImageFault fault, std::string_view path, std::string_view location,
                                const ImageLimits& limits) {
    switch (fault) {
        case ImageFault::too_many:
            return {};  // the number is the caller's
        case ImageFault::too_large:
            return fmt::format("{}.image[0]: image file size exceeds limit {} MB", path,
                               limits.image_bytes >> 20);
        case ImageFault::total_too_large:
            return fmt::format("{}.image[0]: image file sizes together exceed limit {} MB", path,
                               limits.total_bytes >> 20);
        case ImageFault::invalid_url:
            return fmt::format("{}: invalid url: {}", path,
                               Json(location.substr(0, kSourceShownMax)).dump());
        case ImageFault::url_too_long:
            return fmt::format("{}: external link length {} too long, max link length {}", path,
                               location.size(), limits.url_bytes);
        case ImageFault::fetch:
            return fmt::format("{}.image[0]: Failed to download image from {}", path, location);
        default:
            return fmt::format(
                "{}.image[0]: You have uploaded an unsupported image. Please make sure your image "
                "is valid and has one of the following formats: webp, png, jpeg, and gif.",
                path);
    }
}

ImageResult<ResolvedImage> prepare_image(std::string_view bytes, ImageDetail detail,
                                         const ImageLimits& limits, std::int64_t side_max) {
    if (static_cast<std::int64_t>(bytes.size()) > limits.image_bytes)
        return image_error(ImageFault::too_large, fmt::format("{} bytes", bytes.size()));
    const ImageResult<Picture> picture = decode_picture(bytes, side_max);
    if (!picture) return tl::unexpected(picture.error());
    const ImageSize wanted =
        detail == ImageDetail::low ? shrunk(picture->size, limits.low_detail_side) : picture->size;
    const ImageSize size = handed_on_size(wanted);
    Result<std::string> webp = encode_webp(fit_picture(*picture, size));
    if (!webp.ok()) return image_error(ImageFault::decode, webp.status().message());
    return ResolvedImage{size, image_token_count(size), std::move(*webp)};
}

tl::expected<ResolvedImages, ImageRefusal> resolve_images(std::span<const ImageSource> sources,
                                                          const ImageLimits& limits,
                                                          const FetchImage& fetch) {
    if (sources.size() > limits.images)
        return tl::unexpected(ImageRefusal{
            ImageFault::too_many, fmt::format("Too many images: max {} images per request, got {}",
                                              limits.images, sources.size())});
    const std::int64_t side = sources.size() >= limits.many_images
                                  ? std::min(limits.side, limits.side_of_many)
                                  : limits.side;
    ResolvedImages result;
    for (const ImageSource& source : sources) {
        const auto refuse = [&](const ImageError& error) {
            return tl::unexpected(ImageRefusal{
                error.fault, image_fault_message(error.fault, source.path, source.location, limits),
                error.detail});
        };
        const ImageResult<std::string> bytes = read_source(source, limits, fetch);
        if (!bytes) return refuse(bytes.error());
        result.source_bytes += static_cast<std::int64_t>(bytes->size());
        if (result.source_bytes > limits.total_bytes)
            return refuse({ImageFault::total_too_large, {}});
        ImageResult<ResolvedImage> image = prepare_image(*bytes, source.detail, limits, side);
        if (!image) return refuse(image.error());
        result.images.push_back(std::move(*image));
    }
    return result;
}

}  // namespace fathom
