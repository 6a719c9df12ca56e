// Finds added tokens in text (recipe.md 1.4): leftmost, and of those that start at one place the
// longest. Works on bytes. Immutable; any thread may search.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace fathom {

struct AddedToken {
    TokenId id = 0;
    std::string content;
    bool special = false;
};

class AddedTokenIndex {
  public:
    struct Match {
        std::size_t begin = 0;
        std::size_t end = 0;
        TokenId id = 0;
    };

    AddedTokenIndex() = default;
    // Contents must be distinct and not empty.
    explicit AddedTokenIndex(std::span<const AddedToken> tokens);

    std::optional<TokenId> id_of(std::string_view content) const;
    // The first match at or after byte `from`. Costs a table look-up a byte, and where a token's
    // first byte occurs a search a byte for as long as the text goes on like some token.
    std::optional<Match> find(std::string_view text, std::size_t from) const;

  private:
    struct Entry {
        std::string content;
        TokenId id = 0;
    };
    std::optional<Match> longest_at(std::string_view text, std::size_t begin) const;

    std::vector<Entry> entries_;  // by content, bytewise
    // entries_[first_[b]] to entries_[first_[b + 1]] start with byte b.
    std::array<std::uint32_t, 257> first_{};
};

}  // namespace fathom
