#include "pool/key_ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "pool/testing/content_oracle.h"
#include "pool/testing/embedded_rig.h"

namespace fathom {
namespace {

namespace fs = std::filesystem;
using namespace fathom::testing;
using ::testing::HasSubstr;

class KeyRingTest : public ::testing::Test {
  protected:
    std::unique_ptr<KeyRing> open() { return std::move(*KeyRing::open(path_, clock_)); }
    std::string file_of(std::uint64_t ns) const {
        return path_ + "/" + hex_text(oracle_namespace(ns).bytes) + ".key";
    }
    static SlotTrailer encrypted(BlockCipher& cipher, std::vector<std::uint8_t>& payload) {
        SlotTrailer trailer;
        trailer.name = oracle_name(1, 1);
        trailer.payload_bytes = static_cast<std::uint32_t>(payload.size());
        trailer.digest = payload_digest(payload.data(), static_cast<std::int64_t>(payload.size()));
        cipher.encrypt(payload, trailer);
        return trailer;
    }
    std::size_t files() const {
        return static_cast<std::size_t>(
            std::distance(fs::directory_iterator(path_), fs::directory_iterator()));
    }

    const TemporaryFolder folder_;
    const std::string path_ = folder_.path() + "/keys";
    ManualClock clock_;
};

TEST_F(KeyRingTest, TwoProcessesAgreeOnAKeyThatOnlyTheirUserMayRead) {
    const auto one = open(), two = open();
    std::vector<std::uint8_t> payload(5000, 7);
    const auto ns = oracle_namespace(1);
    const SlotTrailer trailer = encrypted(**one->find_or_make(ns), payload);
    EXPECT_TRUE((*two->find_or_make(ns))->decrypt(payload, trailer).ok());
    EXPECT_EQ(payload, std::vector<std::uint8_t>(5000, 7));
    EXPECT_EQ(fs::status(path_).permissions(), fs::perms(0700));
    EXPECT_EQ(fs::status(file_of(1)).permissions(), fs::perms(0600));
    EXPECT_EQ(files(), 1u);  // no drafts are left
}

TEST_F(KeyRingTest, NamespacesHaveKeysOfTheirOwn) {
    const auto ring = open();
    std::vector<std::uint8_t> payload(5000, 7);
    const SlotTrailer trailer = encrypted(**ring->find_or_make(oracle_namespace(1)), payload);
    EXPECT_FALSE((*ring->find_or_make(oracle_namespace(2)))->decrypt(payload, trailer).ok());
    EXPECT_EQ(ring->find(oracle_namespace(3)).status().code(), StatusCode::permission_denied);
    EXPECT_FALSE(fs::exists(file_of(3)));  // reading makes none
}

TEST_F(KeyRingTest, ADestroyedKeyIsGoneWithWhatWasLeftOfItsMaking) {
    const auto ring = open(), other = open();
    const auto ns = oracle_namespace(1);
    ASSERT_TRUE(ring->find_or_make(ns).ok() && other->find(ns).ok());
    std::ofstream(file_of(1) + ".0123") << "draft";
    EXPECT_TRUE(ring->destroy(ns).ok());
    EXPECT_EQ(files(), 0u);
    EXPECT_FALSE(ring->find(ns).ok());
    clock_.advance_us(1'000'000);
    EXPECT_FALSE(other->find(ns).ok());  // which had it in memory
    EXPECT_TRUE(ring->destroy(ns).ok());
}

TEST_F(KeyRingTest, AFileThatIsNoKeyIsSaidAndNotReplaced) {
    const auto ring = open();
    const auto ns = oracle_namespace(1);
    std::ofstream(file_of(1)) << "short";
    fs::permissions(file_of(1), fs::perms(0600));
    const Status truncated = ring->find_or_make(ns).status();
    EXPECT_EQ(truncated.code(), StatusCode::permission_denied);
    EXPECT_THAT(truncated.message(), HasSubstr("has 5 bytes, expected 32"));
    EXPECT_THAT(truncated.message(), HasSubstr(file_of(1)));
    fs::permissions(file_of(1), fs::perms(0644));
    EXPECT_THAT(ring->find(ns).status().message(), HasSubstr("make it 0600"));
    fs::remove(file_of(1));
    fs::create_directory(file_of(1));
    EXPECT_EQ(ring->find_or_make(ns).status().code(), StatusCode::permission_denied);
    EXPECT_TRUE(KeyRing::open(path_, clock_).ok());
}

TEST_F(KeyRingTest, AKeyThatOthersMayReadLaterIsSaidOnceAndNotUsedUntilItIsMended) {
    const auto ring = open();
    const auto ns = oracle_namespace(1);
    ASSERT_TRUE(ring->find_or_make(ns).ok());
    ::testing::internal::CaptureStderr();
    fs::permissions(file_of(1), fs::perms(0640));
    EXPECT_TRUE(ring->find(ns).ok());  // looked at less than a second ago
    for (int i = 0; i < 3; ++i) {
        clock_.advance_us(1'000'000);
        EXPECT_THAT(ring->find(ns).status().message(), HasSubstr("may be read by others"));
    }
    EXPECT_EQ(ring->find_or_make(ns).status().code(), StatusCode::permission_denied);
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_THAT(said, HasSubstr(file_of(1) + ": may be read by others since"));
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
    fs::permissions(file_of(1), fs::perms(0600));
    EXPECT_TRUE(ring->find(ns).ok());
}

TEST_F(KeyRingTest, ADirectoryThatOthersMayEnterIsRefused) {
    fs::create_directory(path_);
    fs::permissions(path_, fs::perms(0755));
    EXPECT_THAT(KeyRing::open(path_, clock_).status().message(), HasSubstr("make it 0700"));
    const std::string file = folder_.path() + "/file";
    std::ofstream(file) << "x";
    EXPECT_THAT(KeyRing::open(file, clock_).status().message(), HasSubstr("is not a directory"));
    EXPECT_THAT(KeyRing::open("/proc/nothing/keys", clock_).status().message(),
                HasSubstr("/proc/nothing/keys"));
}

}  // namespace
}  // namespace fathom
