// SIGINT and SIGTERM as something a loop can wait for. The handler only counts and writes one byte
// to a pipe. One instance lives at a time, on the main thread; the earlier handlers return with its
// end.
#pragma once

#include <signal.h>

#include <cstdint>

namespace fathom {

class Interrupts {
  public:
    Interrupts();
    ~Interrupts();
    Interrupts(const Interrupts&) = delete;
    Interrupts& operator=(const Interrupts&) = delete;

    // How many signals arrived since the last call; clears fd().
    int take();
    // Waits until a signal arrived (true; not taken) or timeout_us passed.
    bool wait(std::int64_t timeout_us) const;
    int fd() const;  // readable while signals are waiting to be taken

  private:
    struct sigaction old_int_ {};
    struct sigaction old_term_ {};
};

}  // namespace fathom
