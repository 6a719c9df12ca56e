// A priority queue whose nodes have four children: half as deep as a binary heap, and the children
// lie beside each other in memory, which is what taking the first costs when it is cold.
//
// Equal elements leave in an order that depends on how they came: Before should be a total order
// wherever a result could depend on it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace fathom {

template <typename T, typename Before>
class QuadHeap {
  public:
    bool empty() const { return items_.empty(); }
    std::size_t size() const { return items_.size(); }
    const T& top() const { return items_.front(); }  // of one that is not empty
    void clear() { items_.clear(); }

    void push(T item) {
        std::size_t at = items_.size();
        items_.push_back(item);
        while (at > 0) {
            const std::size_t parent = (at - 1) / 4;
            if (!Before()(item, items_[parent])) break;
            items_[at] = items_[parent];
            at = parent;
        }
        items_[at] = std::move(item);
    }

    void pop() {  // of one that is not empty
        const T item = std::move(items_.back());
        items_.pop_back();
        if (!items_.empty()) sink(0, item);
    }

    // Into the cache, for a pop() or push() that comes soon: the upper levels and the end.
    void prefetch() const {
        const auto* begin = reinterpret_cast<const char*>(items_.data());
        for (std::size_t at = 0; at < kPrefetchBytes; at += 64)
            __builtin_prefetch(begin + at, 1);
        __builtin_prefetch(begin + items_.size() * sizeof(T), 1);
    }

    // In an order that means nothing. Whoever changes what Before looks at calls rebuild().
    std::vector<T>& items() { return items_; }
    const std::vector<T>& items() const { return items_; }
    void rebuild() {
        for (std::size_t at = items_.size() / 4 + 1; at-- > 0;)
            if (at < items_.size()) sink(at, T(items_[at]));
    }

  private:
    static constexpr std::size_t kPrefetchBytes = 320;
    void sink(std::size_t at, const T& item) {
        const std::size_t size = items_.size();
        for (std::size_t child = 4 * at + 1; child < size; child = 4 * at + 1) {
            const std::size_t end = std::min(child + 4, size);
            std::size_t least = child;
            for (std::size_t i = child + 1; i < end; ++i)
                if (Before()(items_[i], items_[least])) least = i;
            if (!Before()(items_[least], item)) break;
            items_[at] = items_[least];
            at = least;
        }
        items_[at] = item;
    }

    std::vector<T> items_;
};

}  // namespace fathom
