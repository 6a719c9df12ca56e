#include "cli/options.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "cli/settings.h"
#include "cli/test_folder.h"

namespace fathom {
namespace {

struct Example {
    std::string host = "127.0.0.1";
    std::int64_t port = 8000;
    bool verbose = false;
    std::vector<std::string> stop;
    std::string secret = "none";
    ConfigSchema schema;
    CommandSpec spec{.usage = "example [options]",
                     .summary = "An example.",
                     .tables = {"server", "sampling"},
                     .aliases = {{"--port", "server.port"},
                                 {"-v", "server.verbose"},
                                 {"--stop", "sampling.stop"},
                                 {"--other", "other.secret"}},
                     .positional_max = 1};

    Example() {
        schema.add("server.host", &host, "address");
        schema.add("server.port", &port, 0, 65'535, "port");
        schema.add("server.verbose", &verbose, "say more");
        schema.add("sampling.stop", &stop, "stop text");
        schema.add("other.secret", &secret, "of another command");
    }
    Result<CommandLine> parse(const std::vector<std::string>& args) {
        return parse_command_line(args, schema, spec);
    }
};

TEST(Options, FlagsBindByKeyAndByAlias) {
    Example example;
    const auto line = example.parse({"--port", "9000", "--server.host=0.0.0.0", "-v", "word"});
    ASSERT_TRUE(line.ok()) << line.status().message();
    EXPECT_EQ(example.port, 9000);
    EXPECT_EQ(example.host, "0.0.0.0");
    EXPECT_TRUE(example.verbose);
    EXPECT_EQ(line->positional, std::vector<std::string>{"word"});
}

TEST(Options, ListsTakeOneValueAFlagAndRepeat) {
    Example example;
    const auto line = example.parse({"--stop", "a", "--stop", "b c", "word"});
    ASSERT_TRUE(line.ok()) << line.status().message();
    EXPECT_EQ(example.stop, (std::vector<std::string>{"a", "b c"}));
    EXPECT_EQ(line->positional, std::vector<std::string>{"word"});
}

TEST(Options, ValuesMayLookLikeFlags) {
    Example example;
    ASSERT_TRUE(example.parse({"--stop=--x"}).ok());
    EXPECT_EQ(example.stop, std::vector<std::string>{"--x"});
    const auto line = example.parse({"--", "--port"});
    ASSERT_TRUE(line.ok());
    EXPECT_EQ(line->positional, std::vector<std::string>{"--port"});
}

TEST(Options, AnEmptyValueSwallowsNoWord) {
    Example example;
    const auto line = example.parse({"--server.host=", "word"});
    ASSERT_TRUE(line.ok()) << line.status().message();
    EXPECT_EQ(example.host, "");
    EXPECT_EQ(line->positional, std::vector<std::string>{"word"});
    EXPECT_EQ(example.parse({"--server.verbose=", "word"}).status().message(),
              "flag: server.verbose must be true or false, got \"\"");
    EXPECT_EQ(example.parse({"--port=", "1"}).status().message(),
              "flag: server.port must be an integer, got \"\"");
}

TEST(Options, ABooleanCanBeSwitchedOff) {
    Example example;
    example.verbose = true;
    ASSERT_TRUE(example.parse({"--server.verbose=false"}).ok());
    EXPECT_FALSE(example.verbose);
}

TEST(Options, FlagsWinOverTheFile) {
    const std::string path = test_folder() + "options_test.toml";
    std::ofstream(path) << "[server]\nport = 1\nhost = \"::1\"\n[other]\nsecret = \"s\"\n";
    Example example;
    const auto line = example.parse({"--port", "2", "--config", path});
    ASSERT_TRUE(line.ok()) << line.status().message();
    EXPECT_EQ(example.port, 2);
    EXPECT_EQ(example.host, "::1");
    EXPECT_EQ(example.secret, "s");  // a file serves all commands
    std::filesystem::remove(path);
}

TEST(Options, BadLinesAreRefusedWithWhatWouldBeRight) {
    const struct {
        std::vector<std::string> args;
        std::string message;
    } cases[] = {
        {{"--prot", "1"}, "unknown option \"--prot\", did you mean \"--port\"?"},
        {{"--qqqqqqqqqq"}, "unknown option \"--qqqqqqqqqq\"; --help lists the options"},
        {{"--other", "x"}, "unknown option \"--other\""},  // known, but not to this command
        {{"--port", "70000"}, "70000"},
        {{"--port", "many"}, "many"},
        {{"--port"}, "--port"},
        {{"a", "b"}, "unexpected argument \"b\"; usage: example [options]"},
        {{"--config", "/nonexistent/x.toml"}, "/nonexistent/x.toml"},
    };
    for (const auto& bad : cases) {
        Example example;
        const auto line = example.parse(bad.args);
        ASSERT_FALSE(line.ok()) << bad.args[0];
        EXPECT_NE(line.status().message().find(bad.message), std::string::npos)
            << line.status().message() << "\nexpected: " << bad.message;
    }
}

TEST(Options, HelpShowsTheCommandsOwnTables) {
    Example example;
    const auto line = example.parse({"--help", "--port", "1"});
    ASSERT_TRUE(line.ok());
    EXPECT_TRUE(line->help);
    const std::string text = help_text(example.schema, example.spec);
    EXPECT_NE(text.find("--port, --server.port"), std::string::npos);
    EXPECT_NE(text.find("stop text"), std::string::npos);
    EXPECT_EQ(text.find("of another command"), std::string::npos);
}

struct PoolFlags {
    Settings settings;
    ConfigSchema schema;
    PoolFlags() { bind_settings(settings, schema); }
    std::string idle(const std::vector<std::pair<std::string, std::string>>& flags) {
        for (const auto& [key, value] : flags)
            EXPECT_TRUE(schema.set_flag(key, value).ok()) << key;
        return idle_pool_settings(settings, schema);
    }
};

TEST(Settings, StagingOfThePoolIsBounded) {
    PoolFlags flags;
    EXPECT_TRUE(flags.schema.set_flag("pool.staging_mib", "16384").ok());
    EXPECT_EQ(flags.settings.pool.staging_mib, 16384);
    for (const char* beyond : {"0", "16385", "-1"}) {
        const Status refused = flags.schema.set_flag("pool.staging_mib", beyond);
        EXPECT_EQ(refused.code(), StatusCode::invalid_argument);
        EXPECT_NE(refused.message().find("16384"), std::string::npos) << refused.message();
    }
}

TEST(Settings, ThoseOfAPoolThatIsNotThereAreNamed) {
    EXPECT_EQ(PoolFlags().idle({}), "");
    EXPECT_EQ(PoolFlags().idle({{"pool.share", "all"}, {"engine.threads", "1"}}), "");
    const std::string idle =
        PoolFlags().idle({{"pool.writer", "a"}, {"pool.encrypt", ""}, {"pool.store", "embedded"}});
    EXPECT_EQ(idle.find("pool.store, pool.writer, pool.encrypt: without effect"), 0u) << idle;
    EXPECT_EQ(PoolFlags().idle({{"pool.dir", "/x"}, {"pool.encrypt", ""}}), "");
    EXPECT_EQ(PoolFlags().idle({{"pool.store", "rados"}, {"pool.encrypt", ""}}), "");
}

TEST(Settings, ClassesBelongToKeys) {
    const auto said = [](std::vector<std::string> keys, std::vector<std::string> classes) {
        Settings settings;
        settings.server.api_keys = std::move(keys);
        settings.pool.key_classes = std::move(classes);
        const Status status = check_key_classes(settings);
        EXPECT_EQ(status.message().find("secret"), std::string::npos);
        return status.message();
    };
    EXPECT_EQ(said({}, {}), "");
    EXPECT_EQ(said({"secret a", "secret b"}, {"agent"}), "");
    EXPECT_EQ(said({"secret a", "secret a"}, {"agent", "agent"}), "");
    EXPECT_NE(said({"secret a"}, {"agent", "chatbot"}).find("2 classes for 1 keys"),
              std::string::npos);
    EXPECT_NE(said({}, {"agent"}).find("1 classes for 0 keys"), std::string::npos);
    EXPECT_NE(said({"secret a", "secret b", "secret a"}, {"agent", "agent", "system"})
                  .find("entries 1 and 3 of server.api_keys are one key"),
              std::string::npos);
    EXPECT_NE(said({"secret a"}, {"agents"}).find("pool.key_classes"), std::string::npos);
}

// Every alias names a key that exists; a misspelt one would silently be no flag at all.
TEST(Settings, AliasesNameKeys) {
    Settings settings;
    ConfigSchema schema;
    bind_settings(settings, schema);
    for (const FlagAlias& alias : flag_aliases()) {
        bool found = false;
        for (const ConfigSchema::Option& option : schema.options())
            found = found || option.key == alias.key;
        EXPECT_TRUE(found) << alias.flag << " names " << alias.key;
    }
}

}  // namespace
}  // namespace fathom
