#include "engine/kv_identity.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/sha256.h"

namespace fathom {

namespace {

std::string digest_text(std::string_view text) {
    Sha256 hash;
    hash.update(text);
    return hex_text(hash.finish());
}

// What decides the bits of KV rows beside weights and numerics. Numbers of double and float type
// are written with as many digits as tell them apart.
std::string attention_text(const ModelConfig& c) {
    return fmt::format(
        "rope={},{},{};yarn={},{},{},{};heads={},{},{};window={};positions={};eps={};ratios={};"
        "sources={};{};{};index={},{},{};candidates={},{},{};fp4={}",
        c.rope_theta, c.compress_rope_theta, c.rope_dim, c.yarn.factor, c.yarn.beta_fast,
        c.yarn.beta_slow, c.yarn.original_max_position, c.heads, c.head_dim, c.q_lora_rank,
        c.window, c.max_positions, c.norm_eps, fmt::join(c.compress_ratios, ","),
        fmt::join(c.kv_sources, ","), fmt::join(c.index_sources, ","),
        fmt::join(c.index_k_sources, ","), c.index_heads, c.index_dim, c.index_topk,
        c.candidate_source, c.candidate_blocks, c.candidate_block_size, c.fp4_main_kv);
}

std::string_view tag_name(NamespaceTag tag) {
    switch (tag) {
        case NamespaceTag::format:
            return "format";
        case NamespaceTag::model_id:
            return "model_id";
        case NamespaceTag::weights:
            return "weights";
        case NamespaceTag::tokenizer:
            return "tokenizer";
        case NamespaceTag::chat_template:
            return "chat_template";
        case NamespaceTag::adapter:
            return "adapter";
        case NamespaceTag::kv_layout:
            return "kv_layout";
        case NamespaceTag::kv_formats:
            return "kv_formats";
        case NamespaceTag::block_tokens:
            return "block_tokens";
        case NamespaceTag::numerics:
            return "numerics";
        case NamespaceTag::parallel_layout:
            return "parallel_layout";
        case NamespaceTag::share_group:
            return "share_group";
        case NamespaceTag::cache_salt:
            return "cache_salt";
        case NamespaceTag::one_request:
            return "one_request";
        case NamespaceTag::attention:
            return "attention";
    }
    return "unknown";
}

bool printable(std::string_view text) {
    return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
}

std::vector<NamespaceField> test_fields() {
    return {{NamespaceTag::format, "1"},
            {NamespaceTag::model_id, "fathom/self-test"},
            {NamespaceTag::weights, "weights"},
            {NamespaceTag::tokenizer, "tokenizer"},
            {NamespaceTag::chat_template, "template"},
            {NamespaceTag::adapter, ""},
            {NamespaceTag::kv_layout, "layout"},
            {NamespaceTag::kv_formats, "formats"},
            {NamespaceTag::block_tokens, "128"},
            {NamespaceTag::numerics, "numerics"},
            {NamespaceTag::parallel_layout, "canonical"},
            {NamespaceTag::share_group, "account"},
            {NamespaceTag::cache_salt, "salt"},
            {NamespaceTag::attention, "attention"}};
}

}  // namespace

std::vector<NamespaceField> kv_identity(const ModelIdentity& identity, const ModelConfig& config) {
    std::vector<NamespaceField> fields = {{NamespaceTag::model_id, identity.model_id},
                                          {NamespaceTag::weights, identity.weights_digest},
                                          {NamespaceTag::tokenizer, identity.tokenizer_digest}};
    if (identity.chat_template_digest)
        fields.push_back({NamespaceTag::chat_template, *identity.chat_template_digest});
    if (identity.adapter_digest)
        fields.push_back({NamespaceTag::adapter, *identity.adapter_digest});
    fields.push_back({NamespaceTag::parallel_layout, "canonical"});
    fields.push_back({NamespaceTag::attention, digest_text(attention_text(config))});
    return fields;
}

std::string describe_namespace(std::span<const NamespaceField> fields) {
    std::string text;
    for (const NamespaceField& field : fields) {
        const bool shown = field.tag != NamespaceTag::cache_salt && printable(field.value);
        text += fmt::format("{}{}={}", text.empty() ? "" : " ", tag_name(field.tag),
                            shown ? field.value : digest_text(field.value).substr(0, 12) + "…");
    }
    return text;
}

Status check_block_names() {
    const NamespaceId ns = namespace_id(test_fields(), "secret");
    std::vector<TokenId> ids(2 * kPageTokens);
    for (std::size_t i = 0; i < ids.size(); ++i)
        ids[i] = static_cast<TokenId>(i * 7 % 1000);
    const KeyedTokens tokens{.ids = ids, .in_image = {}, .embeddings = {}, .image_digests = {}};
    const BlockKey first = next_key(root_key(ns), tokens, 1, false);
    const BlockName second = block_name(ns, first, next_key(first, tokens, 2, false), tokens, 2);
    const std::string found = fmt::format("{} {} {}", hex_text(ns.bytes),
                                          hex_text(second.key.bytes), hex_text(second.token_mac));
    // By Python's hashlib and hmac, from the definition in kvpool.md 4.
    constexpr std::string_view kExpected =
        "fc5312163d1808e092cbbb8fa669a21926207c1bf760d2fdcf7ebe58d2082d47 "
        "b8d74900313ac89db6b1fd95207987caf4bfb34042a3e5c5ec4d224b12d11d06 "
        "dcda1e346e3e0a158bb58f1e63dcd223";
    if (found == kExpected) return {};
    return error(StatusCode::internal,
                 "names of stored blocks: this build makes {} of the test input, expected {}; it "
                 "would neither find nor be found",
                 found, kExpected);
}

}  // namespace fathom
