// Where bodies are read, rendered and tokenized: two threads, one for ordinary work and one for
// large, so that a large body stalls neither the streams nor the small requests of others.
//
//   run() ─► lane ─ names a stored response? ─► network thread ─ looks it up ─► lane again
//                                        no ─► done(), network thread
//
// A body that names a stored response is read twice: only reading it tells which response that is,
// and how much work the conversation then is. No thread waits for another. A lane has no limit of
// its own: each connection has one request at a time.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "base/executor.h"
#include "gateway/response_store.h"
#include "gateway/thread_executor.h"
#include "recipe/protocols/responses_request.h"

namespace fathom {

class Preparation {
  public:
    // Work on fewer bytes than these takes some hundredths of a second whatever they are.
    static constexpr std::size_t kLargeBytes = std::size_t{256} << 10;

    // `network` runs on the thread that owns `store`; both outlive this.
    Preparation(Executor& network, ResponseStore& store) : network_(network), store_(store) {}

    struct Reading {
        std::string client;  // whose responses the body may name
        std::size_t body_bytes = 0;
        // On a lane, once or twice; the last result counts. Keeps the result itself.
        std::function<void(const EarlierItems& earlier_items)> read;
        // On the network thread, once: ok, or why the response that was named is not there.
        std::function<void(const Status& status)> done;
    };
    void run(Reading reading);

  private:
    void run(std::shared_ptr<const Reading> reading, StoredResponsePtr earlier);

    Executor& network_;
    ResponseStore& store_;
    ThreadExecutor ordinary_;
    ThreadExecutor large_;
};

}  // namespace fathom
