#include "base/json.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <limits>

namespace fathom {
namespace {

std::string parse_error(std::string_view text, const JsonLimits& limits = {}) {
    const Result<Json> json = parse_json(text, limits);
    return json.ok() ? "parsed as " + json->dump() : json.status().message();
}

TEST(Json, DumpsWhatItParsed) {
    struct Case {
        const char *text, *dumped;
    };
    const Case cases[] = {
        {"null", "null"},
        {" [ true , false ] \n", "[true,false]"},
        {"{}", "{}"},
        {"[]", "[]"},
        {"\"a\\u00e9\\n\\ud83d\\ude00\"", "\"a\u00e9\\n\U0001f600\""},
        {"\"\\u0000\\/\\u001f\\u007f\"", "\"\\u0000/\\u001f\x7f\""},
        {"0", "0"},
        {"-0.0", "-0.0"},
        {"-0", "-0.0"},
        {"[-0, 0, -0.5, \"-0 \"]", "[-0.0,0,-0.5,\"-0 \"]"},
        {"1.0", "1.0"},
        {"1e3", "1000.0"},
        {"0.1", "0.1"},
        {"1e22", "1e+22"},
        {"5e-324", "5e-324"},
        {"2.2250738585072011e-308", "2.225073858507201e-308"},
        {"1e-400", "0.0"},
        {"9223372036854775807", "9223372036854775807"},
        {"-9223372036854775808", "-9223372036854775808"},
        {"9223372036854775808", "9223372036854775808"},
        {"18446744073709551615", "18446744073709551615"},
        {"18446744073709551616", "1.8446744073709552e+19"},
        {"[-9223372036854775809,0.7,{\"b\":[1],\"a\":\"x\"}]",
         "[-9.223372036854776e+18,0.7,{\"b\":[1],\"a\":\"x\"}]"},
        {"123456789012345678901234567890", "1.2345678901234568e+29"},
        {R"({"z":1,"a":2,"m":{"k":[]}})", R"({"z":1,"a":2,"m":{"k":[]}})"},
    };
    for (const Case& c : cases) {
        const Result<Json> json = parse_json(c.text);
        ASSERT_TRUE(json.ok()) << c.text << ": " << json.status().to_string();
        EXPECT_EQ(json->dump(), c.dumped) << c.text;
    }
}

TEST(Json, RefusesMalformedTextAndSaysWhere) {
    struct Case {
        const char *text, *error;
    };
    const Case cases[] = {
        {"", "JSON is empty"},
        {" \n", "JSON is empty"},
        {"{\"a\":1,}", "byte 7"},
        {"[1,2", "ends too early, at byte 4"},
        {"\"abc", "ends too early, at byte 4"},
        {"[1] x", "followed by other text at byte 4"},
        {"{\"a\" 1}", "byte 5"},
        {"{a:1}", "byte 1"},
        {"[01]", "byte 2"},
        {"[1.]", "byte"},
        {"[+1]", "byte 1"},
        {"nul", "byte"},
        {"[nan]", "byte"},
        {"[1e999]", "beyond the range of a double"},
        {"[-1e309]", "beyond the range of a double"},
        {"[1e99999999999]", "beyond the range of a double"},
        {"// c\n1", "byte 0"},
        {"'a'", "byte 0"},
        {"[\"a\tb\"]", "byte 3"},
        {"\"\\x\"", "byte"},
        {"\"\\ud800\"", "byte"},
        {"\"\\ud800x\"", "byte"},
        {"\"\\ud800\\u0041\"", "byte"},
        {"\"\\udc00\"", "byte"},
        {"{\"\\udc00\":1}", "byte"},
        {"\"\\u12g4\"", "byte"},
        {"\"\xff\"", "not valid UTF-8 at byte 1"},
        {"\"\xc0\x80\"", "byte 1"},
        {"\"\xed\xa0\x80\"", "not valid UTF-8 at byte 1"},
        {"\"\xf4\x90\x80\x80\"", "not valid UTF-8 at byte 1"},
        {"\xef\xbb\xbf[]", "byte 0"},
    };
    for (const Case& c : cases)
        EXPECT_NE(parse_error(c.text).find(c.error), std::string::npos)
            << c.text << " gave: " << parse_error(c.text);
}

TEST(Json, KeepsFirstPositionAndLastValueOfDuplicateKeys) {
    EXPECT_EQ(parse_json(R"({"a":1,"b":2,"a":3,"c":4,"b":5,"a":6})")->dump(),
              R"({"a":6,"b":5,"c":4})");
    // Both parsers agree: the large integer sends this one to the second.
    EXPECT_EQ(parse_json(R"({"a":1,"b":2,"a":18446744073709551616,"c":4,"b":5})")->dump(),
              R"({"a":1.8446744073709552e+19,"b":5,"c":4})");
    std::string text = "{", wanted = "{";
    for (int i = 0; i < 300; ++i)
        text += fmt::format("{}\"k{}\":{}", i == 0 ? "" : ",", i % 100, i);
    for (int i = 0; i < 100; ++i)
        wanted += fmt::format("{}\"k{}\":{}", i == 0 ? "" : ",", i, 200 + i);
    EXPECT_EQ(parse_json(text + "}")->dump(), wanted + "}");
}

TEST(Json, LimitsDepthExactly) {
    for (const int depth_max : {1, 5, 128, 1024}) {
        for (const bool objects : {false, true}) {
            const auto nested = [&](int depth) {
                std::string text;
                for (int i = 0; i < depth; ++i)
                    text += objects ? "{\"a\":" : "[";
                if (objects) text += "0";
                for (int i = 0; i < depth; ++i)
                    text += objects ? "}" : "]";
                return text;
            };
            const JsonLimits limits{.depth_max = depth_max};
            EXPECT_EQ(parse_error(nested(depth_max), limits), "parsed as " + nested(depth_max));
            EXPECT_NE(parse_error(nested(depth_max + 1), limits)
                          .find(fmt::format("nested more than {} deep", depth_max)),
                      std::string::npos);
            // A large integer inside must not lead around the limit.
            const std::string big = "[18446744073709551616," + nested(depth_max) + "]";
            EXPECT_NE(parse_error(big, limits).find("nested more than"), std::string::npos);
        }
    }
    EXPECT_NE(parse_error(std::string(1'000'000, '[')).find("nested more than 128"),
              std::string::npos);
}

TEST(Json, LimitsBytesBeforeParsing) {
    EXPECT_EQ(parse_error("[1,2,3]", {.bytes_max = 6}), "JSON has 7 bytes; the limit is 6");
    EXPECT_EQ(parse_error("[1,2,3]", {.bytes_max = 7}), "parsed as [1,2,3]");
}

TEST(Json, ParsesALargeTensorIndexWithoutQuadraticTime) {
    std::string text = "{\"metadata\":{\"total_size\":510286023000},\"weight_map\":{";
    for (int i = 0; i < 96'085; ++i)
        text += fmt::format(
            "{}\"layers.{}.ffn.experts.{}.w{}.weight\":\"model-{:05}-of-00191.safetensors\"",
            i == 0 ? "" : ",", i % 40, i / 120, i / 40 % 3, i % 191);
    text += "}}";
    const std::clock_t start = std::clock();  // of this process: the machine may be busy
    const Result<Json> json = parse_json(text);
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    ASSERT_TRUE(json.ok());
    EXPECT_EQ(json->find("weight_map")->members().size(), 96'085u);
    EXPECT_LT(seconds, 10.0);  // quadratic would be minutes
    RecordProperty("milliseconds", static_cast<int>(seconds * 1000));
}

TEST(Json, ReportsUnreadableFilesWithTheirPath) {
    const std::string directory =
        (std::filesystem::temp_directory_path() / fmt::format("fathom_json_{}", ::getpid()))
            .string();
    std::filesystem::create_directories(directory);
    const std::string path = directory + "/bad.json";
    EXPECT_EQ(parse_json_file(path).status().code(), StatusCode::not_found);
    std::ofstream(path) << "[1,";
    EXPECT_EQ(parse_json_file(path).status().message(), path + ": JSON ends too early, at byte 3");
    EXPECT_NE(parse_json_file(path, {.bytes_max = 2}).status().message().find("has 3 bytes"),
              std::string::npos);
    EXPECT_EQ(parse_json_file(directory).status().message(), directory + " is not a regular file");
    std::ofstream(path) << "{\"a\":[1]}";
    EXPECT_EQ(parse_json_file(path)->find("a")->dump(), "[1]");
    std::filesystem::remove_all(directory);
}

TEST(Json, TypedMembersNameTheField) {
    const Json json = *parse_json(R"({"n":3,"s":"x","b":true,"d":0.5,"u":18446744073709551615})");
    EXPECT_EQ(*json_int(json, "n", "text_config"), 3);
    EXPECT_EQ(*json_string(json, "s", ""), "x");
    EXPECT_EQ(json_int(json, "s", "text_config").status().message(),
              "text_config.s: expected an integer, got string");
    EXPECT_EQ(json_int(json, "d", "").status().message(), "d: expected an integer, got number");
    EXPECT_EQ(json_string(json, "gone", "a.b").status().message(),
              "a.b.gone: expected a string, but it is missing");
    EXPECT_FALSE(json_int(json, "u", "").ok());
    EXPECT_EQ(json_int(Json(3), "n", "cfg").status().message(),
              "cfg: expected an object, got integer");
}

TEST(Json, BuildsAndEditsTrees) {
    Json json;
    json.set("b", 1);
    json.set("a", "x");
    json.set("b", true);
    Json list;
    list.push_back(2.5);
    list.push_back(Json());
    list.push_back(std::uint64_t{7});
    json.set("list", std::move(list));
    EXPECT_EQ(json.dump(), R"({"b":true,"a":"x","list":[2.5,null,7]})");
    EXPECT_EQ(Json(std::uint64_t{7}), Json(7));
    EXPECT_EQ(Json(std::numeric_limits<double>::quiet_NaN()).dump(), "null");
    EXPECT_EQ(json.find("gone"), nullptr);
    EXPECT_EQ(Json(1).find("a"), nullptr);
}

TEST(JsonWriter, WritesCompactTextWithCommasWhereNeeded) {
    std::string out = "data: ";
    JsonWriter writer(out);
    writer.begin_object().key("id").value("x\"\n").key("list").begin_array();
    writer.value(1).value(std::uint64_t{18446744073709551615u}).value(-0.5).value(true).null();
    writer.begin_object().end_object().begin_array().end_array().value(Json::array({Json("a")}));
    writer.end_array().key("inf").value(std::numeric_limits<double>::infinity()).end_object();
    EXPECT_EQ(out,
              "data: {\"id\":\"x\\\"\\n\",\"list\":[1,18446744073709551615,-0.5,true,null,{},[],"
              "[\"a\"]],\"inf\":null}");
}

TEST(JsonWriter, ReplacesInvalidUtf8) {
    struct Case {
        const char *text, *wanted;
    };
    // One replacement for each maximal subpart (Unicode 15, section 3.9, tables 3-8 to 3-11).
    const Case cases[] = {
        {"a\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41", "a********A"},
        {"\xed\xa0\x80\xed\xbf\xbf\xed\xaf\x41", "********A"},
        {"\xf4\x91\x92\x93\xff\x41\x80\xbf\x42", "*****A**B"},
        {"\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41", "****A"},
        {"\xf0\x9f\x98", "*"},
        {"\u00e9\xff\"", "\u00e9*\\\""},
    };
    for (const Case& c : cases) {
        std::string out, wanted = "\"";
        append_json_string(out, c.text);
        for (const char* p = c.wanted; *p != '\0'; ++p)
            *p == '*' ? wanted += "\xef\xbf\xbd" : wanted += *p;
        EXPECT_EQ(out, wanted + "\"");
    }
}

// ------------------------------------------------------------------------------------- properties

rc::Gen<std::string> any_text() {
    return rc::gen::map(
        rc::gen::container<std::vector<std::uint32_t>>(rc::gen::oneOf(
            rc::gen::inRange<std::uint32_t>(0, 0x80), rc::gen::inRange<std::uint32_t>(0x80, 0x800),
            rc::gen::inRange<std::uint32_t>(0xe000, 0x110000))),
        [](const std::vector<std::uint32_t>& points) {
            std::string text;
            for (const std::uint32_t p : points) {
                if (p < 0x80) {
                    text += static_cast<char>(p);
                } else if (p < 0x800) {
                    text += static_cast<char>(0xc0 | p >> 6);
                    text += static_cast<char>(0x80 | (p & 63));
                } else if (p < 0x10000) {
                    text += static_cast<char>(0xe0 | p >> 12);
                    text += static_cast<char>(0x80 | (p >> 6 & 63));
                    text += static_cast<char>(0x80 | (p & 63));
                } else {
                    text += static_cast<char>(0xf0 | p >> 18);
                    text += static_cast<char>(0x80 | (p >> 12 & 63));
                    text += static_cast<char>(0x80 | (p >> 6 & 63));
                    text += static_cast<char>(0x80 | (p & 63));
                }
            }
            return text;
        });
}

Json any_json(int depth) {
    switch (*rc::gen::inRange(0, depth > 0 ? 8 : 6)) {
        case 0:
            return Json();
        case 1:
            return Json(*rc::gen::arbitrary<bool>());
        case 2:
            return Json(*rc::gen::arbitrary<std::int64_t>());
        case 3:
            return Json(*rc::gen::arbitrary<std::uint64_t>());
        case 4: {
            const auto bits = *rc::gen::arbitrary<std::uint64_t>();
            const double value = std::bit_cast<double>(bits);
            return Json(std::isfinite(value) ? value : 0.25);
        }
        case 5:
            return Json(*any_text());
        case 6: {
            Json list = Json::array();
            for (int n = *rc::gen::inRange(0, 5); n > 0; --n)
                list.push_back(any_json(depth - 1));
            return list;
        }
        default: {
            Json object = Json::object();
            for (int n = *rc::gen::inRange(0, 5); n > 0; --n)
                object.set(*any_text(), any_json(depth - 1));
            return object;
        }
    }
}

TEST(Json, ParsingADumpGivesTheTreeBack) {
    EXPECT_TRUE(rc::check([] {
        const Json json = any_json(4);
        const Result<Json> compact = parse_json(json.dump());
        RC_ASSERT(compact.ok());
        RC_ASSERT(*compact == json);
    }));
}

TEST(Json, BothParsersGiveTheSameTree) {
    // The large integer makes the second parser read the same text.
    EXPECT_TRUE(rc::check([] {
        const std::string text = any_json(4).dump();
        const Result<Json> first = parse_json("[0," + text + "]");
        const Result<Json> second = parse_json("[99999999999999999999," + text + "]");
        RC_ASSERT(first.ok());
        RC_ASSERT(second.ok());
        RC_ASSERT(first->items()[1] == second->items()[1]);
    }));
}

}  // namespace
}  // namespace fathom
