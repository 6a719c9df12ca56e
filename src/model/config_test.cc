#include "model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "model/inventory.h"

namespace fathom {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Json read(const std::string& name) {
    auto json = parse_json_file(std::string(FATHOM_SOURCE_DIR "/") + name);
    EXPECT_TRUE(json.ok()) << json.status().message();
    return json.ok() ? *json : Json();
}

ModelConfig parse(const std::string& name) {
    auto config = parse_model_config(read(name));
    EXPECT_TRUE(config.ok()) << config.status().message();
    return config.ok() ? *config : ModelConfig();
}

TEST(Config, ReleasedModelHasTheRolesOfItsTable) {
    const ModelConfig c = parse("tests/data/official_config.json");
    ASSERT_EQ(c.roles.size(), 40u);
    EXPECT_EQ(c.boundary(), 20);
    for (int layer = 0; layer < 40; ++layer) {
        SCOPED_TRACE(layer);
        const LayerRole& role = c.roles[static_cast<std::size_t>(layer)];
        const int owner = layer < 2 ? -1 : layer < 8 ? 2 : layer < 14 ? 8 : layer < 20 ? 14 : 20;
        EXPECT_EQ(role.ratio, layer < 2 ? 0 : layer < 20 ? 2 : 1);
        EXPECT_EQ(role.kv_owner, owner);
        EXPECT_EQ(role.index_k_owner, owner);
        EXPECT_EQ(role.index_source, layer < 20 ? owner : layer / 4 * 4);
        EXPECT_EQ(role.owns_kv, owner == layer);
        EXPECT_EQ(role.owns_index_k, owner == layer);
        EXPECT_EQ(role.runs_indexer, owner == layer || (layer > 20 && layer % 4 == 0));
        EXPECT_EQ(role.is_candidate_source, layer == 20);
        EXPECT_EQ(role.uses_candidates, layer > 20 && layer % 4 == 0);
        EXPECT_EQ(role.engram, layer == 1 ? 0 : layer == 14 ? 1 : -1);
    }
    EXPECT_TRUE(c.fp4_main_kv);
    EXPECT_TRUE(c.quantised);
    EXPECT_EQ(c.engram_columns(), 24);
    EXPECT_EQ(c.image_id, 129264);
    EXPECT_FALSE(c.vision->max_wh_ratio.has_value());
}

TEST(Config, BothSpellingsSayTheSame) {
    const ModelConfig release = parse("tests/data/official_config.json");
    const ModelConfig flat = parse("tests/data/official_config_flat.json");
    EXPECT_EQ(flat.max_positions, release.max_positions);
    EXPECT_EQ(flat.window, release.window);
    EXPECT_EQ(flat.norm_eps, release.norm_eps);
    EXPECT_EQ(flat.rope_dim, release.rope_dim);
    EXPECT_EQ(flat.yarn.factor, release.yarn.factor);
    EXPECT_EQ(flat.yarn.original_max_position, release.yarn.original_max_position);
    EXPECT_EQ(flat.route_scale, release.route_scale);
    EXPECT_EQ(flat.experts_per_token, release.experts_per_token);
    EXPECT_EQ(flat.index_topk, release.index_topk);
    EXPECT_EQ(flat.candidate_source, release.candidate_source);
    EXPECT_EQ(flat.candidate_blocks, release.candidate_blocks);
    EXPECT_EQ(flat.draft_noise_id, release.draft_noise_id);
    EXPECT_EQ(flat.draft_experts_per_token, release.draft_experts_per_token);
    EXPECT_EQ(flat.image_id, release.image_id);
    EXPECT_EQ(flat.vision->max_image_tokens, release.vision->max_image_tokens);
    EXPECT_EQ(flat.vision->min_pixels, release.vision->min_pixels);
    const auto a = expected_tensors(release), b = expected_tensors(flat);
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
        ASSERT_EQ(a[i].name, b[i].name);
        ASSERT_EQ(a[i].type, b[i].type);
        ASSERT_EQ(a[i].shape, b[i].shape);
    }
}

