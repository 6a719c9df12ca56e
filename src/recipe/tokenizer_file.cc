#include "recipe/tokenizer_file.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "recipe/byte_alphabet.h"
#include "recipe/utf8_text.h"

namespace fathom {
namespace {

// The member, or null when it is absent: tokenizer.json writes "null" and leaves out alike.
const Json& member(const Json& object, std::string_view key) {
    static const Json kNull;
    const Json* found = object.find(key);
    return found == nullptr ? kNull : *found;
}

bool is_text(const Json& json, std::string_view text) {
    return json.is_string() && json.as_string() == text;
}

bool is_true(const Json& json) {
    return json.is_bool() && json.as_bool();
}

// What a message shows of a value from the file: short, whatever the file holds.
std::string shown(const Json& json) {
    constexpr std::size_t kShownBytesMax = 80;
    if (json.is_array() || json.is_object()) return json.kind_name();
    std::string text = json.dump();
    if (text.size() <= kShownBytesMax) return text;
    text.resize(kShownBytesMax);
    text.resize(text.size() - utf8_incomplete_tail(text));
    return text + "…";
}
std::string quoted(std::string_view text) {
    return shown(Json(text));
}

// A wrong file fails at one field; Reader carries what every step needs to say which.
class Reader {
  public:
    Reader(const Json& root, std::string_view where, const TokenizerLimits& limits)
        : root_(root), where_(where), limits_(limits) {}

    Result<TokenizerFile> read() {
        if (!root_.is_object()) return fail("", "expected an object, got {}", root_.kind_name());
        FATHOM_RETURN_IF_ERROR(check_identity_parts());
        FATHOM_RETURN_IF_ERROR(read_pre_tokenizer());
        FATHOM_RETURN_IF_ERROR(check_model_options());
        FATHOM_RETURN_IF_ERROR(read_vocab());
        FATHOM_RETURN_IF_ERROR(read_merges());
        FATHOM_RETURN_IF_ERROR(read_added());
        return std::move(file_);
    }

  private:
    template <typename... Args>
    Status fail(std::string_view field, fmt::format_string<Args...> format, Args&&... args) const {
        return invalid_argument("{}: {}{}{}", where_, field, field.empty() ? "" : ": ",
                                fmt::format(format, std::forward<Args>(args)...));
    }

    Status check_identity_parts() const;
    Status read_pre_tokenizer();
    Status read_split(const Json& part, const std::string& field);
    Status check_model_options() const;
    Status read_vocab();
    Status read_merges();
    Result<std::pair<std::string_view, std::string_view>> merge_pair(const Json& rule,
                                                                     std::string_view field) const;
    Status read_added();
    Result<TokenId> read_id(const Json& json, const std::string& field) const;

