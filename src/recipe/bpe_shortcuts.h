// What byte-pair encoding need not merge again, because the vocabulary says beforehand what comes
// of it: whole words that are one token, and characters whose bytes always end up in one. Both hold
// only for merges that are in order: each makes a token that no earlier one made, from single bytes
// and tokens that earlier ones made. Trained vocabularies are; for others there are no shortcuts.
// Immutable once filled.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/huge_memory.h"
#include "base/ids.h"

namespace fathom {

struct BpeMerge {
    TokenId left = 0;
    TokenId right = 0;
    TokenId merged = 0;
};

// A table that is read all over, so in huge pages; zeroed. T is plain data.
template <typename T>
class HugeArray {
  public:
    HugeArray() = default;
    explicit HugeArray(std::size_t size)
        : memory_(map_huge_memory(static_cast<std::int64_t>(size * sizeof(T)))), size_(size) {
        FATHOM_CHECK(memory_ != nullptr, "out of memory");
    }
    std::size_t size() const { return size_; }
    T& operator[](std::size_t i) { return reinterpret_cast<T*>(memory_.get())[i]; }
    const T& operator[](std::size_t i) const {
        return reinterpret_cast<const T*>(memory_.get())[i];
    }

  private:
    std::shared_ptr<std::byte> memory_;  // as map_huge_memory gives it; never shared
    std::size_t size_ = 0;
};

// What tables of words go by; the same for equal words within one process.
struct WordKey {
    std::uint64_t key = 0;  // with the size all of a word of at most 8 bytes; else the hash
    std::uint64_t hash = 0;
};
// What lies behind the word, up to readable_end, may be read but does not count.
WordKey word_key(std::string_view word, const char* readable_end);
inline WordKey word_key(std::string_view word) {
    return word_key(word, word.data() + word.size());
}

// The bytes of each merge's token, by rank; nothing if the merges are not in order.
std::optional<std::vector<std::string>> bytes_of_merges(const std::array<TokenId, 256>& byte_ids,
                                                        std::span<const BpeMerge> merges);

// Equality of `size` bytes, at least one: as memcmp says, but for short ones.
inline bool same_bytes(const char* a, const char* b, std::size_t size) {
    const auto differ = [](const char* x, const char* y) {
        std::uint64_t eight_x = 0;
        std::uint64_t eight_y = 0;
        std::memcpy(&eight_x, x, sizeof(eight_x));
        std::memcpy(&eight_y, y, sizeof(eight_y));
        return eight_x != eight_y;
    };
    if (size < 8) return std::memcmp(a, b, size) == 0;
    for (std::size_t i = 0; i + 8 < size; i += 8)
        if (differ(a + i, b + i)) return false;
    return !differ(a + size - 8, b + size - 8);
}

// An open-addressing table from word to id.
class WholeWords {
  public:
    static constexpr std::size_t kWordBytesMax = 64;

    void reserve(std::size_t count);              // before the first add
    void add(std::string_view word, TokenId id);  // each word once, of at most kWordBytesMax bytes
    TokenId find(std::string_view word, const WordKey& key) const;  // -1 when it is not here
    void prefetch(const WordKey& key) const {
        if (slots_.size() > 0) __builtin_prefetch(&slots_[key.hash & (slots_.size() - 1)]);
    }

  private:
    struct Slot {
        std::uint64_t key;
        std::uint32_t begin;  // in text_
        std::uint32_t size : 8;
        std::uint32_t id_plus_1 : 24;  // 0: free
    };
    bool is_word(const Slot& slot, std::string_view word, const WordKey& key) const;

    HugeArray<Slot> slots_;
    std::string text_;
};

// Characters of U+3000 to U+9FFF (CJK and its punctuation), three bytes each, and what the tokens'
// texts say about the borders between two of them.
//
// Where no token's text goes across a border, no merge ever will, and both sides are encoded apart.
// A run of Chinese so falls into short parts, of which most are one token.
//
// Within a part, merging the bytes of each character first gives the same ids as merging by rank
// across it, if no token holds a part of a character along with something beyond that character's
// border: what is merged across a border then takes whole characters, which exist by then since
// merges are in order. The few tokens that do hold parts tell which borders they may lie on.
class CjkBorders {
  public:
    CjkBorders() = default;
    // texts: bytes_of_merges. merge_alone gives the ids of some bytes, as if they were a word.
    CjkBorders(const std::array<TokenId, 256>& byte_ids, std::span<const std::string> texts,
               const std::function<std::vector<TokenId>(std::string_view)>& merge_alone);

    // Appends the parts of a word, which are together the word (the word itself if it has others
    // than these characters, mostly), until `parts` has parts_max.
    // Returns how many bytes of the word those are.
    std::size_t cut(std::string_view word, std::size_t parts_max,
                    std::vector<std::string_view>& parts) const;

    // Sets `symbols` to what a part may be merged from: one id for each character that is a token,
    // its bytes' ids for each other one. False when it has other characters than these or a border
    // on which a part of a character may be merged; it must then be merged from its bytes.
    bool start_symbols(std::string_view part, std::vector<TokenId>& symbols) const;

  private:
    enum : std::uint8_t {
        kEndsPart = 1,    // a token starts with a proper suffix of this character...
        kStartsRest = 2,  // ...and goes on with this one or a part of it
        kBeforePart = 4,  // a token holds this character...
        kStartsPart = 8,  // ...and ends with a proper prefix of this one behind it
    };
    void read_borders(std::span<const std::string> texts);
    static bool is_open(unsigned left, unsigned right);
    static std::size_t pair_bit(std::uint32_t left, std::uint32_t right);

    std::array<TokenId, 256> byte_ids_{};
    // By code point - U+3000; empty without shortcuts, as when no token has such a character.
    std::vector<TokenId> ids_;  // -1: the character is not one token
    std::vector<std::uint8_t> flags_;
    // Bits of the pairs of neighbours that some token holds, by a hash: one that is set may be
    // another pair's, one that is not is true.
    std::vector<std::uint64_t> pairs_;
};

}  // namespace fathom
