// Byte-pair encoding of one word (recipe.md 1.2): start with one symbol a byte; while an adjacent
// pair has a merge, merge the pair of lowest rank, the leftmost on ties, one at a time.
//
// A linked list of symbols with a heap of (rank, position) does this in O(n log n), so a "word" of
// a megabyte (a run of one letter) costs no more a byte than text does. Immutable after
// construction; any thread may encode with a scratch of its own.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace fathom {

class Bpe {
  public:
    struct Merge {
        TokenId left = 0;
        TokenId right = 0;
        TokenId merged = 0;
    };

    // Work space of one encoding call, and the memory of the words it has met: `out` of
    // encode_word must be the same vector, only appended to, and the words' text must live as long
    // as the scratch.
    class Scratch {
      public:
        // Sized by the text to come, so that a short prompt does not pay for a large cache.
        explicit Scratch(std::size_t text_bytes);

      private:
        friend class Bpe;
        struct Symbol {
            TokenId id;
            std::uint32_t previous;
            std::uint32_t next;
        };
        struct KnownWord {
            std::string_view word;
            std::size_t ids_begin = 0;  // in `out`
            std::size_t ids_count = 0;
        };
        std::vector<Symbol> symbols_;
        std::vector<std::uint64_t> heap_;
        // Direct-mapped: a newer word replaces an older one of the same slot, so size and time are
        // bounded whatever the text.
        std::vector<KnownWord> known_words_;
    };

    // byte_ids[b] is the id of the single byte b. The merge at index i has rank i; no pair may
    // occur twice.
    Bpe(const std::array<TokenId, 256>& byte_ids, std::span<const Merge> merges);

    TokenId byte_id(std::uint8_t byte) const { return byte_ids_[byte]; }

    // Appends the ids of `word` to `out`.
    void encode_word(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const;

  private:
    // An open-addressing table from pair to merge; 64-bit keys, filled to half at most.
    struct Slot {
        std::uint64_t pair = kNoPair;
        std::uint32_t rank = 0;
        TokenId merged = 0;
    };
    static constexpr std::uint64_t kNoPair = ~std::uint64_t{0};

    const Slot* find(TokenId left, TokenId right) const;
    std::size_t slot_index(std::uint64_t pair) const;
    void merge_all(std::string_view word, Scratch& scratch) const;

    std::array<TokenId, 256> byte_ids_;
    std::vector<Slot> slots_;
    int slot_shift_ = 0;
};

}  // namespace fathom
