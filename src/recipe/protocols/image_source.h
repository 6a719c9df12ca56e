// Pictures that a request names, before anything is fetched or decoded (recipe.md 2.9, 4.1).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace fathom {

enum class ImageDetail { low, high, original, automatic };

struct ImageSource {
    enum class Kind { url, data_url };
    Kind kind = Kind::url;
    ImageDetail detail = ImageDetail::high;
    std::string path;      // where in the request, for messages: ".messages[0]"
    std::string location;  // the http(s) URL, or the whole data URL
};

// low, high, original or auto; absent and null are high.
Result<ImageDetail> image_detail(const Json* value);

// Chat and Responses: an http(s) URL of at most 8192 bytes, which is not parsed, or a base64 data
// URL of an image type. The data are checked, not kept decoded. invalid_argument names `path`.
Result<ImageSource> image_from_url(std::string url, ImageDetail detail, std::string path);

// Messages: an http(s) URL, or base64 data of one of the five image types, of which a data URL is
// made. `media_type` is one of kImageMediaTypes.
Result<ImageSource> image_from_web(std::string url, std::string path);
Result<ImageSource> image_from_base64(std::string_view media_type, std::string_view data,
                                      std::string path);
inline constexpr std::array<std::string_view, 5> kImageMediaTypes = {
    "image/jpeg", "image/jpg", "image/png", "image/gif", "image/webp"};

// Chat, in the profile `open`: a file's content as a data URL, or as base64 alone when its first
// bytes are those of a PNG, JPEG, GIF or WebP.
Result<ImageSource> image_from_file_data(std::string data, std::string path);

// The only faults of base64 text are other characters and a length that no bytes give: white space
// and missing padding are accepted.
bool is_base64(std::string_view text);

// The message for a `file_id` in place of a picture.
Status file_id_unsupported(std::string_view path);

}  // namespace fathom
