// Rows of a step, and the rows that stay for the decoder half.
#include "model/batch.h"

#include <gtest/gtest.h>

namespace fathom {
namespace {

struct Fixture {
    KvLayout layout;
    SequenceState a, b;
    std::uint8_t page = 0;

    Fixture() : a(layout), b(layout) {
        for (SequenceState* s : {&a, &b}) {
            s->ids.assign(300, 7);
            s->pages.assign(3, &page);
        }
    }
};

TEST(Batch, SpansFollowEachOtherInOrder) {
    Fixture f;
    const StepSpan spans[] = {{.sequence = &f.a, .start = 10, .count = 3, .decoder_begin = 10},
                              {.sequence = &f.b, .start = 0, .count = 2, .decoder_begin = 0}};
    const Batch batch = make_batch(spans);
    EXPECT_EQ(batch.rows, 5);
    EXPECT_EQ(batch.positions, (std::vector<std::int64_t>{10, 11, 12, 0, 1}));
    EXPECT_EQ(batch.span_of, (std::vector<std::int64_t>{0, 0, 0, 1, 1}));
    EXPECT_EQ(batch.spans[1].first_row, 3);
    EXPECT_TRUE(batch.in_image.empty());
}

TEST(Batch, ImageFlagsCoverAllRowsOnceOneRowHasOne) {
    Fixture f;
    f.b.in_image = {0, 1};
    const StepSpan spans[] = {{.sequence = &f.a, .start = 10, .count = 2, .decoder_begin = 10},
                              {.sequence = &f.b, .start = 0, .count = 4, .decoder_begin = 0}};
    // Positions behind the flags are text.
    EXPECT_EQ(make_batch(spans).in_image, (std::vector<std::uint8_t>{0, 0, 0, 1, 0, 0}));
}

TEST(Batch, DecoderKeepsASuffixOfEachSpanAndDropsEmptyOnes) {
    Fixture f;
    const StepSpan spans[] = {{.sequence = &f.a, .start = 10, .count = 4, .decoder_begin = 12},
                              {.sequence = &f.b, .start = 0, .count = 3, .decoder_begin = 3},
                              {.sequence = &f.b, .start = 3, .count = 1, .decoder_begin = 0}};
    std::vector<std::int64_t> kept;
    const Batch rest = keep_decoder_rows(make_batch(spans), kept);
    EXPECT_EQ(kept, (std::vector<std::int64_t>{2, 3, 7}));
    EXPECT_EQ(rest.positions, (std::vector<std::int64_t>{12, 13, 3}));
    ASSERT_EQ(rest.spans.size(), 2u);
    EXPECT_EQ(rest.spans[0].start, 12);
    EXPECT_EQ(rest.spans[1].first_row, 2);
}

TEST(BatchDeathTest, PagesMustCoverThePositions) {
    Fixture f;
    f.a.ids.assign(1000, 7);
    const StepSpan spans[] = {{.sequence = &f.a, .start = 380, .count = 10, .decoder_begin = 380}};
    EXPECT_DEATH(make_batch(spans), "pages");
}

}  // namespace
}  // namespace fathom
