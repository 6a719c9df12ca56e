// The rows of one step, as the backbone sees them: consecutive rows of one sequence form a span,
// spans follow each other. After the encoder boundary the rows that need no decoder half are
// dropped, which always leaves a suffix of each span.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/model.h"

namespace fathom {

struct BatchSpan {
    SequenceState* sequence = nullptr;
    std::int64_t first_row = 0;  // in the batch
    std::int64_t start = 0;      // position of that row
    std::int64_t count = 0;
    std::int64_t decoder_begin = 0;
    std::int64_t logits_begin = 0;
    std::span<WindowSnapshot> snapshots = {};
};

struct Batch {
    std::int64_t rows = 0;
    std::vector<BatchSpan> spans;
    std::vector<std::int64_t> positions;  // [rows]
    std::vector<std::uint8_t> in_image;   // [rows], or empty when no row lies in an image
    std::vector<std::int64_t> span_of;    // [rows], index into spans
};

Batch make_batch(std::span<const StepSpan> spans);

// The rows at or after each span's decoder_begin. kept[i] is the old row number of new row i.
Batch keep_decoder_rows(const Batch& batch, std::vector<std::int64_t>& kept);

}  // namespace fathom
