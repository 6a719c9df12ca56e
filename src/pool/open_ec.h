// A pool over several devices (ec_store.h) as open_pool.h opens it: its directories, and a copy of
// the secret in each of them.
#pragma once

#include <memory>
#include <string>

#include "pool/ec_store.h"
#include "pool/open_pool.h"

namespace fathom {

struct OpenedEc {
    std::string secret;
    std::unique_ptr<EcStore> store;
    // The stores of the devices that are open.
    std::vector<EmbeddedStore*> parts() const;
};
// `free_bytes`: the capacity of each directory when the options have none. Errors as of
// OpenPool::open.
Result<OpenedEc> open_ec(const OpenPoolOptions& options, std::int64_t free_bytes,
                         const Clock& clock, MetricsRegistry& metrics);

}  // namespace fathom
