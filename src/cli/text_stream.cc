#include "cli/text_stream.h"

#include "base/check.h"

namespace fathom {

void TextStream::on_delta(const GenerationDelta& delta) {
    pending_.reasoning += delta.reasoning;
    pending_.content += delta.content;
    if (deltas_.try_push(std::move(pending_))) pending_ = {};
}

void TextStream::on_finish(const GenerationResult& result) {
    FATHOM_CHECK(last_.try_push({std::move(pending_), result}), "finished twice");
    deltas_.close();
}

std::optional<GenerationDelta> TextStream::next(std::int64_t timeout_us) {
    if (done_) return std::nullopt;
    if (std::optional<GenerationDelta> delta = deltas_.pop(timeout_us)) return delta;
    if (!deltas_.closed()) return std::nullopt;
    // Between the empty pop and the close more may have come.
    if (std::optional<GenerationDelta> delta = deltas_.try_pop()) return delta;
    std::optional<Last> last = last_.try_pop();
    FATHOM_CHECK(last.has_value());
    done_ = std::move(last->result);
    return std::move(last->delta);
}

std::optional<GenerationResult> TextStream::result() {
    return done_;
}

}  // namespace fathom
