#include "pool/call_end.h"

namespace fathom {

Status call_end_status(CallEnd end) {
    switch (end) {
        case CallEnd::complete:
            break;
        case CallEnd::deadline:
            return Status(StatusCode::deadline_exceeded, "the pool did not answer in time");
        case CallEnd::cancelled:
            return Status(StatusCode::cancelled, "the call was cancelled");
        case CallEnd::closed:
            return Status(StatusCode::unavailable, "the pool is closed");
        case CallEnd::busy:
            return Status(StatusCode::resource_exhausted, "the pool runs too many calls");
    }
    return {};
}

GetStatus unread_block(CallEnd end) {
    if (end == CallEnd::deadline) return GetStatus::timeout;
    return end == CallEnd::cancelled ? GetStatus::cancelled : GetStatus::miss;
}

PutOutcome unwritten_block(CallEnd end) {
    switch (end) {
        case CallEnd::deadline:
            return PutOutcome::timeout;
        case CallEnd::cancelled:
            return PutOutcome::cancelled;
        case CallEnd::busy:
            return PutOutcome::busy;
        default:
            return PutOutcome::failed;
    }
}

GetResult unread_result(std::size_t blocks, CallEnd end) {
    return {.blocks = std::vector<GetStatus>(blocks, unread_block(end)),
            .leading_hits = 0,
            .status = call_end_status(end)};
}

PutResult unwritten_result(std::size_t blocks, CallEnd end) {
    return {.blocks = std::vector<PutOutcome>(blocks, unwritten_block(end)),
            .status = call_end_status(end)};
}

}  // namespace fathom
