// The stores of this library through the conformance suite.
#include "pool/testing/mem_rig.h"
#include "pool/testing/store_conformance.h"

namespace fathom::testing {

INSTANTIATE_TEST_SUITE_P(Mem, StoreConformance, ::testing::Values(mem_kind()), kind_name);

}  // namespace fathom::testing