    const Json& root_;
    std::string_view where_;
    const TokenizerLimits& limits_;
    TokenizerFile file_;
    // Views of strings that root_ owns.
    std::unordered_map<std::string_view, TokenId> id_by_spelling_;
    std::unordered_map<TokenId, std::string_view> spelling_by_id_;
    std::unordered_set<TokenId> ids_of_text_;  // single bytes and what merges make of them
};

Status Reader::check_identity_parts() const {
    for (const std::string_view key : {"truncation", "padding"}) {
        const Json& part = member(root_, key);
        if (!part.is_null()) return fail(key, "expected null, got {}", shown(part));
    }
    const Json& normalizer = member(root_, "normalizer");
    const bool empty_sequence = is_text(member(normalizer, "type"), "Sequence") &&
                                member(normalizer, "normalizers").is_array() &&
                                member(normalizer, "normalizers").items().empty();
    if (!normalizer.is_null() && !empty_sequence) {
        return fail("normalizer", "expected null or an empty Sequence, got type {}",
                    shown(member(normalizer, "type")));
    }
    const Json& decoder = member(member(root_, "decoder"), "type");
    if (!is_text(decoder, "ByteLevel")) {
        return fail("decoder.type", "expected \"ByteLevel\", got {}", shown(decoder));
    }
    return {};
}

Status Reader::read_pre_tokenizer() {
    const Json& pre_tokenizer = member(root_, "pre_tokenizer");
    const Json& parts = member(pre_tokenizer, "pretokenizers");
    if (!is_text(member(pre_tokenizer, "type"), "Sequence") || !parts.is_array()) {
        return fail("pre_tokenizer",
                    "expected a Sequence of Split and a final ByteLevel, got type {}",
                    shown(member(pre_tokenizer, "type")));
    }
    for (std::size_t i = 0; i < parts.items().size(); ++i) {
        const Json& part = parts.items()[i];
        const std::string field = fmt::format("pre_tokenizer.pretokenizers[{}]", i);
        const Json& type = member(part, "type");
        if (i + 1 < parts.items().size()) {
            if (!is_text(type, "Split")) {
                return fail(field + ".type", "expected \"Split\", got {}", shown(type));
            }
            FATHOM_RETURN_IF_ERROR(read_split(part, field));
            continue;
        }
        if (!is_text(type, "ByteLevel")) {
            return fail(field + ".type", "expected \"ByteLevel\" as the last part, got {}",
                        shown(type));
        }
        for (const std::string_view key : {"add_prefix_space", "use_regex"}) {
            const Json& option = member(part, key);
            if (!option.is_bool() || option.as_bool()) {
                return fail(fmt::format("{}.{}", field, key), "expected false, got {}",
                            shown(option));
            }
        }
    }
    if (parts.items().empty()) {
        return fail("pre_tokenizer.pretokenizers", "expected a final ByteLevel, got no part");
    }
    return {};
}

Status Reader::read_split(const Json& part, const std::string& field) {
    const Json& regex = member(member(part, "pattern"), "Regex");
    if (!regex.is_string()) {
        return fail(field + ".pattern.Regex", "expected a string, got {}", regex.kind_name());
    }
    if (!is_text(member(part, "behavior"), "Isolated")) {
        return fail(field + ".behavior", "expected \"Isolated\", got {}",
                    shown(member(part, "behavior")));
    }
    const Json& invert = member(part, "invert");
    if (!invert.is_null() && !(invert.is_bool() && !invert.as_bool())) {
        return fail(field + ".invert", "expected false, got {}", shown(invert));
    }
    file_.split_patterns.push_back(regex.as_string());
    return {};
}

Status Reader::check_model_options() const {
    const Json& model = member(root_, "model");
    if (!is_text(member(model, "type"), "BPE")) {
        return fail("model.type", "expected \"BPE\", got {}", shown(member(model, "type")));
    }
    const Json& dropout = member(model, "dropout");
    if (!dropout.is_null() && !(dropout.is_number() && dropout.as_double() == 0)) {
        return fail("model.dropout", "expected null or 0, got {}", shown(dropout));
    }
    for (const std::string_view key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
        const Json& affix = member(model, key);
        if (!affix.is_null() && !is_text(affix, "")) {
            return fail(fmt::format("model.{}", key), "expected null, got {}", shown(affix));
        }
    }
    for (const std::string_view key : {"byte_fallback", "ignore_merges"}) {
        const Json& flag = member(model, key);
        if (!flag.is_null() && !(flag.is_bool() && !flag.as_bool())) {
            return fail(fmt::format("model.{}", key), "expected false, got {}", shown(flag));
        }
    }
    return {};
}

Result<TokenId> Reader::read_id(const Json& json, const std::string& field) const {
    if (!json.is_integer()) return fail(field, "expected an integer id, got {}", shown(json));
    const bool in_range = json.kind() == Json::Kind::integer && json.as_int64() >= 0 &&
                          json.as_int64() < limits_.id_end;
    if (!in_range) {
        return fail(field, "expected an id from 0 to {}, got {}", limits_.id_end - 1, shown(json));
    }
    return static_cast<TokenId>(json.as_int64());
}

Status Reader::read_vocab() {
    const Json& vocab = member(member(root_, "model"), "vocab");
    if (!vocab.is_object()) {
        return fail("model.vocab", "expected an object, got {}", vocab.kind_name());
    }
    const Json::Object& members = vocab.members();
    if (members.size() > limits_.vocab_max) {
        return fail("model.vocab", "{} entries, at most {} are allowed", members.size(),
                    limits_.vocab_max);
    }
    file_.vocab.reserve(members.size());
    id_by_spelling_.reserve(members.size());
    spelling_by_id_.reserve(members.size());
    for (const auto& [spelling, value] : members) {
        if (spelling.empty() || spelling.size() > limits_.spelling_bytes_max) {
            return fail("model.vocab", "the entry {} has {} bytes, 1 to {} are allowed",
                        quoted(spelling), spelling.size(), limits_.spelling_bytes_max);
        }
        FATHOM_ASSIGN(const TokenId id, read_id(value, "model.vocab[" + quoted(spelling) + "]"));
        const auto [other, fresh] = spelling_by_id_.emplace(id, spelling);
        if (!fresh) {
            return fail("model.vocab", "{} and {} have the same id {}", quoted(other->second),
                        quoted(spelling), id);
        }
        id_by_spelling_.emplace(spelling, id);
        file_.vocab.push_back({.id = id, .spelling = spelling});
    }
    std::sort(file_.vocab.begin(), file_.vocab.end(),
              [](const auto& a, const auto& b) { return a.id < b.id; });
    for (int byte = 0; byte < 256; ++byte) {
        const std::string spelling = byte_spelling(static_cast<std::uint8_t>(byte));
        const auto found = id_by_spelling_.find(spelling);
        if (found == id_by_spelling_.end()) {
            return fail("model.vocab", "the single byte {:#04x} ({}) is missing", byte,
                        quoted(spelling));
        }
        file_.byte_ids[static_cast<std::size_t>(byte)] = found->second;
        ids_of_text_.insert(found->second);
    }
    return {};
}

// A rule is "A B" or ["A", "B"].
Result<std::pair<std::string_view, std::string_view>> Reader::merge_pair(
    const Json& rule, std::string_view field) const {
    std::pair<std::string_view, std::string_view> pair;
    if (rule.is_array() && rule.items().size() == 2 && rule.items()[0].is_string() &&
        rule.items()[1].is_string()) {
        pair = {rule.items()[0].as_string(), rule.items()[1].as_string()};
    } else if (rule.is_string()) {
        const std::string_view text = rule.as_string();
        const std::size_t space = text.find(' ');
        if (space != std::string_view::npos &&
            text.find(' ', space + 1) == std::string_view::npos) {
            pair = {text.substr(0, space), text.substr(space + 1)};
        }
    }
    if (pair.first.empty() || pair.second.empty()) {
        return fail(field, "expected \"A B\" or [\"A\", \"B\"], got {}", shown(rule));
    }
    return pair;
}

Status Reader::read_merges() {
    const Json& merges = member(member(root_, "model"), "merges");
    if (!merges.is_array()) {
        return fail("model.merges", "expected an array, got {}", merges.kind_name());
    }
    if (merges.items().size() > limits_.merges_max) {
        return fail("model.merges", "{} rules, at most {} are allowed", merges.items().size(),
                    limits_.merges_max);
    }
    file_.merges.reserve(merges.items().size());
    std::unordered_set<std::uint64_t> seen;
    seen.reserve(merges.items().size());
    for (std::size_t rank = 0; rank < merges.items().size(); ++rank) {
        const std::string field = fmt::format("model.merges[{}]", rank);
        FATHOM_ASSIGN(const auto pair, merge_pair(merges.items()[rank], field));
        const std::string joined = std::string(pair.first) + std::string(pair.second);
        std::array<TokenId, 3> ids{};
        const std::array<std::string_view, 3> spellings = {pair.first, pair.second, joined};
        for (std::size_t i = 0; i < 3; ++i) {
            const auto found = id_by_spelling_.find(spellings[i]);
            if (found == id_by_spelling_.end()) {
                return fail(field, "{} is not in model.vocab", quoted(spellings[i]));
            }
            ids[i] = found->second;
        }
        const auto key =
            (static_cast<std::uint64_t>(ids[0]) << 32) | static_cast<std::uint32_t>(ids[1]);
        if (!seen.insert(key).second) {
            return fail(field, "the pair {} {} has an earlier rule", quoted(pair.first),
                        quoted(pair.second));
        }
        ids_of_text_.insert(ids[2]);
        file_.merges.push_back({.left = ids[0], .right = ids[1], .merged = ids[2]});
    }
    return {};
}

Status Reader::read_added() {
    const Json& added = member(root_, "added_tokens");
    if (added.is_null()) return {};
    if (!added.is_array()) {
        return fail("added_tokens", "expected an array, got {}", added.kind_name());
    }
    if (added.items().size() > limits_.added_max) {
        return fail("added_tokens", "{} entries, at most {} are allowed", added.items().size(),
                    limits_.added_max);
    }
    std::unordered_set<TokenId> ids;
    std::unordered_set<std::string_view> contents;
    for (std::size_t i = 0; i < added.items().size(); ++i) {
        const Json& token = added.items()[i];
        const std::string field = fmt::format("added_tokens[{}]", i);
        if (!token.is_object()) return fail(field, "expected an object, got {}", token.kind_name());
        FATHOM_ASSIGN(const TokenId id, read_id(member(token, "id"), field + ".id"));
        const Json& content = member(token, "content");
        if (!content.is_string() || content.as_string().empty() ||
            content.as_string().size() > limits_.added_bytes_max) {
            return fail(field + ".content", "expected a string of 1 to {} bytes, got {}",
                        limits_.added_bytes_max, shown(content));
        }
        for (const std::string_view key : {"single_word", "lstrip", "rstrip"}) {
            if (is_true(member(token, key))) {
                return fail(fmt::format("{}.{}", field, key), "expected false, got true");
            }
        }
        if (!ids.insert(id).second) return fail(field + ".id", "the id {} occurs twice", id);
        if (!contents.insert(content.as_string()).second) {
            return fail(field + ".content", "{} occurs twice", shown(content));
        }
        // The release lists its first three added tokens in the vocabulary too, with equal ids.
        const auto same_text = id_by_spelling_.find(content.as_string());
        if (same_text != id_by_spelling_.end() && same_text->second != id) {
            return fail(field + ".id", "{} has the id {} in model.vocab, got {}", shown(content),
                        same_text->second, id);
        }
        const auto same_id = spelling_by_id_.find(id);
        if (same_id != spelling_by_id_.end() && same_id->second != content.as_string()) {
            return fail(field + ".id", "the id {} is {} in model.vocab, got {}", id,
                        quoted(same_id->second), shown(content));
        }
        // Else text that merely spells it would forge it, and its content would stand for bytes
        // that the byte alphabet gives another meaning.
        if (ids_of_text_.contains(id)) {
            return fail(field + ".id",
                        "{} is a single byte or the result of a merge in model.merges, which an "
                        "added token cannot be",
                        shown(content));
        }
        file_.added.push_back({.id = id,
                               .content = content.as_string(),
                               .special = is_true(member(token, "special"))});
    }
    return {};
}

}  // namespace

Result<TokenizerFile> read_tokenizer_file(const Json& root, std::string_view where,
                                          const TokenizerLimits& limits) {
    return Reader(root, where, limits).read();
}

}  // namespace fathom
