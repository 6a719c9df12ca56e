#include "recipe/bpe.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/check.h"

namespace fathom {
namespace {

constexpr std::uint32_t kNone = ~std::uint32_t{0};
constexpr std::uint32_t kNoRank = ~std::uint32_t{0};
constexpr TokenId kMergedAway = -1;
constexpr std::size_t kKnownPartsMax = 16384;
// Parts that are cut before they are encoded: bounds the memory that a long text takes.
constexpr std::size_t kPartsMax = 1024;
// Lists up to this long are searched; the square of it bounds the steps.
constexpr std::size_t kSearchedSymbolsMax = 48;
// Positions are 32-bit. Longer parts are cut; no request that passes the gateway's limits is near.
constexpr std::size_t kPartBytesMax = std::size_t{1} << 30;

constexpr int kIdBits = 22;
constexpr int kRankBits = 20;
constexpr std::uint64_t kFreeSlot = 0;
constexpr int kFilterBitsLog2 = 2;  // of one slot

constexpr std::uint64_t pair_of(TokenId left, TokenId right) {
    return static_cast<std::uint64_t>(left) << kIdBits | static_cast<std::uint64_t>(right);
}
constexpr std::uint64_t pair_hash(std::uint64_t pair) {
    return pair * 0x9E3779B97F4A7C15u;
}

}  // namespace

Bpe::Scratch::Scratch(std::size_t text_bytes)
    : known_parts_(std::clamp<std::size_t>(std::bit_ceil(text_bytes / 4 + 1), 16, kKnownPartsMax)) {
}

Bpe::Bpe(const std::array<TokenId, 256>& byte_ids, std::span<const Merge> merges)
    : byte_ids_(byte_ids),
      slots_(std::bit_ceil(std::max<std::size_t>(64, merges.size() * 2))),
      filter_((slots_.size() << kFilterBitsLog2) / 64) {
    FATHOM_CHECK(merges.size() < (std::size_t{1} << kRankBits));
    slot_shift_ = 64 - std::countr_zero(slots_.size());
    merged_.reserve(merges.size());
    for (std::size_t rank = 0; rank < merges.size(); ++rank) {
        const Merge& merge = merges[rank];
        const std::uint64_t pair = pair_of(merge.left, merge.right);
        const std::uint64_t hash = pair_hash(pair);
        std::uint64_t& slot = slots_[slot_index(pair, hash)];
        FATHOM_CHECK(slot == kFreeSlot, "a pair has two merges");
        slot = ~(pair << kRankBits | rank);
        const std::uint64_t bit = hash >> (slot_shift_ - kFilterBitsLog2);
        filter_[bit / 64] |= std::uint64_t{1} << (bit % 64);
        merged_.push_back(merge.merged);
    }
    byte_pair_ranks_.reserve(byte_ids.size() * byte_ids.size());
    for (const TokenId left : byte_ids)
        for (const TokenId right : byte_ids)
            byte_pair_ranks_.push_back(rank_of(left, right));
    const auto texts = bytes_of_merges(byte_ids, merges);
    if (!texts) return;
    find_whole_words(*texts);
    Scratch scratch(0);
    const auto merge_alone = [&](std::string_view text) {
        std::vector<TokenId> ids;
        merge_part(text, scratch, ids);
        return ids;
    };
    cjk_ = CjkBorders(byte_ids, *texts, merge_alone);
}

// Merging by rank need not end in the token that has the word's text: each is tried.
void Bpe::find_whole_words(const std::vector<std::string>& texts) {
    whole_words_.reserve(texts.size());
    Scratch scratch(0);
    std::vector<TokenId> ids;
    for (std::size_t rank = 0; rank < texts.size(); ++rank) {
        if (texts[rank].size() > WholeWords::kWordBytesMax) continue;
        ids.clear();
        merge_part(texts[rank], scratch, ids);
        if (ids.size() == 1) whole_words_.add(texts[rank], ids[0]);
    }
}

// The slot that holds the pair, or the free one where it would go.
std::size_t Bpe::slot_index(std::uint64_t pair, std::uint64_t hash) const {
    std::size_t index = hash >> slot_shift_;
    while (~slots_[index] >> kRankBits != pair && slots_[index] != kFreeSlot) {
        index = (index + 1) & (slots_.size() - 1);
    }
    return index;
}

std::uint32_t Bpe::rank_of(TokenId left, TokenId right) const {
    const std::uint64_t pair = pair_of(left, right);
    const std::uint64_t hash = pair_hash(pair);
    const std::uint64_t bit = hash >> (slot_shift_ - kFilterBitsLog2);
    if ((filter_[bit / 64] >> (bit % 64) & 1) == 0) return kNoRank;
    const std::uint64_t slot = slots_[slot_index(pair, hash)];
    return slot == kFreeSlot ? kNoRank
                             : static_cast<std::uint32_t>(~slot & ((1u << kRankBits) - 1));
}

void Bpe::encode_words(std::span<const std::string_view> words, Scratch& scratch,
                       std::vector<TokenId>& out) const {
    if (words.empty()) return;
    const char* const end = words.back().data() + words.back().size();
    std::vector<std::string_view>& parts = scratch.parts_;
    for (std::string_view word : words) {
        while (!word.empty()) {
            word.remove_prefix(cjk_.cut(word, kPartsMax, parts));
            if (parts.size() >= kPartsMax) encode_parts(end, scratch, out);
        }
    }
    encode_parts(end, scratch, out);
}

// Encodes scratch.parts_ and empties it.
void Bpe::encode_parts(const char* readable_end, Scratch& scratch,
                       std::vector<TokenId>& out) const {
    std::vector<std::string_view>& parts = scratch.parts_;
    // Keys are made some parts ahead, so that the memory of a part's slots is here when its turn
    // comes.
    constexpr std::size_t kAhead = 16;
    std::array<WordKey, kAhead> keys;
    const auto prepare = [&](std::size_t i) {
        if (i >= parts.size() || parts[i].size() > WholeWords::kWordBytesMax) return;
        keys[i % kAhead] = word_key(parts[i], readable_end);
        whole_words_.prefetch(keys[i % kAhead]);
        __builtin_prefetch(&scratch.known(keys[i % kAhead]));
    };
    for (std::size_t i = 0; i < kAhead; ++i)
        prepare(i);
    for (std::size_t i = 0; i < parts.size(); ++i) {
        encode_part(parts[i], keys[i % kAhead], scratch, out);
        prepare(i + kAhead);
    }
    parts.clear();
}

// key counts for parts of at most WholeWords::kWordBytesMax bytes.
void Bpe::encode_part(std::string_view part, const WordKey& key, Scratch& scratch,
                      std::vector<TokenId>& out) const {
    if (part.size() == 1) {
        out.push_back(byte_id(static_cast<std::uint8_t>(part[0])));
        return;
    }
    if (part.size() > WholeWords::kWordBytesMax) {
        for (; part.size() > kPartBytesMax; part.remove_prefix(kPartBytesMax))
            merge_part(part.substr(0, kPartBytesMax), scratch, out);
        return merge_part(part, scratch, out);
    }
    const TokenId whole = whole_words_.find(part, key);
    if (whole >= 0) {
        out.push_back(whole);
        return;
    }
    Scratch::KnownPart& known = scratch.known(key);
    const std::size_t begin = out.size();
    if (known.size == part.size() && same_bytes(known.text, part.data(), part.size())) {
        out.resize(begin + known.ids_count);
        std::copy_n(out.begin() + known.ids_begin, known.ids_count,
                    out.begin() + static_cast<std::ptrdiff_t>(begin));
        return;
    }
    merge_part(part, scratch, out);
    if (begin > std::numeric_limits<std::uint32_t>::max()) return;
    known = {.text = part.data(),
             .ids_begin = static_cast<std::uint32_t>(begin),
             .size = static_cast<std::uint8_t>(part.size()),
             .ids_count = static_cast<std::uint8_t>(out.size() - begin)};
}

void Bpe::merge_part(std::string_view part, Scratch& scratch, std::vector<TokenId>& out) const {
    std::vector<TokenId>& ids = scratch.start_;
    const bool from_bytes = !cjk_.start_symbols(part, ids);
    if (from_bytes) {
        ids.resize(part.size());
        std::transform(part.begin(), part.end(), ids.begin(),
                       [this](char byte) { return byte_id(static_cast<std::uint8_t>(byte)); });
    }
    if (ids.size() > kSearchedSymbolsMax) return merge_by_queue(scratch, out);
    std::array<std::uint32_t, kSearchedSymbolsMax> ranks;  // of the pair that starts here
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
        ranks[i] = from_bytes ? byte_pair_ranks_[static_cast<std::uint8_t>(part[i]) * 256u +
                                                 static_cast<std::uint8_t>(part[i + 1])]
                              : rank_of(ids[i], ids[i + 1]);
    }
    merge_by_search(ids, ranks.data());
    out.insert(out.end(), ids.begin(), ids.end());
}

