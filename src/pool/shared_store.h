// A pool that several processes share, on one host or more: a directory on any file system that all
// of them mount.
//
//   DIR/POOL, LOCK, seg/     an embedded pool (embedded_store.h), written by the process that has
//                            its lock
//   DIR/peers/<name>/…       one more for each further process
//   DIR/drops/<drop>/<pool>  a namespace that is being dropped, and which pools are rid of it
//
// Every process writes to one pool alone, its own, and reads all. Opening takes the first pool
// whose lock is free, or makes one. What a process wrote it finds through its own store; of the
// others' segments it keeps an index of its own, from their footers and, for those still being
// written, from the trailers of their slots, brought up to date every look_us. That index may be
// stale: then a block is not found yet, or a read fails its check, and either is a miss. So nothing
// that one process does to its files can give another one wrong bytes, and none waits for another.
//
//   exists, prefix, get   own blocks first, then the others'
//   put                   `exists` when another has it, unless it is near its end; else into the
//                         own pool. Two that put one block at a time both store it.
//   drop_namespace        through a mark that all live processes see and acknowledge
//   capacity              of the whole directory; what expires first goes first, whosever it is
//
// Pools whose process has ended are looked after by those that live: sealed, emptied of what is
// expired or above the watermark, and of dropped namespaces. The rest of their blocks is found as
// before, until they expire or somebody opens the pool anew.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "pool/embedded_store.h"

namespace fathom {

struct SharedOptions {
    // Of every pool that the store opens, its own and those that it looks after, and for itself:
    // its directory is the shared one, its capacity that of all. Without files.
    std::function<Result<EmbeddedOptions>()> make_embedded;
    // The own pool is DIR/peers/<writer> and no other. For mounts whose locks do not reach other
    // hosts; then nobody else's pool is ever written, not even an abandoned one.
    std::string writer;
    std::int64_t look_us = 250'000;  // of real time between two looks at the others
    std::function<Result<std::unique_ptr<FileLayer>>(int depth)> make_files = make_file_layer;
};

class SharedStore : public BlockStore {
  public:
    // Errors as of EmbeddedStore::open; unavailable too when the writer's pool is in use.
    static Result<std::unique_ptr<SharedStore>> open(SharedOptions options);
    ~SharedStore() override;

    std::int64_t payload_bytes() const override;
    StoreOpPtr exists(std::vector<BlockKey> keys, Deadline deadline, ExistsDone done) override;
    StoreOpPtr longest_prefix(std::vector<BlockKey> chain, Deadline deadline,
                              PrefixDone done) override;
    StoreOpPtr get(std::vector<GetRequest> requests, Deadline deadline, GetCalls calls) override;
    StoreOpPtr put(std::vector<PutRequest> requests, const PutOptions& options, Deadline deadline,
                   PutCalls calls) override;
    // deadline_exceeded names the pools that are not rid of it yet; the drop goes on, also when
    // this process ends, as long as one lives or comes.
    StoreOpPtr drop_namespace(const NamespaceId& ns, Deadline deadline,
                              std::function<void(Status status)> done) override;
    StoreHealth health() const override;
    void close(Deadline deadline) override;

    EmbeddedStore& own();
    const std::string& own_directory() const;
    // Looks at everything once more, and looks after abandoned pools; `done` runs on a thread of
    // the store, or never when it is being closed.
    void refresh(std::function<void()> done);

  private:
    struct Front;
    explicit SharedStore(std::shared_ptr<Front> front);

    std::shared_ptr<Front> front_;  // shared with the handles of calls, which may outlive the store
};

}  // namespace fathom
