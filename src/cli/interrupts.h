// SIGINT and SIGTERM as something a loop can wait for. The handler only counts and writes one byte
// to a pipe. One instance lives at a time, on the main thread; the earlier handlers return with its
// end.
#pragma once

#include <signal.h>

namespace fathom {

class Interrupts {
  public:
    Interrupts();
    ~Interrupts();
    Interrupts(const Interrupts&) = delete;
    Interrupts& operator=(const Interrupts&) = delete;

    // How many signals arrived since the last call; clears fd().
    int take();
    bool pending() const;  // signals wait to be taken
    int fd() const;        // readable while pending()

  private:
    struct sigaction old_int_ {};
    struct sigaction old_term_ {};
};

}  // namespace fathom
