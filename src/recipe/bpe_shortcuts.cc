#include "recipe/bpe_shortcuts.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <unordered_map>

#include "base/check.h"

namespace fathom {
namespace {

constexpr std::size_t kCharacterBytes = 3;
constexpr std::uint32_t kFirstCharacter = 0x3000;
constexpr std::uint32_t kCharactersEnd = 0xA000;
constexpr int kPairBitsLog2 = 19;
constexpr std::size_t kPairBits = std::size_t{1} << kPairBitsLog2;
constexpr unsigned kFirstLead = 0xE3;
constexpr unsigned kLastLead = 0xE9;

unsigned byte_at(std::string_view text, std::size_t i) {
    return static_cast<unsigned char>(text[i]);
}
bool is_continuation(unsigned byte) {
    return (byte & 0xC0) == 0x80;
}
bool is_lead(unsigned byte) {
    return byte >= kFirstLead && byte <= kLastLead;
}

// The index of the character that `text` starts with, which is one of the table's.
std::uint32_t character_index(std::string_view text) {
    return ((byte_at(text, 0) & 0x0F) << 12 | (byte_at(text, 1) & 0x3F) << 6 |
            (byte_at(text, 2) & 0x3F)) -
           kFirstCharacter;
}
bool starts_with_character(std::string_view text) {
    return text.size() >= kCharacterBytes && is_lead(byte_at(text, 0)) &&
           is_continuation(byte_at(text, 1)) && is_continuation(byte_at(text, 2));
}

std::array<char, kCharacterBytes> bytes_of(std::uint32_t index) {
    const std::uint32_t c = kFirstCharacter + index;
    return {static_cast<char>(0xE0 | (c >> 12)), static_cast<char>(0x80 | (c >> 6 & 0x3F)),
            static_cast<char>(0x80 | (c & 0x3F))};
}

__extension__ using Wide = unsigned __int128;

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
    const Wide product = static_cast<Wide>(a) * b;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

static_assert(std::endian::native == std::endian::little);
std::uint64_t load(const char* at) {
    std::uint64_t value;
    std::memcpy(&value, at, sizeof(value));
    return value;
}

}  // namespace

WordKey word_key(std::string_view word, const char* readable_end) {
    constexpr std::uint64_t kFirst = 0x9E3779B97F4A7C15u;
    constexpr std::uint64_t kSecond = 0xD6E8FEB86659FD93u;
    const char* const at = word.data();
    const std::size_t size = word.size();
    if (size > 8) {
        std::uint64_t hash = kFirst ^ size;
        for (std::size_t done = 0; done + 8 < size; done += 8)
            hash = mix(hash ^ load(at + done), kSecond);
        hash = mix(hash ^ load(at + size - 8), kSecond);
        return {.key = hash, .hash = hash};
    }
    std::uint64_t key = 0;
    if (size > 0 && readable_end - at >= 8) {
        key = load(at) & ~std::uint64_t{0} >> (64 - 8 * size);
    } else {
        for (std::size_t i = 0; i < size; ++i)
            key |= static_cast<std::uint64_t>(byte_at(word, i)) << (8 * i);
    }
    return {.key = key, .hash = mix(key ^ kFirst, kSecond ^ size)};
}

std::optional<std::vector<std::string>> bytes_of_merges(const std::array<TokenId, 256>& byte_ids,
                                                        std::span<const BpeMerge> merges) {
    std::unordered_map<TokenId, std::string> known;
    known.reserve(merges.size() + byte_ids.size());
    for (std::size_t b = 0; b < byte_ids.size(); ++b)
        known.emplace(byte_ids[b], std::string(1, static_cast<char>(b)));
    std::vector<std::string> texts;
    texts.reserve(merges.size());
    for (const BpeMerge& merge : merges) {
        const auto left = known.find(merge.left);
        const auto right = known.find(merge.right);
        if (left == known.end() || right == known.end()) return {};
        texts.push_back(left->second + right->second);
        if (!known.emplace(merge.merged, texts.back()).second) return {};
    }
    return texts;
}

void WholeWords::reserve(std::size_t count) {
    FATHOM_CHECK(slots_.size() == 0);
    slots_ = HugeArray<Slot>(std::bit_ceil(std::max<std::size_t>(16, count * 2)));
}

void WholeWords::add(std::string_view word, TokenId id) {
    FATHOM_CHECK(word.size() <= kWordBytesMax);
    const WordKey key = word_key(word);
    std::size_t index = key.hash & (slots_.size() - 1);
    while (slots_[index].id_plus_1 != 0)
        index = (index + 1) & (slots_.size() - 1);
    Slot& slot = slots_[index];
    slot.key = key.key;
    slot.begin = static_cast<std::uint32_t>(text_.size());
    slot.size = static_cast<std::uint32_t>(word.size());
    slot.id_plus_1 = static_cast<std::uint32_t>(id) + 1;
    text_ += word;
}

bool WholeWords::is_word(const Slot& slot, std::string_view word, const WordKey& key) const {
    if (slot.key != key.key || slot.size != word.size()) return false;
    return word.size() <= sizeof(slot.key) ||
           same_bytes(text_.data() + slot.begin, word.data(), word.size());
}

TokenId WholeWords::find(std::string_view word, const WordKey& key) const {
    if (slots_.size() == 0) return -1;
    for (std::size_t index = key.hash;; ++index) {
        const Slot& slot = slots_[index & (slots_.size() - 1)];
        if (slot.id_plus_1 == 0) return -1;
        if (is_word(slot, word, key)) return static_cast<TokenId>(slot.id_plus_1) - 1;
    }
}

CjkBorders::CjkBorders(const std::array<TokenId, 256>& byte_ids, std::span<const std::string> texts,
                       const std::function<std::vector<TokenId>(std::string_view)>& merge_alone)
    : byte_ids_(byte_ids) {
    const auto has_lead = [](std::string_view text) {
        return std::any_of(text.begin(), text.end(),
                           [](char c) { return is_lead(static_cast<unsigned char>(c)); });
    };
    if (std::none_of(texts.begin(), texts.end(), has_lead)) return;
    ids_.assign(kCharactersEnd - kFirstCharacter, -1);
    flags_.resize(ids_.size());
    pairs_.resize(kPairBits / 64);
    for (const std::string_view text : texts) {
        if (text.size() != kCharacterBytes || !starts_with_character(text)) continue;
        const std::vector<TokenId> ids = merge_alone(text);
        if (ids.size() == 1) ids_[character_index(text)] = ids[0];
    }
    read_borders(texts);
}

void CjkBorders::read_borders(std::span<const std::string> texts) {
    // Parts of characters by their bytes.
    std::unordered_map<std::string_view, std::uint8_t> suffixes;
    std::unordered_map<std::string_view, std::uint8_t> prefixes;
    for (const std::string_view text : texts) {
        for (std::size_t at = 1; at < text.size(); ++at) {
            if (!is_lead(byte_at(text, at))) continue;
            const std::string_view right = text.substr(at, kCharacterBytes);
            const std::string_view left = text.substr(at - std::min(at, kCharacterBytes), at);
            const bool left_is_whole = starts_with_character(left);
            if (left_is_whole && starts_with_character(right)) {
                const std::size_t bit = pair_bit(character_index(left), character_index(right));
                pairs_[bit / 64] |= std::uint64_t{1} << (bit % 64);
            } else if (left_is_whole) {
                flags_[character_index(left)] |= kBeforePart;
                prefixes[right] |= kStartsPart;
            } else {
                // Of what is no character of the table this matches none.
                suffixes[text.substr(0, at)] |= kEndsPart;
                prefixes[right] |= kStartsRest;
            }
        }
    }
    if (prefixes.empty()) return;
    const auto flags_of = [](const auto& map, std::string_view part) {
        const auto found = map.find(part);
        return found == map.end() ? std::uint8_t{0} : found->second;
    };
    for (std::uint32_t i = 0; i < flags_.size(); ++i) {
        const auto bytes = bytes_of(i);
        const std::string_view text(bytes.data(), bytes.size());
        for (std::size_t size = 1; size <= kCharacterBytes; ++size) {
            flags_[i] |= flags_of(prefixes, text.substr(0, size));
            if (size < kCharacterBytes)
                flags_[i] |= flags_of(suffixes, text.substr(kCharacterBytes - size));
        }
    }
}

bool CjkBorders::is_open(unsigned left, unsigned right) {
    return ((left & kEndsPart) != 0 && (right & kStartsRest) != 0) ||
           ((left & kBeforePart) != 0 && (right & kStartsPart) != 0);
}

std::size_t CjkBorders::pair_bit(std::uint32_t left, std::uint32_t right) {
    const std::uint64_t pair = static_cast<std::uint64_t>(left) << 32 | right;
    return (pair * 0x9E3779B97F4A7C15u) >> (64 - kPairBitsLog2);
}

std::size_t CjkBorders::cut(std::string_view word, std::size_t parts_max,
                            std::vector<std::string_view>& parts) const {
    if (ids_.empty() || !starts_with_character(word)) {
        parts.push_back(word);
        return word.size();
    }
    std::size_t begin = 0;
    std::size_t at = kCharacterBytes;
    std::uint32_t left = character_index(word);
    while (starts_with_character(word.substr(at))) {
        const std::uint32_t right = character_index(word.substr(at));
        const std::size_t bit = pair_bit(left, right);
        const bool joined =
            (pairs_[bit / 64] >> (bit % 64) & 1) != 0 || is_open(flags_[left], flags_[right]);
        if (!joined) {
            parts.push_back(word.substr(begin, at - begin));
            if (parts.size() >= parts_max) return at;
            begin = at;
        }
        left = right;
        at += kCharacterBytes;
    }
    parts.push_back(word.substr(begin));
    return word.size();
}

bool CjkBorders::start_symbols(std::string_view part, std::vector<TokenId>& symbols) const {
    if (ids_.empty() || part.size() % kCharacterBytes != 0) return false;
    symbols.clear();
    unsigned previous = 0;
    for (; !part.empty(); part.remove_prefix(kCharacterBytes)) {
        if (!starts_with_character(part)) return false;
        const std::uint32_t character = character_index(part);
        if (is_open(previous, flags_[character])) return false;
        previous = flags_[character];
        if (ids_[character] >= 0) {
            symbols.push_back(ids_[character]);
            continue;
        }
        for (std::size_t i = 0; i < kCharacterBytes; ++i)
            symbols.push_back(byte_ids_[byte_at(part, i)]);
    }
    return true;
}

}  // namespace fathom
