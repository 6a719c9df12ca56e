#include "recipe/synthetic_tokenizer.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "recipe/byte_alphabet.h"
#include "recipe/prompt.h"
#include "recipe/release_splitter.h"

namespace fathom {
namespace {

constexpr std::string_view kPad = "<｜▁pad▁｜>";
// English letters, common ones first.
constexpr std::string_view kLetters = "etaoinshrdlucmfwypvbgkjqxz";

// Special tokens behind the vocabulary, in id order; the first three ids are not among them.
constexpr std::string_view kLastTokens[] = {
    kSystemToken,
    kUserToken,
    kAssistantToken,
    kThinkBegin,
    kThinkEnd,
    "｜DSML｜",
    "<｜latest_reminder｜>",
    kSyntheticImageToken,
    "<｜/polygon｜>",
    "<｜polygon｜>",
    "<｜/point｜>",
    "<｜point｜>",
    "<｜/box｜>",
    "<｜box｜>",
    "<｜/ref｜>",
    "<｜ref｜>",
};

class Vocabulary {
  public:
    explicit Vocabulary(std::int64_t words_end) : words_end_(words_end) {
        for (const std::string_view token : {kBeginOfSentence, kEndOfSentence, kPad})
            add(std::string(token));
        for (int byte = 0; byte < 256; ++byte)
            add(byte_spelling(static_cast<std::uint8_t>(byte)));
    }
    bool full() const { return static_cast<std::int64_t>(vocab_.size()) >= words_end_; }
    // A new word, left and right merged; both are words already.
    void merge(const std::string& left, const std::string& right) {
        if (full()) return;
        merges_.push_back(Json::array({left, right}));
        add(left + right);
    }
    Json model() {
        return Json::object({{"type", "BPE"},
                             {"vocab", Json::object(std::move(vocab_))},
                             {"merges", Json::array(std::move(merges_))}});
    }

  private:
    void add(std::string word) {
        const auto id = static_cast<std::int64_t>(vocab_.size());
        vocab_.emplace_back(std::move(word), id);
    }

    std::int64_t words_end_;
    Json::Object vocab_;
    Json::Array merges_;
};

// Calls visit(i, j) for all i, j below n by ascending i + j: the common ones of both come first.
template <typename Visit>
void by_rank(std::size_t n, Visit visit) {
    for (std::size_t sum = 0; sum < 2 * n - 1; ++sum) {
        for (std::size_t i = sum < n ? 0 : sum - n + 1; i < n && i <= sum; ++i)
            visit(i, sum - i);
    }
}

void add_words(Vocabulary& vocabulary) {
    const std::string space = byte_spelling(' ');
    std::vector<std::string> pairs;
    by_rank(kLetters.size(), [&](std::size_t i, std::size_t j) {
        vocabulary.merge({kLetters[i]}, {kLetters[j]});
        pairs.push_back({kLetters[i], kLetters[j]});
    });
    for (const std::string& pair : pairs)
        vocabulary.merge(space, pair);
    by_rank(pairs.size(), [&](std::size_t i, std::size_t j) {
        if (vocabulary.full()) return;
        vocabulary.merge(pairs[i], pairs[j]);
        vocabulary.merge(space + pairs[i], pairs[j]);
    });
}

Json added_token(std::int64_t id, std::string_view content, bool special) {
    return Json::object({{"id", id},
                         {"content", content},
                         {"single_word", false},
                         {"lstrip", false},
                         {"rstrip", false},
                         {"normalized", !special},
                         {"special", special}});
}

Json pre_tokenizer() {
    Json parts = Json::array();
    for (const std::string_view pattern : kReleasePatterns)
        parts.push_back(Json::object({{"type", "Split"},
                                      {"pattern", Json::object({{"Regex", pattern}})},
                                      {"behavior", "Isolated"},
                                      {"invert", false}}));
    parts.push_back(
        Json::object({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}));
    return Json::object({{"type", "Sequence"}, {"pretokenizers", std::move(parts)}});
}

}  // namespace

Result<Json> make_synthetic_tokenizer(std::int64_t vocab_size) {
    if (vocab_size < kSyntheticVocabMin || vocab_size > kSyntheticVocabMax)
        return invalid_argument("vocabulary of {} tokens: from {} to {} can be made", vocab_size,
                                kSyntheticVocabMin, kSyntheticVocabMax);
    const std::int64_t words_end = vocab_size - static_cast<std::int64_t>(std::size(kLastTokens));
    Vocabulary vocabulary(words_end);
    add_words(vocabulary);
    Json added = Json::array();
    std::int64_t id = 0;
    for (const std::string_view token : {kBeginOfSentence, kEndOfSentence, kPad})
        added.push_back(added_token(id++, token, true));
    id = words_end;
    for (const std::string_view token : kLastTokens)
        added.push_back(added_token(id++, token, false));
    return Json::object({{"version", "1.0"},
                         {"truncation", Json()},
                         {"padding", Json()},
                         {"added_tokens", std::move(added)},
                         {"normalizer", Json()},
                         {"pre_tokenizer", pre_tokenizer()},
                         {"decoder", Json::object({{"type", "ByteLevel"}})},
                         {"model", vocabulary.model()}});
}

}  // namespace fathom
