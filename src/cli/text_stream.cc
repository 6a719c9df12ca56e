#include "cli/text_stream.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace fathom {

void TextStream::on_delta(const GenerationDelta& delta) {
    const auto same = std::find_if(pending_.begin(), pending_.end(), [&](const auto& pending) {
        return pending.choice == delta.choice;
    });
    if (same != pending_.end())
        same->append(delta);
    else
        pending_.push_back(delta);
    while (!pending_.empty() && deltas_.try_push(std::move(pending_.front())))
        pending_.pop_front();
}

void TextStream::on_finish(const GenerationResult& result) {
    FATHOM_CHECK(last_.try_push({std::move(pending_), result}), "finished twice");
    deltas_.close();
}

std::optional<GenerationDelta> TextStream::next(std::int64_t timeout_us) {
    if (!last_read_) {
        if (std::optional<GenerationDelta> delta = deltas_.pop(timeout_us)) return delta;
        if (!deltas_.closed()) return std::nullopt;
        // Between the empty pop and the close more may have come.
        if (std::optional<GenerationDelta> delta = deltas_.try_pop()) return delta;
        last_read_ = last_.try_pop();
        FATHOM_CHECK(last_read_.has_value());
    }
    if (last_read_->deltas.empty()) return std::nullopt;
    GenerationDelta delta = std::move(last_read_->deltas.front());
    last_read_->deltas.pop_front();
    return delta;
}

std::optional<GenerationResult> TextStream::result() {
    if (!last_read_ || !last_read_->deltas.empty()) return std::nullopt;
    return last_read_->result;
}

}  // namespace fathom