// ranks[i] is the rank of ids[i] and ids[i + 1].
void Bpe::merge_by_search(std::vector<TokenId>& ids, std::uint32_t* ranks) const {
    TokenId* const id = ids.data();
    std::size_t pairs = ids.empty() ? 0 : ids.size() - 1;
    while (pairs > 0) {
        std::size_t at = 0;
        std::uint32_t lowest = ranks[0];
        for (std::size_t i = 1; i < pairs; ++i) {
            at = ranks[i] < lowest ? i : at;
            lowest = std::min(lowest, ranks[i]);
        }
        if (lowest == kNoRank) break;
        id[at] = merged_[lowest];
        // The pair's right symbol goes, and with it the pair that it started.
        --pairs;
        for (std::size_t i = at + 1; i <= pairs; ++i)
            id[i] = id[i + 1];
        for (std::size_t i = at; i < pairs; ++i)
            ranks[i] = ranks[i + 1];
        if (at < pairs) ranks[at] = rank_of(id[at], id[at + 1]);
        if (at > 0) ranks[at - 1] = rank_of(id[at - 1], id[at]);
    }
    if (!ids.empty()) ids.resize(pairs + 1);
}

void Bpe::merge_by_queue(Scratch& scratch, std::vector<TokenId>& out) const {
    auto& symbols = scratch.symbols_;
    MergeQueue& queue = scratch.queue_;
    const auto count = static_cast<std::uint32_t>(scratch.start_.size());
    symbols.resize(count);
    for (std::uint32_t i = 0; i < count; ++i) {
        symbols[i] = {.id = scratch.start_[i],
                      .previous = i == 0 ? kNone : i - 1,
                      .next = i + 1 == count ? kNone : i + 1};
    }

    // One key is rank · 2³² + position of the pair's left symbol: the smallest is the next merge.
    // Keys are not removed when a neighbour merges; they are stale if the pair now at
    // the position has another rank.
    const auto propose = [&](std::uint32_t left) {
        const std::uint32_t rank = rank_of(symbols[left].id, symbols[symbols[left].next].id);
        if (rank != kNoRank) queue.push((static_cast<std::uint64_t>(rank) << 32) | left);
    };
    queue.clear();
    for (std::uint32_t i = 0; i + 1 < count; ++i)
        propose(i);

    while (!queue.empty()) {
        const std::uint64_t key = queue.pop();
        const auto rank = static_cast<std::uint32_t>(key >> 32);
        const auto left = static_cast<std::uint32_t>(key);
        const std::uint32_t right = symbols[left].next;
        if (symbols[left].id == kMergedAway || right == kNone) continue;
        if (rank_of(symbols[left].id, symbols[right].id) != rank) continue;

        symbols[left].id = merged_[rank];
        symbols[left].next = symbols[right].next;
        symbols[right].id = kMergedAway;
        if (symbols[left].next != kNone) {
            symbols[symbols[left].next].previous = left;
            propose(left);
        }
        if (symbols[left].previous != kNone) propose(symbols[left].previous);
    }
    for (const Scratch::Symbol& symbol : symbols)
        if (symbol.id != kMergedAway) out.push_back(symbol.id);
}

}  // namespace fathom
