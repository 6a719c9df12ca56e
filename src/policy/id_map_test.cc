#include "policy/id_map.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <map>

namespace fathom {
namespace {

TEST(IdMap, HoldsWhatAnOrderedMapHolds) {
    EXPECT_TRUE(rc::check([] {
        IdMap<int> map;
        std::map<std::uint64_t, int> expected;
        for (int i = *rc::gen::inRange(0, 400); i > 0; --i) {
            const auto low = *rc::gen::inRange<std::uint64_t>(0, 40);
            const std::uint64_t id = *rc::gen::arbitrary<bool>() ? low : low << 32 | low;
            if (*rc::gen::inRange(0, 3) > 0) {
                RC_ASSERT(map.insert(id, i) == expected.emplace(id, i).second);
            } else if (map.contains(id)) {
                map.erase(id);
                expected.erase(id);
            }
            RC_ASSERT(map.size() == expected.size());
            RC_ASSERT(map.contains(id) == expected.contains(id));
        }
        for (const auto& [id, value] : expected)
            RC_ASSERT(map.at(id) == value);
        std::size_t seen = 0;
        map.for_each([&](int) { ++seen; });
        RC_ASSERT(seen == expected.size());
        RC_ASSERT(map.find(~std::uint64_t{0}) == nullptr);
    }));
}

}  // namespace
}  // namespace fathom
