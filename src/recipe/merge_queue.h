// The pairs of a long word that may be merged, by rank and place: the smallest first. A radix heap:
// keys lie in buckets by the highest bit in which they differ from the key that was taken last, so
// that a bucket is read and written in order, where a binary heap of millions jumps about in
// memory.
//
// A radix heap needs keys that are no smaller than the last one taken. A vocabulary whose merges
// stand in the order in which they were learned gives no others; those of any other vocabulary lie
// in a binary heap beside it.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace fathom {

class MergeQueue {
  public:
    bool empty() const { return filled_ == 0 && early_.empty(); }

    void clear() {
        for (std::vector<std::uint64_t>& bucket : buckets_)
            bucket.clear();
        early_.clear();
        filled_ = 0;
        last_ = 0;
    }

    void push(std::uint64_t key) {
        if (key >= last_) return put(key);
        early_.push_back(key);
        std::push_heap(early_.begin(), early_.end(), std::greater<>());
    }

    // The smallest key, which is taken out. There must be one.
    std::uint64_t pop() {
        if (!early_.empty()) {
            std::pop_heap(early_.begin(), early_.end(), std::greater<>());
            const std::uint64_t key = early_.back();
            early_.pop_back();
            return key;
        }
        if ((filled_ & 1) == 0) refill();
        buckets_[0].pop_back();
        if (buckets_[0].empty()) filled_ &= ~std::uint64_t{1};
        return last_;
    }

  private:
    // Bucket 0 holds keys equal to last_, bucket i those whose highest differing bit is i - 1.
    static constexpr std::size_t kBuckets = 64;  // keys are below 2⁶³

    void put(std::uint64_t key) {
        const auto bucket = static_cast<std::size_t>(std::bit_width(key ^ last_));
        buckets_[bucket].push_back(key);
        filled_ |= std::uint64_t{1} << bucket;
    }

    // All keys of the first bucket that has some go to buckets before it.
    void refill() {
        const auto first = static_cast<std::size_t>(std::countr_zero(filled_));
        std::vector<std::uint64_t>& bucket = buckets_[first];
        last_ = *std::min_element(bucket.begin(), bucket.end());
        filled_ &= ~(std::uint64_t{1} << first);
        for (const std::uint64_t key : bucket)
            put(key);
        bucket.clear();
    }

    std::array<std::vector<std::uint64_t>, kBuckets> buckets_;
    std::uint64_t filled_ = 0;  // bits of buckets that are not empty
    std::uint64_t last_ = 0;
    std::vector<std::uint64_t> early_;
};

}  // namespace fathom
