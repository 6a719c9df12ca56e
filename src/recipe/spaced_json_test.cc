#include "recipe/spaced_json.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

namespace fathom {
namespace {

Json parsed(std::string_view text) {
    auto json = parse_json(text);
    EXPECT_TRUE(json.ok()) << json.status().message();
    return json.ok() ? *std::move(json) : Json();
}

TEST(SpacedJson, SeparatesWithSpacesAndKeepsKeyOrder) {
    const Json json = parsed(R"({"b":[1,{}, [],null],"a":{"x":true,"y":"é/\u0007\n\u2028"}})");
    const std::string spaced =
        "{\"b\": [1, {}, [], null], \"a\": {\"x\": true, \"y\": \"é/\\u0007\\n\u2028\"}}";
    EXPECT_EQ(spaced_json(json, Dialect::v41), spaced);
    EXPECT_EQ(spaced_json(json, Dialect::v4), spaced);
    EXPECT_EQ(wire_json(json),
              "{\"b\":[1,{},[],null],\"a\":{\"x\":true,\"y\":\"é/\\u0007\\n\u2028\"}}");
}

TEST(SpacedJson, DoublesLookAsTheDialectWritesThem) {
    struct Case {
        double value;
        const char* v41;
        const char* v4;
    };
    const Case cases[] = {
        {1e5, "100000.0", "100000.0"},
        {1e15, "1000000000000000.0", "1000000000000000.0"},
        {1e16, "1e+16", "1e+16"},
        {1.2345678901234568e29, "1.2345678901234568e+29", "1.2345678901234568e+29"},
        {2.5e300, "2.5e+300", "2.5e+300"},
        {0.0001, "0.0001", "0.0001"},
        {1e-5, "1e-05", "0.00001"},
        {1.25e-5, "1.25e-05", "0.0000125"},
        {1.5e-7, "1.5e-07", "1.5e-7"},
        {1e-10, "1e-10", "1e-10"},
        {-0.0, "-0.0", "-0.0"},
        {-12.5, "-12.5", "-12.5"},
        {0.1, "0.1", "0.1"},
    };
    for (const Case& c : cases) {
        EXPECT_EQ(spaced_json(Json(c.value), Dialect::v41), c.v41);
        EXPECT_EQ(spaced_json(Json(c.value), Dialect::v4), c.v4);
        EXPECT_EQ(wire_json(Json(c.value)), c.v4);
    }
}

TEST(SpacedJson, IntegersAreExactOverTheWhole64BitRange) {
    const std::string text = "[-9223372036854775808, 18446744073709551615, 0]";
    EXPECT_EQ(spaced_json(parsed(text), Dialect::v41), text);
}

RC_GTEST_PROP(SpacedJson, DoublesReadBackAsTheyWere, (std::uint64_t bits)) {
    double value = 0;
    std::memcpy(&value, &bits, sizeof value);
    RC_PRE(std::isfinite(value));
    for (const std::string& text :
         {spaced_json(Json(value), Dialect::v41), wire_json(Json(value))}) {
        const Json json = parsed(text);
        RC_ASSERT(json.kind() == Json::Kind::real);
        RC_ASSERT(json.as_double() == value);
    }
}

}  // namespace
}  // namespace fathom
