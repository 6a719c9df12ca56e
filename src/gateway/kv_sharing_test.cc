#include "gateway/kv_sharing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fathom {
namespace {

using ::testing::HasSubstr;

TEST(KvSharing, KeysHaveGroupsAndSecretsOfTheirOwn) {
    const KvSharingOptions options{.secret = "pool secret", .key_classes = {}};
    const KvSharing a = *kv_sharing(options, "a", 0, "");
    const KvSharing b = *kv_sharing(options, "b", 1, "");
    const KvSharing nobody = *kv_sharing(options, "", std::nullopt, "");
    EXPECT_NE(a.group, b.group);
    EXPECT_NE(a.secret, b.secret);
    EXPECT_NE(a.secret, nobody.secret);
    EXPECT_EQ(a.secret.size(), 32u);
    EXPECT_NE(a.secret, kv_sharing({.secret = "another", .key_classes = {}}, "a", 0, "")->secret);
}

TEST(KvSharing, AServerMayLetAllKeysShare) {
    const KvSharingOptions options{.per_key = false, .secret = "pool", .key_classes = {}};
    EXPECT_EQ(kv_sharing(options, "a", 0, "")->secret, kv_sharing(options, "b", 1, "")->secret);
    EXPECT_EQ(kv_sharing(options, "a", 0, "")->group, "");
}

TEST(KvSharing, TheClassComesFromTheHeaderTheKeyOrTheServer) {
    const KvSharingOptions options{.secret = {},
                                   .traffic_class = TrafficClass::chatbot,
                                   .key_classes = {TrafficClass::ephemeral, TrafficClass::system}};
    const auto traffic_class = [&](std::optional<std::size_t> key, std::string_view asked) {
        return kv_sharing(options, "", key, asked)->traffic_class;
    };
    EXPECT_EQ(traffic_class(std::nullopt, ""), TrafficClass::chatbot);
    EXPECT_EQ(traffic_class(0, ""), TrafficClass::ephemeral);
    EXPECT_EQ(traffic_class(0, "agent"), TrafficClass::agent);
    EXPECT_EQ(traffic_class(1, ""), TrafficClass::system);
    EXPECT_EQ(traffic_class(1, "system"), TrafficClass::system);
    EXPECT_EQ(traffic_class(2, ""), TrafficClass::chatbot);
    for (const char* wrong : {"system", "Agent", "week"}) {
        const auto refused = kv_sharing(options, "", 0, wrong);
        ASSERT_FALSE(refused.ok()) << wrong;
        EXPECT_THAT(refused.status().message(), HasSubstr("expected agent, chatbot or ephemeral"));
    }
}

}  // namespace
}  // namespace fathom
