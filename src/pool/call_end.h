// How a call ends that a store answers without having done all of it, and what its blocks are told
// then. One wording for all stores.
#pragma once

#include "pool/block_store.h"

namespace fathom {

enum class CallEnd { complete, deadline, cancelled, closed, busy };

Status call_end_status(CallEnd end);
GetStatus unread_block(CallEnd end);
PutOutcome unwritten_block(CallEnd end);

// Every block of a call told the same.
GetResult unread_result(std::size_t blocks, CallEnd end);
PutResult unwritten_result(std::size_t blocks, CallEnd end);

}  // namespace fathom
