#include "base/output_file.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

namespace fathom {

namespace {

namespace fs = std::filesystem;

bool replaced_whole(const std::string& path) {
    std::error_code ignored;
    const fs::file_status status = fs::status(path, ignored);
    return !fs::exists(status) || fs::is_regular_file(status);
}

// Where a symbolic link leads, so that the link stays.
fs::path target(const std::string& path) {
    std::error_code failed;
    fs::path real = fs::canonical(path, failed);
    return failed ? fs::path(path) : real;
}

// The one name of what would be written: links are followed also where they lead to nothing yet,
// since what is written first makes them lead somewhere.
fs::path one_name(const std::string& path) {
    constexpr int kLinksMax = 40;
    std::error_code failed;
    fs::path name = fs::absolute(path, failed);
    for (int i = 0; i < kLinksMax && fs::is_symlink(fs::symlink_status(name, failed)); ++i) {
        const fs::path to = fs::read_symlink(name, failed);
        if (failed) break;
        name = name.parent_path() / to;
    }
    const fs::path whole = fs::weakly_canonical(name, failed);
    return failed ? name.lexically_normal() : whole;
}

Status cannot(const std::string& path, const char* why) {
    return invalid_argument("{}: cannot be written: {}", path, why);
}

}  // namespace

Status check_output_path(const std::string& path) {
    std::error_code ignored;
    if (path.empty()) return invalid_argument("the path of an output is empty");
    if (fs::is_directory(path, ignored)) return cannot(path, "it is a folder");
    const bool exists = fs::exists(path, ignored);
    if (exists && ::access(path.c_str(), W_OK) != 0) return cannot(path, std::strerror(errno));
    if (exists && !replaced_whole(path)) return {};
    const fs::path folder = fs::absolute(target(path), ignored).parent_path();
    if (::access(folder.c_str(), W_OK | X_OK) != 0) return cannot(path, std::strerror(errno));
    return {};
}

Status check_output_is_no_input(const std::string& path, std::span<const std::string> inputs) {
    for (const std::string& input : inputs) {
        std::error_code ignored;
        if (path == input || fs::equivalent(path, input, ignored))
            return invalid_argument("{}: would be written over, but it is read; name another file",
                                    path);
    }
    return {};
}

Status check_outputs_differ(std::span<const std::string> paths) {
    std::vector<fs::path> names;
    for (const std::string& path : paths) {
        names.push_back(path.empty() ? fs::path() : one_name(path));
        for (std::size_t i = 0; !path.empty() && i + 1 < names.size(); ++i) {
            if (names[i] != names.back()) continue;
            if (paths[i] == path) return invalid_argument("{}: is named for two outputs", path);
            return invalid_argument("{}: is named for two outputs, it is {} as well", path,
                                    paths[i]);
        }
    }
    return {};
}

Status write_output_file(const std::string& path, std::string_view text) {
    const bool whole = replaced_whole(path);
    const fs::path to = whole ? target(path) : fs::path(path);
    const std::string written =
        whole ? fmt::format("{}.{}.partial", to.string(), ::getpid()) : path;
    std::ofstream file(written, std::ios::binary | std::ios::trunc);
    file.write(text.data(), static_cast<std::streamsize>(text.size()));
    file.close();
    const int code = errno;
    std::error_code failed;
    if (file.good() && whole) fs::rename(written, to, failed);
    if (file.good() && !failed) return {};
    std::error_code ignored;
    if (whole) fs::remove(written, ignored);
    return cannot(path, failed ? failed.message().c_str() : std::strerror(code));
}

}  // namespace fathom
