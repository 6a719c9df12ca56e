#include "engine/block_key.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"

namespace fathom {

namespace {

enum class ExtraTag : std::uint16_t { image_flags = 1, embedding = 2, replayed = 3 };

template <typename Int>
void put_le(std::string& out, Int value) {
    for (std::size_t i = 0; i < sizeof(Int); ++i)
        out += static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i) & 0xff);
}

void put_field(std::string& out, std::uint16_t tag, std::string_view value) {
    put_le(out, tag);
    put_le(out, static_cast<std::uint32_t>(value.size()));
    out += value;
}

// One bit a token; nothing when no token of the block lies in an image.
std::string image_bits(const KeyedTokens& tokens, std::int64_t begin) {
    if (static_cast<std::int64_t>(tokens.in_image.size()) <= begin) return {};
    std::string bits(kPageTokens / 8, '\0');
    bool any = false;
    for (std::int64_t i = 0; i < kPageTokens; ++i) {
        const auto at = static_cast<std::size_t>(begin + i);
        if (at >= tokens.in_image.size() || tokens.in_image[at] == 0) continue;
        any = true;
        char& byte = bits[static_cast<std::size_t>(i / 8)];
        byte = static_cast<char>(byte | 1 << i % 8);
    }
    return any ? bits : std::string();
}

std::string extras(const KeyedTokens& tokens, std::int64_t begin, bool replayed) {
    std::string out;
    if (const std::string bits = image_bits(tokens, begin); !bits.empty())
        put_field(out, static_cast<std::uint16_t>(ExtraTag::image_flags), bits);
    for (std::size_t i = 0; i < tokens.embeddings.size(); ++i) {
        const EmbeddingSpan& span = tokens.embeddings[i];
        if (span.start >= begin + kPageTokens || span.start + span.count <= begin) continue;
        std::string value;
        put_le(value, static_cast<std::uint64_t>(span.start));
        put_le(value, static_cast<std::uint64_t>(span.count));
        const Sha256Digest& digest = tokens.image_digests[i];
        value.append(reinterpret_cast<const char*>(digest.data()), digest.size());
        put_field(out, static_cast<std::uint16_t>(ExtraTag::embedding), value);
    }
    if (replayed) put_field(out, static_cast<std::uint16_t>(ExtraTag::replayed), "");
    return out;
}

// u32le(index) || 128 × u32le(token)
std::string numbered_tokens(const KeyedTokens& tokens, std::int64_t index) {
    static_assert(sizeof(TokenId) == 4 && std::endian::native == std::endian::little);
    const auto number = static_cast<std::uint32_t>(index);
    std::string text(4 + 4 * kPageTokens, '\0');
    std::memcpy(text.data(), &number, 4);
    std::memcpy(text.data() + 4, tokens.ids.data() + (index - 1) * kPageTokens, 4 * kPageTokens);
    return text;
}

// Digest objects are kept: making one costs more than hashing a block.
Sha256& thread_hash() {
    thread_local Sha256 hash;
    return hash;
}

}  // namespace

std::vector<NamespaceField> kv_namespace(const KvLayout& layout, const ModelOptions& options) {
    std::string owners = fmt::format("page_bytes={}", layout.page_bytes);
    for (const KvLayout::Owner& owner : layout.owners)
        owners += fmt::format(";{}:{}@{},{},{},{}", owner.layer, owner.ratio, owner.index_values,
                              owner.index_scales, owner.main_values, owner.main_scales);
    const std::string formats = fmt::format(
        "index={},{};main={},{};window={}", static_cast<int>(layout.index_format), layout.index_dim,
        static_cast<int>(layout.main_format), layout.head_dim, layout.window);
    const Numerics& n = options.numerics;
    const std::string numerics = fmt::format(
        "{},{},{},{},{},{},{}", static_cast<int>(n.mode), static_cast<int>(n.index_score),
        static_cast<int>(n.woa), static_cast<int>(n.moe_inner), static_cast<int>(n.moe_order),
        static_cast<int>(n.mhc), static_cast<int>(n.main_kv_scale));
    return {{NamespaceTag::format, "1"},
            {NamespaceTag::kv_layout, owners},
            {NamespaceTag::kv_formats, formats},
            {NamespaceTag::block_tokens, fmt::format("{}", kPageTokens)},
            {NamespaceTag::numerics, numerics}};
}

NamespaceId namespace_id(std::span<const NamespaceField> fields, std::string_view secret) {
    std::string description = "kvpool/ns/1";
    for (std::size_t i = 0; i < fields.size(); ++i) {
        FATHOM_CHECK(i == 0 || fields[i - 1].tag < fields[i].tag);
        put_field(description, static_cast<std::uint16_t>(fields[i].tag), fields[i].value);
    }
    return {hmac_sha256(secret, description)};
}

NamespaceId tenant_namespace(std::vector<NamespaceField> fields, std::string_view share_group,
                             std::string_view cache_salt, std::string_view secret) {
    if (!share_group.empty())
        fields.push_back({NamespaceTag::share_group, std::string(share_group)});
    if (!cache_salt.empty()) fields.push_back({NamespaceTag::cache_salt, std::string(cache_salt)});
    std::sort(fields.begin(), fields.end(),
              [](const auto& a, const auto& b) { return a.tag < b.tag; });
    return namespace_id(fields, secret);
}

BlockKey root_key(const NamespaceId& ns) {
    Sha256& hash = thread_hash();
    hash.update("kvpool/root/1");
    hash.update(ns.bytes);
    return {hash.finish()};
}

std::int64_t nameable_blocks(const KeyedTokens& tokens) {
    auto end = static_cast<std::int64_t>(tokens.ids.size());
    if (tokens.image_digests.empty() && !tokens.embeddings.empty())
        end = std::min(end, tokens.embeddings.front().start);
    return end / kPageTokens;
}

BlockKey next_key(const BlockKey& parent, const KeyedTokens& tokens, std::int64_t index,
                  bool replayed) {
    const std::int64_t begin = (index - 1) * kPageTokens;
    FATHOM_CHECK(index >= 1 && begin + kPageTokens <= static_cast<std::int64_t>(tokens.ids.size()));
    std::string text = numbered_tokens(tokens, index);
    text += extras(tokens, begin, replayed);
    Sha256& hash = thread_hash();
    hash.update("kvpool/blk/1");
    hash.update(parent.bytes);
    hash.update(text);
    return {hash.finish()};
}

BlockName block_name(const NamespaceId& ns, const BlockKey& parent, const BlockKey& key,
                     const KeyedTokens& tokens, std::int64_t index) {
    BlockName name{
        .key = key, .parent = parent, .ns = ns, .ordinal = static_cast<std::uint32_t>(index)};
    const std::string_view secret(reinterpret_cast<const char*>(ns.bytes.data()), ns.bytes.size());
    const Sha256Digest mac = hmac_sha256(secret, numbered_tokens(tokens, index));
    std::copy_n(mac.begin(), name.token_mac.size(), name.token_mac.begin());
    return name;
}

bool BlockChain::replayed_before(std::int64_t index) const {
    return std::binary_search(replays_.begin(), replays_.end(), (index - 1) * kPageTokens);
}

const BlockKey& BlockChain::key(const KeyedTokens& tokens, std::int64_t index) {
    while (static_cast<std::int64_t>(keys_.size()) <= index) {
        const auto next = static_cast<std::int64_t>(keys_.size());
        keys_.push_back(next_key(keys_.back(), tokens, next, replayed_before(next)));
    }
    return keys_[static_cast<std::size_t>(index)];
}

}  // namespace fathom
