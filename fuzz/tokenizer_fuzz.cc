// A hostile tokenizer.json must be refused or work: one that is accepted must encode any bytes to
// ids that stand for exactly those bytes. The input is the file, optionally followed by a NUL byte
// and a text; with an empty file the text goes through a small tokenizer built here.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "recipe/byte_alphabet.h"
#include "recipe/detokenizer.h"
#include "recipe/engram_token_map.h"
#include "recipe/tokenizer.h"

namespace {

using namespace fathom;

// All single bytes, a few merges and added tokens, and the release's regular expressions.
std::string plain_tokenizer_json() {
    std::string vocab;
    for (int byte = 0; byte < 256; ++byte) {
        std::string spelling = byte_spelling(static_cast<std::uint8_t>(byte));
        if (spelling == "\"" || spelling == "\\") spelling = "\\" + spelling;
        vocab += "\"" + spelling + "\":" + std::to_string(byte) + ",";
    }
    return R"({"added_tokens":[{"id":260,"content":"<think>"},{"id":261,"content":"</think>"},)"
           R"({"id":262,"content":"<｜User｜>"}],"decoder":{"type":"ByteLevel"},)"
           R"("pre_tokenizer":{"type":"Sequence","pretokenizers":[)"
           R"({"type":"Split","pattern":{"Regex":"\\p{N}{1,3}"},"behavior":"Isolated"},)"
           R"({"type":"Split","pattern":{"Regex":"[一-龥\u3040-ゟ゠-ヿ]+"},"behavior":"Isolated"},)"
           R"({"type":"Split","pattern":{"Regex":"[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?)"
           R"([\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"},"behavior":"Isolated"},)"
           R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]},)"
           R"("model":{"type":"BPE","vocab":{)" +
           vocab + R"("aa":256,"aaa":257,"Ġt":258},"merges":["a a","aa a",["Ġ","t"]]}})";
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
    static const std::shared_ptr<const Tokenizer> kPlain = [] {
        auto plain = Tokenizer::parse(plain_tokenizer_json(), "plain");
        FATHOM_CHECK(plain.ok(), plain.status().message());
        return *plain;
    }();
    const std::string_view input(reinterpret_cast<const char*>(data), size);
    const std::size_t end = std::min(input.find('\0'), input.size());
    const std::string_view file = input.substr(0, end);
    const std::string_view text =
        end < size ? input.substr(end + 1) : std::string_view("aaa 1é\xFF");
    if (file.empty()) {
        check_encoding(kPlain, text);
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
