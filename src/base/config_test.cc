#include "base/config.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>

namespace fathom {
namespace {

struct Options {
    std::string host = "127.0.0.1";
    std::int64_t port = 8000;
    bool verbose = false;
    double ratio = 0.5;
    std::vector<std::string> keys;
    std::string style = "auto";
    ConfigSchema schema;

    Options() {
        schema.add("server.host", &host, "address");
        schema.add("server.port", &port, 0, 65535, "port");
        schema.add("log.verbose", &verbose, "more lines");
        schema.add("engine.ratio", &ratio, 0.0, 1.0, "share");
        schema.add("server.api_keys", &keys, "keys", true);
        schema.add_choice("log.style", &style, {"auto", "text", "json"}, "style");
    }
    Options(const Options&) = delete;

    std::string origin_of(std::string_view key) const {
        for (const ConfigSchema::Origin& origin : schema.effective())
            if (origin.key == key) return origin.origin;
        return "absent";
    }
};

TEST(Config, ReadsEveryKindFromAFile) {
    Options options;
    const Status status = options.schema.load_text(
        "# a comment\n"
        "log.verbose = true\n"
        "engine = { ratio = 1 }\n"
        "[server]\n"
        "host = \"0.0.0.0\"\n"
        "port = 9_000\n"
        "api_keys = [\n  \"a\",\n  \"b\",\n]\n"
        "[log]\n"
        "style = 'json'\n",
        "x.toml");
    // A dotted key and a table header of one table contradict each other in TOML.
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(options.port, 8000) << "nothing is applied from a wrong file";

    ASSERT_TRUE(options.schema
                    .load_text("engine = { ratio = 1 }\n[server]\nhost = \"0.0.0.0\"\n"
                               "port = 9_000\napi_keys = [\n  \"a\",\n  \"b\",\n]\n"
                               "[log]\nverbose = true\nstyle = 'json'\n",
                               "x.toml")
                    .ok());
    EXPECT_EQ(options.host, "0.0.0.0");
    EXPECT_EQ(options.port, 9000);
    EXPECT_TRUE(options.verbose);
    EXPECT_EQ(options.ratio, 1.0);
    EXPECT_EQ(options.keys, (std::vector<std::string>{"a", "b"}));
    EXPECT_EQ(options.style, "json");
    EXPECT_EQ(options.origin_of("server.port"), "x.toml:4");
    EXPECT_EQ(options.origin_of("engine.ratio"), "x.toml:1");
}

TEST(Config, RefusesWithKeyValueAndLimit) {
    struct Case {
        const char *text, *error;
    };
    const Case cases[] = {
        {"[server]\nport = 70000", "t:2: server.port is 70000; the limits are 0..65535"},
        {"server.port = -1", "t:1: server.port is -1; the limits are 0..65535"},
        {"server.port = \"1\"", "t:1: server.port must be an integer, got a string"},
        {"server.port = 1.0", "t:1: server.port must be an integer, got a number with a point"},
        {"server.host = 1", "t:1: server.host must be a string, got an integer"},
        {"log.verbose = 1", "t:1: log.verbose must be true or false, got an integer"},
        {"engine.ratio = 1.5", "t:1: engine.ratio is 1.5; the limits are 0..1"},
        {"engine.ratio = inf", "t:1: engine.ratio is inf; the limits are 0..1"},
        {"engine.ratio = nan", "t:1: engine.ratio is not a number"},
        {"log.style = \"jsn\"", "t:1: log.style is \"jsn\"; it must be one of auto, text, json"},
        {"server.api_keys = \"a\"",
         "t:1: server.api_keys must be an array of strings, got a string"},
        {"server.api_keys = [\"a\", 1]",
         "t:1: server.api_keys must be an array of strings, but contains an integer"},
        {"server = 1", "t:1: unknown key \"server\""},
        {"server.host = 2020-01-01", "t:1: server.host must be a string, got a date or time"},
        {"[server]\nprot = 1", "t:2: unknown key \"server.prot\"; did you mean \"server.port\"?"},
        {"[sever]\nport = 1", "t:2: unknown key \"sever.port\"; did you mean \"server.port\"?"},
        {"[other]", "t:1: unknown key \"other\""},
        {"[server.port.x]\ny = 1", "t:2: unknown key \"server.port.x.y\""},
        {"\"server.port\" = 1", "t:1: unknown key \"\"server.port\"\"; did you mean"},
        {"[server]\nport = ", "t:2: "},
        {"[server]\nport = 1\nport = 2", "t:3: "},
        {"server.port = 99999999999999999999", "t:1: "},
        {"\xff = 1", "t:1: "},
    };
    for (const Case& c : cases) {
        Options options;
        const Status status = options.schema.load_text(c.text, "t");
        EXPECT_EQ(status.code(), StatusCode::invalid_argument) << c.text;
        EXPECT_EQ(status.message().substr(0, std::string(c.error).size()), c.error)
            << c.text << " gave: " << status.message();
    }
}

TEST(Config, RefusesWrongFlags) {
    struct Case {
        const char *key, *value, *error;
    };
    const Case cases[] = {
        {"server.port", "1x", "flag: server.port must be an integer, got \"1x\""},
        {"server.port", "", "flag: server.port must be an integer, got \"\""},
        {"server.port", "99999999999999999999", "flag: server.port must be an integer"},
        {"server.port", "65536", "flag: server.port is 65536; the limits are 0..65535"},
        {"log.verbose", "yes", "flag: log.verbose must be true or false, got \"yes\""},
        {"engine.ratio", "nan", "flag: engine.ratio is not a number"},
        {"log.styel", "text", "flag: unknown key \"log.styel\"; did you mean \"log.style\"?"},
        {"zzz", "1", "flag: unknown key \"zzz\""},
    };
    for (const Case& c : cases) {
        Options options;
        const Status status = options.schema.set_flag(c.key, c.value);
        EXPECT_EQ(status.message().substr(0, std::string(c.error).size()), c.error)
            << status.message();
    }
}

TEST(Config, ListFlagsReplaceTheFileAndAppendToEachOther) {
    Options options;
    ASSERT_TRUE(options.schema.load_text("server.api_keys = [\"file\"]", "t").ok());
    ASSERT_TRUE(options.schema.set_flag("server.api_keys", "one").ok());
    ASSERT_TRUE(options.schema.set_flag("server.api_keys", "two,three").ok());
    EXPECT_EQ(options.keys, (std::vector<std::string>{"one", "two,three"}));
    ASSERT_TRUE(options.schema.load_text("server.api_keys = [\"later\"]", "t").ok());
    EXPECT_EQ(options.keys, (std::vector<std::string>{"one", "two,three"}));
}

TEST(Config, FlagBeatsFileBeatsDefaultInAnyOrder) {
    EXPECT_TRUE(rc::check([] {
        Options options;
        const auto steps = *rc::gen::container<std::vector<std::pair<bool, int>>>(
            rc::gen::pair(rc::gen::arbitrary<bool>(), rc::gen::inRange(0, 65536)));
        std::int64_t wanted = 8000;
        std::string origin = "default";
        for (const auto& [flag, port] : steps) {
            const std::string text = std::to_string(port);
            if (flag) {
                RC_ASSERT(options.schema.set_flag("server.port", text).ok());
            } else {
                RC_ASSERT(options.schema.load_text("\n[server]\nport = " + text, "f").ok());
                if (origin == "flag") continue;
            }
            wanted = port;
            origin = flag ? "flag" : "f:3";
        }
        RC_ASSERT(options.port == wanted);
        RC_ASSERT(options.origin_of("server.port") == origin);
    }));
}

TEST(Config, EffectiveValuesHideSecretsAndCanBeReadBack) {
    Options options;
    ASSERT_TRUE(options.schema.set_flag("server.host", "a\"b\\\n\u00e9").ok());
    std::string text;
    for (const ConfigSchema::Origin& origin : options.schema.effective())
        text += origin.key + " = " + origin.value + "  # " + origin.origin + "\n";
    Options again;
    const Status status = again.schema.load_text(text, "dump");
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(again.host, options.host);

    ASSERT_TRUE(options.schema.set_flag("server.api_keys", "s3cret").ok());
    for (const ConfigSchema::Origin& origin : options.schema.effective())
        EXPECT_EQ(origin.value.find("s3cret"), std::string::npos);
    EXPECT_EQ(options.schema.effective()[4].value, "(set)");
}

TEST(Config, ListsOptionsInDeclarationOrder) {
    Options options;
    std::int64_t positive = 1, any = 0;
    options.schema.add("z.positive", &positive, 1, std::numeric_limits<std::int64_t>::max(), "");
    options.schema.add("a.any", &any, std::numeric_limits<std::int64_t>::min(),
                       std::numeric_limits<std::int64_t>::max(), "");
    const auto all = options.schema.options();
    ASSERT_EQ(all.size(), 8u);
    EXPECT_EQ(all[0].key, "server.host");
    EXPECT_EQ(all[0].default_text, "127.0.0.1");
    EXPECT_EQ(all[1].choices_or_range, "0..65535");
    EXPECT_TRUE(all[2].is_bool);
    EXPECT_EQ(all[3].default_text, "0.5");
    EXPECT_EQ(all[5].choices_or_range, "auto|text|json");
    EXPECT_EQ(all[6].choices_or_range, "at least 1");
    EXPECT_EQ(all[7].choices_or_range, "");
}

TEST(Config, RefusesKeysOfMorePartsThanAnyCouldHave) {
    std::string deep;
    for (int i = 0; i < 50'000; ++i)
        deep += "a.";
    const std::string dots(200, '.');
    const std::string cases[] = {deep + "b = 1\n", "[" + deep + "b]\n", "x = {" + deep + "b = 1}\n",
                                 "# \"\n\"\"\"\n" + deep + "b = 1\n"};
    for (const std::string& text : cases) {
        ConfigSchema schema;
        EXPECT_FALSE(schema.load_text(text, "file f").ok()) << text.substr(0, 20);
    }
    std::string value;
    ConfigSchema schema;
    schema.add("a.text", &value, "");
    for (const std::string& text :
         {"a.text = \"" + dots + "\"", "# " + dots + "\na.text = '" + dots + "'",
          "a.text = \"\"\"\n" + dots + "\"\"\""}) {
        const Status status = schema.load_text(text, "file f");
        EXPECT_TRUE(status.ok()) << status.message();
        EXPECT_EQ(value, dots);
    }
}

TEST(Config, ReportsUnreadableFiles) {
    Options options;
    const std::string directory =
        (std::filesystem::temp_directory_path() / ("fathom_config_" + std::to_string(::getpid())))
            .string();
    std::filesystem::create_directories(directory);
    const std::string path = directory + "/f.toml";
    EXPECT_EQ(options.schema.load_file(path).code(), StatusCode::not_found);
    EXPECT_EQ(options.schema.load_file(directory).message(),
              "configuration file " + directory + " is not a regular file");
    std::ofstream(path) << "\n\nserver.port = 1\n";
    EXPECT_TRUE(options.schema.load_file(path).ok());
    EXPECT_EQ(options.origin_of("server.port"), "file " + path + ":3");
    std::ofstream(path, std::ios::trunc).close();
    EXPECT_NE(options.schema.load_file("/proc/self/mem")
                  .message()
                  .find("configuration file: /proc/self/mem: cannot be read"),
              std::string::npos)
        << "a file that calls itself empty is read all the same";
    EXPECT_TRUE(options.schema.load_file(path).ok()) << "an empty file changes nothing";
    std::ofstream(path) << std::string((1 << 20) + 1, '#');
    EXPECT_NE(options.schema.load_file(path).message().find("the limit is 1048576"),
              std::string::npos);
    std::filesystem::remove_all(directory);
}

TEST(NearestWord, SuggestsOnlyCloseWords) {
    const std::vector<std::string> words = {"serve", "generate", "chat", "inspect", "bench"};
    EXPECT_EQ(nearest_word("sevre", words), "serve");
    EXPECT_EQ(nearest_word("generat", words), "generate");
    EXPECT_EQ(nearest_word("chta", words), "chat");
    EXPECT_EQ(nearest_word("chat", words), "chat");
    EXPECT_EQ(nearest_word("xyz", words), "");
    EXPECT_EQ(nearest_word("", words), "");
    EXPECT_EQ(nearest_word("a", {}), "");
    EXPECT_EQ(nearest_word(std::string(100'000, 'x'), words), "");
}

}  // namespace
}  // namespace fathom
