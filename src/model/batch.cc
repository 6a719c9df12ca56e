#include "model/batch.h"

#include <algorithm>

#include "base/check.h"

namespace fathom {

namespace {

void append_span(Batch& batch, BatchSpan span) {
    span.first_row = batch.rows;
    for (std::int64_t i = 0; i < span.count; ++i) {
        const std::int64_t position = span.start + i;
        batch.positions.push_back(position);
        batch.span_of.push_back(static_cast<std::int64_t>(batch.spans.size()));
        const std::vector<std::uint8_t>& flags = span.sequence->in_image;
        // Output tokens lie behind the flags of the prompt and are never part of an image.
        const bool image = position < static_cast<std::int64_t>(flags.size()) &&
                           flags[static_cast<std::size_t>(position)] != 0;
        if (image) {
            batch.in_image.resize(batch.positions.size() - 1, 0);
            batch.in_image.push_back(1);
        }
    }
    batch.rows += span.count;
    batch.spans.push_back(span);
}

void pad_image_flags(Batch& batch) {
    if (!batch.in_image.empty()) batch.in_image.resize(static_cast<std::size_t>(batch.rows), 0);
}

}  // namespace

Batch make_batch(std::span<const StepSpan> spans) {
    Batch batch;
    for (const StepSpan& span : spans) {
        FATHOM_CHECK(span.sequence != nullptr && span.start >= 0 && span.count > 0);
        const std::int64_t end = span.start + span.count;
        FATHOM_CHECK(end <= static_cast<std::int64_t>(span.sequence->ids.size()));
        FATHOM_CHECK(end <= static_cast<std::int64_t>(span.sequence->pages.size()) * kPageTokens);
        for (const WindowSnapshot& snapshot : span.snapshots)
            FATHOM_CHECK(snapshot.position > span.start && snapshot.position <= end);
        append_span(batch, {.sequence = span.sequence,
                            .first_row = 0,
                            .start = span.start,
                            .count = span.count,
                            .decoder_begin = std::clamp(span.decoder_begin, span.start, end),
                            .logits_begin = span.logits_begin,
                            .snapshots = span.snapshots});
    }
    pad_image_flags(batch);
    return batch;
}

Batch keep_decoder_rows(const Batch& batch, std::vector<std::int64_t>& kept) {
    Batch result;
    kept.clear();
    for (const BatchSpan& span : batch.spans) {
        const std::int64_t skip = span.decoder_begin - span.start;
        if (skip == span.count) continue;
        BatchSpan rest = span;
        rest.start += skip;
        rest.count -= skip;
        append_span(result, rest);
        for (std::int64_t i = skip; i < span.count; ++i)
            kept.push_back(span.first_row + i);
    }
    pad_image_flags(result);
    return result;
}

}  // namespace fathom
