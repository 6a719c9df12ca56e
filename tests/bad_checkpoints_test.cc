// Every way in which a checkpoint can be wrong, with the message it must give. Configs that break a
// rule are lines of data/bad_configs.jsonl; broken files are made here from a small valid
// checkpoint.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "base/json.h"
#include "model/checkpoint.h"
#include "support.h"

namespace fathom {
namespace {

using ::testing::HasSubstr;
using testing::source_path;

namespace fs = std::filesystem;

constexpr const char* kIndex = "model.safetensors.index.json";

std::string read_text(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

void write_text(const fs::path& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
}

// The parts of a small checkpoint before they become files; cases change them.
struct Parts {
    Json config;
    std::map<std::string, ExpectedTensor> tensors;  // by name in the file
    std::map<std::string, std::string> shard;       // of each tensor
    std::map<std::string, std::string> index;       // tensor, shard, as the index says
    std::optional<std::int64_t> total_size;         // set to override

    void rename(const std::string& from, const std::string& to) {
        auto node = tensors.extract(from);
        node.key() = to;
        tensors.insert(std::move(node));
        shard[to] = shard.at(from);
        index[to] = index.at(from);
        shard.erase(from);
        index.erase(from);
    }
    void erase(const std::string& name) {
        tensors.erase(name);
        shard.erase(name);
        index.erase(name);
    }
    void add(const std::string& name, TensorType type, std::vector<std::int64_t> shape,
             const std::string& file) {
        tensors[name] = {name, type, std::move(shape)};
        shard[name] = index[name] = file;
    }
};

Parts small_checkpoint() {
    Parts parts;
    auto config = parse_json_file(source_path("tests/data/small_config.json"));
    EXPECT_TRUE(config.ok()) << config.status().message();
    parts.config = *config;
    const auto parsed = parse_model_config(parts.config);
    EXPECT_TRUE(parsed.ok()) << parsed.status().message();
    for (const ExpectedTensor& tensor : expected_tensors(*parsed)) {
        const bool layer = tensor.name.starts_with("layers.");
        parts.add(tensor.name, tensor.type, tensor.shape,
                  layer ? "layers.safetensors" : "rest.safetensors");
    }
    return parts;
}

void write_checkpoint(const Parts& parts, const fs::path& dir) {
    fs::create_directories(dir);
    write_text(dir / "config.json", parts.config.dump());
    std::map<std::string, std::vector<TensorToWrite>> shards;
    std::int64_t total = 0;
    static const std::vector<std::uint8_t> zeros(1 << 20, 0);
    for (const auto& [name, tensor] : parts.tensors) {
        std::int64_t bytes = tensor_type_bytes(tensor.type);
        for (std::int64_t n : tensor.shape)
            bytes *= n;
        ASSERT_LE(bytes, static_cast<std::int64_t>(zeros.size()));
        total += bytes;
        shards[parts.shard.at(name)].push_back({name, tensor.type, tensor.shape, zeros.data()});
    }
    for (const auto& [file, tensors] : shards)
        ASSERT_TRUE(write_safetensors((dir / file).string(), tensors).ok());
    Json map = Json::object();
    for (const auto& [name, file] : parts.index)
        map.set(name, file);
    Json metadata = Json::object();
    metadata.set("total_size", parts.total_size.value_or(total));
    Json index = Json::object();
    index.set("metadata", std::move(metadata));
    index.set("weight_map", std::move(map));
    write_text(dir / kIndex, index.dump());
}

class TempDir {
  public:
    TempDir() : path_(fs::temp_directory_path() / fmt::format("fathom_bad_{}", ::getpid())) {
        fs::remove_all(path_);
    }
    ~TempDir() { fs::remove_all(path_); }
    const fs::path& path() const { return path_; }

  private:
    fs::path path_;
};

TEST(SmallCheckpoint, IsValid) {
    const TempDir dir;
    write_checkpoint(small_checkpoint(), dir.path());
    const auto checkpoint = Checkpoint::open(dir.path().string());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    EXPECT_EQ((*checkpoint)->summary().shards, 2u);
}

TEST(SmallCheckpoint, MayNameTensorsWithThePrefix) {
    const TempDir dir;
    Parts parts = small_checkpoint();
    // In the shard and in the index, and in the index alone.
    parts.rename("layers.0.attn.wq_a.weight", "model.layers.0.attn.wq_a.weight");
    parts.index["model.norm.weight"] = parts.index.at("norm.weight");
    parts.index.erase("norm.weight");
    write_checkpoint(parts, dir.path());
    const auto checkpoint = Checkpoint::open(dir.path().string());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    EXPECT_TRUE((*checkpoint)->has("layers.0.attn.wq_a.weight"));
    EXPECT_TRUE((*checkpoint)->has("norm.weight"));
}

TEST(SmallCheckpoint, MayCarryTheDraftersCopies) {
    const TempDir dir;
    Parts parts = small_checkpoint();
    parts.add("mtp.0.embed.weight", TensorType::bf16, {64, 64}, "rest.safetensors");
    parts.add("mtp.0.head.weight", TensorType::bf16, {64, 64}, "rest.safetensors");
    write_checkpoint(parts, dir.path());
    const auto checkpoint = Checkpoint::open(dir.path().string());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    EXPECT_EQ((*checkpoint)->summary().ignored, 2u);
    EXPECT_FALSE((*checkpoint)->has("mtp.0.head.weight"));
}

TEST(SmallCheckpoint, NeedsNoIndexWhenItIsOneFile) {
    const TempDir dir;
    Parts parts = small_checkpoint();
    for (auto& [name, file] : parts.shard)
        file = "model.safetensors";
    write_checkpoint(parts, dir.path());
    fs::remove(dir.path() / kIndex);
    const auto checkpoint = Checkpoint::open(dir.path().string());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
}

TEST(SmallCheckpoint, ListsAllProblemsOnRequest) {
    const TempDir dir;
    Parts parts = small_checkpoint();
    parts.erase("norm.weight");
    parts.erase("head.weight");
    parts.add("stray", TensorType::u8, {1}, "rest.safetensors");
    write_checkpoint(parts, dir.path());
    std::vector<std::string> problems;
    CheckpointOptions options;
    options.problems = &problems;
    const auto checkpoint = Checkpoint::open(dir.path().string(), options);
    ASSERT_FALSE(checkpoint.ok());
    EXPECT_EQ(problems.size(), 3u);
    EXPECT_THAT(checkpoint.status().message(), HasSubstr("(and 2 more)"));
}

// --------------------------------------------------------------------------------------- configs

// Sets "a.b.c" of an object.
void set_path(Json& object, const std::string& path, const Json& value) {
    const std::size_t dot = path.find('.');
    if (dot == std::string::npos) return object.set(path, value);
    Json member = *object.find(path.substr(0, dot));
    set_path(member, path.substr(dot + 1), value);
    object.set(path.substr(0, dot), std::move(member));
}

TEST(BadConfigs, GiveTheirMessages) {
    const TempDir dir;
    fs::create_directories(dir.path());
    const Json valid = *parse_json_file(source_path("tests/data/small_config.json"));
    std::ifstream table(source_path("tests/data/bad_configs.jsonl"));
    int rows = 0;
    for (std::string line; std::getline(table, line); ++rows) {
        const auto row = parse_json(line);
        ASSERT_TRUE(row.ok()) << line;
        SCOPED_TRACE(row->find("name")->as_string());
        Json config = valid;
        for (const auto& [path, value] : row->find("set")->members())
            set_path(config, path, value);
        write_text(dir.path() / "config.json", config.dump());
        std::vector<std::string> problems;
        CheckpointOptions options;
        options.problems = &problems;
        const auto checkpoint = Checkpoint::open(dir.path().string(), options);
        ASSERT_FALSE(checkpoint.ok());
        EXPECT_EQ(checkpoint.status().code(), StatusCode::invalid_argument);
        EXPECT_THAT(checkpoint.status().message(), HasSubstr("config.json: "));
        EXPECT_THAT(problems, ::testing::Contains(HasSubstr(row->find("message")->as_string())));
    }
    EXPECT_GE(rows, 60);
}

TEST(BadConfigs, ThatAreNoJsonGiveTheirMessages) {
    const TempDir dir;
    fs::create_directories(dir.path());
    const std::vector<std::pair<std::string, const char*>> cases = {
        {"", "config.json"},
        {"{", "config.json"},
        {"not json", "config.json"},
        {"[]", "expected a JSON object, got array"},
        {"7", "expected a JSON object, got integer"},
        {std::string(2 << 20, ' '), "config.json"},
        {std::string(100000, '['), "config.json"},
    };
    for (const auto& [text, message] : cases) {
        write_text(dir.path() / "config.json", text);
        const auto checkpoint = Checkpoint::open(dir.path().string());
        ASSERT_FALSE(checkpoint.ok());
        EXPECT_THAT(checkpoint.status().message(), HasSubstr(message)) << text.substr(0, 20);
    }
}

// ----------------------------------------------------------------------------------------- files

struct BadFiles {
    const char* name;
    std::function<void(Parts&)> change;         // before the files are written, or null
    std::function<void(const fs::path&)> edit;  // afterwards, or null
    StatusCode code;
    const char* message;
};

// Replaces text in a file by text of the same length, so that offsets stay.
void patch(const fs::path& path, const std::string& from, const std::string& to) {
    ASSERT_EQ(from.size(), to.size());
    std::string text = read_text(path);
    const std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    write_text(path, text.replace(at, from.size(), to));
}

void write_length(const fs::path& path, std::uint64_t length) {
    std::string text = read_text(path);
    for (std::size_t i = 0; i < 8; ++i)
        text[i] = static_cast<char>(length >> (8 * i) & 0xff);
    write_text(path, text);
}

constexpr auto kInvalid = StatusCode::invalid_argument;
constexpr auto kLoss = StatusCode::data_loss;
constexpr auto kAbsent = StatusCode::not_found;

std::vector<BadFiles> whole_files() {
    return {
        {"directory_absent", nullptr, [](const fs::path& d) { fs::remove_all(d); }, kAbsent,
         "is not a directory"},
        {"config_absent", nullptr, [](const fs::path& d) { fs::remove(d / "config.json"); },
         kAbsent, "config.json does not exist"},
        {"index_absent", nullptr, [](const fs::path& d) { fs::remove(d / kIndex); }, kAbsent,
         "has neither model.safetensors.index.json nor model.safetensors"},
        {"index_no_json", nullptr, [](const fs::path& d) { write_text(d / kIndex, "{{"); },
         kInvalid, "model.safetensors.index.json: index"},
        {"index_empty", nullptr, [](const fs::path& d) { write_text(d / kIndex, ""); }, kInvalid,
         "model.safetensors.index.json: index"},
        {"index_without_map", nullptr, [](const fs::path& d) { write_text(d / kIndex, "{}"); },
         kInvalid, "weight_map is missing"},
        {"index_names_nothing", nullptr,
         [](const fs::path& d) { write_text(d / kIndex, R"({"weight_map":{}})"); }, kAbsent,
         "tensor embed.weight is missing, expected BF16 [64, 64]"},
        {"shard_absent", nullptr, [](const fs::path& d) { fs::remove(d / "layers.safetensors"); },
         kAbsent, "names shard layers.safetensors, which does not exist in"},
        {"shard_is_directory", nullptr,
         [](const fs::path& d) {
             fs::remove(d / "layers.safetensors");
             fs::create_directory(d / "layers.safetensors");
         },
         kInvalid, "layers.safetensors is not a regular file"},
        {"shard_empty", nullptr,
         [](const fs::path& d) { write_text(d / "layers.safetensors", ""); }, kLoss,
         "layers.safetensors: 0 bytes, too short for the 8-byte header length"},
        {"shard_truncated_in_data", nullptr,
         [](const fs::path& d) {
             fs::resize_file(d / "layers.safetensors", fs::file_size(d / "layers.safetensors") - 1);
         },
         kLoss, "run past the data section of"},
        {"shard_truncated_in_header", nullptr,
         [](const fs::path& d) { fs::resize_file(d / "layers.safetensors", 100); }, kLoss,
         "runs past the file's 100 bytes"},
        {"shard_with_tail", nullptr,
         [](const fs::path& d) {
             fs::resize_file(d / "layers.safetensors", fs::file_size(d / "layers.safetensors") + 3);
         },
         kInvalid, "the last 3 of"},
        {"header_absurd", nullptr,
         [](const fs::path& d) { write_length(d / "layers.safetensors", 1ULL << 62); }, kInvalid,
         "header length 4611686018427387904 exceeds the limit of 100000000"},
        {"header_no_json", nullptr,
         [](const fs::path& d) { patch(d / "layers.safetensors", "{\"layers.", "hello wor"); },
         kInvalid, "layers.safetensors: header"},
    };
}

std::vector<BadFiles> broken_headers() {
    return {
        {"offsets_overlap", nullptr,
         [](const fs::path& d) {
             const std::string header =
                 R"({"norm.weight":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},)"
                 R"("head.weight":{"dtype":"BF16","shape":[2],"data_offsets":[2,6]}})";
             write_text(d / "rest.safetensors",
                        std::string(8, '\0') + header + std::string(6, '\0'));
             write_length(d / "rest.safetensors", header.size());
         },
         kInvalid, "tensor \"head.weight\": data_offsets [2, 6] overlap tensor \"norm.weight\""},
        {"dtype_unknown", nullptr,
         [](const fs::path& d) { patch(d / "rest.safetensors", "\"BF16\"", "\"BF61\""); }, kInvalid,
         "dtype \"BF61\" is unknown"},
        {"dtype_swapped", nullptr,
         [](const fs::path& d) {
             patch(d / "layers.safetensors", "\"dtype\":\"I8\"", "\"dtype\":\"U8\"");
         },
         kInvalid, "has dtype U8, expected I8"},
        {"field_renamed", nullptr,
         [](const fs::path& d) { patch(d / "rest.safetensors", "data_offsets", "data_0ffsets"); },
         kInvalid, "field \"data_0ffsets\" is unknown"},
    };
}

std::vector<BadFiles> wrong_tensors() {
    return {
        {"tensor_missing", [](Parts& p) { p.erase("layers.2.attn.wkv.scale"); }, nullptr, kAbsent,
         "tensor layers.2.attn.wkv.scale is missing, expected F8_E8M0 [1, 2]"},
        {"expert_missing", [](Parts& p) { p.erase("layers.4.ffn.experts.1.w2.weight"); }, nullptr,
         kAbsent, "tensor layers.4.ffn.experts.1.w2.weight is missing, expected I8 [64, 16]"},
        {"engram_missing", [](Parts& p) { p.erase("layers.0.engram.embed.weight"); }, nullptr,
         kAbsent, "tensor layers.0.engram.embed.weight is missing, expected F8_E4M3 [11, 32]"},
        {"tensor_foreign",
         [](Parts& p) {
             p.add("layers.0.hc_attn_norm.weight", TensorType::bf16, {64}, "layers.safetensors");
         },
         nullptr, kInvalid, "tensor \"layers.0.hc_attn_norm.weight\" is foreign"},
        {"gate_where_ratio_is_one",
         [](Parts& p) {
             p.add("layers.3.attn.compressor.wgate.weight", TensorType::bf16, {32, 64},
                   "layers.safetensors");
         },
         nullptr, kInvalid, "tensor \"layers.3.attn.compressor.wgate.weight\" is foreign"},
        {"layer_too_many",
         [](Parts& p) {
             p.add("layers.5.attn_norm.weight", TensorType::bf16, {64}, "layers.safetensors");
         },
         nullptr, kInvalid, "tensor \"layers.5.attn_norm.weight\" is foreign"},
        {"dtype_wrong",
         [](Parts& p) { p.tensors.at("layers.1.attn.attn_sink").type = TensorType::bf16; }, nullptr,
         kInvalid, "tensor layers.1.attn.attn_sink has dtype BF16, expected F32"},
        {"fp8_where_unquantised", [](Parts& p) { p.config.set("quantization_config", Json()); },
         nullptr, kInvalid, "tensor layers.0.attn.wq_a.weight has dtype F8_E4M3, expected BF16"},
        {"shape_wrong",
         [](Parts& p) {
             p.tensors.at("embed.weight").shape = {63, 64};
         },
         nullptr, kInvalid, "tensor embed.weight has shape [63, 64], expected [64, 64]"},
        {"shape_transposed",
         [](Parts& p) {
             p.tensors.at("layers.0.attn.wq_a.weight").shape = {64, 32};
         },
         nullptr, kInvalid,
         "tensor layers.0.attn.wq_a.weight has shape [64, 32], expected [32, 64]"},
        {"rank_wrong",
         [](Parts& p) {
             p.tensors.at("norm.weight").shape = {1, 64};
         },
         nullptr, kInvalid, "tensor norm.weight has shape [1, 64], expected [64]"},
        {"vocabulary_of_another",
         [](Parts& p) { set_path(p.config, "text_config.vocab_size", Json(65)); }, nullptr,
         kInvalid, "tensor embed.weight has shape [64, 64], expected [65, 64]"},
    };
}

std::vector<BadFiles> wrong_index() {
    return {
        {"path_traversal", [](Parts& p) { p.index.at("norm.weight") = "../rest.safetensors"; },
         nullptr, kInvalid,
         "tensor \"norm.weight\" names shard \"../rest.safetensors\", which is no plain file name"},
        {"absolute_path", [](Parts& p) { p.index.at("norm.weight") = "/etc/passwd"; }, nullptr,
         kInvalid, "names shard \"/etc/passwd\", which is no plain file name"},
        {"shard_name_empty", [](Parts& p) { p.index.at("norm.weight") = ""; }, nullptr, kInvalid,
         "names shard \"\", which is no plain file name"},
        {"shard_is_parent", [](Parts& p) { p.index.at("norm.weight") = ".."; }, nullptr, kInvalid,
         "names shard \"..\", which is no plain file name"},
        {"shard_is_config", [](Parts& p) { p.index.at("norm.weight") = "config.json"; }, nullptr,
         kInvalid, "config.json: header length"},
        {"tensor_in_no_shard", [](Parts& p) { p.index["layers.0.extra"] = "layers.safetensors"; },
         nullptr, kLoss,
         "names tensor \"layers.0.extra\" in shard layers.safetensors, which has no such tensor"},
        {"tensor_not_in_index", [](Parts& p) { p.index.erase("norm.weight"); }, nullptr, kInvalid,
         "rest.safetensors: tensor \"norm.weight\" is not in the index"},
        {"tensor_elsewhere", [](Parts& p) { p.index.at("norm.weight") = "layers.safetensors"; },
         nullptr, kInvalid,
         "tensor \"norm.weight\" belongs into shard layers.safetensors by the index"},
        {"tensor_in_two_shards", nullptr,
         [](const fs::path& d) {
             // The same file under a second name, which the index uses for one tensor.
             fs::copy_file(d / "rest.safetensors", d / "more.safetensors");
             std::string index = read_text(d / kIndex);
             const std::string entry = "\"norm.weight\":\"rest.safetensors\"";
             const std::size_t at = index.rfind("," + entry);
             ASSERT_NE(at, std::string::npos);
             write_text(d / kIndex, index.replace(at + 1, entry.size(),
                                                  "\"norm.weight\":\"more.safetensors\""));
         },
         kInvalid, "belongs into shard"},
        {"name_with_and_without_prefix",
         [](Parts& p) { p.index["model.norm.weight"] = "rest.safetensors"; }, nullptr, kInvalid,
         "tensor \"norm.weight\" is named twice, with and without the prefix"},
        {"name_twice", nullptr,
         [](const fs::path& d) {
             std::string index = read_text(d / kIndex);
             const std::size_t at = index.find("\"weight_map\":{");
             ASSERT_NE(at, std::string::npos);
             write_text(d / kIndex, index.insert(at + 14, "\"norm.weight\":\"rest.safetensors\","));
         },
         kInvalid, "weight_map names tensor \"norm.weight\" twice"},
        {"total_size_wrong", [](Parts& p) { p.total_size = 12345; }, nullptr, kLoss,
         "metadata.total_size = 12345, the tensors have"},
        {"total_size_negative", [](Parts& p) { p.total_size = -1; }, nullptr, kInvalid,
         "metadata.total_size must be a non-negative integer"},
    };
}

class BadCheckpoints : public ::testing::TestWithParam<BadFiles> {};

void PrintTo(const BadFiles& c, std::ostream* out) {
    *out << c.name;
}

TEST_P(BadCheckpoints, GiveTheirMessages) {
    const BadFiles& c = GetParam();
    const TempDir dir;
    Parts parts = small_checkpoint();
    if (c.change) c.change(parts);
    write_checkpoint(parts, dir.path());
    if (c.edit) c.edit(dir.path());
    const auto checkpoint = Checkpoint::open(dir.path().string());
    ASSERT_FALSE(checkpoint.ok());
    EXPECT_EQ(checkpoint.status().code(), c.code) << checkpoint.status().to_string();
    EXPECT_THAT(checkpoint.status().message(), HasSubstr(c.message));
    EXPECT_THAT(checkpoint.status().message(), HasSubstr(dir.path().string()));
}

std::string case_name(const ::testing::TestParamInfo<BadFiles>& test) {
    return test.param.name;
}

INSTANTIATE_TEST_SUITE_P(Files, BadCheckpoints, ::testing::ValuesIn(whole_files()), case_name);
INSTANTIATE_TEST_SUITE_P(Headers, BadCheckpoints, ::testing::ValuesIn(broken_headers()), case_name);
INSTANTIATE_TEST_SUITE_P(Tensors, BadCheckpoints, ::testing::ValuesIn(wrong_tensors()), case_name);
INSTANTIATE_TEST_SUITE_P(Index, BadCheckpoints, ::testing::ValuesIn(wrong_index()), case_name);

}  // namespace
}  // namespace fathom
