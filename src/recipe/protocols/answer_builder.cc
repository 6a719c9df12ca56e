#include "recipe/protocols/answer_builder.h"

#include <fmt/core.h>

#include "base/random.h"

namespace fathom {

CallIds random_call_ids(std::uint64_t seed) {
    return [seed](std::int64_t index) {
        constexpr std::string_view kSymbols =
            "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
        constexpr std::size_t kLength = 24;
        constexpr std::size_t kDigits = 4;  // the last ones are digits
        std::string id = fmt::format("call_{:02}_", index & 0xFFFF'FFFF);
        for (std::size_t i = 0; i < kLength; ++i) {
            const bool digit = i >= kLength - kDigits;
            const std::uint32_t bits = random_bits({.seed = seed,
                                                    .purpose = RandomPurpose::call_id,
                                                    .index = static_cast<std::uint64_t>(index),
                                                    .block = static_cast<std::uint32_t>(i)})[0];
            id += digit ? static_cast<char>('0' + bits % 10) : kSymbols[bits % kSymbols.size()];
        }
        return id;
    };
}

}  // namespace fathom
