#include "engine/page_pool.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <map>
#include <thread>

#include "engine/marker_model.h"

namespace fathom {
namespace {

const KvLayout& layout() {
    static const testing::MarkerModel model;
    return model.kv_layout();
}

std::vector<PageId> take(PagePool& pool, int count) {
    std::vector<PageId> pages;
    for (int i = 0; i < count; ++i)
        pages.push_back(*pool.take());
    return pages;
}

TEST(PagePool, HandsOutTheLowestFreePage) {
    PagePool pool(layout(), 4);
    EXPECT_EQ(take(pool, 3), (std::vector{PageId(0), PageId(1), PageId(2)}));
    pool.release(PageId(1));
    pool.release(PageId(0));
    EXPECT_EQ(take(pool, 3), (std::vector{PageId(0), PageId(1), PageId(3)}));
    EXPECT_FALSE(pool.take().has_value());
    EXPECT_EQ(pool.used_pages(), 4);
}

TEST(PagePool, AgreesWithPlainReferenceCounts) {
    EXPECT_TRUE(rc::check([] {
        const auto pages = *rc::gen::inRange<std::int64_t>(1, 9);
        PagePool pool(layout(), pages);
        std::map<std::uint32_t, int> counts;
        for (const int action : *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 24))) {
            const auto id = static_cast<std::uint32_t>(action % 8);
            if (action >= 16) {
                const std::optional<PageId> page = pool.take();
                RC_ASSERT(page.has_value() == (static_cast<std::int64_t>(counts.size()) < pages));
                if (!page.has_value()) continue;
                for (std::uint32_t lower = 0; lower < page->value; ++lower)
                    RC_ASSERT(counts.contains(lower));
                RC_ASSERT(counts.emplace(page->value, 1).second);
            } else if (counts.contains(id)) {
                if (action < 8) {
                    pool.retain(PageId(id));
                    ++counts[id];
                } else {
                    pool.release(PageId(id));
                    if (--counts[id] == 0) counts.erase(id);
                }
            }
            RC_ASSERT(pool.used_pages() == static_cast<std::int64_t>(counts.size()));
        }
        for (const auto& [id, count] : counts)
            RC_ASSERT(pool.references(PageId(id)) == count);
    }));
}

TEST(PagePool, APrefixKeepsItsPagesAndThePoolAlive) {
    auto pool = std::make_shared<PagePool>(layout(), 3);
    std::vector<PageId> pages = take(*pool, 2);
    auto prefix = std::make_shared<const Prefix>(pool, testing::make_ids(256, 1),
                                                 std::vector<std::uint8_t>(), pages, std::nullopt);
    for (const PageId page : pages)
        pool->release(page);
    EXPECT_EQ(pool->used_pages(), 2);
    std::weak_ptr<PagePool> watch = pool;
    pool.reset();
    ASSERT_FALSE(watch.expired());
    std::thread([&] { prefix.reset(); }).join();
    EXPECT_TRUE(watch.expired());
}

TEST(PagePool, APrefixMayBeDroppedOnAnotherThreadWhilePagesAreTaken) {
    auto pool = std::make_shared<PagePool>(layout(), 64);
    for (int round = 0; round < 50; ++round) {
        const std::vector<PageId> pages = take(*pool, 8);
        auto prefix = std::make_shared<const Prefix>(
            pool, testing::make_ids(8 * 128, 1), std::vector<std::uint8_t>(), pages, std::nullopt);
        for (const PageId page : pages)
            pool->release(page);
        std::thread dropper([prefix = std::move(prefix)]() mutable { prefix.reset(); });
        for (const PageId page : take(*pool, 16))
            pool->release(page);
        dropper.join();
        ASSERT_EQ(pool->used_pages(), 0);
    }
}

}  // namespace
}  // namespace fathom
