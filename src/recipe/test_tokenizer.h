// For the tests of this folder: the tiny model's tokenizer, small tokenizer.json files to bend out
// of shape, and texts that are hard on tokenizers.
#pragma once

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
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
