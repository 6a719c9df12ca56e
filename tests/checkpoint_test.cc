// The checkpoint reader and Engram's hashing against the golden data.
#include "model/checkpoint.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "base/json.h"
#include "model/engram.h"
#include "model/memory_plan.h"
#include "model/model.h"
#include "support.h"

namespace fathom {
namespace {

using testing::shared_path;
using testing::source_path;

class GoldenCheckpoint : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenCheckpoint, OpensAndMatchesItsIndex) {
    const std::string dir = shared_path(std::string("golden/model/") + GetParam());
    FATHOM_NEED_SHARED(std::string("golden/model/") + GetParam());
    const auto checkpoint = Checkpoint::open(dir);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    const auto index = read_safetensors_index(dir + "/model.safetensors.index.json");
    ASSERT_TRUE(index.ok()) << index.status().message();
    EXPECT_EQ((*checkpoint)->summary().tensors, index->weight_map.size());
    EXPECT_EQ((*checkpoint)->summary().bytes, index->total_size.value_or(0));
    for (const ExpectedTensor& tensor : expected_tensors((*checkpoint)->config()))
        EXPECT_TRUE(index->weight_map.contains(tensor.name)) << tensor.name;
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenCheckpoint, ::testing::Values("t1", "t2", "t3", "t4", "t6"));

TEST(TinyCheckpoint, OpensWithItsRoles) {
    const auto checkpoint = Checkpoint::open(source_path("models/tiny"));
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    const ModelConfig& config = (*checkpoint)->config();
    EXPECT_EQ(config.boundary(), 6);
    EXPECT_TRUE(config.vision.has_value());
    const WeightSource expert = (*checkpoint)->weight("layers.0.ffn.experts.7.w2");
    EXPECT_EQ(expert.format, WeightFormat::fp4_row32);
    EXPECT_EQ(expert.out, config.hidden);
    EXPECT_EQ(expert.in, config.expert_inter);
    const EngramTable table = (*checkpoint)->engram_table(4);
    EXPECT_EQ(table.rows, config.engram_rows[1]);
    EXPECT_EQ(table.dim, config.engram_head_dim);
}

// Tensors that lie misaligned in the shards come as aligned copies with the same bytes.
TEST(TinyCheckpoint, AlignsMisalignedTensors) {
    const auto checkpoint = Checkpoint::open(source_path("models/tiny"));
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    EXPECT_GT((*checkpoint)->summary().copied_bytes, 0u);
    const auto shard =
        SafetensorsFile::open(source_path("models/tiny/model-00003-of-00020.safetensors"));
    ASSERT_TRUE(shard.ok()) << shard.status().message();
    for (const auto& [name, info] : (*shard)->tensors()) {
        const TensorRef tensor = (*checkpoint)->tensor(name);
        const auto element = static_cast<std::uintptr_t>(tensor_type_bytes(tensor.type));
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data) % element, 0u) << name;
        ASSERT_EQ(tensor.bytes, (*shard)->view(info).bytes);
        EXPECT_EQ(std::memcmp(tensor.data, (*shard)->view(info).data, tensor.bytes), 0) << name;
    }
}

TEST(UnquantisedCheckpoint, GivesBf16SourcesAndTables) {
    FATHOM_NEED_SHARED("golden/model/t6");
    const auto checkpoint = Checkpoint::open(shared_path("golden/model/t6"));
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    EXPECT_FALSE((*checkpoint)->config().quantised);
    EXPECT_EQ((*checkpoint)->weight("layers.0.attn.wq_a").format, WeightFormat::bf16);
    EXPECT_EQ((*checkpoint)->engram_table(1).format, WeightFormat::bf16);
    EXPECT_EQ((*checkpoint)->engram_table(1).scales, nullptr);
}

TEST(GoldenOverrides, ReplaceTextConfigKeys) {
    FATHOM_NEED_SHARED("golden/model/t1full/inputs.json");
    const auto inputs = parse_json_file(shared_path("golden/model/t1full/inputs.json"));
    ASSERT_TRUE(inputs.ok()) << inputs.status().message();
    CheckpointOptions options;
    options.config_overrides = inputs->find("text_config_overrides");
    ASSERT_NE(options.config_overrides, nullptr);
    const auto checkpoint = Checkpoint::open(shared_path("golden/model/t1"), options);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    EXPECT_EQ((*checkpoint)->config().index_topk, 512);
    EXPECT_EQ((*checkpoint)->config().candidate_blocks, 256);
}

