#include "recipe/output_matcher.h"

#include <algorithm>
#include <utility>

namespace fathom {

void OutputMatcher::Pattern::advance(char byte) {
    while (matched > 0 && text[matched] != byte)
        matched = border[matched - 1];
    if (text[matched] == byte) ++matched;
}

bool OutputMatcher::Pattern::feed(char byte, bool is_first) {
    if (kind == OutputPattern::Kind::leading_newline) {
        matched = is_first && byte == '\n' ? 1 : 0;
        return matched == 1;
    }
    if (kind == OutputPattern::Kind::text_after_newlines && matched == 0 && byte == '\n') {
        ++newlines;
        return false;
    }
    const std::size_t before = matched;
    advance(byte);
    if (matched <= before) newlines = 0;
    return matched == text.size();
}

OutputMatcher::OutputMatcher(const std::vector<OutputPattern>& patterns) {
    for (const OutputPattern& source : patterns) {
        Pattern pattern{.kind = source.kind, .text = source.text};
        if (source.kind == OutputPattern::Kind::leading_newline) {
            any_leading_ = true;
        } else {
            begins_[static_cast<unsigned char>(source.text[0])] = true;
            pattern.border.push_back(0);
            for (std::size_t i = 1; i < pattern.text.size(); ++i) {
                pattern.advance(pattern.text[i]);
                pattern.border.push_back(pattern.matched);
            }
            pattern.matched = 0;
        }
        if (source.kind == OutputPattern::Kind::text_after_newlines) begins_['\n'] = true;
        patterns_.push_back(std::move(pattern));
    }
    reset();
}

OutputMatcher::Scan OutputMatcher::feed(std::string_view text) {
    for (std::size_t at = 0; at < text.size(); ++at) {
        const char byte = text[at];
        if (idle_ && !begins_[static_cast<unsigned char>(byte)]) continue;
        const bool is_first = std::exchange(is_first_, false);
        idle_ = true;
        for (std::size_t i = 0; i < patterns_.size(); ++i) {
            Pattern& pattern = patterns_[i];
            if (pattern.feed(byte, is_first)) {
                return {.fed = at + 1, .pattern = static_cast<int>(i), .length = pattern.length()};
            }
            if (pattern.length() > 0) idle_ = false;
        }
    }
    return {.fed = text.size()};
}

std::size_t OutputMatcher::partial() const {
    std::size_t longest = 0;
    for (const Pattern& pattern : patterns_)
        longest = std::max(longest, pattern.length());
    return longest;
}

void OutputMatcher::reset() {
    for (Pattern& pattern : patterns_)
        pattern.matched = pattern.newlines = 0;
    is_first_ = true;
    idle_ = !any_leading_;
}

}  // namespace fathom
