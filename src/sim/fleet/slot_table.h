// Things by slot. In a large fleet they lie all over hundreds of megabytes, where looking up pages
// of 4 KiB costs as much as reading them, so they are kept in huge pages and never move.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "base/check.h"
#include "base/huge_memory.h"

namespace fathom {

template <typename T>
class SlotTable {
  public:
    SlotTable() = default;
    SlotTable(const SlotTable&) = delete;
    SlotTable& operator=(const SlotTable&) = delete;
    ~SlotTable() {
        for (std::size_t slot = 0; slot < size_; ++slot)
            (*this)[slot].~T();
    }

    std::size_t size() const { return size_; }
    T& operator[](std::size_t slot) { return parts_[slot >> kPartBits][slot & kMask]; }
    const T& operator[](std::size_t slot) const { return parts_[slot >> kPartBits][slot & kMask]; }
    void add() {
        if (size_ >> kPartBits == parts_.size()) {
            memory_.push_back(map_huge_memory(std::int64_t{sizeof(T)} << kPartBits));
            FATHOM_CHECK(memory_.back() != nullptr);
            parts_.push_back(reinterpret_cast<T*>(memory_.back().get()));
        }
        new (&(*this)[size_]) T();
        ++size_;
    }
    // Into the cache, for the one who will soon write it.
    void prefetch(std::size_t slot) const {
        const auto* begin = reinterpret_cast<const char*>(&(*this)[slot]);
        for (std::size_t at = 0; at < sizeof(T); at += 64)
            __builtin_prefetch(begin + at, 1);
    }

  private:
    static constexpr int kPartBits = 14;
    static constexpr std::size_t kMask = (std::size_t{1} << kPartBits) - 1;
    std::vector<std::shared_ptr<std::byte>> memory_;
    std::vector<T*> parts_;
    std::size_t size_ = 0;
};

}  // namespace fathom
