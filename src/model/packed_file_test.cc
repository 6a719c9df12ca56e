#include "model/packed_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "model/weights.h"

namespace fathom {
namespace {

using ::testing::HasSubstr;

std::string tiny_dir() {
    return std::string(FATHOM_SOURCE_DIR) + "/models/tiny";
}

class PackedFileTest : public ::testing::Test {
  protected:
    void SetUp() override {
        folder_ = std::filesystem::path(::testing::TempDir()) /
                  (std::string("packed_") +
                   ::testing::UnitTest::GetInstance()->current_test_info()->name());
        std::filesystem::remove_all(folder_);
        std::filesystem::create_directories(folder_);
        checkpoint_ = *Checkpoint::open(tiny_dir());
        backend_ = *make_backend("x86", std::make_shared<ComputePool>(2));
    }
    void TearDown() override {
        std::error_code ignored;
        std::filesystem::remove_all(folder_, ignored);
    }
    std::string path() const { return (folder_ / "model.packed").string(); }
    std::string open_message() const {
        const auto opened = PackedFile::open(path(), *checkpoint_, *backend_);
        return opened.ok() ? "" : opened.status().message();
    }

    std::filesystem::path folder_;
    std::shared_ptr<const Checkpoint> checkpoint_;
    std::unique_ptr<Backend> backend_;
};

TEST_F(PackedFileTest, HoldsTheBytesThatPackingGives) {
    ASSERT_TRUE(write_packed_file(path(), *checkpoint_, *backend_).ok());
    const auto file = PackedFile::open(path(), *checkpoint_, *backend_);
    ASSERT_TRUE(file.ok()) << file.status().to_string();
    EXPECT_EQ((*file)->bytes(), packed_weight_bytes(*checkpoint_, *backend_));
    BackboneWeights packed = load_weights(*checkpoint_, *backend_);
    BackboneWeights adopted = load_weights(*checkpoint_, *backend_, file->get());
    EXPECT_EQ(packed.packed_bytes(), (*file)->bytes());
    EXPECT_EQ(adopted.packed_bytes(), 0);
    const auto image = [](const WeightSlot& slot) {
        return slot.gate_up ? (*slot.pair)->image() : (*slot.linear)->image();
    };
    std::vector<std::span<const std::byte>> expected;
    const auto list = [&](BackboneWeights& weights, const auto& visit) {
        for (int layer = 0; layer < checkpoint_->config().layers; ++layer)
            for_each_weight(checkpoint_->config(), layer,
                            &weights.layers[static_cast<std::size_t>(layer)], visit);
        for_each_weight(&weights, visit);
    };
    list(packed, [&](const WeightSlot& slot) { expected.push_back(image(slot)); });
    std::size_t at = 0;
    list(adopted, [&](const WeightSlot& slot) {
        const auto bytes = image(slot);
        ASSERT_EQ(bytes.size(), expected[at].size()) << slot.name;
        EXPECT_EQ(std::memcmp(bytes.data(), expected[at].data(), bytes.size()), 0) << slot.name;
        ++at;
    });
    EXPECT_EQ(at, expected.size());

    // The copy holds the same bytes at multiples of 64, and does without the file.
    ComputePool pool(2);
    ASSERT_TRUE((*file)->copy_to_memory(pool).ok());
    std::filesystem::resize_file(path(), 0);
    BackboneWeights copied = load_weights(*checkpoint_, *backend_, file->get());
    at = 0;
    list(copied, [&](const WeightSlot& slot) {
        const auto bytes = image(slot);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(bytes.data()) % 64, 0u) << slot.name;
        EXPECT_EQ(std::memcmp(bytes.data(), expected[at].data(), bytes.size()), 0) << slot.name;
        ++at;
    });
}

TEST_F(PackedFileTest, ForeignAndDamagedFilesAreRefused) {
    EXPECT_THAT(open_message(), HasSubstr("does not exist"));
    ASSERT_TRUE(write_packed_file(path(), *checkpoint_, *backend_).ok());
    EXPECT_EQ(open_message(), "");
    const auto replace = [&](const std::string& from, const std::string& to) {
        std::string text;
        {
            std::ifstream in(path(), std::ios::binary);
            text.assign(std::istreambuf_iterator<char>(in), {});
        }
        const std::size_t found = text.find(from);
        ASSERT_NE(found, std::string::npos) << from;
        text.replace(found, from.size(), to);
        std::ofstream(path(), std::ios::binary) << text;
    };
    const std::string layout(backend_->image_layout());
    replace("\"layout\":\"" + layout, "\"layout\":\"" + std::string(layout.size(), 'z'));
    EXPECT_THAT(open_message(), HasSubstr("its layout is \"zzz"));
    replace(std::string(layout.size(), 'z'), layout);
    EXPECT_EQ(open_message(), "");
    const std::string digest = *checkpoint_digest(*checkpoint_);
    replace(digest, std::string(digest.size(), '0'));
    EXPECT_THAT(open_message(), HasSubstr("that of " + tiny_dir() + " is " + digest));
    replace(std::string(digest.size(), '0'), digest);
    replace("layers.0.attn.wq_a", "layers.0.attn.wq_x");
    EXPECT_THAT(open_message(), HasSubstr("lacks layers.0.attn.wq_a"));
    std::filesystem::resize_file(path(), std::filesystem::file_size(path()) - 64);
    EXPECT_NE(open_message(), "");
}

TEST_F(PackedFileTest, OnlyAPackedFileIsReplaced) {
    ASSERT_TRUE(write_packed_file(path(), *checkpoint_, *backend_).ok());
    const std::string link = path() + ".link", foreign = path() + ".txt";
    std::filesystem::create_symlink("model.packed", link);
    EXPECT_TRUE(write_packed_file(link, *checkpoint_, *backend_).ok());
    EXPECT_TRUE(std::filesystem::is_symlink(link));
    std::ofstream(foreign) << "notes";
    for (const std::string& other : {foreign, std::string("/dev/null"), folder_.string()}) {
        const Status refused = write_packed_file(other, *checkpoint_, *backend_);
        EXPECT_EQ(refused.code(), StatusCode::invalid_argument) << other;
    }
    EXPECT_EQ(std::filesystem::file_size(foreign), 5u);
    EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

TEST_F(PackedFileTest, BackEndsWithoutImagesAndStoppedWorkLeaveNothing) {
    const auto oracle = *make_backend("reference", std::make_shared<ComputePool>(1));
    const Status refused = write_packed_file(path(), *checkpoint_, *oracle);
    EXPECT_EQ(refused.code(), StatusCode::unsupported);
    EXPECT_THAT(refused.message(), HasSubstr("reference"));
    const Status stopped =
        write_packed_file(path(), *checkpoint_, *backend_,
                          {.on_progress = [](std::int64_t, std::int64_t) { return false; }});
    EXPECT_EQ(stopped.code(), StatusCode::cancelled);
    EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(PackedFileTest, DigestTellsCheckpointsApart) {
    const auto digest = checkpoint_digest(*checkpoint_);
    ASSERT_TRUE(digest.ok());
    EXPECT_EQ(digest->size(), 64u);
    EXPECT_EQ(*digest, *checkpoint_digest(*checkpoint_));
}

}  // namespace
}  // namespace fathom
