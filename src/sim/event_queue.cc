#include "sim/event_queue.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace fathom {
namespace {

constexpr std::size_t kWordBits = 64;

// For heaps with the earliest event on top.
struct Later {
    bool operator()(const SimEvent& a, const SimEvent& b) const {
        if (a.time_ns != b.time_ns) return a.time_ns > b.time_ns;
        return static_cast<std::int32_t>(a.number - b.number) > 0;
    }
};

}  // namespace

EventQueue::EventQueue(int day_bits, int year_bits)
    : day_bits_(day_bits), mask_((std::size_t{1} << year_bits) - 1) {
    FATHOM_CHECK(day_bits >= 0 && day_bits < 40 && year_bits >= 6 && year_bits <= 20);
    days_.resize(mask_ + 1);
    listed_.resize((mask_ + 1) / kWordBits);
}

void EventQueue::push(SimTime time_ns, std::uint32_t kind, std::uint32_t subject,
                      std::uint32_t detail) {
    FATHOM_CHECK(time_ns >= now_ns_);
    const SimEvent event{time_ns, number_++, kind, subject, detail};
    ++size_;
    const std::int64_t day = day_of(time_ns);
    if (day <= day_) {
        today_.push_back(event);
        std::push_heap(today_.begin(), today_.end(), Later());
    } else if (day - day_ <= static_cast<std::int64_t>(mask_)) {
        list(event);
    } else {
        far_.push_back(event);
        std::push_heap(far_.begin(), far_.end(), Later());
    }
}

void EventQueue::list(const SimEvent& event) {
    const std::size_t slot = slot_of(day_of(event.time_ns));
    days_[slot].push_back(event);
    listed_[slot / kWordBits] |= std::uint64_t{1} << slot % kWordBits;
    ++listed_size_;
}

bool EventQueue::pop(SimEvent& event) {
    if (size_ == 0) return false;
    if (today_.empty()) open_next_day();
    std::pop_heap(today_.begin(), today_.end(), Later());
    event = today_.back();
    today_.pop_back();
    --size_;
    now_ns_ = event.time_ns;
    return true;
}

// The day after day_ whose list is not empty; there is one.
std::int64_t EventQueue::next_listed_day() const {
    const std::size_t begin = slot_of(day_ + 1);
    const std::size_t words = listed_.size();
    for (std::size_t i = 0; i <= words; ++i) {
        const std::size_t at = (begin / kWordBits + i) % words;
        std::uint64_t word = listed_[at];
        if (i == 0) word &= ~std::uint64_t{0} << begin % kWordBits;
        if (word == 0) continue;
        const std::size_t slot = at * kWordBits + static_cast<std::size_t>(std::countr_zero(word));
        return day_ + 1 + static_cast<std::int64_t>((slot - begin) & mask_);
    }
    FATHOM_CHECK(false);
    return 0;
}

void EventQueue::open_next_day() {
    day_ = listed_size_ > 0 ? next_listed_day() : day_of(far_.front().time_ns);
    const std::size_t slot = slot_of(day_);
    std::swap(today_, days_[slot]);
    listed_size_ -= today_.size();
    listed_[slot / kWordBits] &= ~(std::uint64_t{1} << slot % kWordBits);
    while (!far_.empty() &&
           day_of(far_.front().time_ns) - day_ <= static_cast<std::int64_t>(mask_)) {
        std::pop_heap(far_.begin(), far_.end(), Later());
        const SimEvent event = far_.back();
        far_.pop_back();
        if (day_of(event.time_ns) == day_)
            today_.push_back(event);
        else
            list(event);
    }
    std::make_heap(today_.begin(), today_.end(), Later());
}

}  // namespace fathom
