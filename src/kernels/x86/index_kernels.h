// Index scores of one level (ops.h). Plain structs and pointers only: level/ includes this.
//
// Queries and keys are MXFP4, so a dot product over a group of 32 is an integer: of the doubled
// codes (±12), the key's shifted by 12 to be unsigned, which `start` corrects.
#pragma once

#include <cstdint>

namespace fathom::x86 {

inline constexpr std::int64_t kIndexKeys = 32;  // of one call of `score`

// One query, prepared.
struct IndexQuery {
    std::int64_t heads = 0, groups = 0;
    std::int8_t* codes = nullptr;    // [groups, heads, 32], doubled
    std::int32_t* start = nullptr;   // [groups, heads]: -12 · the sum of the codes
    float* scale = nullptr;          // [groups, heads]: a quarter of the group's scale
    const float* weights = nullptr;  // [heads]
    void* memory = nullptr;          // memory_bytes, aligned to 64
};

struct IndexKernels {
    std::int64_t (*memory_bytes)(std::int64_t heads, std::int64_t groups);
    // Fills codes, start and scale from a row that went through the index round trip. False where a
    // scale is near the ends of fp32's range: `score` cannot take the query then.
    bool (*prepare)(const std::uint16_t* q, const IndexQuery& query);
    // Scores of `count` <= kIndexKeys keys. A bit of the result names a key whose scales are near
    // the ends of fp32's range; its score is not valid.
    std::uint32_t (*score)(const IndexQuery& query, const std::uint8_t* const* values,
                           const std::uint8_t* const* scales, std::int64_t count, float* out);
};

namespace avx2 {
const IndexKernels& index_kernels();
}
namespace avx512 {
const IndexKernels& index_kernels();
}

}  // namespace fathom::x86