// The plan is made before the model exists, so it must not promise less than the model then takes.
TEST(MemoryPlan, CoversWhatTheModelReserves) {
    const auto opened = Checkpoint::open(source_path("models/tiny"));
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    auto backend = make_backend("reference", std::make_shared<ComputePool>(1));
    ASSERT_TRUE(backend.ok()) << backend.status().message();
    const ModelConfig& config = (*opened)->config();
    std::vector<std::int32_t> token_map(static_cast<std::size_t>(config.vocab_size));
    for (std::size_t i = 0; i < token_map.size(); ++i)
        token_map[i] =
            static_cast<std::int32_t>(i % static_cast<std::size_t>(config.engram_compressed_vocab));
    ModelOptions options;
    options.rows_max = 64;
    auto model = Model::load(*opened, token_map, std::move(*backend), options);
    ASSERT_TRUE(model.ok()) << model.status().message();
    EXPECT_EQ((*model)->packed_bytes(), 0) << "the reference reads the mapping in place";

    MemoryRequest request;
    request.model = options;
    for (const MemoryPlan::Item& item : plan_memory(**opened, request).items) {
        if (item.what.starts_with("workspace")) {
            EXPECT_GE(item.bytes, (*model)->workspace_bytes());
        }
    }
}

// --------------------------------------------------------------------------- engram_hash.json

// Integers above 2^53 are decimal strings there.
std::int64_t number(const Json& value) {
    return value.is_string() ? std::stoll(value.as_string()) : value.as_int64();
}

template <typename T>
std::vector<T> numbers(const Json& array) {
    std::vector<T> out;
    for (const Json& item : array.items()) {
        if (item.is_array()) {
            const auto nested = numbers<T>(item);
            out.insert(out.end(), nested.begin(), nested.end());
        } else {
            out.push_back(static_cast<T>(number(item)));
        }
    }
    return out;
}

TEST(GoldenEngramHash, LayoutsAndRowsAreEqual) {
    FATHOM_NEED_SHARED("golden/kernels/engram_hash.json");
    const auto golden = parse_json_file(shared_path("golden/kernels/engram_hash.json"));
    ASSERT_TRUE(golden.ok()) << golden.status().message();
    for (const Json& layout : golden->find("layouts")->items()) {
        SCOPED_TRACE(layout.find("name")->as_string());
        ModelConfig config;
        config.engram_layers = numbers<int>(*layout.find("layer_ids"));
        config.engram_rows = numbers<std::int64_t>(*layout.find("rows_per_layer"));
        config.engram_heads = number(*layout.find("heads"));
        config.engram_ngram_max = number(*layout.find("max_ngram"));
        config.engram_prime_start = number(*layout.find("vocab_size_start"));
        config.engram_compressed_vocab = number(*layout.find("compressed_vocab_size"));
        config.engram_pad_id = static_cast<TokenId>(number(*layout.find("pad_token_id")));
        const auto hashes = make_engram_hashes(config);
        ASSERT_TRUE(hashes.ok()) << hashes.status().message();

        const auto map = numbers<std::int32_t>(*layout.find("token_map"));
        const auto ids = numbers<TokenId>(*layout.find("ids"));
        const auto image = numbers<std::uint8_t>(*layout.find("image"));
        for (std::size_t i = 0; i < hashes->size(); ++i) {
            const EngramHash& hash = (*hashes)[i];
            EXPECT_EQ(hash.primes, numbers<std::int64_t>(layout.find("primes")->items()[i]));
            EXPECT_EQ(hash.offsets, numbers<std::int64_t>(layout.find("offsets")->items()[i]));
            EXPECT_EQ(hash.multipliers,
                      numbers<std::int64_t>(layout.find("multipliers")->items()[i]));
            std::vector<std::int64_t> rows(ids.size() * hash.primes.size());
            const auto count = static_cast<std::int64_t>(ids.size());
            engram_rows(config, hash, map, ids, {}, 0, count, rows);
            EXPECT_EQ(rows, numbers<std::int64_t>(layout.find("rows_text")->items()[i]));
            engram_rows(config, hash, map, ids, image, 0, count, rows);
            EXPECT_EQ(rows, numbers<std::int64_t>(layout.find("rows_with_image")->items()[i]));
        }
    }
}

TEST(GoldenEngramHash, BoundedDrawsAreEqual) {
    FATHOM_NEED_SHARED("golden/kernels/engram_hash.json");
    const auto golden = parse_json_file(shared_path("golden/kernels/engram_hash.json"));
    ASSERT_TRUE(golden.ok()) << golden.status().message();
    for (const Json& series : golden->find("numpy_generator")->items()) {
        NumpyGenerator generator(std::stoull(series.find("seed")->as_string()));
        const std::uint64_t bound = std::stoull(series.find("bound")->as_string());
        for (const Json& draw : series.find("draws")->items())
            EXPECT_EQ(generator.below(bound), std::stoull(draw.as_string()))
                << "seed " << series.find("seed")->as_string() << " bound " << bound;
    }
}

}  // namespace
}  // namespace fathom
