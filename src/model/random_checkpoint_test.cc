#include "model/random_checkpoint.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/formats.h"
#include "model/checkpoint.h"
#include "model/model_presets.h"

namespace fathom {
namespace {

namespace fs = std::filesystem;

Json tiny_config() {
    return preset_config(
        ModelPreset::tiny,
        {.vocab_size = 1024, .compressed_vocab = 700, .image_id = 1020, .noise_id = 1023});
}

class RandomCheckpoint : public ::testing::Test {
  protected:
    RandomCheckpoint()
        : root_(fs::path(::testing::TempDir()) /
                ("random_checkpoint_" + std::to_string(getpid()))) {
        fs::remove_all(root_);
        fs::create_directories(root_);
    }
    ~RandomCheckpoint() override { fs::remove_all(root_); }
    std::string dir(const std::string& name) const { return (root_ / name).string(); }
    static Status make(const std::string& dir, std::uint64_t seed, int threads = 1) {
        return write_random_checkpoint(
            dir, tiny_config(),
            {.seed = seed, .threads = threads, .files = {{"note", "text"}}, .on_progress = {}});
    }
    static std::string bytes(const fs::path& path) {
        std::ifstream file(path, std::ios::binary);
        return {std::istreambuf_iterator<char>(file), {}};
    }

