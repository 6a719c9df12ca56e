// fathom recipe check: files of recorded results against the codec (recipe/vectors/check_file.h).
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace fathom {

struct RecipeCheck {
    std::string tokenizer = {};  // a tokenizer.json; empty: the one beside each file
    bool json = false;           // one JSON report instead of text
    bool update = false;         // transcripts get the outcome they have now, which is printed
};

// `words`: files, and folders whose .jsonl files are meant. Prints to stdout; the status is not ok
// when a row differs or a file cannot be read.
Status check_recipe_files(const std::vector<std::string>& words, const RecipeCheck& options);

}  // namespace fathom
