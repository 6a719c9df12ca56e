// One POST being answered: from the body to the last byte. It stands between three parties and
// belongs to the network thread:
//
//   body ─ preparation thread ─► PreparedRequest ─► RequestOwner ─ deltas ─► HttpExchange
//
// The first byte of an answer is held until the first token is committed or the client has waited
// one keep-alive period, so that what is refused meanwhile still gets its own HTTP status.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/executor.h"
#include "gateway/http/http_server.h"
#include "gateway/openai/request.h"
#include "gateway/owner.h"

namespace fathom {

// What all jobs share. Everything outlives them.
struct CompletionContext {
    OwnerRegistry& owners;
    Executor& network;      // where jobs live
    Executor& preparation;  // where bodies are parsed, rendered and tokenized
    const Clock& clock;
    ApiOptions api;
    std::string system_fingerprint;
};

struct CompletionCall {
    ApiKind kind = ApiKind::chat;
    std::string body;
    std::string request_id;  // echoed as x-request-id
    std::int64_t timeout_us = 0;
};

// Starts answering on `exchange`. Network thread.
void start_completion(CompletionContext& context, CompletionCall call,
                      std::shared_ptr<HttpExchange> exchange);

}  // namespace fathom
