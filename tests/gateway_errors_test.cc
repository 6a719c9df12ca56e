// Requests that the reference component refuses (golden/recipe/errors.jsonl), over HTTP to a server
// with the profile `reference`: status and body are the recorded ones. Rows that depend on options
// of the conversion are compared without a server (recipe_requests_test).
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "base/json.h"
#include "gateway/server.h"
#include "gateway/testing/http_client.h"
#include "gateway/testing/scripted_engine.h"
#include "json_lines.h"
#include "support.h"

namespace fathom {
namespace {

using testing::http_post;
using testing::HttpAnswer;
using testing::HttpClient;
using testing::text_of;

const char* const kErrors = "golden/recipe/errors.jsonl";

std::string path_of(const std::string& protocol) {
    if (protocol == "chat") return "/v1/chat/completions";
    return protocol == "messages" ? "/v1/messages" : "/v1/responses";
}

// A server of a model whose requests are never right, so that it needs no engine that works.
class ErrorsTest : public ::testing::Test {
  protected:
    ErrorsTest()
        : engine_(std::make_unique<testing::ScriptedCore>(std::make_shared<testing::Script>(),
                                                          real_clock())) {
        ServerOptions options;
        options.port = 0;
        options.owner.model_name = "DeepSeek-V4.1-Flash";
        options.model_aliases = {"DeepSeek-V4-Pro"};
        options.api.lower.profile = Profile::reference;
        options.messages_errors = ErrorShape::openai;
        auto server =
            Server::create(options, engine_, std::make_shared<testing::ByteTokenizer>(), metrics_);
        EXPECT_TRUE(server.ok()) << server.status().message();
        server_ = std::move(*server);
        client_ = std::make_unique<HttpClient>(server_->port());
    }

    MetricsRegistry metrics_;
    Engine engine_;
    std::unique_ptr<Server> server_;
    std::unique_ptr<HttpClient> client_;
};

TEST_F(ErrorsTest, AreTheReferencesToTheByte) {
    FATHOM_NEED_SHARED(kErrors);
    int equal = 0, refused = 0;
    for (const Json& row : testing::read_json_lines(testing::shared_path(kErrors))) {
        if (row.find("options") != nullptr) continue;
        const Json* body = row.find("body");
        if (body == nullptr && row.find("body_text") == nullptr) continue;
        // The server has one dialect for all its models.
        if (text_of(row, "id").ends_with("/v4")) continue;
        client_->send(http_post(path_of(text_of(row, "protocol")),
                                body != nullptr ? body->dump() : text_of(row, "body_text")));
        const HttpAnswer got = client_->answer();
        const Json& expected = *row.find("error");
        EXPECT_EQ(got.status, 400) << text_of(row, "id") << ": " << got.body;
        ++refused;
        if (text_of(expected, "phase") != "convert") continue;
        EXPECT_EQ(got.body, text_of(expected, "body")) << text_of(row, "id");
        ++equal;
    }
    EXPECT_GT(refused, 600);
    EXPECT_GT(equal, 400);
}

}  // namespace
}  // namespace fathom
