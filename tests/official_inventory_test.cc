// The released model's inventory, 96,085 tensors of 510 GB, written as sparse files with real
// headers: opening it must be quick and light, and nothing about it may surprise the reader.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>

#include "base/json.h"
#include "model/checkpoint.h"
#include "model/memory_plan.h"
#include "support.h"

namespace fathom {
namespace {

using testing::shared_path;
using testing::source_path;

constexpr const char* kInventory = "golden/official-inventory.json.gz";

std::string read_gzip(const std::string& path) {
    std::string text;
    const gzFile file = gzopen(path.c_str(), "rb");
    if (file == nullptr) return text;
    std::string chunk(std::size_t{1} << 16, '\0');
    for (int n = 0; (n = gzread(file, chunk.data(), static_cast<unsigned>(chunk.size()))) > 0;)
        text.append(chunk, 0, static_cast<std::size_t>(n));
    gzclose(file);
    return text;
}

struct Entry {
    std::string name, dtype, shape;
    std::int64_t bytes = 0, element = 1;
};

// The release's shards: a vision tower, the embedding, one a layer, head and norm, the draft
// stages, the Engram modules.
std::string shard_of(const std::string& name) {
    int number = 43;
    if (name.starts_with("vision.") || name.starts_with("aligner.") || name.starts_with("image_"))
        number = 1;
    else if (name.starts_with("embed."))
        number = 2;
    else if (name.find(".engram.") != std::string::npos)
        number = name.starts_with("layers.1.") ? 47 : 48;
    else if (name.starts_with("layers."))
        number = 3 + std::stoi(name.substr(7));
    else if (name.starts_with("mtp."))
        number = 44 + std::stoi(name.substr(4));
    return fmt::format("model-{:05}-of-00048.safetensors", number);
}

std::int64_t element_bytes(const std::string& dtype) {
    return dtype == "F32" ? 4 : dtype == "BF16" ? 2 : 1;
}

// VmRSS and VmHWM of this process.
std::int64_t memory_status_kib(const std::string& key) {
    std::ifstream file("/proc/self/status");
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with(key)) return std::stoll(line.substr(key.size() + 1));
    }
    return 0;
}

class OfficialInventory : public ::testing::Test {
  protected:
    static constexpr const char* kIndex = "model.safetensors.index.json";

    void SetUp() override {
        FATHOM_NEED_SHARED(kInventory);
        dir_ = std::filesystem::temp_directory_path() /
               ("fathom_inventory_" + std::to_string(::getpid()));
        std::filesystem::remove_all(dir_);
        std::filesystem::create_directories(dir_);
        std::filesystem::copy_file(source_path("tests/data/official_config.json"),
                                   dir_ / "config.json");
        auto inventory = parse_json(read_gzip(shared_path(kInventory)));
        ASSERT_TRUE(inventory.ok()) << inventory.status().message();
        write_checkpoint(*inventory);
    }
    void TearDown() override { std::filesystem::remove_all(dir_); }

    void write_checkpoint(const Json& inventory) {
        std::map<std::string, std::vector<Entry>> shards;
        std::string index = "{\"metadata\":{\"total_size\":510286023000},\"weight_map\":{";
        for (const auto& [name, value] : inventory.find("tensors")->members()) {
            Entry entry{name, value.items()[0].as_string(), value.items()[1].dump()};
            entry.element = element_bytes(entry.dtype);
            entry.bytes = entry.element;
            for (const Json& n : value.items()[1].items())
                entry.bytes *= n.as_int64();
            if (index.back() != '{') index += ',';
            index += fmt::format("\"{}\":\"{}\"", name, shard_of(name));
            shards[shard_of(name)].push_back(std::move(entry));
        }
        std::ofstream(dir_ / kIndex) << index << "}}";
        ASSERT_EQ(shards.size(), 48u);
        for (auto& [file, entries] : shards)
            write_shard(file, entries);
    }

