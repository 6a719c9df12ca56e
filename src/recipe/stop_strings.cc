#include "recipe/stop_strings.h"

#include <algorithm>
#include <utility>

namespace fathom {

bool StopStrings::Matcher::feed(char byte) {
    while (matched > 0 && stop[matched] != byte)
        matched = border[matched - 1];
    if (stop[matched] == byte) ++matched;
    return matched == stop.size();
}

StopStrings::StopStrings(const std::vector<std::string>& stops) {
    for (const std::string& stop : stops) {
        if (stop.empty()) continue;
        Matcher matcher{.stop = stop, .border = {0}};
        for (std::size_t i = 1; i < stop.size(); ++i) {
            matcher.feed(stop[i]);
            matcher.border.push_back(matcher.matched);
        }
        matcher.matched = 0;
        matchers_.push_back(std::move(matcher));
    }
}

StopStrings::Output StopStrings::push(std::string_view text) {
    if (!stopped_by_.empty()) {
        return {.text = {}, .stopped = true, .matched = stopped_by_, .rest_bytes = text.size()};
    }
    const std::size_t held_before = held_.size();
    held_ += text;
    for (std::size_t at = held_before; at < held_.size(); ++at) {
        for (Matcher& matcher : matchers_) {
            if (!matcher.feed(held_[at])) continue;
            stopped_by_ = matcher.stop;
            const std::size_t rest_bytes = held_.size() - (at + 1);
            held_.resize(at + 1 - matcher.stop.size());
            return {.text = std::exchange(held_, {}),
                    .stopped = true,
                    .matched = stopped_by_,
                    .rest_bytes = rest_bytes};
        }
    }
    std::size_t keep = 0;
    for (const Matcher& matcher : matchers_)
        keep = std::max(keep, matcher.matched);
    Output output;
    output.text = held_.substr(0, held_.size() - keep);
    held_.erase(0, held_.size() - keep);
    return output;
}

std::string StopStrings::finish() {
    for (Matcher& matcher : matchers_)
        matcher.matched = 0;
    return std::exchange(held_, {});
}

}  // namespace fathom
