// The events of a simulation in the order of their virtual time; of equal times, in the order of
// their insertion, so that a run never depends on how the queue is built. Time is integer
// nanoseconds and does not go back: an event in the past is a programmer's error.
//
// A calendar: time is cut into days of equal width, and one list of events is kept for each of the
// next N days; events beyond them wait in a heap until their day comes into reach. Only the events
// of the current day are sorted (a small heap), so inserting and taking cost a few instructions
// each, however many events wait.
//
//   current day (heap) │ day+1 │ day+2 │ … │ day+N−1 │ far events (heap)
//
// One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace fathom {

using SimTime = std::int64_t;  // nanoseconds since the run began

// 24 bytes. What kind, subject and detail mean is the caller's.
struct SimEvent {
    SimTime time_ns = 0;
    std::uint32_t number = 0;  // of insertion, modulo 2^32: equal times are never that far apart
    std::uint32_t kind = 0;
    std::uint32_t subject = 0;
    std::uint32_t detail = 0;
};

class EventQueue {
  public:
    // Days of 2^day_bits nanoseconds, 2^year_bits of them. The defaults suit 10^5 events a second.
    explicit EventQueue(int day_bits = 16, int year_bits = 12);

    // time_ns >= now_ns().
    void push(SimTime time_ns, std::uint32_t kind, std::uint32_t subject, std::uint32_t detail = 0);
    // The next event, and its time becomes now; false when there is none.
    bool pop(SimEvent& event);
    // For those who fetch early what events need: a number that changes when a new day begins, and
    // the events that are known of it and of the next one, in an order that means nothing.
    std::int64_t day() const { return day_; }
    std::span<const SimEvent> today() const { return today_; }
    std::span<const SimEvent> next_day() const { return days_[slot_of(day_ + 1)]; }

    SimTime now_ns() const { return now_ns_; }
    bool empty() const { return size_ == 0; }
    std::size_t size() const { return size_; }

  private:
    std::int64_t day_of(SimTime time_ns) const { return time_ns >> day_bits_; }
    std::size_t slot_of(std::int64_t day) const { return static_cast<std::size_t>(day) & mask_; }
    void open_next_day();
    std::int64_t next_listed_day() const;
    void list(const SimEvent& event);

    int day_bits_;
    std::size_t mask_;
    std::vector<std::vector<SimEvent>> days_;
    std::vector<std::uint64_t> listed_;  // a bit for each list that is not empty
    std::vector<SimEvent> today_, far_;  // heaps
    std::int64_t day_ = 0;
    std::size_t size_ = 0, listed_size_ = 0;
    std::uint32_t number_ = 0;
    SimTime now_ns_ = 0;
};

}  // namespace fathom
