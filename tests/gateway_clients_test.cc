// The official OpenAI and Anthropic clients (tests/node) against the real program with the tiny
// model, and against a server whose output is scripted, for what a tiny model cannot be asked for.
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "gateway/server.h"
#include "gateway/testing/scripted_engine.h"
#include "gateway_process.h"

namespace fathom {
namespace {

using testing::Child;
using testing::ServeProcess;

constexpr std::int64_t kInstallUs = 300'000'000, kRunUs = 300'000'000;

bool available(const char* program) {
    Child probe({"sh", "-c", std::string("command -v ") + program});
    return probe.finish() == 0;
}

class ClientsTest : public ::testing::Test {
  protected:
    // Installed beside the build, so that the source tree stays as it is.
    void SetUp() override {
        for (const char* program : {"node", "npm"})
            if (!available(program)) GTEST_SKIP() << program << " is not installed";
        folder_ = std::filesystem::path(FATHOM_PROGRAM).parent_path() / "clients_test";
        std::filesystem::create_directories(folder_);
        for (const auto& file :
             std::filesystem::directory_iterator(testing::source_path("tests/node")))
            std::filesystem::copy_file(file, folder_ / file.path().filename(),
                                       std::filesystem::copy_options::overwrite_existing);
        if (std::filesystem::exists(folder_ / "node_modules/@anthropic-ai/sdk/package.json"))
            return;
        Child install({"npm", "ci", "--no-audit", "--no-fund", "--prefix", folder_.string()});
        if (install.finish(kInstallUs) != 0)
            GTEST_SKIP() << "npm could not install the clients: " << install.err();
    }

    void run(const char* script, const std::string& url, const char* model) {
        Child client({"node", (folder_ / script).string(), url, model});
        EXPECT_EQ(client.finish(kRunUs), 0) << client.out() << client.err();
    }

    std::filesystem::path folder_;
};

// What the last user message says behind "say:".
std::vector<TokenId> said(const EngineRequest& request) {
    const testing::ByteTokenizer tokenizer;
    const std::string prompt = tokenizer.decode(request.prompt);
    const std::size_t at = prompt.rfind("say:");
    if (at == std::string::npos) return {};
    const std::size_t end = prompt.rfind("<｜Assistant｜>");
    return testing::byte_ids(prompt.substr(at + 4, end - at - 4));
}

class ScriptedServer {
  public:
    ScriptedServer()
        : script_(std::make_shared<testing::Script>()),
          engine_(std::make_unique<testing::ScriptedCore>(script_, real_clock())) {
        script_->with([](testing::Script& script) { script.reply = said; });
        ServerOptions options;
        options.port = 0;
        options.owner.model_name = "scripted";
        auto server =
            Server::create(options, engine_, std::make_shared<testing::ByteTokenizer>(), metrics_);
        EXPECT_TRUE(server.ok()) << server.status().message();
        server_ = std::move(*server);
    }
    std::string url() const { return server_->url(); }

  private:
    MetricsRegistry metrics_;
    std::shared_ptr<testing::Script> script_;
    Engine engine_;
    std::unique_ptr<Server> server_;
};

TEST_F(ClientsTest, OpenAiWithTheTinyModel) {
    ServeProcess server;
    run("openai_test.js", server.url() + "/v1", "tiny");
}

TEST_F(ClientsTest, AnthropicWithTheTinyModel) {
    ServeProcess server;
    run("anthropic_test.js", server.url(), "tiny");
}

TEST_F(ClientsTest, OpenAiWithScriptedOutput) {
    ScriptedServer server;
    run("scripted_openai_test.js", server.url() + "/v1", "scripted");
}

TEST_F(ClientsTest, AnthropicWithScriptedOutput) {
    ScriptedServer server;
    run("scripted_anthropic_test.js", server.url() + "/anthropic", "scripted");
}

}  // namespace
}  // namespace fathom
