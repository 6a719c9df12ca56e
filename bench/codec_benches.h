// The parts of codec_bench. Rates are of one thread, in its CPU time. Both sides of a ratio take
// turns, so that it holds on a shared machine whose absolute rates do not.
#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <string_view>

#include "bench/report.h"
#include "recipe/tokenizer.h"

namespace fathom::bench {

inline double thread_seconds() {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// CPU seconds of one call.
template <typename Call>
double timed(const Call& call) {
    const double start = thread_seconds();
    call();
    return thread_seconds() - start;
}

// `path` names the tokenizer.json. Errors of reading it.
Status bench_tokenizer(const std::string& path, std::string_view text, Report& report);
void bench_parser(const std::shared_ptr<const Tokenizer>& tokenizer, std::string_view text,
                  Report& report);
void bench_render(std::string_view text, Report& report);
// Forks, so no other thread may run yet.
Status bench_sse(Report& report);

}  // namespace fathom::bench
