#include "recipe/strict_schema.h"

#include <gtest/gtest.h>

namespace fathom {
namespace {

// The normalised schema or the message.
std::string strict(std::string_view text) {
    const auto schema = parse_json(text);
    EXPECT_TRUE(schema.ok()) << schema.status().message();
    const auto normalized = normalize_strict_parameters(*schema);
    return normalized.ok() ? normalized->dump() : std::string(normalized.status().message());
}

std::string strict_property(const std::string& schema) {
    return strict(R"({"type":"object","properties":{"p":)" + schema + "}}");
}

TEST(StrictSchema, ObjectsAreClosedAndAllPropertiesRequired) {
    EXPECT_EQ(strict("null"),
              R"({"type":"object","properties":{},"additionalProperties":false,"required":[]})");
    EXPECT_EQ(strict(R"({"title":"t","description":"d","type":"object","required":["b","a"],)"
                     R"("properties":{"a":{"type":"null"},"b":{"$ref":"#/x","title":"y"}}})"),
              R"({"type":"object","properties":{"a":{"type":"null"},"b":{"$ref":"#/x"}},)"
              R"("additionalProperties":false,"required":["a","b"],"description":"d"})");
}

TEST(StrictSchema, ReadingFaultsComeBeforeRulesOnObjects) {
    EXPECT_EQ(strict(R"({"type":"object","additionalProperties":true,)"
                     R"("properties":{"p":{"type":"array"}}})"),
              "Invalid tool parameters schema : missing field `items`");
    EXPECT_EQ(strict_property(R"({"type":"object","additionalProperties":true})"),
              "additionalProperties should not be true");
}

TEST(StrictSchema, FaultsNameWhatWasFound) {
    const std::vector<std::pair<std::string, std::string>> cases = {
        {R"({"type":7})", "invalid type: integer `7`, expected variant identifier"},
        {R"({"type":"string","pattern":true})", "invalid type: boolean `true`, expected a string"},
        {R"({"type":"string","enum":{}})", "invalid type: map, expected a sequence"},
        {R"({"type":"number","minimum":"1"})",
         "invalid type: string \"1\", expected a JSON number"},
        {R"({"type":"integer","const":[]})", "invalid type: sequence, expected i64"},
        {R"({"anyOf":3})", "field `anyOf`: invalid type: integer `3`, expected a sequence"},
        {R"({"$ref":3})", "field `$ref`: invalid type: integer `3`, expected a string"},
        {R"({"type":"object","properties":[]})", "invalid type: sequence, expected a map"},
        {R"({"type":"array","items":4})", "one of `type`, `anyOf`, `$ref` field is required"},
    };
    for (const auto& [schema, message] : cases)
        EXPECT_EQ(strict_property(schema), "Invalid tool parameters schema : " + message);
}

TEST(StrictSchema, AFormatNeedsPropertiesAtTheTop) {
    const auto message = [](std::string_view text) {
        return std::string(normalize_strict_format(*parse_json(text)).status().message());
    };
    EXPECT_EQ(message(R"({"type":"object"})"), "An object with no properties is not allowed.");
    EXPECT_EQ(message(R"({"type":"string"})"),
              "The top level of the json schema must be an object.");
    EXPECT_EQ(message("null"),
              "Invalid json schema: one of `type`, `anyOf`, `$ref` field is required");
    EXPECT_TRUE(normalize_strict_format(
                    *parse_json(R"({"type":"object","properties":{"a":{"type":"null"}}})"))
                    .ok());
}

TEST(StrictSchema, AsDeepAsJsonMayBe) {
    std::string schema = R"({"type":"string"})";
    for (int i = 0; i < 120; ++i)
        schema = R"({"type":"array","items":)" + schema + "}";
    EXPECT_EQ(strict_property(schema).find("Invalid"), std::string::npos);
}

}  // namespace
}  // namespace fathom
