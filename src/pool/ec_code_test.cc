#include "pool/ec_code.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/random.h"

namespace fathom {
namespace {

TEST(EcCode, ReadsItsShape) {
    const auto shape = parse_ec_shape("10+2");
    ASSERT_TRUE(shape.ok());
    EXPECT_EQ(*shape, (EcShape{10, 2}));
    for (const char* bad : {"", "4", "4+", "+2", "4+2 ", "0+1", "4+0", "33+1", "4+9", "4-2",
                            "99999999999+1", "4+2+1"})
        EXPECT_FALSE(parse_ec_shape(bad).ok()) << bad;
}

// Every shard from every choice of k others, for shapes small enough to go through all of them.
TEST(EcCode, AnyKShardsGiveEveryOther) {
    constexpr std::int64_t kBytes = 96;
    for (const EcShape shape : {EcShape{1, 1}, EcShape{2, 1}, EcShape{4, 2}, EcShape{3, 3}}) {
        const auto n = static_cast<std::size_t>(shape.shards());
        const auto k = static_cast<std::size_t>(shape.k);
        std::vector<std::vector<std::uint8_t>> shards(n);
        std::uint64_t seed = 1;
        for (auto& shard : shards) {
            RandomStream random(seed++);
            for (std::int64_t i = 0; i < kBytes; ++i)
                shard.push_back(static_cast<std::uint8_t>(random.next_u64()));
        }
        std::vector<const std::uint8_t*> data;
        std::vector<std::uint8_t*> parity;
        for (std::size_t i = 0; i < n; ++i) {
            if (i < k)
                data.push_back(shards[i].data());
            else
                parity.push_back(shards[i].data());
        }
        const EcCode code(shape);
        code.encode(data, parity, kBytes);
        std::vector<bool> chosen(n, false);
        std::fill(chosen.end() - shape.k, chosen.end(), true);
        do {
            std::vector<int> sources;
            std::vector<const std::uint8_t*> from;
            for (std::size_t i = 0; i < n; ++i) {
                if (!chosen[i]) continue;
                sources.push_back(static_cast<int>(i));
                from.push_back(shards[i].data());
            }
            for (std::size_t target = 0; target < n; ++target) {
                std::vector<std::uint8_t> out(kBytes);
                code.rebuild(static_cast<int>(target), sources, from, out.data(), kBytes);
                ASSERT_EQ(out, shards[target]) << shape.k << "+" << shape.m << " " << target;
            }
        } while (std::next_permutation(chosen.begin(), chosen.end()));
    }
}

}  // namespace
}  // namespace fathom
