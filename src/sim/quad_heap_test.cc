#include "sim/quad_heap.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <functional>
#include <set>

namespace fathom {
namespace {

TEST(QuadHeap, EqualsASortedSetUnderAnyPushesAndPops) {
    rc::check([](const std::vector<int>& steps) {
        QuadHeap<int, std::less<>> heap;
        std::multiset<int> sorted;
        for (const int step : steps) {
            if (step % 3 == 0 && !sorted.empty()) {
                RC_ASSERT(heap.top() == *sorted.begin());
                heap.pop();
                sorted.erase(sorted.begin());
            } else {
                heap.push(step);
                sorted.insert(step);
            }
            heap.prefetch();
            RC_ASSERT(heap.size() == sorted.size());
        }
    });
}

TEST(QuadHeap, IsAHeapAgainWhenItsItemsWereChanged) {
    rc::check([](std::vector<int> items) {
        QuadHeap<int, std::less<>> heap;
        heap.items() = items;
        heap.rebuild();
        std::multiset<int> sorted(items.begin(), items.end());
        for (const int item : sorted) {
            RC_ASSERT(heap.top() == item);
            heap.pop();
        }
        RC_ASSERT(heap.empty());
    });
}

}  // namespace
}  // namespace fathom
