#include "gateway/random_id.h"

#include <fmt/core.h>

#include <random>

namespace fathom {

std::string random_uuid() {
    std::random_device device;
    const auto draw = [&device] { return static_cast<std::uint32_t>(device()); };
    const std::uint32_t time_low = draw();
    const std::uint32_t middle = draw();
    const std::uint32_t node_high = draw();
    const std::uint32_t node_low = draw();
    return fmt::format("{:08x}-{:04x}-4{:03x}-{:04x}-{:04x}{:08x}", time_low, middle >> 16,
                       middle & 0xfff, 0x8000 | (node_high >> 18), node_high & 0xffff, node_low);
}

std::uint64_t random_seed() {
    std::random_device device;
    return ((std::uint64_t{device()} << 32) | device()) >> 1;
}

}  // namespace fathom
