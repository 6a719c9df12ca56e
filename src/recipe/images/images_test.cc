#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/random.h"
#include "recipe/images/encode_webp.h"
#include "recipe/images/image_resolver.h"
#include "recipe/images/resize.h"

namespace fathom {
namespace {

constexpr std::int64_t kSideMax = 8192;

std::string base64(std::string_view text) {
    return data_url_bytes("data:image/png;base64," + std::string(text)).value();
}

// 2×1: red, and a transparent white.
std::string rgba_png() {
    return base64(
        "iVBORw0KGgoAAAANSUhEUgAAAAIAAAABCAYAAAD0In+KAAAAEUlEQVR4nGP4z8Dw/////wwAFfME/"
        "G+LqocAAAAASUVORK5CYII=");
}
// 2×2 in printing colours: no cyan's complement, all of the others.
std::string cmyk_jpeg() {
    return base64(
        "/9j/7gAOQWRvYmUAZAAAAAAA/"
        "9sAQwACAQEBAQECAQEBAgICAgIEAwICAgIFBAQDBAYFBgYGBQYGBgcJCAYHCQcGBggL"
        "CAkKCgoKCgYICwwLCgwJCgoK/8AAFAgAAgACBEMRAE0RAFkRAEsRAP/"
        "EAB8AAAEFAQEBAQEBAAAAAAAAAAABAgMEBQYHCAkKC//"
        "EALUQAAIBAwMCBAMFBQQEAAABfQECAwAEEQUSITFBBhNRYQci"
        "cRQygZGhCCNCscEVUtHwJDNicoIJChYXGBkaJSYnKCkqNDU2Nzg5OkNERUZHSElKU1RVVldYWVpjZGVmZ2hpanN0dX"
        "Z3"
        "eHl6g4SFhoeIiYqSk5SVlpeYmZqio6Slpqeoqaqys7S1tre4ubrCw8TFxsfIycrS09TV1tfY2drh4uPk5ebn6Onq8f"
        "Lz"
        "9PX29/j5+v/aAA4EQwBNAFkASwAAPwD+f+v38r9/K/fyv//Z");
}
// 2×10: red and green rows in turn, the right column blue.
std::string striped_gif() {
    return base64("R0lGODdhAgAKAIEAAP8AAAD/AAAA/wAAACwAAAAAAgAKAAAIDwABCAggQCBBgwUHJiQYEAA7");
}
// The same with the blue transparent.
std::string transparent_gif() {
    return base64(
        "R0lGODlhAgAKAIEAAP8AAAD/AAAA/wAAACH5BAEAAAIALAAAAAACAAoAAAgPAAEICCBAIEGDBQcmJBgQADs=");
}
// 2×2: green, then red.
std::string animated_webp() {
    return base64(
        "UklGRogAAABXRUJQVlA4WAoAAAACAAAAAQAAAQAAQU5JTQYAAAAAAAAAAABBTk1GKgAAAAAAAAAAAAEAAAEAAAAAAA"
        "JWUD"
        "hMEQAAAC8BQAAAB1DkKtSj/4GI6H8AAEFOTUYqAAAAAAAAAAAAAQAAAQAAAAAAAFZQOEwRAAAALwFAAAAHUIUi16P/"
        "gYjofwAA");
}

using Pixel = std::array<int, 3>;

Pixel pixel(const Picture& picture, std::int64_t x, std::int64_t y) {
    const std::uint8_t* p = picture.rgb.data() + (y * picture.size.width + x) * 3;
    return {p[0], p[1], p[2]};
}

Picture decoded(const std::string& bytes) {
    const auto picture = decode_picture(bytes, kSideMax);
    EXPECT_TRUE(picture.has_value()) << (picture ? "" : picture.error().detail);
    return picture.value_or(Picture{});
}

ImageFault fault_of(const std::string& bytes, std::int64_t side_max = kSideMax) {
    const auto picture = decode_picture(bytes, side_max);
    EXPECT_FALSE(picture.has_value());
    return picture ? ImageFault::fetch : picture.error().fault;
}

TEST(Picture, TransparentPixelsShowGrey) {
    const Picture picture = decoded(rgba_png());
    ASSERT_EQ(picture.size, (ImageSize{2, 1}));
    EXPECT_EQ(pixel(picture, 0, 0), (Pixel{255, 0, 0}));
    EXPECT_EQ(pixel(picture, 1, 0), (Pixel{127, 127, 127}));
}

TEST(Picture, PrintingColoursBecomeScreenColours) {
    const Picture picture = decoded(cmyk_jpeg());
    ASSERT_EQ(picture.size, (ImageSize{2, 2}));
    const Pixel p = pixel(picture, 1, 1);
    EXPECT_LE(p[0], 4);
    EXPECT_GE(p[1], 251);
    EXPECT_GE(p[2], 251);
}

TEST(Picture, GifRowsComeInTheirOrder) {
    const Picture picture = decoded(striped_gif());
    ASSERT_EQ(picture.size, (ImageSize{2, 10}));
    for (int y = 0; y < 10; ++y) {
        EXPECT_EQ(pixel(picture, 0, y), (y % 2 == 0 ? Pixel{255, 0, 0} : Pixel{0, 255, 0}));
        EXPECT_EQ(pixel(picture, 1, y), (Pixel{0, 0, 255}));
    }
    const Picture clear = decoded(transparent_gif());
    EXPECT_EQ(pixel(clear, 0, 3), (Pixel{0, 255, 0}));
    EXPECT_EQ(pixel(clear, 1, 3), (Pixel{127, 127, 127}));
}

TEST(Picture, InterlacedGifRowsComeInFourPasses) {
    std::string bytes = striped_gif();
    const std::size_t frame = bytes.find(',');  // the image descriptor
    ASSERT_NE(frame, std::string::npos);
    bytes[frame + 9] = static_cast<char>(bytes[frame + 9] | 0x40);
    const Picture picture = decoded(bytes);
    // Stored rows 0..9 belong to 0, 8, 4, 2, 6, 1, 3, 5, 7, 9, and are red when even.
    const std::vector<int> rows = {0, 8, 4, 2, 6, 1, 3, 5, 7, 9};
    for (std::size_t i = 0; i < rows.size(); ++i)
        EXPECT_EQ(pixel(picture, 0, rows[i]), (i % 2 == 0 ? Pixel{255, 0, 0} : Pixel{0, 255, 0}));
}

TEST(Picture, OfAnAnimationTheFirstFrameCounts) {
    const Picture picture = decoded(animated_webp());
    ASSERT_EQ(picture.size, (ImageSize{2, 2}));
    EXPECT_EQ(pixel(picture, 0, 0), (Pixel{10, 200, 30}));
}

TEST(Picture, SidesBeyondTheLimitAreRefusedBeforeDecoding) {
    EXPECT_EQ(fault_of(striped_gif(), 9), ImageFault::dimensions_too_large);
    EXPECT_EQ(fault_of(rgba_png(), 1), ImageFault::dimensions_too_large);
    EXPECT_EQ(fault_of(cmyk_jpeg(), 1), ImageFault::dimensions_too_large);
    EXPECT_EQ(fault_of(animated_webp(), 1), ImageFault::dimensions_too_large);
    std::string huge = rgba_png();
    huge[16] = 0x7f;  // the width's first byte: only a header's claim
    EXPECT_TRUE(fault_of(huge) == ImageFault::dimensions_too_large ||
                fault_of(huge) == ImageFault::decode);
}

// Cut or changed anywhere, a picture is decoded or refused, never more.
TEST(Picture, DamageIsHarmless) {
    RandomStream random(20261130);
    for (const std::string& bytes :
         {rgba_png(), cmyk_jpeg(), striped_gif(), transparent_gif(), animated_webp()}) {
        for (std::size_t length = 0; length < bytes.size(); ++length)
            (void)decode_picture(std::string_view(bytes).substr(0, length), kSideMax);
        for (int i = 0; i < 300; ++i) {
            std::string changed = bytes;
            changed[random.next_below(changed.size())] = static_cast<char>(random.next_below(256));
            (void)decode_picture(changed, kSideMax);
        }
    }
}

TEST(FitPicture, OneColourStaysOneColour) {
    const Picture picture{{3, 2}, std::vector<std::uint8_t>(18, 200)};
    for (const ImageSize size : {ImageSize{42, 28}, ImageSize{3, 2}, ImageSize{546, 364}}) {
        const Picture fitted = fit_picture(picture, size);
        EXPECT_EQ(fitted.rgb, std::vector<std::uint8_t>(
                                  static_cast<std::size_t>(size.width * size.height * 3), 200));
    }
}

TEST(FitPicture, GreyFillsWhatTheShapeLeaves) {
    const Picture picture{{4, 1}, std::vector<std::uint8_t>(12, 0)};
    const Picture fitted = fit_picture(picture, {40, 20});
    EXPECT_EQ(pixel(fitted, 20, 4), (Pixel{127, 127, 127}));
    EXPECT_EQ(pixel(fitted, 20, 5), (Pixel{0, 0, 0}));
    EXPECT_EQ(pixel(fitted, 20, 14), (Pixel{0, 0, 0}));
    EXPECT_EQ(pixel(fitted, 20, 15), (Pixel{127, 127, 127}));
}

TEST(FitPicture, ShrinkingAveragesFineDetail) {
    Picture picture{{512, 512}, {}};
    for (int y = 0; y < 512; ++y)
        for (int x = 0; x < 512; ++x)
            picture.rgb.insert(picture.rgb.end(), 3, (x + y) % 2 == 0 ? 255 : 0);
    const Picture fitted = fit_picture(picture, {64, 64});
    for (int x = 4; x < 60; ++x)
        EXPECT_NEAR(pixel(fitted, x, 30)[0], 128, 3);
}

ImageSource source(std::string location, ImageSource::Kind kind = ImageSource::Kind::data_url) {
    return {kind, ImageDetail::high, ".messages[0]", std::move(location)};
}

TEST(ImageResolver, DownloadsThroughTheCaller) {
    std::string asked;
    const FetchImage fetch = [&](const std::string& url, std::int64_t) -> Result<std::string> {
        asked = url;
        return rgba_png();
    };
    const ImageSource picture = source("HTTPS://host/a.png", ImageSource::Kind::url);
    const auto resolved = resolve_images({&picture, 1}, {}, fetch);
    ASSERT_TRUE(resolved.has_value());
    EXPECT_EQ(asked, "HTTPS://host/a.png");
    EXPECT_EQ(resolved->images[0].size, encoded_image_size({2, 1}));
    EXPECT_EQ(resolved->images[0].tokens, image_token_count({2, 1}));
    EXPECT_EQ(decoded(resolved->images[0].webp).size, resolved->images[0].size);
}

TEST(ImageResolver, OnlyFailedDownloadsMayBeRepeated) {
    const ImageSource picture = source("http://host/a.png", ImageSource::Kind::url);
    const auto resolved = resolve_images({&picture, 1}, {}, [](const std::string&, std::int64_t) {
        return Result<std::string>(error(StatusCode::unavailable, "no route"));
    });
    ASSERT_FALSE(resolved.has_value());
    EXPECT_TRUE(resolved.error().retryable());
    EXPECT_EQ(resolved.error().message,
              ".messages[0].image[0]: Failed to download image from http://host/a.png");
    EXPECT_NE(resolved.error().detail.find("no route"), std::string::npos);

    const ImageSource bad = source("data:image/png,xx");
    const auto refused = resolve_images({&bad, 1}, {}, nullptr);
    ASSERT_FALSE(refused.has_value());
    EXPECT_FALSE(refused.error().retryable());
}

TEST(ImageResolver, AllPicturesTogetherHaveALimitToo) {
    ImageLimits limits;
    limits.total_bytes = 3 << 20;
    limits.image_bytes = 2 << 20;
    const FetchImage fetch = [](const std::string&, std::int64_t bytes_max) {
        std::string bytes = rgba_png();
        bytes.resize(static_cast<std::size_t>(bytes_max), '\0');  // behind the end of the PNG
        return Result<std::string>(bytes);
    };
    const std::vector<ImageSource> sources(2, source("http://host/a.png", ImageSource::Kind::url));
    const auto resolved = resolve_images(sources, limits, fetch);
    ASSERT_FALSE(resolved.has_value());
    EXPECT_EQ(resolved.error().fault, ImageFault::total_too_large);
    EXPECT_EQ(resolved.error().message,
              ".messages[0].image[0]: image file sizes together exceed limit 3 MB");
}

}  // namespace
}  // namespace fathom
