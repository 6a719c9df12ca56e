// Requests that the reference component refuses (golden/recipe/errors.jsonl), against ours.
#include <gtest/gtest.h>

#include <string>

#include "base/json.h"
#include "gateway/openai/request.h"
#include "json_lines.h"
#include "support.h"

namespace fathom {
namespace {

const char* const kErrors = "golden/recipe/errors.jsonl";

const ApiOptions kOptions = {.model_names = {"DeepSeek-V4-Pro", "DeepSeek-V4.1-Flash"},
                             .reference_sampling = true};

// A row that turns on what this server refuses as a whole; only that it is refused can be compared.
bool needs_more(const Json& row) {
    if (row.find("options") != nullptr) return true;
    const Json* body = row.find("body");
    if (body == nullptr) return false;
    for (const char* name : {"tools", "response_format", "tool_choice"})
        if (body->find(name) != nullptr) return true;
    const std::string text = body->dump();
    for (const char* part : {"tool_calls", "image_url", "\"file\"", "latest_reminder", "\"tool\""})
        if (text.find(part) != std::string::npos) return true;
    return false;
}

TEST(GoldenErrors, ChatRequestsAreRefusedWithTheSameMessages) {
    FATHOM_NEED_SHARED(kErrors);
    int refused = 0, equal = 0;
    for (const Json& row : testing::read_json_lines(testing::shared_path(kErrors))) {
        if (row.find("protocol")->as_string() != "chat" || row.find("options") != nullptr) continue;
        const Json* body = row.find("body");
        const Json* text = row.find("body_text");
        if (body == nullptr && text == nullptr) continue;
        const std::string id = row.find("id")->as_string();
        const auto got = parse_api_request(
            ApiKind::chat, body != nullptr ? body->dump() : text->as_string(), kOptions);
        const Json& expected = *row.find("error");
        if (id == "chat/message_unknown_role") continue;  // `developer`: accepted as system here
        EXPECT_FALSE(got.ok()) << id;
        ++refused;
        if (got.ok() || expected.find("phase")->as_string() != "convert" || needs_more(row))
            continue;
        const auto error = parse_json(expected.find("body")->as_string());
        ASSERT_TRUE(error.ok());
        EXPECT_EQ(got.status().message(), error->find("error")->find("message")->as_string()) << id;
        ++equal;
    }
    EXPECT_GT(refused, 150);
    EXPECT_GT(equal, 25);
}

}  // namespace
}  // namespace fathom
