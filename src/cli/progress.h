// A progress line on stderr, drawn over itself at most ten times a second, and only when stderr is
// a terminal: in a pipe or a log nothing appears. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace fathom {

class Progress {
  public:
    // total 0: unknown, shown as a count only.
    Progress(std::string what, std::int64_t total, const Clock& clock);
    ~Progress();  // clears the line
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;

    static bool visible();  // stderr is a terminal
    void update(std::int64_t done, std::string_view note = {});
    void clear();  // before other text is written to the terminal

  private:
    std::string what_;
    std::int64_t total_;
    const Clock& clock_;
    bool shown_ = false;
    std::int64_t drawn_us_ = -1;
};

}  // namespace fathom
