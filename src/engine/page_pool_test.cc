#include "engine/page_pool.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <set>

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
    EXPECT_EQ(pool.free_pages(), 0);
}

TEST(PagePool, AgreesWithASetOfTakenPages) {
    EXPECT_TRUE(rc::check([] {
        const auto pages = *rc::gen::inRange<std::int64_t>(1, 9);
        PagePool pool(layout(), pages);
        std::set<std::uint32_t> taken;
        for (const int action : *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 16))) {
            if (action >= 8) {
                const std::optional<PageId> page = pool.take();
                RC_ASSERT(page.has_value() == (static_cast<std::int64_t>(taken.size()) < pages));
                if (!page.has_value()) continue;
                for (std::uint32_t lower = 0; lower < page->value; ++lower)
                    RC_ASSERT(taken.contains(lower));
                RC_ASSERT(taken.insert(page->value).second);
            } else if (taken.erase(static_cast<std::uint32_t>(action)) > 0) {
                pool.release(PageId(static_cast<std::uint32_t>(action)));
            }
            RC_ASSERT(pool.free_pages() == pages - static_cast<std::int64_t>(taken.size()));
        }
    }));
}

TEST(PagePoolDeathTest, APageIsReleasedOnce) {
    PagePool pool(layout(), 2);
    const PageId page = *pool.take();
    pool.release(page);
    EXPECT_DEATH(pool.release(page), "a page is released once");
}

}  // namespace
}  // namespace fathom
