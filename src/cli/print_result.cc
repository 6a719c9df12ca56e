#include "cli/print_result.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace fathom {

// Past the buffer of stdio: what it could not write it keeps, and would fail with again at exit.
Status print_result(std::string_view text) {
    const auto failed = [] {
        return error(StatusCode::unavailable, "standard output cannot be written: {}",
                     std::strerror(errno));
    };
    if (std::fflush(stdout) != 0) return failed();
    while (!text.empty()) {
        const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return failed();
        text.remove_prefix(static_cast<std::size_t>(written));
    }
    return {};
}

}  // namespace fathom
