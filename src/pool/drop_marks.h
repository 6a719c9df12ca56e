// Marks of namespaces that are being dropped from a shared pool: directories in DIR/drops whose
// names say which namespace and since when, and in each an empty file for every pool that is rid of
// it. A mark says what is to be done until every pool has done it; then anybody removes it. Nobody
// writes to what another one made, so no lock is needed.
//
// A shared store looks at the marks all the time (peer_looks.h). Whoever opens one pool by itself
// does it with open_rid_of_drops(), so that no way of opening finds what was dropped.
//
//   DIR/drops/<namespace, 64 hex>.<unix ms, 16 hex>.<16 hex>/root, peers.<name>, …
//
// Blocking calls on the reader's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "pool/embedded_store.h"
#include "pool/pool_files.h"

namespace fathom {

struct DropMark {
    std::string name;
    NamespaceId ns;
    std::int64_t since_unix_ms = 0;
    std::set<std::string> rid;  // names of pools
};

// Of a pool in the shared `directory`: "root", or "peers.<name>".
std::string pool_name(const std::string& directory, const std::string& pool_directory);
// Directories that may be shared and have marks for this pool: itself and, when it lies in one
// named peers, the one above that. Absolute, without a slash at their ends.
std::vector<std::string> shared_directories_of(const std::string& pool_directory);

// By name; what is no mark is passed over.
Result<std::vector<DropMark>> list_drop_marks(FileLayer& files, const std::string& directory);
// The name of the new mark, which is durable. `random` tells marks of one moment apart.
Result<std::string> make_drop_mark(PoolReader& reader, const std::string& directory,
                                   const NamespaceId& ns, std::int64_t unix_ms,
                                   std::uint64_t random);
// The pool is rid of the namespace. not_found when the mark has gone meanwhile.
Status acknowledge_drop(FileLayer& files, const std::string& directory, const std::string& mark,
                        const std::string& pool);
Status remove_drop_mark(PoolReader& reader, const std::string& directory, const DropMark& mark);

Status drop_and_wait(EmbeddedStore& pool, const NamespaceId& ns);
// Opens a pool, rids it of what is marked and acknowledges that; `files` is for the marks. Errors
// as EmbeddedStore::open, and what stood in the way of a drop: then the pool is not open.
Result<std::unique_ptr<EmbeddedStore>> open_rid_of_drops(EmbeddedOptions options, FileLayer& files);

}  // namespace fathom
