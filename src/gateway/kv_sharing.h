// Whose cached KV a request may find, and how long its own is kept in a pool (kvpool.md 6, 10).
// Requests of one API key share; those of different keys never do, at any tier, unless the server
// says that all do. What a group's blocks are called depends on a secret, so that who can ask the
// store cannot work out another's names.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/traffic_class.h"

namespace fathom {

struct KvSharing {
    std::string group, secret;  // EngineRequest::share_group, share_secret
    TrafficClass traffic_class = TrafficClass::agent;
};

struct KvSharingOptions {
    bool per_key = true;
    std::string secret;  // of the pool; empty without one
    TrafficClass traffic_class = TrafficClass::agent;
    // Beside the server's keys, in their order; shorter: the others have traffic_class.
    std::vector<TrafficClass> key_classes;
};

// What stands for an API key wherever its text must not: its digest; empty without one.
std::string client_name(std::string_view key);

// `client` is client_name of the key, `key` is its place among the
// server's. `asked` is the header x-fathom-traffic-class, empty when absent: any class but system,
// which an operator gives to a key. invalid_argument otherwise.
Result<KvSharing> kv_sharing(const KvSharingOptions& options, std::string_view client,
                             std::optional<std::size_t> key, std::string_view asked);

}  // namespace fathom
