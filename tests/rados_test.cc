// The rados store in a real Ceph cluster: what every store promises, and what a cluster can do to
// one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pool/testing/store_conformance.h"
#include "rados_rig.h"

namespace fathom::testing {
namespace {

StoreKind rados_kind() {
    return {"rados", [] { return std::make_unique<RadosRig>(); }};
}

INSTANTIATE_TEST_SUITE_P(Rados, StoreConformance, ::testing::Values(rados_kind()), kind_name);
INSTANTIATE_TEST_SUITE_P(Rados, SharedStoreConformance, ::testing::Values(rados_kind()), kind_name);

}  // namespace
}  // namespace fathom::testing

int main(int argc, char** argv) {
    ::testing::InitGoogleMock(&argc, argv);
    ::testing::AddGlobalTestEnvironment(new fathom::testing::CephEnvironment({}));
    return RUN_ALL_TESTS();
}
