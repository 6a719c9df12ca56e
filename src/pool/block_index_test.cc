#include "pool/block_index.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "base/sha256.h"

namespace fathom {
namespace {

BlockKey numbered_key(std::uint64_t n) {
    BlockKey key;
    std::memcpy(key.bytes.data(), &n, sizeof(n));
    return key;
}

BlockKey digest_key(std::uint64_t n) {
    Sha256 hash;
    hash.update(std::span(reinterpret_cast<const std::uint8_t*>(&n), sizeof(n)));
    return {hash.finish()};
}

RC_GTEST_PROP(BlockIndex, BehavesAsAMapWhateverTheOrder, ()) {
    BlockIndex index;
    std::map<std::uint64_t, BlockPlace> model;
    const auto steps = *rc::gen::container<std::vector<std::pair<int, int>>>(
        400, rc::gen::pair(rc::gen::inRange(0, 3), rc::gen::inRange(0, 60)));
    std::uint16_t stamp = 0;
    for (const auto& [what, n] : steps) {
        const auto number = static_cast<std::uint64_t>(n);
        // Twins share all that the index looks at beyond their number.
        const BlockKey key = numbered_key(number << 40);
        if (what == 0) {
            const BlockPlace place{number % 5 == 0 ? 1U : 2U, ++stamp, 3};
            index.put(key, place);
            model[number] = place;
        } else if (what == 1) {
            RC_ASSERT(index.erase(key) == (model.erase(number) == 1));
        } else {
            const auto found = index.find(key);
            RC_ASSERT(found.has_value() == model.contains(number));
            if (found) RC_ASSERT(*found == model[number]);
        }
        RC_ASSERT(index.size() == model.size());
    }
    for (std::size_t shard = 0; shard < BlockIndex::kShards; ++shard)
        index.sweep(shard, [](const BlockPlace& place) { return place.segment == 1; });
    std::erase_if(model, [](const auto& item) { return item.second.segment == 1; });
    RC_ASSERT(index.size() == model.size());
    for (const auto& [number, place] : model)
        RC_ASSERT(index.find(numbered_key(number << 40)) == place);
}

TEST(BlockIndex, ErasesOnlyTheExpectedPlace) {
    BlockIndex index;
    index.put(digest_key(1), {.segment = 4, .slot = 5});
    EXPECT_FALSE(index.erase_if_at(digest_key(1), {.segment = 4, .slot = 6}));
    EXPECT_FALSE(index.erase_if_at(digest_key(2), {.segment = 4, .slot = 5}));
    EXPECT_TRUE(index.erase_if_at(digest_key(1), {.segment = 4, .slot = 5}));
    EXPECT_FALSE(index.find(digest_key(1)).has_value());
}

TEST(BlockIndex, TakesAtMost60BytesABlock) {
    BlockIndex index;
    for (std::uint64_t n = 0; n < 200'000; ++n) {
        index.put(digest_key(n), {.segment = 1, .slot = 2});
        if (n >= 50'000 && n % 10'000 == 0) {
            EXPECT_LE(index.memory_bytes(), index.size() * 60) << n;
        }
    }
}

TEST(BlockIndex, CountingKeysDoNotClog) {
    BlockIndex index;
    for (std::uint64_t n = 0; n < 100'000; ++n)
        index.put(numbered_key(n), {.segment = static_cast<std::uint32_t>(n), .slot = 0});
    std::size_t largest = 0;
    for (std::size_t shard = 0; shard < BlockIndex::kShards; ++shard)
        largest = std::max(largest, index.shard_size(shard));
    EXPECT_LT(largest, 2 * 100'000 / BlockIndex::kShards);
    for (std::uint64_t n = 0; n < 100'000; ++n)
        ASSERT_EQ(index.find(numbered_key(n))->segment, n);
}

}  // namespace
}  // namespace fathom
