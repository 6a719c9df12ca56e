// images.jsonl.
#include <cstdlib>
#include <map>
#include <string>
#include <utility>

#include "recipe/image_tokens.h"
#include "recipe/images/encode_webp.h"
#include "recipe/images/image_resolver.h"
#include "recipe/vectors/difference.h"
#include "recipe/vectors/row_checks.h"
#include "recipe/vectors/rows.h"

namespace fathom {
namespace {

constexpr std::int64_t kPictureSideMax = 16'383;  // that can be made here

// "2x2 PNG" of the rows.
constexpr std::string_view kSmallPng =
    "data:image/"
    "png;base64,iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAAEElEQVR42mNgZGIGIgYIBQAArg"
    "AZby+zEgAAAABJRU5ErkJggg==";

std::string small_png() {
    return data_url_bytes(kSmallPng).value_or("");
}

Result<std::string> grey_picture(std::int64_t width, std::int64_t height) {
    if (width < 1 || height < 1 || width > kPictureSideMax || height > kPictureSideMax)
        return invalid_argument("a picture of {}x{} cannot be made", width, height);
    return encode_webp(
        {{width, height},
         std::vector<std::uint8_t>(static_cast<std::size_t>(width * height * 3), kImageGrey)});
}

std::string data_url(std::string_view bytes) {
    constexpr std::string_view kDigits = "0123456789ABCDEF";
    std::string url = "data:image/png,";
    for (const char c : bytes) {
        const auto byte = static_cast<unsigned char>(c);
        url += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
    }
    return url;
}

ImageDetail detail_of(std::string_view name) {
    return name == "low" ? ImageDetail::low : ImageDetail::high;
}

std::string without_last(std::string text, std::size_t count) {
    text.resize(text.size() - std::min(count, text.size()));
    return text;
}

// The row's picture: given, of a given size, or what the row's id says.
Result<std::string> input_picture(const Json& row) {
    if (row_has(row, "input_base64"))
        return data_url_bytes("data:image/png;base64," + row_text(row, "input_base64"))
            .value_or("");
    if (const std::vector<TokenId> size = row_ids(row_member(row, "input")); size.size() == 2)
        return grey_picture(size[0], size[1]);
    static const std::map<std::string, std::string, std::less<>> kDamaged = {
        {"preprocess_not_an_image", "hello"},
        {"preprocess_empty", ""},
        {"preprocess_truncated_png", without_last(small_png(), 30)},
        {"preprocess_gif_header_only", "GIF89a"},
        {"preprocess_jpeg_header_only", "\xff\xd8\xff\xe0"},
        {"preprocess_webp_header_only", std::string("RIFF\0\0\0\0WEBP", 12)},
        {"preprocess_bmp", std::string("BM\x46\0\0\0\0\0\0\0", 10)}};
    const auto known = kDamaged.find(row_text(row, "id"));
    if (known == kDamaged.end()) return invalid_argument("the row does not say which picture");
    return known->second;
}

std::string refusal_difference(const Json& golden, ImageFault fault, const std::string& message) {
    std::string difference =
        json_difference(".error.kind", row_member(golden, "kind"), image_fault_name(fault));
    if (difference.empty())
        difference = json_difference(".error.message", row_member(golden, "message"), message);
    if (difference.empty())
        difference = json_difference(".error.retryable", row_member(golden, "retryable"),
                                     fault == ImageFault::fetch);
    return difference;
}

// Empty when two pictures of one size differ by at most 3 of 255 a number, as a mean.
std::string pixel_difference(std::string_view golden, std::string_view ours) {
    const auto a = decode_picture(golden, kPictureSideMax);
    const auto b = decode_picture(ours, kPictureSideMax);
    if (!a || !b || a->size != b->size) return "output: not pictures of one size";
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < a->rgb.size(); ++i)
        sum += std::abs(a->rgb[i] - b->rgb[i]);
    const double mean = static_cast<double>(sum) / static_cast<double>(a->rgb.size());
    return mean <= 3 ? "" : fmt::format("output: numbers differ by {:.2f} on average", mean);
}

RowOutcome check_preprocess(const Json& row) {
    const Result<std::string> input = input_picture(row);
    if (!input.ok()) return RowOutcome::of(input.status().message());
    ImageLimits limits;
    limits.side = row_integer(row, "max_dimension_px", limits.side);
    limits.low_detail_side =
        row_integer(row, "low_detail_max_dimension_px", limits.low_detail_side);
    const auto image =
        prepare_image(*input, detail_of(row_text(row, "detail")), limits, limits.side);
    if (!image) {
        // A single picture has no path; the recorded text begins with its number.
        std::string message = image_fault_message(image.error().fault, "", "", limits);
        if (message.starts_with('.')) message.erase(0, 1);
        return RowOutcome::of(
            refusal_difference(row_member(row, "error"), image.error().fault, message));
    }
    std::string difference = json_difference(".width", row_member(row, "width"), image->size.width);
    if (difference.empty())
        difference = json_difference(".height", row_member(row, "height"), image->size.height);
    if (difference.empty())
        difference = json_difference(".tokens", row_member(row, "tokens"), image->tokens);
    if (difference.empty())
        difference = json_difference(
            ".format", row_member(row, "format"),
            image->webp.starts_with("RIFF") ? image->webp.substr(8, 8) : std::string());
    const std::string golden = row_text(row, "output_webp_base64");
    if (difference.empty() && !golden.empty())
        difference = pixel_difference(
            data_url_bytes("data:image/webp;base64," + golden).value_or(""), image->webp);
    return RowOutcome::of(std::move(difference));
}

// The sources that a row's texts stand for, and whether their sizes in bytes are the recorded ones.
struct Sources {
    std::vector<ImageSource> images = {};
    bool exact_bytes = true;

