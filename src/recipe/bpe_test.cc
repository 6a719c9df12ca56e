#include "recipe/bpe.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>
#include <string>

#include "base/random.h"

namespace fathom {
namespace {

using Ids = std::vector<TokenId>;

// Merges made at random: of single bytes and of what earlier ones made, from the bytes of a few
// characters. Where `in_order` is false some make a token again that there is already, or take one
// that only a later one makes.
struct RandomVocabulary {
    std::array<TokenId, 256> byte_ids{};
    std::vector<Bpe::Merge> merges;
    std::vector<std::string> characters = {
        "中", "丮", "文", "斈", "ー", "ア", "。", "語", "a", "b", std::string(1, '\0')};
    std::string bytes;

    RandomVocabulary(RandomStream& random, bool in_order) {
        std::iota(byte_ids.begin(), byte_ids.end(), 100);
        for (const std::string& character : characters)
            bytes += character;
        std::vector<std::string> texts;  // of ids from 356
        std::map<std::string, TokenId> id_of;
        std::set<std::pair<TokenId, TokenId>> pairs;
        const auto text_of = [&](TokenId id) {
            return id < 356 ? std::string(1, static_cast<char>(id - 100))
                            : texts[static_cast<std::size_t>(id - 356)];
        };
        // Mostly neighbours in some text, so that most merges can happen.
        const std::uint64_t count = 1 + random.next_below(60);
        for (std::uint64_t i = 0; i < count; ++i) {
            const Ids ids = merge(random_text(random, 6));
            if (ids.size() < 2) continue;
            const std::size_t at = random.next_below(ids.size() - 1);
            const std::string text = text_of(ids[at]) + text_of(ids[at + 1]);
            const auto known = id_of.find(text);
            if (known != id_of.end() && in_order) continue;
            if (!pairs.emplace(ids[at], ids[at + 1]).second) continue;
            const TokenId id =
                known != id_of.end() ? known->second : static_cast<TokenId>(356 + texts.size());
            if (known == id_of.end()) {
                id_of.emplace(text, id);
                texts.push_back(text);
            }
            merges.push_back({ids[at], ids[at + 1], id});
        }
        if (!in_order && random.next_below(2) == 0 && merges.size() > 1) {
            std::swap(merges[random.next_below(merges.size())], merges.back());
        }
    }

    std::string random_text(RandomStream& random, std::uint64_t characters_max) const {
        std::string text;
        for (std::uint64_t left = 1 + random.next_below(characters_max); left > 0; --left) {
            text += random.next_below(12) == 0
                        ? std::string(1, bytes[random.next_below(bytes.size())])
                        : characters[random.next_below(characters.size())];
        }
        return text;
    }

    // The rule in its plainest form: the lowest rank, the leftmost of it, one at a time.
    Ids merge(std::string_view text) const {
        Ids ids;
        for (const char byte : text)
            ids.push_back(byte_ids[static_cast<std::uint8_t>(byte)]);
        for (;;) {
            std::size_t best = merges.size();
            std::size_t best_at = 0;
            for (std::size_t at = 0; at + 1 < ids.size(); ++at) {
                for (std::size_t rank = 0; rank < best; ++rank) {
                    if (merges[rank].left != ids[at] || merges[rank].right != ids[at + 1]) continue;
                    best = rank;
                    best_at = at;
                }
            }
            if (best == merges.size()) return ids;
            ids[best_at] = merges[best].merged;
            ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best_at) + 1);
        }
    }
};

TEST(MergeQueue, GivesTheSmallestWhateverWasTakenBefore) {
    constexpr std::uint64_t kSeed = 20261131;
    RandomStream random(kSeed);
    for (int round = 0; round < 200; ++round) {
        MergeQueue queue;
        queue.push(3);
        queue.clear();
        std::multiset<std::uint64_t> expected;
        const int bits = 1 + static_cast<int>(random.next_below(52));
        for (int step = 0; step < 200; ++step) {
            ASSERT_EQ(queue.empty(), expected.empty()) << "round " << round << " of " << kSeed;
            if (expected.empty() || random.next_below(2) == 0) {
                const std::uint64_t key = random.next_below(std::uint64_t{1} << bits);
                queue.push(key);
                expected.insert(key);
            } else {
                ASSERT_EQ(queue.pop(), *expected.begin()) << "round " << round << " of " << kSeed;
                expected.erase(expected.begin());
            }
        }
    }
}

TEST(Bpe, GivesWhatThePlainRuleGives) {
    constexpr std::uint64_t kSeed = 20261130;
    RandomStream random(kSeed);
    for (int v = 0; v < 300; ++v) {
        const RandomVocabulary vocabulary(random, v % 3 != 0);
        const Bpe bpe(vocabulary.byte_ids, vocabulary.merges);
        // One text of many words, some of which occur again.
        std::vector<std::string> words;
        std::string text;
        for (int i = 0; i < 24; ++i) {
            words.push_back(i % 4 == 3 ? words[random.next_below(words.size())]
                                       : vocabulary.random_text(random, i < 20 ? 8 : 40));
            text += words.back();
        }
        std::vector<std::string_view> views;
        Ids expected;
        std::size_t at = 0;
        for (const std::string& word : words) {
            views.push_back(std::string_view(text).substr(at, word.size()));
            at += word.size();
            const Ids ids = vocabulary.merge(word);
            expected.insert(expected.end(), ids.begin(), ids.end());
        }
        Bpe::Scratch scratch(text.size());
        Ids ids;
        bpe.encode_words(views, scratch, ids);
        ASSERT_EQ(ids, expected) << "vocabulary " << v << " of seed " << kSeed;
    }
}

// A second rule for 中 lets it come later than what its neighbours do, so that making characters
// first would be wrong.
TEST(Bpe, ATokenWithTwoMergesIsMadeInItsTurn) {
    std::array<TokenId, 256> byte_ids{};
    std::iota(byte_ids.begin(), byte_ids.end(), 0);
    const std::vector<Bpe::Merge> merges = {
        {0xB8, 0xAD, 300}, {0xE4, 0xB8, 301}, {301, 0xAD, 302},  // 中
        {0xE6, 0x96, 303}, {303, 0x87, 304},                     // 文
        {0xE8, 0xAA, 305}, {305, 0x9E, 306},                     // 語
        {302, 304, 307},                                         // 中文
        {304, 306, 308},                                         // 文語
        {0xE4, 300, 302},                                        // 中 again
    };
    const Bpe bpe(byte_ids, merges);
    const std::string_view word = "中文語";
    Bpe::Scratch scratch(word.size());
    Ids ids;
    bpe.encode_words({&word, 1}, scratch, ids);
    EXPECT_EQ(ids, (Ids{302, 308}));
}

}  // namespace
}  // namespace fathom
