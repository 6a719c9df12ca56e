// For the tests of this folder: the tiny model's tokenizer, small tokenizer.json files to bend out
// of shape, and texts that are hard on tokenizers.
#pragma once

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/random.h"
#include "recipe/byte_alphabet.h"
#include "recipe/tokenizer.h"
#include "recipe/utf8_text.h"

namespace fathom::testing {

inline const std::shared_ptr<const Tokenizer>& tiny_tokenizer() {
    static const std::shared_ptr<const Tokenizer> kTokenizer = [] {
        auto loaded = Tokenizer::load(FATHOM_SOURCE_DIR "/models/tiny/tokenizer.json");
        EXPECT_TRUE(loaded.ok()) << loaded.status().message();
        return *loaded;
    }();
    return kTokenizer;
}

// A complete tokenizer.json: ids 0 to 255 are the bytes, 256 is "ab", 257 "abc"; two added tokens
// with a gap before them.
inline Json small_tokenizer_json() {
    Json vocab = Json::object();
    for (int byte = 0; byte < 256; ++byte) {
        vocab.set(byte_spelling(static_cast<std::uint8_t>(byte)), byte);
    }
    vocab.set("ab", 256);
    vocab.set("abc", 257);
    Json model = Json::object({{"type", "BPE"}, {"vocab", std::move(vocab)}});
    model.set("merges", Json::array({"a b", Json::array({"ab", "c"})}));
    const auto added = [](int id, const char* content) {
        return Json::object({{"id", id}, {"content", content}, {"special", true}});
    };
    const auto split = Json::object({{"type", "Split"},
                                     {"pattern", Json::object({{"Regex", "\\p{N}{1,3}"}})},
                                     {"behavior", "Isolated"},
                                     {"invert", false}});
    const auto bytes =
        Json::object({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}});
    return Json::object(
        {{"added_tokens", Json::array({added(300, "<s>"), added(301, "<s>!")})},
         {"normalizer", Json()},
         {"pre_tokenizer",
          Json::object({{"type", "Sequence"}, {"pretokenizers", Json::array({split, bytes})}})},
         {"decoder", Json::object({{"type", "ByteLevel"}})},
         {"model", std::move(model)}});
}

// Texts made of the parts that tokenizers trip over: letters, marks, digits, white space of every
// kind, punctuation runs, CJK, emoji, unassigned and private-use characters, special tokens.
inline rc::Gen<std::string> tricky_text() {
    static const std::vector<std::string> kParts = {"a",          "The",     " the",
                                                    "'s",         "ABC",     "é",
                                                    "e\u0301",    "ß",       "1",
                                                    "2024",       "½",       "٣",
                                                    " ",          "  ",      "\t",
                                                    "\n",         "\r\n",    "\u00A0",
                                                    "\u2028",     "\u3000",  "\u180E",
                                                    "\u0085",     "!",       "?!",
                                                    ".py",        "_x",      "{}",
                                                    "—",          "中文",    "日本語の",
                                                    "・",         "한국",    "😀",
                                                    "👍🏽",   "\uE000",  "\uFFFD",
                                                    "\u0378",     "\u001C",  std::string(1, '\0'),
                                                    "مرحبا",      "<think>", "</think>",
                                                    "<｜User｜>", "<｜",     "｜DSML｜",
                                                    "<",          "/",       "\u0301"};
    return rc::gen::map(rc::gen::container<std::vector<std::string>>(rc::gen::elementOf(kParts)),
                        [](const std::vector<std::string>& parts) {
                            std::string text;
                            for (const std::string& part : parts)
                                text += part;
                            return text;
                        });
}

// Tricky text with random bytes strewn in, so mostly not UTF-8.
inline rc::Gen<std::string> damaged_text() {
    return rc::gen::map(rc::gen::pair(tricky_text(), rc::gen::arbitrary<std::string>()),
                        [](const std::pair<std::string, std::string>& parts) {
                            std::string text;
                            for (std::size_t i = 0; i < parts.first.size(); ++i) {
                                text += parts.first[i];
                                if (i < parts.second.size() && i % 3 == 0) text += parts.second[i];
                            }
                            return text;
                        });
}

// How many strings tests of scanner against PCRE2 try; more when asked by FATHOM_STRINGS.
constexpr std::uint64_t kStringsSeed = 20261130;
inline int random_string_count() {
    const char* asked = std::getenv("FATHOM_STRINGS");
    return asked != nullptr ? std::atoi(asked) : 20'000;
}

// Up to 24 characters of what lies near the borders of the release's patterns.
inline std::string string_near_borders(RandomStream& random) {
    static const std::vector<std::vector<std::string>> kClasses = {
        {"a", "Z", "é", "ß", "ж", "한", "ﬀ", "𝒜", "龦", "㐀", "々", "〇"},
        {"\u0301", "\u0300", "\u093E", "\uFE0F", "\U000E0100", "\u3099"},
        {"1", "0", "½", "٣", "Ⅷ", "𝟘", "〡"},
        {"中", "龥", "一", "文", "ぁ", "ん", "ア", "ー", "・", "゠", "゛", "\u3040", "\u3097",
         "ヿ"},
        {"!", "'", ".", "_", "-", "{", "~", "$", "+", "^", "`"},
        {"—", "“", "。", "，", "€", "©", "😀", "🏽", "！", "｜", "▁"},
        {"\n", "\r", "\r\n"},
        {" ", "  ", "\t", "\v", "\u0085", "\u00A0", "\u2028", "\u3000", "\u1680"},
        {"\u180E", "\u200B", "\u200D", "\u001C", "\u007F", "\u0378", "\uE000", "\uFFFD", "\u00AD",
         std::string(1, '\0'), "\U000E0001", "\U0010FFFF"},
    };
    std::string text;
    // Few classes a string, so that runs of each and the borders of two are common.
    const std::uint64_t width = 1 + random.next_below(kClasses.size());
    const std::uint64_t first = random.next_below(kClasses.size());
    for (std::uint64_t left = random.next_below(25); left > 0; --left) {
        const std::uint64_t c = first + random.next_below(width) * 4;
        const std::vector<std::string>& members = kClasses[c % kClasses.size()];
        text += members[random.next_below(members.size())];
    }
    return text;
}

// Cuts `text` at random places; the pieces joined are the text.
inline std::vector<std::string> random_cuts(std::string_view text) {
    std::vector<std::string> pieces;
    while (!text.empty()) {
        const auto size = *rc::gen::inRange<std::size_t>(1, text.size() + 1);
        pieces.emplace_back(text.substr(0, size));
        text.remove_prefix(size);
    }
    return pieces;
}

}  // namespace fathom::testing
