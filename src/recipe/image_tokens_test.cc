#include "recipe/image_tokens.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace fathom {
namespace {

// recipe.md 2.9 lists these.
TEST(ImageTokens, SizesOfTheSpecification) {
    struct Case {
        ImageSize picture;
        ImageSize encoded;
        std::int64_t tokens;
    };
    const Case cases[] = {
        {{1, 1}, {546, 546}, 184},         {{100, 100}, {546, 546}, 184},
        {{640, 480}, {644, 490}, 206},     {{1024, 768}, {1036, 770}, 496},
        {{1920, 1080}, {1708, 966}, 968},  {{3000, 4000}, {1134, 1512}, 1010},
        {{8192, 8192}, {1302, 1302}, 994},
    };
    for (const Case& c : cases) {
        EXPECT_EQ(encoded_image_size(c.picture), c.encoded);
        EXPECT_EQ(image_token_count(c.picture), c.tokens);
    }
}

RC_GTEST_PROP(ImageTokens, AnyPictureHasWholePatchesAndAtMost1024Tokens,
              (std::uint32_t width, std::uint32_t height)) {
    const ImageSize encoded = encoded_image_size({width, height});
    RC_ASSERT(encoded.width % 14 == 0);
    RC_ASSERT(encoded.height % 14 == 0);
    const std::int64_t tokens = image_token_count({width, height});
    RC_ASSERT(tokens >= 2);
    RC_ASSERT(tokens <= 1024);
}

}  // namespace
}  // namespace fathom
