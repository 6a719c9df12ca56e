#include "gateway/api_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fathom {
namespace {

TEST(ApiKeys, AcceptsAnyOfItsKeysAndNothingElse) {
    const auto keys = ApiKeys::create({"alpha", "beta-2"});
    ASSERT_TRUE(keys.ok());
    EXPECT_TRUE(keys->required());
    for (const char* good : {"Bearer alpha", "bearer beta-2", "BEARER  alpha"})
        EXPECT_TRUE(keys->accepts(request_key(good, ""))) << good;
    for (const char* bad : {"", "alpha", "Bearer", "Bearer ", "Bearer alph", "Bearer alphaa",
                            "Bearer Alpha", "Basic alpha", "Bearer beta-2 "})
        EXPECT_FALSE(keys->accepts(request_key(bad, ""))) << bad;
    EXPECT_TRUE(keys->accepts(request_key("", "alpha")));
    EXPECT_FALSE(keys->accepts(request_key("", "")));
    EXPECT_FALSE(keys->accepts(request_key("Bearer wrong", "alpha"))) << "Authorization wins";
}

TEST(ApiKeys, RefusesKeysThatAHeaderCannotCarryWithoutShowingThem) {
    for (const std::string& bad : {std::string(), std::string("has space"), std::string("nul\0", 4),
                                   std::string("\xc3\xa9t\xc3\xa9"), std::string(5000, 'k')}) {
        const auto keys = ApiKeys::create({"fine", bad});
        ASSERT_FALSE(keys.ok());
        EXPECT_EQ(keys.status().message(),
                  "API key 2 of 2 is not usable: expected 1 to 4096 visible ASCII characters");
    }
}

}  // namespace
}  // namespace fathom
