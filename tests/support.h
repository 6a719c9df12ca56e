// Where test data lie. Golden results and traces are not part of the repository: they are looked
// for in $FATHOM_SHARED, else in ../shared beside the checkout. Tests that need them call
// FATHOM_NEED_SHARED first, which skips with a message when they are absent.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace fathom::testing {

inline std::string shared_path(const std::string& relative) {
    const char* env = std::getenv("FATHOM_SHARED");
    const std::string root = env != nullptr ? env : FATHOM_SOURCE_DIR "/../shared";
    return root + "/" + relative;
}

inline std::string source_path(const std::string& relative) {
    return std::string(FATHOM_SOURCE_DIR "/") + relative;
}

}  // namespace fathom::testing

#define FATHOM_NEED_SHARED(relative)                                                           \
    do {                                                                                       \
        if (!std::filesystem::exists(::fathom::testing::shared_path(relative)))                \
            GTEST_SKIP() << "needs shared data: " << ::fathom::testing::shared_path(relative); \
    } while (false)
