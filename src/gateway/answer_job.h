// One POST being answered: from the body to the last byte. It stands between three parties and
// belongs to the network thread:
//
//   body ─ preparation threads ─► PreparedRequest ─► RequestOwner ─ events ─► HttpExchange
//
// The first byte of an answer is held until the first token is committed or the client has waited
// one keep-alive period, so that what is refused meanwhile still gets its own HTTP status.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "gateway/api_error.h"
#include "gateway/api_request.h"
#include "gateway/http/http_server.h"
#include "gateway/owner.h"
#include "gateway/preparation.h"
#include "gateway/response_store.h"

namespace fathom {

// What all jobs share. Everything outlives them.
struct AnswerContext {
    OwnerRegistry& owners;
    Preparation& preparation;  // where bodies are parsed, rendered and tokenized
    ResponseStore& store;
    const Clock& clock;
    ApiOptions api;
    std::string system_fingerprint;
};

struct AnswerCall {
    Api api = Api::chat;
    ErrorShape errors = ErrorShape::openai;
    std::string body;
    std::string request_id;  // echoed as x-request-id
    std::string client;      // whose stored responses it may name: ResponseStore
    KvSharing sharing;
    std::int64_t timeout_us = 0;
};

// Starts answering on `exchange`. Network thread.
void start_answer(AnswerContext& context, AnswerCall call, std::shared_ptr<HttpExchange> exchange);

}  // namespace fathom
