// Software prefetch for panels read as one stream: one line for each line consumed, some kilobytes
// ahead, is worth a third of the bandwidth to a kernel that also computes (cpu-kernels.md 2.2).
#pragma once

#include "kernels/x86/level/vec.h"

namespace fathom::x86::FATHOM_X86_LEVEL {

inline void prefetch(const std::uint8_t* p) {
    _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0);
}

// Maps a place of the current stream to the one that is fetched meanwhile: kAheadBytes further on,
// past the end in the stream that follows (the same one again without it).
class Ahead {
  public:
    Ahead(const std::uint8_t* begin, std::int64_t bytes, const std::uint8_t* next)
        : last_(address(begin) + static_cast<std::uintptr_t>(bytes) - kAheadBytes),
          to_next_(address(next != nullptr ? next : begin) - address(begin) -
                   static_cast<std::uintptr_t>(bytes)) {}

    const std::uint8_t* of(const std::uint8_t* place) const {
        const std::uintptr_t at = address(place);
        return reinterpret_cast<const std::uint8_t*>(at + kAheadBytes +
                                                     (at < last_ ? 0 : to_next_));
    }

  private:
    // Addresses as numbers: what is fetched may lie outside every object.
    static std::uintptr_t address(const std::uint8_t* p) {
        return reinterpret_cast<std::uintptr_t>(p);
    }

    static constexpr std::uintptr_t kAheadBytes = 5120;
    std::uintptr_t last_;
    std::uintptr_t to_next_;
};

}  // namespace fathom::x86::FATHOM_X86_LEVEL