TEST(Config, ReleasedInventoryHasItsPublishedCountAndSize) {
    std::int64_t tensors = 0, bytes = 0;
    for_each_expected_tensor(parse("tests/data/official_config.json"),
                             [&](const ExpectedTensor& tensor) {
                                 std::int64_t size = tensor_type_bytes(tensor.type);
                                 for (std::int64_t n : tensor.shape)
                                     size *= n;
                                 ++tensors;
                                 bytes += size;
                             });
    EXPECT_EQ(tensors, 96085);
    EXPECT_EQ(bytes, 510286023000);
}

// text_config of the tiny model with some keys replaced.
Result<ModelConfig> parse_with(const std::string& overrides,
                               std::vector<std::string>* problems = nullptr) {
    const auto json = parse_json(overrides);
    EXPECT_TRUE(json.ok()) << json.status().message();
    return parse_model_config(read("models/tiny/config.json"), &*json, problems);
}

TEST(Config, OptionalKeysHaveTheirDefaults) {
    const auto plain = parse_with("{}");
    ASSERT_TRUE(plain.ok()) << plain.status().message();
    EXPECT_THAT(plain->index_k_sources, ElementsAre(2, 4, 6));
    EXPECT_EQ(plain->gate_temp, 1.0f);
    const auto said = parse_with(
        R"({"index_k_source_layer_ids": [2, 4, 6], "use_fp4_sparse_kv": false, "gate_temp": 2})");
    ASSERT_TRUE(said.ok()) << said.status().message();
    EXPECT_FALSE(said->fp4_main_kv);
    EXPECT_EQ(said->gate_temp, 2.0f);
}

TEST(Config, NullOrNegativeCandidateSourceSwitchesCandidatesOff) {
    for (const char* value : {"null", "-1", "-7"}) {
        const auto config =
            parse_with(std::string(R"({"candidate_source_layer_id": )") + value + "}");
        ASSERT_TRUE(config.ok()) << config.status().message();
        EXPECT_EQ(config->candidate_source, -1);
        for (const LayerRole& role : config->roles) {
            EXPECT_FALSE(role.is_candidate_source);
            EXPECT_FALSE(role.uses_candidates);
        }
    }
}

TEST(Config, ListsEveryProblemAndReturnsTheFirst) {
    std::vector<std::string> problems;
    const auto config =
        parse_with(R"({"n_routed_experts": 0, "index_topk": -3, "swiglu_limit": "x"})", &problems);
    ASSERT_FALSE(config.ok());
    EXPECT_EQ(problems.size(), 3u);
    EXPECT_THAT(config.status().message(), HasSubstr("n_routed_experts = 0"));
    EXPECT_THAT(config.status().message(), HasSubstr("(and 2 more)"));
}

TEST(Config, RefusesAnOverrideThatNothingReads) {
    const auto config = parse_with(R"({"index_top_k": 4})");
    ASSERT_FALSE(config.ok());
    EXPECT_THAT(config.status().message(), HasSubstr("override index_top_k = 4"));
}

TEST(Config, ModelWithoutCompressionHasNoOwners) {
    const auto config = parse_with(R"({
        "compress_ratios": [0,0,0,0,0,0,0,0,0,0,0,0,0,0,0], "kv_source_layer_ids": [],
        "index_source_layer_ids": [], "candidate_source_layer_id": null})");
    ASSERT_TRUE(config.ok()) << config.status().message();
    EXPECT_EQ(config->boundary(), 12);
    for (const LayerRole& role : config->roles)
        EXPECT_EQ(role.kv_owner, -1);
}

TEST(Inventory, IgnoresOnlyTheDraftersCopies) {
    EXPECT_TRUE(is_ignored_tensor("mtp.0.embed.weight"));
    EXPECT_TRUE(is_ignored_tensor("mtp.12.head.weight"));
    for (const char* name : {"embed.weight", "mtp..head.weight", "mtp.0.head.scale", "mtp.0.head",
                             "mtp.x.head.weight", "mtp.2.markov_head.head.weight", "mtp.0"})
        EXPECT_FALSE(is_ignored_tensor(name)) << name;
}

}  // namespace
}  // namespace fathom
