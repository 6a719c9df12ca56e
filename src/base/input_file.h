// Files that a user names, read whole: regular files, pipes and devices. What cannot be read is an
// error that names the file, whatever the name stands for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace fathom {

inline constexpr std::uint64_t kInputFileBytesMax = std::uint64_t{2} << 30;

// All bytes of `path`. Errors: not_found, invalid_argument for a folder or for more than bytes_max
// bytes, unavailable when the system refuses to open or to read it.
Result<std::string> read_input_file(const std::string& path,
                                    std::uint64_t bytes_max = kInputFileBytesMax);

// The same of an open descriptor, from where it stands to its end; `name` is for messages. It stays
// open.
Result<std::string> read_input(int descriptor, std::string_view name,
                               std::uint64_t bytes_max = kInputFileBytesMax);

}  // namespace fathom