    void add(ImageSource::Kind kind, std::string location) {
        images.push_back({kind, ImageDetail::high, "P", std::move(location)});
    }
    Status add_grey(std::int64_t width, std::int64_t height) {
        FATHOM_ASSIGN(const std::string bytes, grey_picture(width, height));
        add(ImageSource::Kind::data_url, data_url(bytes));
        exact_bytes = false;
        return {};
    }
    void add_small(int count) {
        for (int i = 0; i < count; ++i)
            add(ImageSource::Kind::data_url, std::string(kSmallPng));
    }
};

Status add_described(std::string_view text, Sources& sources) {
    constexpr auto kData = ImageSource::Kind::data_url;
    if (text.starts_with("2x2 PNG")) {
        sources.add_small(1);
    } else if (text == "601 times the 2x2 PNG") {
        sources.add_small(601);
    } else if (text == "0 bytes") {
        sources.add(kData, "data:image/png,");
    } else if (text == "2 bytes") {
        sources.add(kData, "data:image/png,xx");
    } else if (text == "32 MiB + 8 bytes with a PNG head") {
        sources.add(kData, "data:image/png," + small_png().substr(0, 8) +
                               std::string(std::size_t{32} << 20, 'x'));
    } else if (text == "8193x1 PNG") {
        return sources.add_grey(8193, 1);
    } else if (text == "2000x1000 PNG, detail low") {
        FATHOM_RETURN_IF_ERROR(sources.add_grey(2000, 1000));
        sources.images.back().detail = ImageDetail::low;
    } else if (text == "13 small, one 4097x8") {
        sources.add_small(13);
        return sources.add_grey(4097, 8);
    } else if (text == "14 small, one 4097x8") {
        sources.add_small(14);
        return sources.add_grey(4097, 8);
    } else if (text == "14 small, one 4096x8") {
        sources.add_small(14);
        return sources.add_grey(4096, 8);
    } else if (text.ends_with("(8219 characters)")) {
        sources.add(ImageSource::Kind::url, "http://example.com/" + std::string(8219 - 19, 'a'));
    } else {
        return invalid_argument("an unknown source: {}", text.substr(0, 80));
    }
    return {};
}

Result<Sources> row_sources(const Json& row) {
    const std::string id = row_text(row, "id");
    Sources sources;
    for (const Json& item : row_items(row, "sources")) {
        if (!item.is_string()) return invalid_argument("a source that is no text");
        const std::string& text = item.as_string();
        const Status described = add_described(text, sources);
        if (described.ok()) continue;
        const bool url = id.starts_with("resolve_url_");
        if (!url && !id.starts_with("resolve_data_") && !id.starts_with("resolve_raw_"))
            return described;
        sources.add(url ? ImageSource::Kind::url : ImageSource::Kind::data_url, text);
    }
    if (sources.images.size() == 2) {
        sources.images[0].path = "A";
        sources.images[1].path = "B";
    }
    return sources;
}

RowOutcome check_resolve(const Json& row) {
    const Result<Sources> sources = row_sources(row);
    if (!sources.ok()) return RowOutcome::of(sources.status().message());
    const auto resolved = resolve_images(sources->images, {}, nullptr);
    if (!resolved) {
        return RowOutcome::of(refusal_difference(row_member(row, "error"), resolved.error().fault,
                                                 resolved.error().message));
    }
    Json::Array sizes;
    for (const ResolvedImage& image : resolved->images)
        sizes.push_back(Json::Array{image.size.width, image.size.height});
    std::string difference = json_difference(".sizes", row_member(row, "sizes"), Json(sizes));
    if (difference.empty())
        difference = json_difference(".token_adjustment", row_member(row, "token_adjustment"),
                                     resolved->token_adjustment());
    if (difference.empty())
        difference = json_difference(".image_count", row_member(row, "image_count"),
                                     static_cast<std::int64_t>(resolved->images.size()));
    if (difference.empty() && sources->exact_bytes)
        difference =
            json_difference(".byte_size", row_member(row, "byte_size"), resolved->source_bytes);
    return RowOutcome::of(std::move(difference));
}

RowOutcome check_token_count(const Json& row) {
    const std::int64_t width = row_integer(row, "width", -1);
    const std::int64_t height = row_integer(row, "height", -1);
    constexpr std::int64_t kSideMax = (std::int64_t{1} << 32) - 1;
    if (width < 0 || height < 0 || width > kSideMax || height > kSideMax)
        return RowOutcome::of("width or height is missing or not a side of a picture");
    return RowOutcome::of(
        json_difference(".tokens", row_member(row, "tokens"), image_token_count({width, height})));
}

}  // namespace

RowOutcome check_image(const Json& row) {
    const std::string kind = row_text(row, "kind");
    if (kind == "token_count") return check_token_count(row);
    if (kind == "preprocess") return check_preprocess(row);
    if (kind == "resolve") return check_resolve(row);
    return RowOutcome::of(
        fmt::format("kind: \"{}\" is none of token_count, preprocess, resolve", kind));
}

}  // namespace fathom
