// Byte-level BPE from a Hugging Face tokenizer.json (recipe.md 1). Immutable after load; any thread
// may encode and decode.
//
//   text ─ added-token split ─ pre-tokenizer (three regex splits) ─ byte alphabet ─ BPE merges ─
//   ids
//
// Ids always come from the file, never from constants: the tiny model numbers its special tokens
// differently from the release.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "recipe/added_tokens.h"
#include "recipe/utf8_text.h"

namespace fathom {

class Tokenizer {
  public:
    // Reads a tokenizer.json of the release's layout: normalizer empty, pre_tokenizer a Sequence of
    // Split (Regex, Isolated) and a final ByteLevel, model BPE with all 256 single bytes, decoder
    // ByteLevel. Anything else, and whatever exceeds TokenizerLimits (tokenizer_file.h), is
    // invalid_argument with the field and the value found. Ids may have gaps.
    static Result<std::shared_ptr<const Tokenizer>> load(const std::string& path);
    // The same from text; `where` stands for the path in messages.
    static Result<std::shared_ptr<const Tokenizer>> parse(std::string_view json,
                                                          std::string_view where);
    virtual ~Tokenizer() = default;

    // Encodes text. recognize_added: added tokens spelled in the text become their ids
    // (recipe.md 1.6 "recognize"); otherwise the text is plain and no special token can be forged.
    // Input that is not UTF-8 is encoded byte by byte where it is ill-formed, so the bytes of the
    // ids are always the text. Time is O(n log n) in the text whatever it holds.
    virtual std::vector<TokenId> encode(std::string_view text, bool recognize_added) const = 0;

    // The raw bytes of one id: an added token's content, else the bytes of its vocabulary string;
    // empty for an id outside the vocabulary.
    virtual std::string_view bytes(TokenId id) const = 0;
    // The vocabulary spelling of an id (byte alphabet), for the Engram map; content for added
    // tokens.
    virtual std::string_view spelling(TokenId id) const = 0;
    // Concatenated bytes, ill-formed parts replaced by U+FFFD (recipe.md 1.7).
    virtual std::string decode(std::span<const TokenId> ids) const = 0;

    virtual std::optional<TokenId> added_id(std::string_view content) const = 0;
    virtual const std::vector<AddedToken>& added_tokens() const = 0;
    virtual std::int64_t vocab_size() const = 0;  // highest id + 1
};

}  // namespace fathom
