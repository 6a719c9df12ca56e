#include "recipe/protocols/logprobs_json.h"

#include "base/utf8.h"

namespace fathom {

std::string shown_token(std::string_view bytes) {
    constexpr std::string_view kHexDigits = "0123456789abcdef";
    std::string text;
    for (;;) {
        const std::size_t valid = utf8_valid_bytes(bytes);
        text += bytes.substr(0, valid);
        bytes.remove_prefix(valid);
        if (bytes.empty()) return text;
        const auto byte = static_cast<unsigned char>(bytes[0]);
        text += "\\x";
        text += kHexDigits[byte >> 4];
        text += kHexDigits[byte & 15];
        bytes.remove_prefix(1);
    }
}

namespace {

void write_token(JsonWriter& writer, const Tokenizer& tokenizer, TokenId id, double logprob) {
    const std::string_view bytes = tokenizer.bytes(id);
    writer.key("token").value(shown_token(bytes));
    writer.key("logprob").value(logprob);
    writer.key("bytes").begin_array();
    for (const char byte : bytes)
        writer.value(static_cast<int>(static_cast<unsigned char>(byte)));
    writer.end_array();
}

}  // namespace

void write_logprobs(JsonWriter& writer, const Tokenizer& tokenizer,
                    const std::vector<TokenLogprob>& logprobs) {
    writer.begin_array();
    for (const TokenLogprob& entry : logprobs) {
        writer.begin_object();
        write_token(writer, tokenizer, entry.id, entry.logprob);
        writer.key("top_logprobs").begin_array();
        for (const auto& [id, logprob] : entry.top) {
            writer.begin_object();
            write_token(writer, tokenizer, id, logprob);
            writer.end_object();
        }
        writer.end_array().end_object();
    }
    writer.end_array();
}

}  // namespace fathom
