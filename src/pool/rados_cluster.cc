#include "pool/rados_cluster.h"

namespace fathom {

const std::string* RadosAnswer::attribute(std::string_view name) const {
    for (const auto& [known, value] : attributes)
        if (known == name) return &value;
    return nullptr;
}

}  // namespace fathom
