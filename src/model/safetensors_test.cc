#include "model/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

namespace fathom {
namespace {

using ::testing::HasSubstr;

std::string temp_file(const std::string& name) {
    return (std::filesystem::temp_directory_path() /
            ("fathom_safetensors_" + std::to_string(::getpid()) + "_" + name))
        .string();
}

TEST(Safetensors, WritesWhatItReadsAndAlignsIt) {
    const std::string path = temp_file("round_trip");
    const std::vector<float> f = {1.5f, -2, 3, 4, 5, 6};
    const std::vector<std::uint8_t> u = {9, 8, 7};
    const std::vector<std::int64_t> i = {-1};
    ASSERT_TRUE(write_safetensors(path, {{"bytes", TensorType::u8, {3}, u.data()},
                                         {"floats", TensorType::f32, {2, 3}, f.data()},
                                         {"empty", TensorType::bf16, {0, 7}, nullptr},
                                         {"scalar", TensorType::i64, {}, i.data()}})
                    .ok());
    const auto file = SafetensorsFile::open(path);
    ASSERT_TRUE(file.ok()) << file.status().message();
    EXPECT_EQ((*file)->tensors().size(), 4u);
    const auto floats = (*file)->tensor("floats");
    ASSERT_TRUE(floats.ok());
    EXPECT_EQ(floats->shape_text(), "[2, 3]");
    EXPECT_EQ(floats->elements(), 6);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(floats->data) % 4, 0u);
    // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): the bytes are what is asked for
    EXPECT_EQ(std::memcmp(floats->data, f.data(), 24), 0);
    EXPECT_EQ((*file)->tensor("bytes")->data[2], 7);
    EXPECT_EQ((*file)->tensor("empty")->bytes, 0u);
    EXPECT_EQ((*file)->tensor("scalar")->elements(), 1);
    const auto absent = (*file)->tensor("absent");
    EXPECT_EQ(absent.status().code(), StatusCode::not_found);
    std::filesystem::remove(path);
}

struct BadHeader {
    const char* name;
    std::string header;
    std::uint64_t data_bytes;
    StatusCode code;
    const char* message;
};

void PrintTo(const BadHeader& c, std::ostream* out) {
    *out << c.name;
}

class BadHeaders : public ::testing::TestWithParam<BadHeader> {};

TEST_P(BadHeaders, AreRefusedWithTheReason) {
    const auto result = parse_safetensors_header(GetParam().header, GetParam().data_bytes);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.status().code(), GetParam().code);
    EXPECT_THAT(result.status().message(), HasSubstr(GetParam().message));
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
    return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
           ",\"data_offsets\":" + offsets + "}";
}

