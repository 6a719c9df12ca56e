#include "recipe/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "base/check.h"

namespace fathom {
namespace {

constexpr std::uint32_t kNone = ~std::uint32_t{0};
constexpr TokenId kMergedAway = -1;
constexpr std::size_t kKnownWordsMax = 4096;
constexpr std::size_t kKnownWordBytesMax = 64;
// Positions are 32-bit. Longer words are cut; no request that passes the gateway's limits is near.
constexpr std::size_t kWordBytesMax = std::size_t{1} << 30;

constexpr std::uint64_t pair_of(TokenId left, TokenId right) {
    return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32) |
           static_cast<std::uint32_t>(right);
}

}  // namespace

Bpe::Scratch::Scratch(std::size_t text_bytes)
    : known_words_(std::clamp<std::size_t>(std::bit_ceil(text_bytes / 4 + 1), 16, kKnownWordsMax)) {
}

Bpe::Bpe(const std::array<TokenId, 256>& byte_ids, std::span<const Merge> merges)
    : byte_ids_(byte_ids), slots_(std::bit_ceil(std::max<std::size_t>(16, merges.size() * 2))) {
    slot_shift_ = 64 - std::countr_zero(slots_.size());
    for (std::size_t rank = 0; rank < merges.size(); ++rank) {
        const Merge& merge = merges[rank];
        const std::uint64_t pair = pair_of(merge.left, merge.right);
        Slot& slot = slots_[slot_index(pair)];
        FATHOM_CHECK(slot.pair == kNoPair, "a pair has two merges");
        slot = {.pair = pair, .rank = static_cast<std::uint32_t>(rank), .merged = merge.merged};
    }
}

// The slot that holds the pair, or the free one where it would go.
std::size_t Bpe::slot_index(std::uint64_t pair) const {
    std::size_t index = (pair * 0x9E3779B97F4A7C15u) >> slot_shift_;
    while (slots_[index].pair != pair && slots_[index].pair != kNoPair) {
        index = (index + 1) & (slots_.size() - 1);
    }
    return index;
}

const Bpe::Slot* Bpe::find(TokenId left, TokenId right) const {
    const Slot& slot = slots_[slot_index(pair_of(left, right))];
    return slot.pair == kNoPair ? nullptr : &slot;
}

void Bpe::encode_word(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const {
    for (; word.size() > kWordBytesMax; word.remove_prefix(kWordBytesMax)) {
        encode_word(word.substr(0, kWordBytesMax), scratch, out);
    }
    if (word.size() == 1) {
        out.push_back(byte_id(static_cast<std::uint8_t>(word[0])));
        return;
    }
    const bool keep = word.size() <= kKnownWordBytesMax;
    const std::size_t slot =
        std::hash<std::string_view>()(word) & (scratch.known_words_.size() - 1);
    Scratch::KnownWord& known = scratch.known_words_[slot];
    const std::size_t begin = out.size();
    if (keep && known.word == word) {
        out.resize(begin + known.ids_count);
        std::copy_n(out.begin() + static_cast<std::ptrdiff_t>(known.ids_begin), known.ids_count,
                    out.begin() + static_cast<std::ptrdiff_t>(begin));
        return;
    }
    merge_all(word, scratch);
    for (const Scratch::Symbol& symbol : scratch.symbols_) {
        if (symbol.id != kMergedAway) out.push_back(symbol.id);
    }
    if (keep) known = {.word = word, .ids_begin = begin, .ids_count = out.size() - begin};
}

void Bpe::merge_all(std::string_view word, Scratch& scratch) const {
    auto& symbols = scratch.symbols_;
    auto& heap = scratch.heap_;
    const auto count = static_cast<std::uint32_t>(word.size());
    symbols.resize(count);
    for (std::uint32_t i = 0; i < count; ++i) {
        symbols[i] = {.id = byte_id(static_cast<std::uint8_t>(word[i])),
                      .previous = i == 0 ? kNone : i - 1,
                      .next = i + 1 == count ? kNone : i + 1};
    }

    // One heap entry is rank · 2³² + position of the pair's left symbol: the smallest is the next
    // merge. Entries are not removed when a neighbour merges; they are stale if the pair now at
    // the position has another rank.
    const auto propose = [&](std::uint32_t left) {
        const Slot* merge = find(symbols[left].id, symbols[symbols[left].next].id);
        if (merge == nullptr) return false;
        heap.push_back((static_cast<std::uint64_t>(merge->rank) << 32) | left);
        return true;
    };
    heap.clear();
    for (std::uint32_t i = 0; i + 1 < count; ++i)
        propose(i);
    std::make_heap(heap.begin(), heap.end(), std::greater<>());

    while (!heap.empty()) {
        std::pop_heap(heap.begin(), heap.end(), std::greater<>());
        const auto rank = static_cast<std::uint32_t>(heap.back() >> 32);
        const auto left = static_cast<std::uint32_t>(heap.back());
        heap.pop_back();
        const std::uint32_t right = symbols[left].next;
        if (symbols[left].id == kMergedAway || right == kNone) continue;
        const Slot* merge = find(symbols[left].id, symbols[right].id);
        if (merge == nullptr || merge->rank != rank) continue;

        symbols[left].id = merge->merged;
        symbols[left].next = symbols[right].next;
        symbols[right].id = kMergedAway;
        if (symbols[left].next != kNone) {
            symbols[symbols[left].next].previous = left;
            if (propose(left)) std::push_heap(heap.begin(), heap.end(), std::greater<>());
        }
        if (symbols[left].previous != kNone && propose(symbols[left].previous)) {
            std::push_heap(heap.begin(), heap.end(), std::greater<>());
        }
    }
}

}  // namespace fathom
