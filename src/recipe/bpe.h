// Byte-pair encoding of one word (recipe.md 1.2): start with one symbol a byte; while an adjacent
// pair has a merge, merge the pair of lowest rank, the leftmost on ties, one at a time.
//
// Most words of a text are one token or were met shortly before: two tables answer those at once.
// Others are merged, a short list by looking at all of it for the lowest rank each time, a long one
// with a heap of (rank, position). That is O(n log n), so a "word" of a megabyte (a run of one
// letter) costs no more a byte than text does.
//
// Immutable after construction; any thread may encode with a scratch of its own.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "recipe/bpe_shortcuts.h"
#include "recipe/merge_queue.h"

namespace fathom {

class Bpe {
  public:
    using Merge = BpeMerge;

    // Work space of one encoding call, and the memory of the words it has met: `out` of
    // encode_words must be the same vector, only appended to, and the words' text must live as long
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
        struct KnownPart {
            const char* text = nullptr;
            std::uint32_t ids_begin = 0;  // in `out`
            std::uint8_t size = 0;
            std::uint8_t ids_count = 0;
        };
        std::vector<std::string_view> parts_;  // of the words at hand
        std::vector<TokenId> start_;           // what a word is merged from
        std::vector<Symbol> symbols_;
        MergeQueue queue_;
        KnownPart& known(const WordKey& key) {
            return known_parts_[key.hash & (known_parts_.size() - 1)];
        }

        // Direct-mapped: a newer part replaces an older one of the same slot, so size and time are
        // bounded whatever the text.
        std::vector<KnownPart> known_parts_;
    };

    // byte_ids[b] is the id of the single byte b. The merge at index i has rank i; no pair may
    // occur twice. Ids lie below 2²², ranks below 2²⁰ - 1 (TokenizerLimits).
    Bpe(const std::array<TokenId, 256>& byte_ids, std::span<const Merge> merges);

    TokenId byte_id(std::uint8_t byte) const { return byte_ids_[byte]; }

    // Appends the ids of the words to `out`. The words follow each other in one text.
    void encode_words(std::span<const std::string_view> words, Scratch& scratch,
                      std::vector<TokenId>& out) const;

  private:
    void encode_parts(const char* readable_end, Scratch& scratch, std::vector<TokenId>& out) const;
    void encode_part(std::string_view part, const WordKey& key, Scratch& scratch,
                     std::vector<TokenId>& out) const;
    void merge_part(std::string_view part, Scratch& scratch, std::vector<TokenId>& out) const;
    void start_symbols(std::string_view word, std::vector<TokenId>& symbols) const;
    void merge_by_search(std::vector<TokenId>& ids, std::uint32_t* ranks) const;
    // Merges all of scratch.start_ and appends what remains.
    void merge_by_queue(Scratch& scratch, std::vector<TokenId>& out) const;
    void find_whole_words(const std::vector<std::string>& texts);

    // The rank of a pair's merge, kNoRank without one.
    std::uint32_t rank_of(TokenId left, TokenId right) const;
    std::size_t slot_index(std::uint64_t pair, std::uint64_t hash) const;

    std::array<TokenId, 256> byte_ids_;
    // An open-addressing table of the complements of pair · 2²⁰ + rank, filled to half at most; 0
    // is free.
    HugeArray<std::uint64_t> slots_;
    int slot_shift_ = 0;
    // One bit for each quarter of a slot's share of hashes: whether any pair lies there. Most pairs
    // of a text have no merge; this says so from a sixteenth of the memory.
    std::vector<std::uint64_t> filter_;
    // The ranks of pairs of single bytes.
    std::vector<std::uint32_t> byte_pair_ranks_;
    std::vector<TokenId> merged_;  // by rank
    WholeWords whole_words_;
    CjkBorders cjk_;
};

}  // namespace fathom
