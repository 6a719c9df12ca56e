#include "base/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace fathom {

namespace {

Status unreadable(std::string_view name, int code) {
    return error(code == ENOENT ? StatusCode::not_found : StatusCode::unavailable,
                 "{}: cannot be read: {}", name, std::strerror(code));
}

}  // namespace

Result<std::string> read_input_file(const std::string& path, std::uint64_t bytes_max) {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return unreadable(path, errno);
    Result<std::string> text = read_input(descriptor, path, bytes_max);
    ::close(descriptor);
    return text;
}

Result<std::string> read_input(int descriptor, std::string_view name, std::uint64_t bytes_max) {
    struct stat facts {};
    if (::fstat(descriptor, &facts) != 0) return unreadable(name, errno);
    if (S_ISDIR(facts.st_mode))
        return invalid_argument("{}: cannot be read: it is a folder, expected a file", name);
    std::string text;
    std::array<char, 65536> part;
    for (;;) {
        const ssize_t got = ::read(descriptor, part.data(), part.size());
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return unreadable(name, errno);
        if (got == 0) return text;
        if (text.size() + static_cast<std::size_t>(got) > bytes_max)
            return invalid_argument("{}: more than {} bytes, which is the limit", name, bytes_max);
        text.append(part.data(), static_cast<std::size_t>(got));
    }
}

}  // namespace fathom
