// The models of `sim/replay` against the hit rates that were published with the traces.
#include <gtest/gtest.h>

#include "sim/replay/trace_figures.h"
#include "support.h"

namespace fathom {
namespace {

TEST(PoolReplay, PublishedHitRatesComeOutOfTheTraces) {
    FATHOM_NEED_SHARED("traces/agentic_coding_kvct.jsonl.zst");
    FATHOM_NEED_SHARED("traces/mooncake_conversation.jsonl.zst");
    const auto figures = trace_figures();
    const auto rows = run_trace_figures(testing::shared_path("traces"), figures, {});
    ASSERT_TRUE(rows.ok()) << rows.status().message();
    ASSERT_EQ(rows->size(), figures.size());
    for (const TraceFigureRow& row : *rows)
        EXPECT_NEAR(row.measured, row.figure.published, kTraceFigureTolerance)
            << row.figure.trace << ", " << row.figure.setting;
}

}  // namespace
}  // namespace fathom
