// The keys of `fathom sim run`, `sweep` and `plan` beside those of the fleet. One file serves all
// of them, so each command knows the others' keys as well: it reads and checks them, and no more.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/config.h"

namespace fathom {

struct RunKeys {
    std::string csv, html;
    bool json = false;
};

struct SweepKeys {
    std::vector<std::string> vary;
    std::string csv, svg;
    bool json = false;
};

struct PlanKeys {
    std::int64_t cards = 0;
    double usd_hour = 0, seconds = 150, warmup_s = 60, slo_share = 0.95;
    std::int64_t candidates = 6;
    std::vector<std::string> prefill_ep, decode_ep;
    std::string csv;
    bool json = false;
};

struct SimCommandKeys {
    RunKeys run;
    SweepKeys sweep;
    PlanKeys plan;
};

// Tables out, sweep and plan. `keys` outlives the schema.
void bind_command_keys(SimCommandKeys& keys, ConfigSchema& schema);

}  // namespace fathom
