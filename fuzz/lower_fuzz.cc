// Request bodies of all three protocols: any text gives a request that renders, within its limits,
// or one sentence with its answer. The first byte chooses options.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "recipe/prompt.h"
#include "recipe/protocols/chat_request.h"
#include "recipe/protocols/messages_request.h"
#include "recipe/protocols/request_error.h"
#include "recipe/protocols/responses_request.h"

namespace {

using namespace fathom;

void check_lowered(const LoweredRequest& request) {
    const InferenceSettings& inference = request.inference;
    FATHOM_CHECK(inference.temperature >= 0 && inference.temperature <= 2);
    FATHOM_CHECK(inference.top_p > 0 && inference.top_p <= 1);
    FATHOM_CHECK(!inference.max_tokens || *inference.max_tokens >= 1);
    FATHOM_CHECK(!inference.top_logprobs || *inference.top_logprobs <= 20);
    const OpenSettings& open = request.open;
    FATHOM_CHECK(open.choices >= 1 && open.choices <= 16 && open.top_k >= 0);
    FATHOM_CHECK(open.min_p >= 0 && open.min_p <= 1 && open.min_tokens >= 0);
    for (const auto& [id, bias] : open.logit_bias)
        FATHOM_CHECK(id >= 0 && bias >= -100 && bias <= 100);
    const auto prompt = render_prompt(request.conversation, {.dialect = request.dialect});
    FATHOM_CHECK(prompt.ok());
    std::size_t images = 0;
    for (const PromptSegment& segment : *prompt) {
        if (!segment.image) continue;
        FATHOM_CHECK(*segment.image < request.image_sources.size());
        ++images;
    }
    FATHOM_CHECK(images == request.image_sources.size());
}

void check(const Result<LoweredRequest>& request) {
    if (request.ok()) return check_lowered(*request);
    const RequestError error = request_error(request.status());
    FATHOM_CHECK(error.http_status == 400);
    FATHOM_CHECK(parse_json(error.body).ok());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    LowerOptions options;
    options.models = {{"m", Dialect::v41}, {"n", Dialect::v4}};
    options.default_thinking = (data[0] & 1) != 0;
    if ((data[0] & 2) != 0) options.missing_reasoning = MissingReasoning::reject;
    if ((data[0] & 4) != 0) options.messages_web_search = ServerTools::drop;
    if ((data[0] & 8) != 0) options.profile = Profile::open;
    const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
    check(lower_chat_request(body, options));
    check(lower_messages_request(body, options));
    check(lower_responses_request(body, options));
    return 0;
}
