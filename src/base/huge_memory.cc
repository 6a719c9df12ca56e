#include "base/huge_memory.h"

#include <sys/mman.h>

namespace fathom {

namespace {
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kPage = 4096;
}  // namespace

std::shared_ptr<std::byte> map_huge_memory(std::int64_t bytes) {
    const std::size_t length = (static_cast<std::size_t>(bytes) + kPage - 1) / kPage * kPage;
    void* mapped = mmap(nullptr, length + kHugePage, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) return nullptr;
    auto* begin = static_cast<std::byte*>(mapped);
    const std::size_t head =
        (kHugePage - reinterpret_cast<std::uintptr_t>(begin) % kHugePage) % kHugePage;
    if (head > 0) munmap(begin, head);
    munmap(begin + head + length, kHugePage - head);
    (void)madvise(begin + head, length, MADV_HUGEPAGE);  // only a wish
    return {begin + head, [length](std::byte* p) { munmap(p, length); }};
}

}  // namespace fathom
