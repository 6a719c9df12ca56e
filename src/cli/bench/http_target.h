// A server with OpenAI's API as the target of a load run: streamed answers over kept connections.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cli/bench/load.h"
#include "engine/types.h"
#include "gateway/client/url.h"

namespace fathom {

struct HttpTargetOptions {
    HttpUrl url;  // with the API's prefix: http://127.0.0.1:8000/v1
    std::string api_key;
    std::string model;     // empty: the first that GET /models names
    bool use_chat = true;  // texts as one user turn of /chat/completions, else to /completions
    bool ignore_eos = true;
    SamplingParams sampling;  // request i asks for seed + i
    std::int64_t timeout_us = 600'000'000, connect_timeout_us = 10'000'000;
};

class HttpTarget : public LoadTarget {
  public:
    // Asks the server for its models: an error says why it cannot be measured.
    static Result<std::unique_ptr<HttpTarget>> connect(const HttpTargetOptions& options);
    ~HttpTarget() override;  // cancels and waits
    const std::string& model() const;
    void start(std::int64_t index, const LoadRequest& request, Done done) override;
    void cancel_all() override;

  private:
    struct Impl;
    explicit HttpTarget(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace fathom
