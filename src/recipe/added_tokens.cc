#include "recipe/added_tokens.h"

#include <algorithm>

namespace fathom {

AddedTokenIndex::AddedTokenIndex(std::span<const AddedToken> tokens) {
    entries_.reserve(tokens.size());
    for (const AddedToken& token : tokens)
        entries_.push_back({token.content, token.id});
    std::sort(entries_.begin(), entries_.end(),
              [](const Entry& a, const Entry& b) { return a.content < b.content; });
    for (const Entry& entry : entries_) {
        ++first_[static_cast<unsigned char>(entry.content[0]) + std::size_t{1}];
    }
    for (std::size_t b = 1; b < first_.size(); ++b)
        first_[b] += first_[b - 1];
}

std::optional<TokenId> AddedTokenIndex::id_of(std::string_view content) const {
    const auto entry =
        std::lower_bound(entries_.begin(), entries_.end(), content,
                         [](const Entry& e, std::string_view text) { return e.content < text; });
    if (entry == entries_.end() || entry->content != content) return {};
    return entry->id;
}

std::optional<AddedTokenIndex::Match> AddedTokenIndex::find(std::string_view text,
                                                            std::size_t from) const {
    for (std::size_t begin = from; begin < text.size(); ++begin) {
        const auto byte = static_cast<unsigned char>(text[begin]);
        if (first_[byte] == first_[byte + std::size_t{1}]) continue;
        if (const std::optional<Match> match = longest_at(text, begin)) return match;
    }
    return {};
}

// Narrows the sorted entries to those that agree with the text byte by byte. Of the entries that
// agree so far, one that ends here is the first.
std::optional<AddedTokenIndex::Match> AddedTokenIndex::longest_at(std::string_view text,
                                                                  std::size_t begin) const {
    const auto byte = static_cast<unsigned char>(text[begin]);
    auto low = entries_.begin() + first_[byte];
    auto high = entries_.begin() + first_[byte + std::size_t{1}];
    std::optional<Match> longest;
    for (std::size_t depth = 1; low != high; ++depth) {
        if (low->content.size() == depth) {
            longest = Match{begin, begin + depth, low->id};
            ++low;
        }
        if (begin + depth >= text.size()) break;
        const auto next = static_cast<unsigned char>(text[begin + depth]);
        const auto at_depth = [depth](const Entry& e) {
            return static_cast<unsigned char>(e.content[depth]);
        };
        low = std::partition_point(low, high, [&](const Entry& e) { return at_depth(e) < next; });
        high = std::partition_point(low, high, [&](const Entry& e) { return at_depth(e) == next; });
    }
    return longest;
}

}  // namespace fathom
