// Stored KV and table rows: formats by the names of level/, and the way through base/formats.h for
// the rows that the kernels decline (cache_kernels.h).
#pragma once

#include "kernels/ops.h"
#include "kernels/x86/cache_kernels.h"

namespace fathom::x86 {

RowFormat row_format(KvFormat format);  // not f32

// Any row of any of the formats, as bf16.
void decode_exactly(RowFormat format, const std::uint8_t* values, const std::uint8_t* scales,
                    std::int64_t n, std::uint16_t* y);

// Brings the lines of [p, p + bytes) nearer.
inline void prefetch(const void* p, std::int64_t bytes) {
    constexpr std::int64_t kLine = 64;
    const char* begin = static_cast<const char*>(p);
    for (std::int64_t i = 0; i < bytes; i += kLine)
        __builtin_prefetch(begin + i);
    if (bytes > 0) __builtin_prefetch(begin + bytes - 1);
}

}  // namespace fathom::x86
