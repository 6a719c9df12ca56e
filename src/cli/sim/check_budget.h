// fathom sim check-budget FILE: policy/verify_case.h.
#pragma once

#include <string>
#include <vector>

namespace fathom {

int run_sim_check_budget(const std::vector<std::string>& args);

}  // namespace fathom
