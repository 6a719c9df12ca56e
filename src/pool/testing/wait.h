// Waiting for a call that must end: one that does not is a fault that no test may sit out.
#pragma once

#include <fmt/core.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <future>

namespace fathom::testing {

inline constexpr std::chrono::seconds kHangs{60};

template <typename T>
T await(std::promise<T>& promise, const char* what, std::uint64_t seed) {
    std::future<T> future = promise.get_future();
    if (future.wait_for(kHangs) != std::future_status::ready) {
        fmt::print(stderr, "seed {}: a {} does not end\n", seed, what);
        std::abort();
    }
    return future.get();
}

}  // namespace fathom::testing
