// How many tokens of the model's input an image takes (recipe.md 2.9). A prompt holds one token for
// it; the others are counted and computed, never spelled.
#pragma once

#include <cstdint>

namespace fathom {

struct ImageSize {
    std::int64_t width = 0;
    std::int64_t height = 0;

    friend bool operator==(const ImageSize&, const ImageSize&) = default;
};

// The size to which the vision encoder brings a picture: multiples of its patch, as near to the
// picture's shape as the limits on area and tokens allow. Sides are 0 to 2^32 - 1.
ImageSize encoded_image_size(ImageSize picture);

// The tokens of a picture of this size, brought to encoded_image_size. At most 1024.
std::int64_t image_token_count(ImageSize picture);

}  // namespace fathom
