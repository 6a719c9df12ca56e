// Numbers and fields at fixed offsets of stored bytes, little-endian.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

namespace fathom {

static_assert(std::endian::native == std::endian::little, "stored numbers are little-endian");

// The offset and the size of T lie within `bytes`; the caller knows the layout.
template <typename T>
void store_le(std::span<std::uint8_t> bytes, std::size_t offset, const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::memcpy(bytes.data() + offset, &value, sizeof(T));
}

template <typename T>
T load_le(std::span<const std::uint8_t> bytes, std::size_t offset) {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    std::memcpy(&value, bytes.data() + offset, sizeof(T));
    return value;
}

inline bool all_zero(std::span<const std::uint8_t> bytes) {
    return bytes.empty() ||
           (bytes[0] == 0 && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

}  // namespace fathom
