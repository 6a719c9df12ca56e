#include "recipe/tokenizer.h"

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "base/utf8.h"
#include "recipe/bpe.h"
#include "recipe/byte_alphabet.h"
#include "recipe/pretokenizer.h"
#include "recipe/tokenizer_file.h"

namespace fathom {
namespace {

class BpeTokenizer final : public Tokenizer {
  public:
    BpeTokenizer(TokenizerFile file, PreTokenizer pre_tokenizer)
        : pre_tokenizer_(std::move(pre_tokenizer)),
          bpe_(file.byte_ids, file.merges),
          added_(std::move(file.added)),
          added_index_(added_) {
        TokenId id_max = -1;
        if (!file.vocab.empty()) id_max = file.vocab.back().id;
        for (const AddedToken& token : added_)
            id_max = std::max(id_max, token.id);
        entries_.resize(static_cast<std::size_t>(id_max) + 1);
        for (const TokenizerFile::Word& word : file.vocab) {
            Entry& entry = entries_[static_cast<std::size_t>(word.id)];
            entry.spelling = keep(word.spelling);
            // A spelling outside the alphabet is no symbol of any text; it stands for itself.
            const std::optional<std::string> raw = spelled_bytes(word.spelling);
            entry.bytes = raw && *raw != word.spelling ? keep(*raw) : entry.spelling;
        }
        for (const AddedToken& token : added_) {
            Entry& entry = entries_[static_cast<std::size_t>(token.id)];
            entry.spelling = keep(token.content);
            entry.bytes = entry.spelling;
        }
    }

    std::vector<TokenId> encode(std::string_view text, bool recognize_added) const override {
        Encoding encoding(*this, text.size());
        std::size_t done = 0;
        while (recognize_added) {
            const auto match = added_index_.find(text, done);
            if (!match) break;
            encoding.add_plain(text.substr(done, match->begin - done));
            encoding.ids.push_back(match->id);
            done = match->end;
        }
        encoding.add_plain(text.substr(done));
        return std::move(encoding.ids);
    }

    std::string_view bytes(TokenId id) const override { return view(entry(id).bytes); }
    std::string_view spelling(TokenId id) const override { return view(entry(id).spelling); }

    std::string decode(std::span<const TokenId> ids) const override {
        std::string raw;
        for (const TokenId id : ids)
            raw += bytes(id);
        return utf8_lossy(raw);
    }

    std::optional<TokenId> added_id(std::string_view content) const override {
        return added_index_.id_of(content);
    }
    const std::vector<AddedToken>& added_tokens() const override { return added_; }
    std::int64_t vocab_size() const override { return static_cast<std::int64_t>(entries_.size()); }

  private:
    struct Range {
        std::size_t begin = 0;
        std::size_t size = 0;
    };
    struct Entry {
        Range spelling;
        Range bytes;
    };

    // One call of encode: what a thread needs to itself, and the ids so far.
    struct Encoding {
        Encoding(const BpeTokenizer& tokenizer, std::size_t text_bytes)
            : bpe(tokenizer.bpe_), splitter(tokenizer.pre_tokenizer_), scratch(text_bytes) {
            // More than most texts have: what is not written costs no memory, moving would cost
            // time.
            ids.reserve(text_bytes / 3 * 2);
        }

        // Ill-formed UTF-8 has no characters for the pre-tokenizer to look at: each such byte is a
        // word of its own, and the text before and after it are pieces of their own.
        void add_plain(std::string_view text) {
            for (;;) {
                const std::size_t valid = utf8_valid_bytes(text);
                add_well_formed(text.substr(0, valid));
                text.remove_prefix(valid);
                if (text.empty()) return;
                const auto broken = static_cast<std::size_t>(-utf8_sequence(text));
                for (const char byte : text.substr(0, broken))
                    ids.push_back(bpe.byte_id(static_cast<std::uint8_t>(byte)));
                text.remove_prefix(broken);
            }
        }

        void add_well_formed(std::string_view text) {
            splitter.start(text);
            for (;;) {
                const std::span<const std::string_view> words = splitter.next_words();
                if (words.empty()) return;
                bpe.encode_words(words, scratch, ids);
            }
        }

        const Bpe& bpe;
        PreTokenizer::Splitter splitter;
        Bpe::Scratch scratch;
        std::vector<TokenId> ids;
    };

    Range keep(std::string_view text) {
        const Range range{text_.size(), text.size()};
        text_ += text;
        return range;
    }
    std::string_view view(Range range) const {
        return std::string_view(text_).substr(range.begin, range.size);
    }
    const Entry& entry(TokenId id) const {
        static constexpr Entry kOutside;
        const auto index = static_cast<std::size_t>(id);
        return id >= 0 && index < entries_.size() ? entries_[index] : kOutside;
    }

    PreTokenizer pre_tokenizer_;
    Bpe bpe_;
    std::vector<AddedToken> added_;
    AddedTokenIndex added_index_;
    std::string text_;            // all spellings and byte strings
    std::vector<Entry> entries_;  // by id; empty where no token has the id
};

JsonLimits json_limits() {
    constexpr int kDepthMax = 32;  // pre_tokenizer parts nest deepest, four levels down
    return {.bytes_max = TokenizerLimits{}.file_bytes_max, .depth_max = kDepthMax};
}

Result<std::shared_ptr<const Tokenizer>> build(const Json& root, std::string_view where) {
    FATHOM_ASSIGN(TokenizerFile file, read_tokenizer_file(root, where));
    FATHOM_ASSIGN(PreTokenizer pre_tokenizer,
                  PreTokenizer::make(file.split_patterns, fmt::format("{}: pre_tokenizer", where)));
    return std::make_shared<const BpeTokenizer>(std::move(file), std::move(pre_tokenizer));
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> Tokenizer::load(const std::string& path) {
    FATHOM_ASSIGN(const Json root, parse_json_file(path, json_limits()));
    return build(root, path);
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::parse(std::string_view json,
                                                          std::string_view where) {
    auto root = parse_json(json, json_limits());
    if (!root.ok()) return root.status().with_context(where);
    return build(*root, where);
}

}  // namespace fathom
