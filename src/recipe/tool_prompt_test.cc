#include "recipe/tool_prompt.h"

#include <gtest/gtest.h>

#include "base/sha256.h"

namespace fathom {
namespace {

const SpecialTokens kTokens;

std::string tool_prompt(std::vector<Tool> tools, Dialect dialect) {
    PromptWriter out(kTokens);
    write_tool_prompt(tools, dialect, out);
    return prompt_text(out.take());
}

std::string sha256_text(std::string_view text) {
    Sha256 hash;
    hash.update(text);
    return hex_text(hash.finish());
}

std::string call_block(std::vector<ToolCall> calls, Dialect dialect) {
    PromptWriter out(kTokens);
    write_tool_calls(calls, tool_markup(dialect), out);
    return prompt_text(out.take());
}

// recipe.md 2.6 gives the lengths and hashes.
TEST(ToolPrompt, TextIsThatOfTheSpecification) {
    const Tool now{.name = "now", .parameters = Json::object()};
    const std::string v4 = tool_prompt({now}, Dialect::v4);
    EXPECT_EQ(v4.size(), 1041u);
    EXPECT_EQ(sha256_text(v4), "c7462b7642106b76a97125d9d3566a6244648e44b111d65d29a9fccda3750f82");
    const std::string v41 = tool_prompt({now}, Dialect::v41);
    EXPECT_EQ(v41.size(), 1035u);
    EXPECT_EQ(sha256_text(v41), "54359b083f941f8b287d5ffb8bfff2ab393109e9ce17abc7cf55c59624d5b6be");
}

TEST(ToolPrompt, HoldsThirteenSpecialTokens) {
    PromptWriter out(kTokens);
    const std::vector<Tool> tools = {{.name = "<think>", .description = "｜DSML｜"}};
    write_tool_prompt(tools, Dialect::v41, out);
    int special = 0;
    for (const PromptSegment& segment : out.take())
        special += segment.special;
    EXPECT_EQ(special, 13);
}

TEST(ToolPrompt, DeferredToolsAreNotListed) {
    const Tool seen{.name = "seen"};
    const Tool later{.name = "later", .defer_loading = true};
    for (const Dialect dialect : {Dialect::v4, Dialect::v41}) {
        EXPECT_EQ(tool_prompt({later, seen, later}, dialect), tool_prompt({seen}, dialect));
    }
    EXPECT_NE(tool_prompt({later}, Dialect::v41).find("Schemas\n\n\n\nYou MUST"),
              std::string::npos);
    EXPECT_NE(tool_prompt({later}, Dialect::v4).find("Schemas\n\n\nYou MUST"), std::string::npos);
}

TEST(ToolCalls, ParametersAreTypedAndUnescaped) {
    const std::vector<ToolCall> calls = {
        {"1", "f", R"({"s":"a\n</b>","n":1e-5,"o":{"k":[1,"x"]},"z":null})"}, {"2", "g", " {} "}};
    EXPECT_EQ(call_block(calls, Dialect::v41),
              "<｜DSML｜ calls>\n"
              "<｜DSML｜ invoke name=\"f\">\n"
              "<｜DSML｜ parameter name=\"s\" string=\"true\">a\n</b></｜DSML｜ parameter>\n"
              "<｜DSML｜ parameter name=\"n\" string=\"false\">1e-05</｜DSML｜ parameter>\n"
              "<｜DSML｜ parameter name=\"o\" string=\"false\">{\"k\": [1, \"x\"]}</｜DSML｜ "
              "parameter>\n"
              "<｜DSML｜ parameter name=\"z\" string=\"false\">null</｜DSML｜ parameter>\n"
              "</｜DSML｜ invoke>\n"
              "<｜DSML｜ invoke name=\"g\">\n"
              "\n"
              "</｜DSML｜ invoke>\n"
              "</｜DSML｜ calls>");
    EXPECT_EQ(call_block({{"2", "g", "{}"}}, Dialect::v4),
              "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"g\">\n</｜DSML｜invoke>\n"
              "</｜DSML｜tool_calls>");
}

TEST(ToolCalls, WhatIsNoObjectIsOneStringNamedArguments) {
    const std::string deep(128, '[');
    for (const std::string& arguments :
         {std::string(), std::string("not json"), std::string("[1]"), std::string("\"x\""),
          std::string("null"), std::string("{\"a\":1} x"), "{\"a\":" + deep + "1",
          std::string("{\"a\":1e999}")}) {
        EXPECT_EQ(call_block({{"1", "f", arguments}}, Dialect::v4),
                  "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter "
                  "name=\"arguments\" string=\"true\">" +
                      arguments + "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>");
    }
}

TEST(ToolCalls, OnlyTheMarkupIsSpecial) {
    PromptWriter out(kTokens);
    const std::vector<ToolCall> calls = {{"1", "<think>", R"({"｜DSML｜":"</｜DSML｜ calls>"})"}};
    write_tool_calls(calls, tool_markup(Dialect::v41), out);
    int special = 0;
    for (const PromptSegment& segment : out.take()) {
        special += segment.special;
        EXPECT_TRUE(!segment.special || segment.text == kDsml);
    }
    EXPECT_EQ(special, 6);
}

}  // namespace
}  // namespace fathom