constexpr auto kBad = StatusCode::invalid_argument;
INSTANTIATE_TEST_SUITE_P(
    Table, BadHeaders,
    ::testing::Values(
        BadHeader{"empty", "", 0, kBad, "header"}, BadHeader{"text", "hello", 0, kBad, "header"},
        BadHeader{"list", "[]", 0, kBad, "not a JSON object"},
        BadHeader{"open_object", "{\"a\":{", 0, kBad, "header"},
        BadHeader{"tail", "{} x", 0, kBad, "header"},
        BadHeader{"two_objects", "{}{}", 0, kBad, "after its JSON object"},
        BadHeader{"entry_is_list", "{\"a\":[]}", 0, kBad, "tensor \"a\": expected an object"},
        BadHeader{"no_offsets", R"({"a":{"dtype":"U8","shape":[0]}})", 0, kBad, "all required"},
        BadHeader{"unknown_field", R"({"a":{"dtype":"U8","shape":[0],"offset":[0,0]}})", 0, kBad,
                  "field \"offset\" is unknown"},
        BadHeader{"field_twice", R"({"a":{"dtype":"U8","dtype":"U8"}})", 0, kBad,
                  "field \"dtype\" is unknown or given twice"},
        BadHeader{"dtype_number", R"({"a":{"dtype":4}})", 0, kBad, "dtype must be a string"},
        BadHeader{"dtype_unknown", "{" + entry("a", "F3", "[1]", "[0,1]") + "}", 1, kBad,
                  "dtype \"F3\" is unknown"},
        BadHeader{"shape_negative", "{" + entry("a", "U8", "[-1]", "[0,1]") + "}", 1, kBad,
                  "shape must hold non-negative 64-bit integers"},
        BadHeader{"shape_real", "{" + entry("a", "U8", "[1.5]", "[0,1]") + "}", 1, kBad,
                  "shape must hold non-negative 64-bit integers"},
        BadHeader{"shape_huge", "{" + entry("a", "U8", "[18446744073709551615]", "[0,1]") + "}", 1,
                  kBad, "dimension 18446744073709551615 exceeds"},
        BadHeader{"shape_overflow",
                  "{" + entry("a", "F32", "[281474976710656,281474976710656]", "[0,1]") + "}", 1,
                  kBad, "overflows 64 bits"},
        BadHeader{"rank", "{" + entry("a", "U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]") + "}", 1, kBad,
                  "shape has more than 8 numbers"},
        BadHeader{"one_offset", "{" + entry("a", "U8", "[1]", "[0]") + "}", 1, kBad,
                  "data_offsets must hold 2 numbers, got 1"},
        BadHeader{"three_offsets", "{" + entry("a", "U8", "[1]", "[0,1,2]") + "}", 1, kBad,
                  "data_offsets has more than 2 numbers"},
        BadHeader{"backwards", "{" + entry("a", "U8", "[1]", "[1,0]") + "}", 1, kBad,
                  "run backwards"},
        BadHeader{"past_end", "{" + entry("a", "U8", "[2]", "[0,2]") + "}", 1,
                  StatusCode::data_loss, "data_offsets [0, 2] run past the data section of 1"},
        BadHeader{"wrong_span", "{" + entry("a", "F32", "[2]", "[0,4]") + "}", 4, kBad,
                  "F32 [2] needs 8 bytes, data_offsets [0, 4] span 4"},
        BadHeader{
            "overlap",
            "{" + entry("a", "U8", "[2]", "[0,2]") + "," + entry("b", "U8", "[2]", "[1,3]") + "}",
            3, kBad, "tensor \"b\": data_offsets [1, 3] overlap tensor \"a\""},
        BadHeader{
            "gap",
            "{" + entry("a", "U8", "[1]", "[0,1]") + "," + entry("b", "U8", "[1]", "[2,3]") + "}",
            3, kBad, "bytes [1, 2) before tensor \"b\" belong to no tensor"},
        BadHeader{"rest", "{" + entry("a", "U8", "[1]", "[0,1]") + "}", 4, kBad,
                  "the last 3 of 4 data bytes belong to no tensor"},
        BadHeader{
            "twice",
            "{" + entry("a", "U8", "[1]", "[0,1]") + "," + entry("a", "U8", "[1]", "[1,2]") + "}",
            2, kBad, "tensor \"a\" is given twice"},
        BadHeader{"no_name", "{" + entry("", "U8", "[1]", "[0,1]") + "}", 1, kBad,
                  "tensor name \"\" has 0 bytes"},
        BadHeader{"metadata_list", R"({"__metadata__":[]})", 0, kBad, "__metadata__ must be"},
        BadHeader{"metadata_number", R"({"__metadata__":{"a":1}})", 0, kBad,
                  "__metadata__ must map strings to strings"}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(Safetensors, AcceptsMetadataAndPadding) {
    const auto result = parse_safetensors_header(
        "{\"__metadata__\":{\"format\":\"pt\"}," + entry("a", "BOOL", "[1]", "[0,1]") + "}    ", 1);
    ASSERT_TRUE(result.ok()) << result.status().message();
    EXPECT_EQ(result->size(), 1u);
}

struct BadFile {
    const char* name;
    std::string bytes;
    StatusCode code;
    const char* message;
};

TEST(Safetensors, RefusesBrokenFiles) {
    using std::string_literals::operator""s;
    const std::vector<BadFile> cases = {
        {"zero", "", StatusCode::data_loss, "0 bytes, too short"},
        {"short", "abc", StatusCode::data_loss, "3 bytes, too short"},
        {"absurd", "\xff\xff\xff\xff\xff\xff\xff\x7f{}", kBad,
         "header length 9223372036854775807 exceeds the limit of 100000000"},
        {"above_limit", "\x01\xe1\xf5\x05\0\0\0\0{}"s, kBad, "header length 100000001 exceeds"},
        {"past_end", "\x09\0\0\0\0\0\0\0{}"s, StatusCode::data_loss,
         "header length 9 runs past the file's 10 bytes"},
        {"garbage", "\x02\0\0\0\0\0\0\0}{"s, kBad, "header"},
    };
    for (const BadFile& c : cases) {
        SCOPED_TRACE(c.name);
        const std::string path = temp_file(c.name);
        std::ofstream(path, std::ios::binary) << c.bytes;
        const auto file = SafetensorsFile::open(path);
        ASSERT_FALSE(file.ok());
        EXPECT_EQ(file.status().code(), c.code);
        EXPECT_THAT(file.status().message(), HasSubstr(path));
        EXPECT_THAT(file.status().message(), HasSubstr(c.message));
        std::filesystem::remove(path);
    }
    EXPECT_EQ(SafetensorsFile::open(temp_file("absent")).status().code(), StatusCode::not_found);
    EXPECT_THAT(SafetensorsFile::open("/").status().message(), HasSubstr("not a regular file"));
}

TEST(SafetensorsIndex, ReadsMapAndSize) {
    const auto index = parse_safetensors_index(
        R"({"metadata":{"total_size":12,"by":"x"},"weight_map":{"a":"s1","b":"s2"},"more":[1]})");
    ASSERT_TRUE(index.ok()) << index.status().message();
    EXPECT_EQ(index->total_size, 12u);
    EXPECT_EQ(index->weight_map.at("b"), "s2");
}

TEST(SafetensorsIndex, RefusesWhatIsNoIndex) {
    const std::vector<std::pair<const char*, const char*>> cases = {
        {"[]", "not a JSON object"},
        {"{}", "weight_map is missing"},
        {R"({"weight_map":[]})", "weight_map must be an object"},
        {R"({"weight_map":{"a":1}})", "weight_map.\"a\": expected the name of a shard"},
        {R"({"weight_map":{"a":"s","a":"t"}})", "names tensor \"a\" twice"},
        {R"({"weight_map":{},"weight_map":{}})", "weight_map is given twice"},
        {R"({"metadata":{"total_size":-1},"weight_map":{}})", "metadata.total_size must be"},
        {R"({"metadata":7,"weight_map":{}})", "metadata must be an object"},
        {R"({"weight_map":{}} true)", "index"},
        {R"({"weight_map":{}}{})", "after its JSON object"},
    };
    for (const auto& [text, message] : cases) {
        const auto index = parse_safetensors_index(text);
        ASSERT_FALSE(index.ok()) << text;
        EXPECT_THAT(index.status().message(), HasSubstr(message)) << text;
    }
}

// Any change of one byte of a valid header gives a result or a message, never a crash; what is
// accepted still tiles the data.
TEST(Safetensors, SurvivesAnyChangedByte) {
    const std::string header =
        "{" + entry("a", "F32", "[2,3]", "[0,24]") + "," + entry("b", "U8", "[5]", "[24,29]") + "}";
    const bool good = rc::check("one byte changed", [&] {
        std::string changed = header;
        const auto at = *rc::gen::inRange<std::size_t>(0, header.size());
        changed[at] = static_cast<char>(*rc::gen::inRange(0, 256));
        const auto result = parse_safetensors_header(changed, 29);
        if (!result.ok()) return;
        std::uint64_t bytes = 0;
        for (const auto& [name, info] : *result)
            bytes += info.end - info.begin;
        RC_ASSERT(bytes == 29u);
    });
    EXPECT_TRUE(good);
}

}  // namespace
}  // namespace fathom
