// The parts of policy_bench. Rows are of made-up traffic, the same for the same seed; times are of
// one thread, in its CPU time.
#pragma once

#include <ctime>

#include "bench/report.h"

namespace fathom::bench {

inline double policy_thread_seconds() {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

void bench_policy_prefill(Report& report);
void bench_policy_decode(Report& report);
void bench_eplb(Report& report);
void bench_verify_budget(Report& report);
void bench_sim(Report& report);
void bench_sim_scale(Report& report);
void bench_sim_hour(Report& report);

}  // namespace fathom::bench
