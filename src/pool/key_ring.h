// The keys of an encrypting pool: one for every namespace (a share group with a model), 32 random
// bytes in a file of their own, kept apart from the blocks.
//
//   KEYS/<namespace in hex>.key    0600, in a directory of mode 0700
//
// Keys are random and not derived from the pool's secret: whoever removes a file has erased that
// tenant, in every copy of the disk that the key did not reach. Several processes may share the
// directory; they agree on keys (secret_file.h), and one that has a key in memory looks every
// second whether it is still the file's.
//
// One thread at a time. Calls read small files and block for that.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "pool/block_cipher.h"

namespace fathom {

class KeyRing {
  public:
    // Makes the directory when its parent is there. Errors name path, cause and remedy:
    // invalid_argument when others may enter it. Keys that cannot be read are said in the log, one
    // by one; their blocks are misses. The clock outlives the ring.
    static Result<std::unique_ptr<KeyRing>> open(const std::string& directory, const Clock& clock);

    // The cipher of a namespace, valid until the next call. permission_denied without its key, or
    // with a file that is not one; the message has the cause.
    Result<BlockCipher*> find(const NamespaceId& ns);
    // Makes the key when it is absent.
    Result<BlockCipher*> find_or_make(const NamespaceId& ns);

    // The key is gone from memory and disk, with what was left of its making. Ok when there was
    // none. Like blocks, namespaces are told apart by their first 8 bytes here (namespace_tag).
    Status destroy(const NamespaceId& ns);

  private:
    KeyRing(std::string directory, const Clock& clock)
        : directory_(std::move(directory)), clock_(clock) {}

    struct Known {
        std::unique_ptr<BlockCipher> cipher;
        std::uint64_t file = 0;  // inode
        std::int64_t seen_us = 0;
    };
    std::string path_of(const NamespaceId& ns) const;
    void report_unreadable() const;

    const std::string directory_;
    const Clock& clock_;
    std::map<Sha256Digest, Known> known_;
};

}  // namespace fathom
