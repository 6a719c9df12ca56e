// Per-thread memory that outlives calls, so that operators of the CPU back ends do not allocate in
// steady state.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace fathom {

// A growing aligned buffer. Its content does not survive growth.
class ScratchBuffer {
  public:
    void* get(std::size_t bytes) {
        if (bytes > bytes_) {
            bytes_ = std::max(bytes, bytes_ + bytes_ / 2);
            memory_.reset(static_cast<std::byte*>(::operator new[](bytes_, kAlignment)));
        }
        return memory_.get();
    }

  private:
    static constexpr std::align_val_t kAlignment{64};
    struct Free {
        void operator()(std::byte* p) const { ::operator delete[](p, kAlignment); }
    };
    std::unique_ptr<std::byte[], Free> memory_;
    std::size_t bytes_ = 0;
};

// At least `count` elements of this thread's memory for Tag, aligned to 64 bytes. Every use that
// may be alive at the same time as another has its own Tag: any local struct.
template <class Tag, class T = float>
T* scratch(std::int64_t count) {
    thread_local ScratchBuffer buffer;
    return static_cast<T*>(buffer.get(static_cast<std::size_t>(count) * sizeof(T)));
}

}  // namespace fathom
