#include "cli/text_stream.h"

#include <utility>

#include "base/check.h"

namespace fathom {

void TextStream::on_events(const Events& events) {
    pending_.insert(pending_.end(), events.begin(), events.end());
    if (events_.try_push(std::move(pending_))) pending_.clear();
}

void TextStream::on_finish(const GenerationResult& result) {
    FATHOM_CHECK(last_.try_push({std::move(pending_), result}), "finished twice");
    events_.close();
}

TextStream::Events TextStream::next(std::int64_t timeout_us) {
    if (!last_read_) {
        if (std::optional<Events> events = events_.pop(timeout_us)) return std::move(*events);
        if (!events_.closed()) return {};
        // Between the empty pop and the close more may have come.
        if (std::optional<Events> events = events_.try_pop()) return std::move(*events);
        last_read_ = last_.try_pop();
        FATHOM_CHECK(last_read_.has_value());
    }
    return std::exchange(last_read_->events, {});
}

std::optional<GenerationResult> TextStream::result() {
    if (!last_read_ || !last_read_->events.empty()) return std::nullopt;
    return last_read_->result;
}

}  // namespace fathom
