#include "recipe/pretokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/json.h"
#include "recipe/test_tokenizer.h"
#include "recipe/utf8_text.h"

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

// The same patterns, which PCRE2 runs.
std::vector<std::string> grouped(std::span<const std::string> patterns) {
    std::vector<std::string> result;
    for (const std::string& pattern : patterns)
        result.push_back("(?:" + pattern + ")");
    return result;
}

PreTokenizer make(std::span<const std::string> patterns) {
    auto made = PreTokenizer::make(patterns, "test");
    EXPECT_TRUE(made.ok()) << made.status().message();
    return made.ok() ? *std::move(made) : PreTokenizer();
}

std::vector<std::string_view> split(PreTokenizer::Splitter& splitter, std::string_view text) {
    std::vector<std::string_view> words;
    splitter.start(text);
    for (;;) {
        const std::span<const std::string_view> more = splitter.next_words();
        if (more.empty()) return words;
        words.insert(words.end(), more.begin(), more.end());
    }
}

std::vector<std::string> split(std::span<const std::string> patterns, std::string_view text) {
    const PreTokenizer pre_tokenizer = make(patterns);
    PreTokenizer::Splitter splitter(pre_tokenizer);
    const std::vector<std::string_view> words = split(splitter, text);
    return {words.begin(), words.end()};
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
        EXPECT_EQ(split(grouped(release_patterns()), text), words) << text;
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
    const PreTokenizer scanner = make(release_patterns());
    const PreTokenizer regex = make(grouped(release_patterns()));
    for (const PreTokenizer* pre_tokenizer : {&scanner, &regex}) {
        PreTokenizer::Splitter splitter(*pre_tokenizer);
        for (const std::string unit :
             {"a", " ", "\n", " \n", "\u3000", "!", "\u0378", "1", "中", "\u0301", " a", "\r"}) {
            std::string text;
            while (text.size() < (std::size_t{1} << 20))
                text += unit;
            text += "x";
            std::size_t bytes = 0;
            for (const std::string_view word : split(splitter, text))
                bytes += word.size();
            EXPECT_EQ(bytes, text.size());
        }
    }
}

// Scanner and PCRE2 must agree: on every character, alone and between neighbours of each kind, and
// on random strings of what lies near the borders of the patterns.
class ScannerAndRegex : public ::testing::Test {
  protected:
    void compare(std::string_view text) {
        const std::vector<std::string_view> scanned = split(scanner_splitter_, text);
        ASSERT_EQ(scanned, split(regex_splitter_, text)) << Json(text).dump();
    }

    PreTokenizer scanner_ = make(release_patterns());
    PreTokenizer regex_ = make(grouped(release_patterns()));
    PreTokenizer::Splitter scanner_splitter_{scanner_};
    PreTokenizer::Splitter regex_splitter_{regex_};
};

TEST_F(ScannerAndRegex, AgreeOnEveryCharacter) {
    for (const std::string_view neighbour :
         {"", "a", " ", "1", "!", "\n", "中", "\u0301", "\u0378"}) {
        std::string text;
        for (std::uint32_t c = 0; c < 0x110000; ++c) {
            if (c >= 0xD800 && c < 0xE000) continue;
            text += neighbour;
            append_utf8(text, c);
            // The planes beyond the second hold few characters: every 61st of them, and neighbours.
            if (c >= 0x32000 && c % 4096 > 600) c += 60;
        }
        const std::vector<std::string_view> scanned = split(scanner_splitter_, text);
        const std::vector<std::string_view> expected = split(regex_splitter_, text);
        const auto [a, b] =
            std::mismatch(scanned.begin(), scanned.end(), expected.begin(), expected.end());
        ASSERT_TRUE(a == scanned.end() && b == expected.end())
            << Json(a == scanned.end() ? "" : *a).dump() << " at byte "
            << (a == scanned.end() ? text.data() + text.size() : a->data()) - text.data()
            << " with " << neighbour;
    }
}

// FATHOM_STRINGS=1000000 build/release/recipe_test --gtest_filter='*AgreeOnRandomStrings' runs
// more.
TEST_F(ScannerAndRegex, AgreeOnRandomStrings) {
    RandomStream random(testing::kStringsSeed);
    for (int i = 0; i < testing::random_string_count(); ++i) {
        ASSERT_NO_FATAL_FAILURE(compare(testing::string_near_borders(random)))
            << "string " << i << " of seed " << testing::kStringsSeed;
    }
}

}  // namespace
}  // namespace fathom
