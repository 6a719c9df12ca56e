// fathom recipe image FILE…: what becomes of pictures on their way to the model.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace fathom {

struct RecipeImageOptions {
    bool low_detail = false;
    bool json = false;
    std::string out;  // a folder for the pictures as they are handed on; empty: none are written
};
Status show_recipe_images(const std::vector<std::string>& files, const RecipeImageOptions& options);

}  // namespace fathom
