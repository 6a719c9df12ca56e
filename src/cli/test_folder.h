// For tests: where their files lie. ctest runs the tests of one program in many processes at once.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace fathom {

// A folder of this process, with a slash at its end; it goes when the process does.
inline const std::string& test_folder() {
    struct Folder {
        std::string path = ::testing::TempDir() + "fathom_test_" + std::to_string(getpid()) + "/";
        Folder() { std::filesystem::create_directories(path); }
        ~Folder() {
            std::error_code ignored;
            std::filesystem::remove_all(path, ignored);
        }
    };
    static const Folder folder;
    return folder.path;
}

}  // namespace fathom
