#include "recipe/output_matcher.h"

#include <algorithm>
#include <utility>

namespace fathom {

std::size_t OutputPatterns::Pattern::advance(std::size_t matched, char byte) const {
    while (matched > 0 && text[matched] != byte)
        matched = border[matched - 1];
    return text[matched] == byte ? matched + 1 : matched;
}

OutputPatterns::OutputPatterns(const std::vector<OutputPattern>& patterns) {
    for (const OutputPattern& source : patterns) {
        Pattern pattern{.kind = source.kind, .text = source.text};
        if (source.kind == OutputPattern::Kind::leading_newline) {
            any_leading_ = true;
        } else {
            begins_[static_cast<unsigned char>(source.text[0])] = true;
            pattern.border.push_back(0);
            for (std::size_t i = 1; i < pattern.text.size(); ++i)
                pattern.border.push_back(pattern.advance(pattern.border.back(), pattern.text[i]));
        }
        if (source.kind == OutputPattern::Kind::text_after_newlines) begins_['\n'] = true;
        patterns_.push_back(std::move(pattern));
    }
}

void OutputMatcher::begin(const OutputPatterns& patterns) {
    patterns_ = &patterns;
    progress_.assign(patterns.patterns_.size(), {});
    is_first_ = true;
    idle_ = !patterns.any_leading_;
}

bool OutputMatcher::step(const OutputPatterns::Pattern& pattern, Progress& progress, char byte,
                         bool is_first) {
    if (pattern.kind == OutputPattern::Kind::leading_newline) {
        progress.matched = is_first && byte == '\n' ? 1 : 0;
        return progress.matched == 1;
    }
    if (pattern.kind == OutputPattern::Kind::text_after_newlines && progress.matched == 0 &&
        byte == '\n') {
        ++progress.newlines;
        return false;
    }
    const std::size_t before = progress.matched;
    progress.matched = pattern.advance(before, byte);
    if (progress.matched <= before) progress.newlines = 0;
    return progress.matched == pattern.text.size();
}

OutputMatcher::Scan OutputMatcher::feed(std::string_view text) {
    const std::vector<OutputPatterns::Pattern>& patterns = patterns_->patterns_;
    for (std::size_t at = 0; at < text.size(); ++at) {
        const char byte = text[at];
        if (idle_ && !patterns_->begins_[static_cast<unsigned char>(byte)]) continue;
        const bool is_first = std::exchange(is_first_, false);
        idle_ = true;
        for (std::size_t i = 0; i < patterns.size(); ++i) {
            if (step(patterns[i], progress_[i], byte, is_first)) {
                return {
                    .fed = at + 1, .pattern = static_cast<int>(i), .length = progress_[i].length()};
            }
            if (progress_[i].length() > 0) idle_ = false;
        }
    }
    return {.fed = text.size()};
}

std::size_t OutputMatcher::partial() const {
    std::size_t longest = 0;
    for (const Progress& progress : progress_)
        longest = std::max(longest, progress.length());
    return longest;
}

}  // namespace fathom