    void write_shard(const std::string& file, std::vector<Entry>& entries) {
        std::stable_sort(entries.begin(), entries.end(),
                         [](const Entry& a, const Entry& b) { return a.element > b.element; });
        std::string header = "{";
        std::int64_t offset = 0;
        for (const Entry& entry : entries) {
            header += fmt::format(
                "{}\"{}\":{{\"dtype\":\"{}\",\"shape\":{},\"data_offsets\":[{},"
                "{}]}}",
                header.size() > 1 ? "," : "", entry.name, entry.dtype, entry.shape, offset,
                offset + entry.bytes);
            offset += entry.bytes;
        }
        header += '}';
        header.resize((header.size() + 7) / 8 * 8, ' ');
        const std::uint64_t length = header.size();
        const std::string path = (dir_ / file).string();
        {
            std::ofstream out(path, std::ios::binary);
            for (int i = 0; i < 8; ++i)
                out.put(static_cast<char>(length >> (8 * i) & 0xff));
            out << header;
            ASSERT_TRUE(out.good()) << path;
        }
        ASSERT_EQ(::truncate(path.c_str(), static_cast<off_t>(8 + length) + offset), 0)
            << path << ": the file system holds no sparse file of this size";
    }

    std::filesystem::path dir_;
};

TEST_F(OfficialInventory, OpensInSecondsWithinHalfAGigabyte) {
    const std::int64_t before_kib = memory_status_kib("VmRSS");
    const auto start = std::chrono::steady_clock::now();
    const auto checkpoint = Checkpoint::open(dir_.string());
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const std::int64_t resident_kib = memory_status_kib("VmRSS");
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    fmt::print("opened in {:.2f} s; resident {} MiB before, {} MiB after, {} MiB at most\n",
               seconds, before_kib / 1024, resident_kib / 1024, memory_status_kib("VmHWM") / 1024);

    const Checkpoint::Summary& summary = (*checkpoint)->summary();
    EXPECT_EQ(summary.tensors, 96085u);
    EXPECT_EQ(summary.bytes, 510286023000u);
    EXPECT_EQ(summary.shards, 48u);
    EXPECT_EQ(summary.copied_bytes, 0u);
    using CountAndBytes = std::pair<std::uint64_t, std::uint64_t>;
    const std::map<std::string, CountAndBytes> by_type = {
        {"BF16", CountAndBytes(520, 3952883712)},
        {"F32", CountAndBytes(387, 169229128)},
        {"F8_E4M3", CountAndBytes(357, 204015223296)},
        {"F8_E8M0", CountAndBytes(47589, 23563015184)},
        {"I8", CountAndBytes(47232, 278585671680)}};
    EXPECT_EQ(summary.by_type, by_type);
    // A server must be able to check what it was given before it gives it memory.
    EXPECT_LT(seconds, 10.0);
    EXPECT_LT(memory_status_kib("VmHWM") * 1024, 500'000'000);

    // A table's last row lies beyond 2^32 bytes; reading it touches one page.
    const EngramTable table = (*checkpoint)->engram_table(14);
    EXPECT_EQ(table.rows, 384016682);
    EXPECT_EQ(static_cast<const std::uint8_t*>(table.codes)[table.rows * table.dim - 1], 0);
    const WeightSource head = (*checkpoint)->weight("head");
    EXPECT_EQ(head.out, 129280);
    EXPECT_EQ(head.in, 5120);

    MemoryRequest request;
    request.pages = 8192;  // 1 Mi tokens
    request.sequences = 1;
    const MemoryPlan plan = plan_memory(**checkpoint, request);
    EXPECT_EQ(plan.mapped_bytes, 510286023000);
    fmt::print("{}", plan.to_text());
}

TEST_F(OfficialInventory, ATruncatedTableIsRefused) {
    const std::string path = (dir_ / "model-00048-of-00048.safetensors").string();
    const auto size = static_cast<off_t>(std::filesystem::file_size(path));
    ASSERT_EQ(::truncate(path.c_str(), size - 1), 0);
    const auto checkpoint = Checkpoint::open(dir_.string());
    ASSERT_FALSE(checkpoint.ok());
    EXPECT_EQ(checkpoint.status().code(), StatusCode::data_loss);
    EXPECT_THAT(checkpoint.status().message(),
                ::testing::HasSubstr("model-00048-of-00048.safetensors: tensor"));
    EXPECT_THAT(checkpoint.status().message(), ::testing::HasSubstr("run past the data section"));
}

}  // namespace
}  // namespace fathom
