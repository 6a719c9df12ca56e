// Request bodies of both endpoints: any text gives a request within its limits or one sentence.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "engine/sampler.h"
#include "gateway/openai/errors.h"
#include "gateway/openai/request.h"

namespace {

void check(fathom::ApiKind kind, std::string_view body) {
    using namespace fathom;
    static const ApiOptions kOptions = {.model_names = {"m"}, .max_tokens = 1000};
    const auto request = parse_api_request(kind, body, kOptions);
    if (!request.ok()) {
        FATHOM_CHECK(request.status().code() == StatusCode::invalid_argument);
        FATHOM_CHECK(!request.status().message().empty());
        FATHOM_CHECK(!api_error(request.status()).body.empty());
        return;
    }
    const GenerationRequest& generation = request->generation;
    FATHOM_CHECK(request->model == "m");
    FATHOM_CHECK(validate_sampling(generation.sampling).ok());
    FATHOM_CHECK(generation.choices >= 1);
    FATHOM_CHECK(generation.stop_strings.size() <= kStopStringsMax);
    const auto tokens = generation.max_tokens.value_or(1);
    FATHOM_CHECK(tokens >= 1 && tokens <= kOptions.max_tokens);
    if (const auto* chat = std::get_if<Conversation>(&generation.prompt))
        FATHOM_CHECK(render_prompt(*chat).ok());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view body(reinterpret_cast<const char*>(data), size);
    check(fathom::ApiKind::chat, body);
    check(fathom::ApiKind::completion, body);
    return 0;
}
