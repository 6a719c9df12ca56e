#include "recipe/utf8_text.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "recipe/byte_alphabet.h"
#include "recipe/test_tokenizer.h"

namespace fathom {
namespace {

using namespace std::string_literals;

TEST(Utf8, ReplacesEachMaximalIllFormedPartByOneMark) {
    const std::vector<std::pair<std::string, std::string>> cases = {
        {"", ""},
        {"plain", "plain"},
        {"é中😀", "é中😀"},
        {"\xFF", "\uFFFD"},
        {"a\x80\x80z", "a\uFFFD\uFFFDz"},
        {"\xC0\xAF", "\uFFFD\uFFFD"},                      // overlong
        {"\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD"},            // a surrogate
        {"\xF4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"},  // above U+10FFFF
        {"\xF0\x9F\x98", "\uFFFD"},                        // cut short at the end
        {"\xF0\x9F\x98x", "\uFFFDx"},                      // and in the middle
        {"\xE4\xB8\xE4\xB8\xAD", "\uFFFD中"},
        {"\xC3"s, "\uFFFD"},
        // Unicode 15.0, table 3-8.
        {"\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64",
         "a\uFFFD\uFFFD\uFFFDb\uFFFDc\uFFFD\uFFFDd"},
    };
    for (const auto& [bytes, expected] : cases)
        EXPECT_EQ(utf8_lossy(bytes), expected);
}

TEST(Utf8, KnowsWhichTailsMayStillBecomeACharacter) {
    EXPECT_EQ(utf8_incomplete_tail(""), 0u);
    EXPECT_EQ(utf8_incomplete_tail("abc"), 0u);
    EXPECT_EQ(utf8_incomplete_tail("中"), 0u);
    EXPECT_EQ(utf8_incomplete_tail("a\xE4"), 1u);
    EXPECT_EQ(utf8_incomplete_tail("a\xE4\xB8"), 2u);
    EXPECT_EQ(utf8_incomplete_tail("\xF0\x9F\x98"), 3u);
    EXPECT_EQ(utf8_incomplete_tail("\xE0\x80"), 0u);  // overlong: no continuation repairs it
    EXPECT_EQ(utf8_incomplete_tail("\xED\xA0"), 0u);
    EXPECT_EQ(utf8_incomplete_tail("\x80\x80\x80"), 0u);
    EXPECT_EQ(utf8_incomplete_tail("\xC3\xA9\xA9"), 0u);
    EXPECT_EQ(utf8_incomplete_tail("\xFF"), 0u);
}

RC_GTEST_PROP(Utf8, KnowsWhichTextsEndWithAGoodCharacter, ()) {
    const std::string text = *testing::damaged_text();
    const std::string lossy = utf8_lossy(text);
    RC_ASSERT(utf8_ends_well(text) == (!lossy.empty() && !lossy.ends_with("\uFFFD")));
}

RC_GTEST_PROP(Utf8, LossyTextIsWellFormedAndLeavesGoodTextAlone, ()) {
    const std::string damaged = *testing::damaged_text();
    const std::string lossy = utf8_lossy(damaged);
    RC_ASSERT(utf8_lossy(lossy) == lossy);
    RC_ASSERT(utf8_incomplete_tail(lossy) == 0u);
    const std::string good = *testing::tricky_text();
    RC_ASSERT(utf8_lossy(good) == good);
}

RC_GTEST_PROP(Utf8, StepsRoundTripEveryCodePoint, (std::uint32_t seed)) {
    std::uint32_t code_point = seed % 0x110000;
    if (code_point >= 0xD800 && code_point < 0xE000) code_point -= 0x800;
    std::string text;
    append_utf8(text, code_point);
    const Utf8Step step = utf8_step(text, 0);
    RC_ASSERT(step.kind == Utf8Step::Kind::character);
    RC_ASSERT(step.byte_count == text.size());
    RC_ASSERT(step.code_point == code_point);
}

TEST(ByteAlphabet, SpellsTheBytesThatTextsAreMadeOf) {
    EXPECT_EQ(byte_spelling(0x20), "Ġ");
    EXPECT_EQ(byte_spelling(0x0A), "Ċ");
    EXPECT_EQ(byte_spelling(0x0D), "č");
    EXPECT_EQ(byte_spelling(0x09), "ĉ");
    EXPECT_EQ(byte_spelling('!'), "!");
    EXPECT_EQ(byte_spelling(0x00), "Ā");
    EXPECT_EQ(byte_spelling(0xAD), "Ń");
    EXPECT_EQ(byte_spelling(0xFF), "ÿ");
}

TEST(ByteAlphabet, RoundTripsEveryByteAndRefusesOtherCharacters) {
    std::string spelling;
    std::string bytes;
    for (int byte = 0; byte < 256; ++byte) {
        spelling += byte_spelling(static_cast<std::uint8_t>(byte));
        bytes += static_cast<char>(byte);
    }
    EXPECT_EQ(spelled_bytes(spelling), bytes);
    EXPECT_EQ(spelled_bytes("a b"), std::nullopt);
    EXPECT_EQ(spelled_bytes("｜"), std::nullopt);
    EXPECT_EQ(spelled_bytes("\u00AD"), std::nullopt);
    EXPECT_EQ(spelled_bytes("\u0144"), std::nullopt);
}

}  // namespace
}  // namespace fathom
