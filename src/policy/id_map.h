// Values by a 64-bit id that is looked up many times for each that comes or goes. One array of ids
// with linear probing, less than half of it taken, and the values beside it in the order in which
// places became free: finding one that is not there reads one line of memory.
//
// References stay valid until the next insertion.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"

namespace fathom {

template <typename T>
class IdMap {
  public:
    std::size_t size() const { return values_.size() - free_.size(); }
    bool contains(std::uint64_t id) const { return slots_[place_of(id)].value != kNone; }
    // Null when there is none.
    T* find(std::uint64_t id) {
        const Slot& slot = slots_[place_of(id)];
        return slot.value == kNone ? nullptr : &values_[slot.value];
    }
    const T* find(std::uint64_t id) const { return const_cast<IdMap*>(this)->find(id); }
    // Of an id that is there.
    T& at(std::uint64_t id) {
        T* found = find(id);
        FATHOM_CHECK(found != nullptr);
        return *found;
    }
    const T& at(std::uint64_t id) const { return const_cast<IdMap*>(this)->at(id); }

    // Into the cache, for the one who will soon look them up: a few at a time.
    void prefetch(std::span<const std::uint64_t> ids) const {
        for (const std::uint64_t id : ids)
            __builtin_prefetch(&slots_[home_of(id)]);
        for (const std::uint64_t id : ids) {
            const T* found = find(id);
            const auto* begin = reinterpret_cast<const char*>(found);
            for (std::size_t at = 0; found != nullptr && at < sizeof(T); at += 64)
                __builtin_prefetch(begin + at, 1);
        }
    }

    // False, and nothing changes, when the id is there already.
    bool insert(std::uint64_t id, T value) {
        if (2 * (size() + 1) > slots_.size()) grow();
        Slot& slot = slots_[place_of(id)];
        if (slot.value != kNone) return false;
        slot.id = id;
        if (free_.empty()) {
            slot.value = static_cast<std::uint32_t>(values_.size());
            values_.push_back(std::move(value));
        } else {
            slot.value = free_.back();
            free_.pop_back();
            values_[slot.value] = std::move(value);
        }
        return true;
    }
    // Of an id that is there.
    void erase(std::uint64_t id) {
        std::size_t hole = place_of(id);
        FATHOM_CHECK(slots_[hole].value != kNone);
        free_.push_back(slots_[hole].value);
        // Those behind it that would no longer be found move up.
        for (std::size_t at = next(hole); slots_[at].value != kNone; at = next(at)) {
            const std::size_t mask = slots_.size() - 1;
            if (((at - home_of(slots_[at].id)) & mask) < ((at - hole) & mask)) continue;
            slots_[hole] = slots_[at];
            hole = at;
        }
        slots_[hole].value = kNone;
    }
    // In an order that means nothing.
    template <typename Visit>
    void for_each(Visit visit) const {
        for (const Slot& slot : slots_)
            if (slot.value != kNone) visit(values_[slot.value]);
    }

  private:
    static constexpr std::uint32_t kNone = ~std::uint32_t{0};
    struct Slot {
        std::uint64_t id = 0;
        std::uint32_t value = kNone;
    };

    std::size_t next(std::size_t place) const { return (place + 1) & (slots_.size() - 1); }
    std::size_t home_of(std::uint64_t id) const {
        id = (id ^ id >> 32) * 0x9e3779b97f4a7c15;
        return static_cast<std::size_t>(id ^ id >> 32) & (slots_.size() - 1);
    }
    // Where the id is, or would be put.
    std::size_t place_of(std::uint64_t id) const {
        std::size_t place = home_of(id);
        while (slots_[place].value != kNone && slots_[place].id != id)
            place = next(place);
        return place;
    }
    void grow() {
        std::vector<Slot> before(2 * slots_.size());
        std::swap(before, slots_);
        for (const Slot& slot : before)
            if (slot.value != kNone) slots_[place_of(slot.id)] = slot;
    }

    std::vector<Slot> slots_ = std::vector<Slot>(16);
    std::vector<T> values_;
    std::vector<std::uint32_t> free_;
};

}  // namespace fathom
