// From the pictures that a request names to those that a vision encoder gets (recipe.md 2.9): read
// from data URLs or downloaded, checked, decoded, brought to the encoder's size, as WebP.
//
//   ImageSource ── resolve_images ──> ResolvedImage {size, tokens, webp}
//
// Pure but for the download, which the caller brings: whoever owns the network decides which
// addresses may be reached. Any bytes are safe. Any thread; a picture of the largest size takes
// 600 MB and some seconds, so not the network's.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/images/picture.h"
#include "recipe/protocols/image_source.h"

namespace fathom {

struct ImageLimits {
    std::size_t images = 600;
    std::int64_t image_bytes = std::int64_t{32} << 20;
    std::int64_t total_bytes = std::int64_t{64} << 20;
    std::int64_t side = 8192;            // pixels
    std::size_t many_images = 15;        // from so many on
    std::int64_t side_of_many = 4096;    //   this is the limit
    std::int64_t low_detail_side = 512;  // larger pictures of low detail are shrunk to it
    std::size_t url_bytes = 8192;
};

struct ResolvedImage {
    ImageSize size = {};  // of `webp`
    std::int64_t tokens = 0;
    std::string webp = {};
};

struct ResolvedImages {
    std::vector<ResolvedImage> images = {};  // in the order of the sources
    std::int64_t source_bytes = 0;           // as they came
    // Tokens of the model's input that the prompt does not spell: each image has one in it.
    std::int64_t token_adjustment() const;
};

// Gets the bytes behind an http(s) URL, at most so many; more of them is a failure like others.
using FetchImage =
    std::function<Result<std::string>(const std::string& url, std::int64_t bytes_max)>;

// A picture's bytes to what the encoder gets.
ImageResult<ResolvedImage> prepare_image(std::string_view bytes, ImageDetail detail,
                                         const ImageLimits& limits, std::int64_t side_max);

// The first fault, in the order of the sources, with the text that the client gets. Without `fetch`
// every download fails.
struct ImageRefusal {
    ImageFault fault = ImageFault::decode;
    std::string message = {};
    std::string detail = {};  // for the log
    // 500 instead of 400: the same request may succeed later.
    bool retryable() const { return fault == ImageFault::fetch; }
};
tl::expected<ResolvedImages, ImageRefusal> resolve_images(std::span<const ImageSource> sources,
                                                          const ImageLimits& limits,
                                                          const FetchImage& fetch);
// The text for a picture whose content is at fault, or for its source; `path` names it.
std::string image_fault_message(ImageFault fault, std::string_view path, std::string_view location,
                                const ImageLimits& limits);

// The bytes of a data URL of an image: base64, with white space and without padding if need be, or
// percent-encoded.
ImageResult<std::string> data_url_bytes(std::string_view url);

}  // namespace fathom
