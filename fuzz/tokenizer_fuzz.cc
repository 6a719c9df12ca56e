// A hostile tokenizer.json must be refused or work: one that is accepted must encode any bytes to
// ids that stand for exactly those bytes. The input is the file, optionally followed by a NUL byte
// and a text; with an empty file the text goes through a small tokenizer built here.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "recipe/byte_alphabet.h"
#include "recipe/detokenizer.h"
#include "recipe/engram_token_map.h"
#include "recipe/release_splitter.h"
#include "recipe/tokenizer.h"

namespace {

using namespace fathom;

// All single bytes, a few merges and added tokens, and the release's regular expressions; in groups
// they mean the same and are run by PCRE2 instead of the scanner.
std::string plain_tokenizer_json(bool grouped) {
    Json vocab = Json::object();
    for (int byte = 0; byte < 256; ++byte)
        vocab.set(byte_spelling(static_cast<std::uint8_t>(byte)), byte);
    vocab.set("aa", 256);
    vocab.set("aaa", 257);
    vocab.set("Ġt", 258);
    Json parts = Json::array();
    for (const std::string_view pattern : kReleasePatterns) {
        const std::string regex =
            grouped ? "(?:" + std::string(pattern) + ")" : std::string(pattern);
        parts.push_back(Json::object({{"type", "Split"},
                                      {"pattern", Json::object({{"Regex", regex}})},
                                      {"behavior", "Isolated"}}));
    }
    parts.push_back(
        Json::object({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}));
    Json added = Json::array();
    for (const char* content : {"<think>", "</think>", "<｜User｜>"}) {
        const auto id = static_cast<std::int64_t>(260 + added.items().size());
        added.push_back(Json::object({{"id", id}, {"content", content}}));
    }
    const Json merges = Json::array({"a a", "aa a", Json::array({"Ġ", "t"})});
    return Json::object(
               {{"added_tokens", added},
                {"decoder", Json::object({{"type", "ByteLevel"}})},
                {"pre_tokenizer", Json::object({{"type", "Sequence"}, {"pretokenizers", parts}})},
                {"model", Json::object({{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}})}})
        .dump();
}

std::shared_ptr<const Tokenizer> plain_tokenizer(bool grouped) {
    auto plain = Tokenizer::parse(plain_tokenizer_json(grouped), "plain");
    FATHOM_CHECK(plain.ok(), plain.status().message());
    return *plain;
}

void check_encoding(const std::shared_ptr<const Tokenizer>& tokenizer, std::string_view text) {
    const auto is_added = [&](TokenId id) {
        const std::vector<AddedToken>& added = tokenizer->added_tokens();
        return std::any_of(added.begin(), added.end(),
                           [id](const AddedToken& token) { return token.id == id; });
    };
    for (const bool recognize : {false, true}) {
        const std::vector<TokenId> ids = tokenizer->encode(text, recognize);
        std::string bytes;
        std::string streamed;
        Detokenizer detokenizer(tokenizer);
        for (const TokenId id : ids) {
            bytes += tokenizer->bytes(id);
            streamed += detokenizer.push(id).text;
        }
        streamed += detokenizer.finish().text;
        FATHOM_CHECK(bytes == text);
        FATHOM_CHECK(recognize || std::none_of(ids.begin(), ids.end(), is_added));
        FATHOM_CHECK(streamed == tokenizer->decode(ids));
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const std::shared_ptr<const Tokenizer> kPlain = plain_tokenizer(false);
    static const std::shared_ptr<const Tokenizer> kGrouped = plain_tokenizer(true);
    const std::string_view input(reinterpret_cast<const char*>(data), size);
    const std::size_t end = std::min(input.find('\0'), input.size());
    const std::string_view file = input.substr(0, end);
    const std::string_view text =
        end < size ? input.substr(end + 1) : std::string_view("aaa 1é\xFF");
    if (file.empty()) {
        check_encoding(kPlain, text);
        FATHOM_CHECK(kPlain->encode(text, false) == kGrouped->encode(text, false));
        return 0;
    }
    const auto tokenizer = Tokenizer::parse(file, "fuzz");
    if (!tokenizer.ok()) {
        FATHOM_CHECK(tokenizer.status().message().starts_with("fuzz: "));
        return 0;
    }
    check_encoding(*tokenizer, text);
    make_engram_token_map(**tokenizer, std::min<std::int64_t>((*tokenizer)->vocab_size(), 600));
    return 0;
}
