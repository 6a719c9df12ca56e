// For tests: the levels that this machine runs, and back ends by name.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "kernels/x86/create.h"

namespace fathom::x86 {

inline std::vector<std::string> level_names() {
    std::vector<std::string> list;
    for (const Level level : {Level::avx2, Level::avx512}) {
        if (check_level(level).ok()) list.push_back(std::string("x86-") + level_name(level));
    }
    return list;
}

inline std::unique_ptr<Backend> open_backend(const std::string& name, int threads) {
    auto b = make_backend(name, std::make_shared<ComputePool>(threads));
    FATHOM_CHECK(b.ok());
    return std::move(*b);
}

}  // namespace fathom::x86
