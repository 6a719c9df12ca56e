#include "recipe/protocols/image_source.h"

#include <array>
#include <cstddef>
#include <utility>

#include "recipe/protocols/fields.h"

namespace fathom {
namespace {

constexpr std::size_t kUrlBytesMax = 8192;

bool starts_with_ignoring_case(std::string_view text, std::string_view lower) {
    if (text.size() < lower.size()) return false;
    for (std::size_t i = 0; i < lower.size(); ++i) {
        const char c = text[i];
        if ((c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c) != lower[i]) return false;
    }
    return true;
}

bool is_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

bool is_base64_digit(char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' ||
           c == '/';
}

Status unsupported_image(std::string_view path) {
    return invalid_argument(
        "{}: You have uploaded an unsupported image. Please make sure your image is valid and has "
        "one of the following formats: webp, png, jpeg, and gif.",
        path);
}

Result<ImageSource> image_from_checked_url(std::string url, ImageDetail detail, std::string path) {
    if (url.size() > kUrlBytesMax) {
        return invalid_argument(
            "{}.image_url.url[0]: image_url.url external link length {} too long, max link length "
            "{}. Consider passing file data directly with base64 data url instead.",
            path, url.size(), kUrlBytesMax);
    }
    return ImageSource{ImageSource::Kind::url, detail, std::move(path), std::move(url)};
}

}  // namespace

Result<ImageDetail> image_detail(const Json* value) {
    if (value == nullptr || value->is_null()) return ImageDetail::high;
    static constexpr std::array<std::string_view, 4> kNames = {"low", "high", "original", "auto"};
    FATHOM_ASSIGN(const std::size_t name, json_variant(*value, kNames));
    return static_cast<ImageDetail>(name);
}

Result<ImageSource> image_from_url(std::string url, ImageDetail detail, std::string path) {
    if (starts_with_ignoring_case(url, "http"))
        return image_from_checked_url(std::move(url), detail, std::move(path));
    const std::string_view text = url;
    const std::size_t comma = text.find(',');
    constexpr std::string_view kScheme = "data:";
    constexpr std::string_view kBase64 = ";base64";
    if (!starts_with_ignoring_case(text, kScheme) || comma == std::string_view::npos ||
        !text.substr(0, comma).ends_with(kBase64))
        return invalid_argument("{}: Unsupported image_url format", path);
    if (!starts_with_ignoring_case(text.substr(kScheme.size()), "image/"))
        return unsupported_image(path);
    if (!is_base64(text.substr(comma + 1)))
        return invalid_argument("{}: Invalid base64 data", path);
    return ImageSource{ImageSource::Kind::data_url, detail, std::move(path), std::move(url)};
}

Result<ImageSource> image_from_web(std::string url, std::string path) {
    if (!starts_with_ignoring_case(url, "http"))
        return invalid_argument("{}: invalid url: {}", path, Json(url).dump());
    return image_from_checked_url(std::move(url), ImageDetail::high, std::move(path));
}

Result<ImageSource> image_from_base64(std::string_view media_type, std::string_view data,
                                      std::string path) {
    if (!is_base64(data)) return invalid_argument("{}: base64 decode error", path);
    const std::string_view type = media_type == "image/jpg" ? "image/jpeg" : media_type;
    return ImageSource{ImageSource::Kind::data_url, ImageDetail::high, std::move(path),
                       fmt::format("data:{};base64,{}", type, data)};
}

Result<ImageSource> image_from_file_data(std::string data, std::string path) {
    if (starts_with_ignoring_case(data, "data:"))
        return image_from_url(std::move(data), ImageDetail::high, std::move(path));
    if (!is_base64(data)) return invalid_argument("{}: Invalid base64 data", path);
    // How base64 begins: \x89PNG, \xff\xd8\xff, GIF8, and RIFF of whatever length.
    static constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kBeginnings = {
        {{"iVBORw", "image/png"},
         {"/9j/", "image/jpeg"},
         {"R0lGOD", "image/gif"},
         {"UklGR", "image/webp"}}};
    for (const auto& [beginning, type] : kBeginnings)
        if (data.starts_with(beginning)) return image_from_base64(type, data, std::move(path));
    return unsupported_image(path);
}

bool is_base64(std::string_view text) {
    std::size_t digits = 0;
    std::size_t padding = 0;
    for (const char c : text) {
        if (is_space(c)) continue;
        if (c == '=') {
            ++padding;
        } else if (padding == 0 && is_base64_digit(c)) {
            ++digits;
        } else {
            return false;
        }
    }
    if (digits % 4 == 1) return false;
    return padding == 0 || (digits + padding) % 4 == 0;
}

Status file_id_unsupported(std::string_view path) {
    return invalid_argument(
        "{}: file_id is not supported. Pass the image as a base64 data url instead.", path);
}

}  // namespace fathom
