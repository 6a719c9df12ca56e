// The operators of kernels_bench that are not linears: attention, indexer, selection, rows.
#pragma once

#include <string_view>

#include "bench/paired.h"
#include "kernels/ops.h"

namespace fathom::bench {

// Adds the rows whose names begin with `only`. Shapes are those of the released model; stored rows
// lie in more memory than the caches hold, on huge pages where the system gives them. attention.*
// and index.score count operations against the arithmetic peak (an integer multiply-add counts as
// one in bf16), the row operators bytes read and written against the read bandwidth; topk.* is how
// many times as fast as std::nth_element on (score, index) keys.
void bench_rows(Backend& backend, Paired& paired, Report& report, std::string_view only);

}  // namespace fathom::bench
