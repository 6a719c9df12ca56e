#include "engine/kv_identity.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "engine/marker_model.h"

namespace fathom {
namespace {

ModelIdentity some_identity() {
    return {.model_id = "model",
            .weights_digest = "w",
            .tokenizer_digest = "t",
            .chat_template_digest = {},
            .adapter_digest = {}};
}

// The namespace of an engine: its own fields, the model's identity, the request's.
struct Inputs {
    KvLayout layout = testing::MarkerModel().kv_layout();
    ModelOptions options;
    ModelIdentity identity = some_identity();
    ModelConfig config;
    std::string share_group = "g", secret = "s", cache_salt = "c";

    NamespaceId id() const {
        std::vector<NamespaceField> fields = kv_namespace(layout, options);
        for (const NamespaceField& field : kv_identity(identity, config))
            fields.push_back(field);
        fields.push_back({NamespaceTag::share_group, share_group});
        fields.push_back({NamespaceTag::cache_salt, cache_salt});
        std::sort(fields.begin(), fields.end(),
                  [](const auto& a, const auto& b) { return a.tag < b.tag; });
        return namespace_id(fields, secret);
    }
};

TEST(KvIdentity, NamesAreThoseOfEveryOtherProcess) {
    const Status status = check_block_names();
    EXPECT_TRUE(status.ok()) << status.to_string();
}

TEST(KvIdentity, EachFieldAloneChangesTheNamespace) {
    std::set<Sha256Digest> ids;
    int changes = 0;
    const auto with = [&](auto change) {
        Inputs inputs;
        change(inputs);
        ids.insert(inputs.id().bytes);
        ++changes;
    };
    with([](Inputs&) {});
    with([](Inputs& i) { i.identity.model_id = "other"; });
    with([](Inputs& i) { i.identity.weights_digest = "other"; });
    with([](Inputs& i) { i.identity.tokenizer_digest = "other"; });
    with([](Inputs& i) { i.identity.chat_template_digest = ""; });
    with([](Inputs& i) { i.identity.chat_template_digest = "x"; });
    with([](Inputs& i) { i.identity.adapter_digest = ""; });
    with([](Inputs& i) { i.identity.adapter_digest = "x"; });
    with([](Inputs& i) { i.layout.page_bytes += 1; });
    with([](Inputs& i) { i.layout.owners[0].layer += 1; });
    with([](Inputs& i) { i.layout.main_format = KvFormat::bf16; });
    with([](Inputs& i) { i.layout.index_format = KvFormat::bf16; });
    with([](Inputs& i) { i.options.numerics.mode = NumericMode::fp32; });
    with([](Inputs& i) { i.options.numerics.woa = WoA::fp8; });
    with([](Inputs& i) { i.config.rope_theta = 10'000.000000000002; });
    with([](Inputs& i) { i.config.compress_rope_theta += 1; });
    with([](Inputs& i) { i.config.yarn.factor = 4; });
    with([](Inputs& i) { i.config.yarn.original_max_position = 4096; });
    with([](Inputs& i) { i.config.window += 1; });
    with([](Inputs& i) { i.config.kv_sources = {1}; });
    with([](Inputs& i) { i.config.index_sources = {1}; });
    with([](Inputs& i) { i.config.index_topk = 1; });
    with([](Inputs& i) { i.config.fp4_main_kv = false; });
    with([](Inputs& i) { i.share_group = "other"; });
    with([](Inputs& i) { i.cache_salt = "other"; });
    with([](Inputs& i) { i.secret = "other"; });
    EXPECT_EQ(ids.size(), static_cast<std::size_t>(changes));
}

// The same bytes in another field, or split otherwise, are another namespace.
TEST(KvIdentity, AnAdaptersNameIsNotASaltOfTheSameBytes) {
    const auto id = [](std::vector<NamespaceField> fields) {
        return namespace_id(fields, "").bytes;
    };
    const std::set<Sha256Digest> ids = {
        id({{NamespaceTag::adapter, "x"}}),
        id({{NamespaceTag::cache_salt, "x"}}),
        id({{NamespaceTag::chat_template, "x"}, {NamespaceTag::adapter, ""}}),
        id({{NamespaceTag::chat_template, ""}, {NamespaceTag::adapter, "x"}}),
        id({{NamespaceTag::share_group, "ab"}, {NamespaceTag::cache_salt, "c"}}),
        id({{NamespaceTag::share_group, "a"}, {NamespaceTag::cache_salt, "bc"}}),
    };
    EXPECT_EQ(ids.size(), 6u);
}

TEST(KvIdentity, ATokenMacDependsOnTokensPlaceAndNamespace) {
    std::vector<TokenId> ids(256, 5);
    const auto mac = [&](const char* secret, std::int64_t index) {
        const KeyedTokens tokens{.ids = ids, .in_image = {}, .embeddings = {}, .image_digests = {}};
        return block_name(namespace_id({}, secret), {}, {}, tokens, index).token_mac;
    };
    std::set<std::array<std::uint8_t, 16>> macs = {mac("a", 1), mac("a", 2), mac("b", 1)};
    ids[127] = 6;
    macs.insert(mac("a", 1));
    EXPECT_EQ(macs.size(), 4u);
    EXPECT_TRUE(macs.contains(mac("a", 2)));  // of its own tokens alone
}

TEST(KvIdentity, ADescriptionNamesFieldsAndHidesSalts) {
    const std::vector<NamespaceField> fields = {{NamespaceTag::format, "1"},
                                                {NamespaceTag::adapter, "two words"},
                                                {NamespaceTag::share_group, "acme"},
                                                {NamespaceTag::cache_salt, "hidden"}};
    const std::string text = describe_namespace(fields);
    EXPECT_EQ(text.find("format=1 adapter="), 0u) << text;
    EXPECT_NE(text.find(" share_group=acme cache_salt="), std::string::npos) << text;
    EXPECT_EQ(text.find("hidden"), std::string::npos) << text;
    EXPECT_EQ(text.find("two words"), std::string::npos) << text;
}

}  // namespace
}  // namespace fathom
