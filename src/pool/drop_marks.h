// Marks of namespaces that are being dropped from a shared pool: directories in DIR/drops whose
// names say which namespace and since when, and in each an empty file for every pool that is rid of
// it. A mark says what is to be done until every pool has done it; then anybody removes it. Nobody
// writes to what another one made, so no lock is needed.
//
//   DIR/drops/<namespace, 64 hex>.<unix ms, 16 hex>.<16 hex>/root, peers.<name>, …
//
// Blocking calls on the reader's thread.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

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

}  // namespace fathom
