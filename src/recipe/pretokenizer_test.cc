#include "recipe/pretokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fathom {
namespace {

using ::testing::HasSubstr;

// The release's patterns, as its tokenizer.json has them.
const std::vector<std::string>& release_patterns() {
    static const std::vector<std::string> kPatterns = {
        R"(\p{N}{1,3})", "[一-龥\u3040-ゟ゠-ヿ]+",
        R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^)"
        "\r\n"
        R"(\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[)"
        "\r\n"
        R"(]*|\s*[)"
        "\r\n"
        R"(]+|\s+(?!\S)|\s+)"};
    return kPatterns;
}

std::vector<std::string> split(std::span<const std::string> patterns, std::string_view text) {
    const auto pre_tokenizer = PreTokenizer::make(patterns, "test");
    EXPECT_TRUE(pre_tokenizer.ok()) << pre_tokenizer.status().message();
    if (!pre_tokenizer.ok()) return {};
    PreTokenizer::Splitter splitter(*pre_tokenizer);
    std::vector<std::string> words;
    for (const std::string_view word : splitter.split(text))
        words.emplace_back(word);
    return words;
}

TEST(PreTokenizer, CutsTextAsTheReleaseDoes) {
    using Words = std::vector<std::string>;
    const std::vector<Words> cases = {
        {},
        {"a", " ", " b"},
        {"a", " \n\n", " b"},
        {"a", "\r \n", "b"},
        {"a", "\t", "\tb"},
        {"a", "!\n"},
        {".caf", "é"},
        {"Hello", ",", " world", "!"},
        {"It", "'s"},
        {"123", "456", "7"},
        {"x", "12½", "34"},
        {"中文", "mixed", "英文"},
        {"ア", "・", "ア"},
        {"trailing", "   "},
        {"\n\n\n"},
        {"a", " ?!", "b"},
        {"a", "\t", "!"},
        {"\u001C", "\n"},            // a control character is a gap, not white space
        {"a", "\u180E", "!"},        // nor is the Mongolian vowel separator
        {"a", "\u0085", "\u2028b"},  // these two are
        {"\u0378\uE000\u0001"},      // skipped characters are one gap
    };
    for (const Words& words : cases) {
        std::string text;
        for (const std::string& word : words)
            text += word;
        EXPECT_EQ(split(release_patterns(), text), words) << text;
    }
}

TEST(PreTokenizer, WithoutPatternsTheTextIsOneWord) {
    EXPECT_EQ(split({}, "a b"), std::vector<std::string>{"a b"});
}

TEST(PreTokenizer, RefusesWhatPcre2WouldReadDifferently) {
    const std::vector<std::pair<std::string, std::string>> cases = {
        {R"(\w+)", R"(the escape \w at byte 0 of "\w+" is not supported)"},
        {R"(\h)", R"(the escape \h)"},
        {R"(a\K)", R"(the escape \K)"},
        {R"(\1)", R"(the escape \1)"},
        {R"([\S])", R"(\S inside a character class)"},
        {"[a&&b]", "the set operator &&"},
        {"[[:alpha:]]", "a set inside a character class"},
        {"[]a]", "] as the first member"},
        {"(?i:a)", "this kind of group"},
        {"(?<=a)b", "this kind of group"},
        {"(*UCP)a", "(*"},
        {"^a", "a line anchor"},
        {"a$", "a line anchor"},
        {"a{2}+", "}+"},
        {"a\\", "a final backslash"},
        {"(a", "is not a valid regular expression: missing closing parenthesis"},
        {"[z-a]", "is not a valid regular expression"},
        {R"(\p{Nonsense})", "is not a valid regular expression"},
        {"a*", "can match the empty string"},
        {std::string(5000, 'a'), "the pattern has 5000 bytes, at most 4096 are allowed"},
    };
    for (const auto& [pattern, message] : cases) {
        const std::vector<std::string> patterns = {"fine", pattern};
        const auto made = PreTokenizer::make(patterns, "file: pre_tokenizer");
        ASSERT_FALSE(made.ok()) << pattern;
        EXPECT_EQ(made.status().code(), StatusCode::invalid_argument);
        EXPECT_THAT(made.status().message(), HasSubstr("file: pre_tokenizer, pattern 1: "));
        EXPECT_THAT(made.status().message(), HasSubstr(message));
    }
    const std::vector<std::string> many(17, "a");
    const auto made = PreTokenizer::make(many, "file");
    ASSERT_FALSE(made.ok());
    EXPECT_THAT(made.status().message(), HasSubstr("17 patterns, at most 16 are allowed"));
}

// Each of these would take hours if any alternative were quadratic.
TEST(PreTokenizer, LongRunsTakeLinearTime) {
    const auto pre_tokenizer = PreTokenizer::make(release_patterns(), "test");
    ASSERT_TRUE(pre_tokenizer.ok());
    PreTokenizer::Splitter splitter(*pre_tokenizer);
    for (const std::string unit :
         {"a", " ", "\n", " \n", "\u3000", "!", "\u0378", "1", "中", "\u0301", " a", "\r"}) {
        std::string text;
        while (text.size() < (std::size_t{1} << 20))
            text += unit;
        text += "x";
        std::size_t bytes = 0;
        for (const std::string_view word : splitter.split(text))
            bytes += word.size();
        EXPECT_EQ(bytes, text.size());
    }
}

}  // namespace
}  // namespace fathom
