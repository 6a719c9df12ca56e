#include "recipe/pretokenizer.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "recipe/regex_splitter.h"
#include "recipe/release_splitter.h"

namespace fathom {
namespace {

constexpr std::size_t kPatternsMax = 16;

}  // namespace

Result<PreTokenizer> PreTokenizer::make(std::span<const std::string> patterns,
                                        std::string_view where) {
    if (patterns.size() > kPatternsMax) {
        return invalid_argument("{}: {} patterns, at most {} are allowed", where, patterns.size(),
                                kPatternsMax);
    }
    PreTokenizer result;
    result.is_release_ = std::ranges::equal(patterns, kReleasePatterns);
    if (result.is_release_) {
        CharacterClasses::instance();  // made now, not when the first text comes
        return result;
    }
    for (std::size_t i = 0; i < patterns.size(); ++i) {
        auto pattern = compile_regex_pattern(patterns[i]);
        if (!pattern.ok()) {
            return pattern.status().with_context(fmt::format("{}, pattern {}", where, i));
        }
        result.patterns_.push_back(*std::move(pattern));
    }
    return result;
}

PreTokenizer::Splitter::Splitter(const PreTokenizer& pre_tokenizer) {
    if (pre_tokenizer.is_release_) {
        splitter_ = std::make_unique<ReleaseSplitter>();
    } else {
        splitter_ = std::make_unique<RegexSplitter>(pre_tokenizer.patterns_);
    }
}

PreTokenizer::Splitter::~Splitter() = default;

void PreTokenizer::Splitter::start(std::string_view text) {
    splitter_->start(text);
}

std::span<const std::string_view> PreTokenizer::Splitter::next_words() {
    return splitter_->next_words();
}

}  // namespace fathom
