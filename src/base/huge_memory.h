// Memory in huge pages, as far as the system has any: weights and KV pages are read all over, and
// on a virtual machine looking up where pages of 4 KiB lie can cost more than reading them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace fathom {

// Zeroed memory that begins on a huge page; taken from the machine when first written. The last
// page is not rounded up. Null when the address space or the machine's limits do not allow it.
std::shared_ptr<std::byte> map_huge_memory(std::int64_t bytes);

}  // namespace fathom