    fs::path root_;
};

TEST_F(RandomCheckpoint, IsAValidCheckpointWithItsFurtherFiles) {
    const Status status = make(dir("a"), 1, 2);
    ASSERT_TRUE(status.ok()) << status.message();
    const auto checkpoint = Checkpoint::open(dir("a"));
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    EXPECT_EQ((*checkpoint)->config().layers, 12);
    EXPECT_EQ((*checkpoint)->summary().copied_bytes, 0u);
    EXPECT_EQ(bytes(root_ / "a" / "note"), "text");
    EXPECT_FALSE(fs::exists(dir("a.partial")));
}

TEST_F(RandomCheckpoint, DependsOnTheSeedAlone) {
    ASSERT_TRUE(make(dir("a"), 1, 1).ok());
    ASSERT_TRUE(make(dir("b"), 1, 3).ok());
    ASSERT_TRUE(make(dir("c"), 2, 1).ok());
    int files = 0;
    for (const auto& entry : fs::directory_iterator(dir("a"))) {
        const std::string name = entry.path().filename().string();
        EXPECT_EQ(bytes(entry.path()), bytes(root_ / "b" / name)) << name;
        if (name.ends_with(".safetensors")) {
            EXPECT_NE(bytes(entry.path()), bytes(root_ / "c" / name)) << name;
        }
        ++files;
    }
    EXPECT_EQ(files, 19 + 3);
}

// Root mean square of an fp8 pair's or packed FP4 pair's numbers.
double rms(const Checkpoint& checkpoint, const std::string& name) {
    const TensorRef weight = checkpoint.tensor(name + ".weight");
    const TensorRef scale = checkpoint.tensor(name + ".scale");
    const bool fp4 = weight.type == TensorType::i8;
    const auto columns = static_cast<std::uint64_t>(weight.shape[1]);
    double sum = 0;
    for (std::uint64_t i = 0; i < weight.bytes; ++i) {
        const std::uint64_t row = i / columns, column = i % columns;
        const std::uint64_t at =
            (fp4 ? row : row / 32) * static_cast<std::uint64_t>(scale.shape[1]) +
            column / (fp4 ? 16 : 32);
        const double s = ue8m0_to_float(scale.data[at]);
        const std::uint8_t code = weight.data[i];
        const double low = s * (fp4 ? e2m1_to_float(code & 15) : e4m3_to_float(code));
        const double high = fp4 ? s * e2m1_to_float(code >> 4) : 0;
        sum += low * low + high * high;
    }
    return std::sqrt(sum / static_cast<double>(weight.bytes * (fp4 ? 2 : 1)));
}

TEST_F(RandomCheckpoint, HasThePublishedDeviations) {
    ASSERT_TRUE(make(dir("a"), 7).ok());
    const auto opened = Checkpoint::open(dir("a"));
    ASSERT_TRUE(opened.ok());
    const Checkpoint& checkpoint = **opened;
    struct Case {
        const char* name;
        double factor;
        double inputs;
    };
    for (const Case& c :
         {Case{"layers.0.attn.wq_a", 1.6, 192}, Case{"layers.3.attn.wq_b", 0.95, 96},
          Case{"layers.7.attn.wkv", 1.8, 192}, Case{"layers.2.attn.wo_b", 1.9, 128},
          Case{"layers.5.ffn.experts.3.w1", 1.5, 192}, Case{"layers.5.ffn.experts.7.w2", 1.05, 96},
          Case{"mtp.1.ffn.shared_experts.w2", 1.05, 96}}) {
        const double expected = c.factor / std::sqrt(c.inputs);
        EXPECT_NEAR(rms(checkpoint, c.name) / expected, 1, 0.12) << c.name;
    }
    const auto mean_square = [](const Bf16* values, std::int64_t count) {
        double sum = 0;
        for (std::int64_t i = 0; i < count; ++i)
            sum += std::pow(bf16_to_float(values[i]), 2);
        return std::sqrt(sum / static_cast<double>(count));
    };
    EXPECT_NEAR(mean_square(checkpoint.bf16("embed.weight"), 1024 * 192), 0.12, 0.001);
    EXPECT_NEAR(mean_square(checkpoint.bf16("layers.4.ffn_norm.weight"), 192), 0.2, 0.01);
    EXPECT_NEAR(mean_square(checkpoint.bf16("layers.4.attn_norm.weight"), 192), 0.025, 0.002);
}

TEST_F(RandomCheckpoint, HoldsNoCodeThatIsNoNumber) {
    ASSERT_TRUE(make(dir("a"), 7).ok());
    const auto checkpoint = Checkpoint::open(dir("a"));
    ASSERT_TRUE(checkpoint.ok());
    for_each_expected_tensor((*checkpoint)->config(), [&](const ExpectedTensor& expected) {
        const TensorRef tensor = (*checkpoint)->tensor(expected.name);
        for (std::uint64_t i = 0; i < tensor.bytes; ++i) {
            const std::uint8_t code = tensor.data[i];
            if (tensor.type == TensorType::f8_e4m3) {
                ASSERT_NE(code & 0x7f, 0x7f) << expected.name;
            }
            if (tensor.type == TensorType::f8_e8m0) {
                ASSERT_NEAR(code, 120, 10) << expected.name;
            }
        }
    });
}

TEST_F(RandomCheckpoint, RefusesAFolderThatHoldsSomething) {
    fs::create_directories(dir("a"));
    ASSERT_TRUE(make(dir("a"), 1).ok()) << "an empty folder is taken";
    const Status again = make(dir("a"), 1);
    EXPECT_EQ(again.code(), StatusCode::invalid_argument);
    EXPECT_NE(again.message().find("not empty"), std::string::npos) << again.message();
    std::ofstream(dir("file")) << "x";
    EXPECT_EQ(make(dir("file"), 1).code(), StatusCode::invalid_argument);
}

TEST_F(RandomCheckpoint, LeavesNothingWhenItIsStopped) {
    const Status status = write_random_checkpoint(
        dir("a"), tiny_config(),
        {.seed = 1, .threads = 2, .files = {}, .on_progress = [](auto done, auto total) {
             return done < total / 2;
         }});
    EXPECT_EQ(status.code(), StatusCode::cancelled);
    EXPECT_TRUE(fs::is_empty(root_));
}

struct PresetCase {
    ModelPreset preset;
    std::int64_t files_bytes, active_bytes;
};

TEST(ModelPresets, ParseAndHaveTheirSizes) {
    for (const PresetCase& c : {PresetCase{ModelPreset::tiny, 10'580'550, 5'610'420},
                                PresetCase{ModelPreset::mid, 8'360'200'048, 2'249'284'416},
                                PresetCase{ModelPreset::wide, 4'677'899'632, 2'758'515'072}}) {
        const std::int64_t vocab_size = preset_vocab_size(c.preset);
        const Json root = preset_config(c.preset, {.vocab_size = vocab_size,
                                                   .compressed_vocab = vocab_size / 2,
                                                   .image_id = 5,
                                                   .noise_id = 6});
        const auto config = parse_model_config(root);
        ASSERT_TRUE(config.ok()) << config.status().message();
        std::int64_t bytes = 0;
        for_each_expected_tensor(*config, [&](const ExpectedTensor& tensor) {
            std::int64_t size = tensor_type_bytes(tensor.type);
            for (std::int64_t n : tensor.shape)
                size *= n;
            bytes += size;
        });
        EXPECT_EQ(bytes, c.files_bytes);
        EXPECT_EQ(active_weight_bytes(*config).total, c.active_bytes);
    }
}

TEST(ModelPresets, KnowTheBytesOfTheReleasedModel) {
    // spec cpu-kernels.md 3, in GB
    Json root = preset_config(
        ModelPreset::mid,
        {.vocab_size = 129'280, .compressed_vocab = 99'092, .image_id = 5, .noise_id = 6});
    const Json released = Json::object({{"hidden_size", 5120},
                                        {"num_attention_heads", 64},
                                        {"q_lora_rank", 1280},
                                        {"o_lora_rank", 1024},
                                        {"n_routed_experts", 384},
                                        {"moe_intermediate_size", 2304}});
    const auto config = parse_model_config(root, &released);
    ASSERT_TRUE(config.ok()) << config.status().message();
    const ActiveBytes active = active_weight_bytes(*config);
    const auto gb = [&](std::size_t i) { return static_cast<double>(active.items[i].bytes) / 1e9; };
    EXPECT_NEAR(gb(0), 4.51, 0.005);
    EXPECT_NEAR(gb(1), 5.07, 0.005);
    EXPECT_NEAR(gb(2), 1.42, 0.005);
    EXPECT_NEAR(gb(3), 1.32, 0.005);
    EXPECT_NEAR(static_cast<double>(active.total) / 1e9, 13.0, 0.1);
}

}  // namespace
}  // namespace fathom
