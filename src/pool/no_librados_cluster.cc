#include "pool/rados_cluster.h"

namespace fathom {

Result<std::unique_ptr<RadosCluster>> connect_rados(const RadosClusterOptions&, RadosPost) {
    return Status(StatusCode::unsupported,
                  "pool.store = \"rados\": this program was built without librados; install "
                  "librados-dev and build it again, or use a directory");
}

}  // namespace fathom
