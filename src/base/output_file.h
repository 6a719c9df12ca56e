// Files of results: whole, or as they were before. Long work checks its path first, so that it does
// not fail at its end.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace fathom {

// invalid_argument when `path` could not be written: its folder is absent or forbids it, it is a
// folder, or a file that forbids it.
Status check_output_path(const std::string& path);

// invalid_argument when `path` is one of the files that are read.
Status check_output_is_no_input(const std::string& path, std::span<const std::string> inputs);

// invalid_argument when two of the paths, however they are written, are one file; those that are
// empty are none.
Status check_outputs_differ(std::span<const std::string> paths);

// Writes a file beside `path` and renames it; what is no regular file (a pipe, /dev/stdout) is
// written in place. invalid_argument when that fails, and an older file then stays.
Status write_output_file(const std::string& path, std::string_view text);

}  // namespace fathom
