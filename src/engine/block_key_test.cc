#include "engine/block_key.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "engine/marker_model.h"

namespace fathom {
namespace {

std::vector<TokenId> some_ids(std::int64_t count) {
    std::vector<TokenId> ids;
    for (std::int64_t i = 0; i < count; ++i)
        ids.push_back(static_cast<TokenId>(i * 7 % 1000));
    return ids;
}

std::vector<NamespaceField> some_fields() {
    return {{NamespaceTag::format, "1"},
            {NamespaceTag::block_tokens, "128"},
            {NamespaceTag::cache_salt, "s"}};
}

// The vectors were computed with Python's hashlib from the definition in the header.
TEST(BlockKey, AgreesWithFixedVectors) {
    const std::vector<TokenId> ids = some_ids(256);
    const BlockKey root = root_key(namespace_id(some_fields(), ""));
    EXPECT_EQ(hex_text(root.bytes),
              "032df6f55b67debb9d403d91745d1a52c1d1d5ba584b7f14f9febe0c0f5ee2f7");
    const KeyedTokens text{.ids = ids, .in_image = {}, .embeddings = {}, .image_digests = {}};
    const BlockKey first = next_key(root, text, 1, false);
    EXPECT_EQ(hex_text(first.bytes),
              "df1f9302012f7f044658d72941d6bb989aad8737b7e5889264fc43ff908cc90c");
    EXPECT_EQ(hex_text(next_key(first, text, 2, false).bytes),
              "6f69ade84a45367f64eaa2d6b2a10c5f42b7bfa14e19f40a6b2471cd6eb54ce1");
    EXPECT_EQ(hex_text(next_key(first, text, 2, true).bytes),
              "f06cdd06af441fe60365565147c3c90668216534368cb67d47160f120cbf4ac7");

    std::vector<std::uint8_t> flags(256, 0);
    flags[130] = flags[131] = flags[132] = 1;
    const std::vector<EmbeddingSpan> spans = {{.start = 130, .count = 3, .rows = nullptr}};
    const std::vector<Sha256Digest> digests = {Sha256Digest{9}};
    const KeyedTokens image{
        .ids = ids, .in_image = flags, .embeddings = spans, .image_digests = digests};
    EXPECT_EQ(next_key(root, image, 1, false), first);
    EXPECT_EQ(hex_text(next_key(first, image, 2, false).bytes),
              "4d58a79901878c9bda19dfccbb57797d9c4e043b056544ceaba1b8465fece976");
}

TEST(BlockKey, EverythingThatDecidesBitsChangesTheRoot) {
    const testing::MarkerModel model;
    const auto key = [&](auto change) {
        KvLayout layout = model.kv_layout();
        ModelOptions options = model.options();
        change(layout, options);
        return root_key(namespace_id(kv_namespace(layout, options), "")).bytes;
    };
    const std::set<Sha256Digest> keys = {
        key([](auto&, auto&) {}),
        key([](auto& layout, auto&) { layout.page_bytes += 1; }),
        key([](auto& layout, auto&) { layout.owners[0].ratio = 2; }),
        key([](auto& layout, auto&) { layout.main_format = KvFormat::bf16; }),
        key([](auto& layout, auto&) { layout.window -= 1; }),
        key([](auto&, auto& options) { options.numerics.mode = NumericMode::fp32; }),
        key([](auto&, auto& options) { options.numerics.woa = WoA::fp8; }),
        root_key(namespace_id(kv_namespace(model.kv_layout(), model.options()), "secret")).bytes,
    };
    EXPECT_EQ(keys.size(), 8u);
    const NamespaceField empty{NamespaceTag::cache_salt, ""};
    EXPECT_FALSE(root_key(namespace_id({&empty, 1}, "")) == root_key(namespace_id({}, "")));
}

TEST(BlockKey, OnlyFullBlocksUpToTheFirstNamelessImageHaveNames) {
    const std::vector<TokenId> ids = some_ids(400);
    KeyedTokens tokens{.ids = ids, .in_image = {}, .embeddings = {}, .image_digests = {}};
    EXPECT_EQ(nameable_blocks(tokens), 3);
    const std::vector<EmbeddingSpan> spans = {{.start = 256, .count = 3, .rows = nullptr}};
    tokens.embeddings = spans;
    EXPECT_EQ(nameable_blocks(tokens), 2);
    const std::vector<Sha256Digest> digests(1);
    tokens.image_digests = digests;
    EXPECT_EQ(nameable_blocks(tokens), 3);
}

TEST(BlockKey, AChainMarksTheBlocksBehindReplays) {
    const std::vector<TokenId> ids = some_ids(512);
    const KeyedTokens tokens{.ids = ids, .in_image = {}, .embeddings = {}, .image_digests = {}};
    BlockChain plain(BlockKey{}, {}), replayed(BlockKey{}, {256});
    EXPECT_EQ(plain.key(tokens, 2), replayed.key(tokens, 2));
    EXPECT_FALSE(plain.key(tokens, 3) == replayed.key(tokens, 3));
    EXPECT_EQ(replayed.key(tokens, 3), next_key(plain.key(tokens, 2), tokens, 3, true));
    EXPECT_EQ(replayed.key(tokens, 4), next_key(replayed.key(tokens, 3), tokens, 4, false));
}

}  // namespace
}  // namespace fathom
