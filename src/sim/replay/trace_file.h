// A trace file line by line, plain or compressed with zstd (told by its first bytes). Reads in
// parts of 64 KiB and holds one line at a time, so a file may be larger than memory. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"

namespace fathom {

class LineFile {
  public:
    // not_found when the file cannot be opened. A line longer than line_bytes_max is an error.
    static Result<std::unique_ptr<LineFile>> open(const std::string& path,
                                                  std::int64_t line_bytes_max);
    virtual ~LineFile() = default;

    // The next line without its end; false behind the last one. data_loss when the file cannot be
    // read or is damaged, invalid_argument for a line that is too long; both name path and line.
    virtual Result<bool> next(std::string& line) = 0;
    virtual std::int64_t line_number() const = 0;  // of the last line, from 1
    // How far the file on disk was read, for progress.
    virtual std::int64_t bytes_read() const = 0;
    virtual std::int64_t bytes_total() const = 0;  // 0 where it is unknown (a pipe)
};

}  // namespace fathom
