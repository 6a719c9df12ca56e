// For tests of whole fleets.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "sim/fleet/fleet.h"

namespace fathom::testing {

// A run that must go well and conserve everything.
inline FleetResult run_checked(const FleetConfig& config) {
    auto result = run_fleet(config);
    EXPECT_TRUE(result.ok()) << result.status().to_string();
    if (!result.ok()) return {};
    for (const std::string& violation : result->violations)
        ADD_FAILURE() << violation;
    return std::move(*result);
}

}  // namespace fathom::testing
