// Element formats and group quantisers against the reference results, bit for bit, with and without
// denormals flushed.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/compute_pool.h"
#include "base/formats.h"
#include "model/safetensors.h"
#include "support.h"

namespace fathom {
namespace {

using testing::shared_path;

// The parameter: whether FTZ and DAZ are on.
class GoldenFormats : public ::testing::TestWithParam<bool> {
  protected:
    void open(const std::string& name) {
        auto file = SafetensorsFile::open(shared_path("golden/kernels/" + name + ".safetensors"));
        ASSERT_TRUE(file.ok()) << file.status().to_string();
        file_ = std::move(*file);
        if (GetParam()) flush_.emplace();
    }

    template <typename T>
    std::vector<T> read(const std::string& name) {
        auto tensor = file_->tensor(name);
        EXPECT_TRUE(tensor.ok()) << tensor.status().to_string();
        if (!tensor.ok()) return {};
        EXPECT_EQ(tensor_type_bytes(tensor->type), static_cast<std::int64_t>(sizeof(T))) << name;
        std::vector<T> values(tensor->bytes / sizeof(T));
        std::memcpy(values.data(), tensor->data, values.size() * sizeof(T));
        return values;
    }

    std::vector<float> read_bf16(const std::string& name) {
        std::vector<float> values;
        for (const std::uint16_t bits : read<std::uint16_t>(name))
            values.push_back(bf16_to_float({bits}));
        return values;
    }

    // NaN codes are stored as 0 in the tables.
    void expect_table(const std::string& name, float (*decode)(std::uint8_t)) {
        const std::vector<float> table = read<float>(name);
        for (std::size_t code = 0; code < table.size(); ++code) {
            const float got = decode(static_cast<std::uint8_t>(code));
            if (got != got)
                EXPECT_EQ(table[code], 0.0f) << name << " code " << code;
            else
                EXPECT_EQ(std::bit_cast<std::uint32_t>(got),
                          std::bit_cast<std::uint32_t>(table[code]))
                    << name << " code " << code;
        }
    }

    template <typename T, typename Encode>
    void expect_codes(const std::string& input, const std::string& output, Encode encode) {
        const std::vector<float> x = read<float>(input);
        const std::vector<T> wanted = read<T>(output);
        ASSERT_EQ(x.size(), wanted.size());
        ASSERT_GT(x.size(), 100u);
        for (std::size_t i = 0; i < x.size(); ++i)
            EXPECT_EQ(encode(x[i]), wanted[i])
                << input << "[" << i << "] bits " << std::hex << std::bit_cast<std::uint32_t>(x[i]);
    }

    static void expect_same_bits(const std::vector<float>& got, const std::vector<float>& wanted,
                                 const std::string& what) {
        ASSERT_EQ(got.size(), wanted.size());
        for (std::size_t i = 0; i < got.size(); ++i)
            EXPECT_EQ(std::bit_cast<std::uint32_t>(got[i]), std::bit_cast<std::uint32_t>(wanted[i]))
                << what << "[" << i << "]";
    }

    std::unique_ptr<SafetensorsFile> file_;
    std::optional<FlushDenormals> flush_;
};

TEST_P(GoldenFormats, ScalarFormatsEqualTheReference) {
    FATHOM_NEED_SHARED("golden/kernels/scalar_formats.safetensors");
    ASSERT_NO_FATAL_FAILURE(open("scalar_formats"));
    expect_table("e4m3.table", e4m3_to_float);
    expect_table("e2m1.table", e2m1_to_float);
    expect_table("ue8m0.table", ue8m0_to_float);
    expect_codes<std::uint8_t>("e4m3.x", "e4m3.code", e4m3_from_float);
    expect_codes<std::uint8_t>("e2m1.x", "e2m1.code", e2m1_from_float);
    expect_codes<std::uint8_t>("ue8m0.x", "ue8m0.byte", ue8m0_from_float);
    expect_codes<std::uint16_t>("bf16.x", "bf16.bits",
                                [](float x) { return bf16_from_float(x).bits; });
}

TEST_P(GoldenFormats, Q8GroupsEqualTheReference) {
    FATHOM_NEED_SHARED("golden/kernels/group_quantisers.safetensors");
    ASSERT_NO_FATAL_FAILURE(open("group_quantisers"));
    const std::vector<float> x = read_bf16("q8.x");
    std::vector<std::uint8_t> codes(x.size()), scales(x.size() / kQ8Group);
    quantise_q8(x, codes, scales);
    EXPECT_EQ(codes, read<std::uint8_t>("q8.code"));
    EXPECT_EQ(scales, read<std::uint8_t>("q8.scale"));
    std::vector<float> back(x.size());
    dequantise_q8(codes, scales, back);
    expect_same_bits(back, read_bf16("q8.dequant"), "q8.dequant");
}

TEST_P(GoldenFormats, MainKvGroupsEqualTheReference) {
    FATHOM_NEED_SHARED("golden/kernels/group_quantisers.safetensors");
    ASSERT_NO_FATAL_FAILURE(open("group_quantisers"));
    const std::vector<float> x = read_bf16("main_kv.x");
    std::vector<std::uint8_t> packed(x.size() / 2), scales(x.size() / kMainKvGroup);
    quantise_main_kv(x, packed, scales);
    EXPECT_EQ(packed, read<std::uint8_t>("main_kv.packed"));
    EXPECT_EQ(scales, read<std::uint8_t>("main_kv.scale_e4m3"));
    std::vector<float> back(x.size());
    dequantise_main_kv(packed, scales, back);
    expect_same_bits(back, read_bf16("main_kv.dequant"), "main_kv.dequant");
}

TEST_P(GoldenFormats, IndexGroupsEqualTheReference) {
    FATHOM_NEED_SHARED("golden/kernels/group_quantisers.safetensors");
    ASSERT_NO_FATAL_FAILURE(open("group_quantisers"));
    const std::vector<float> x = read_bf16("index.x");
    std::vector<std::uint8_t> packed(x.size() / 2), scales(x.size() / kIndexGroup);
    quantise_index(x, packed, scales);
    EXPECT_EQ(packed, read<std::uint8_t>("index.packed"));
    EXPECT_EQ(scales, read<std::uint8_t>("index.scale"));
    std::vector<float> back(x.size());
    dequantise_index(packed, scales, back);
    expect_same_bits(back, read_bf16("index.dequant"), "index.dequant");
}

INSTANTIATE_TEST_SUITE_P(Mxcsr, GoldenFormats, ::testing::Values(false, true),
                         [](const auto& mode) { return mode.param ? "Flushed" : "Plain"; });

}  // namespace
}  // namespace fathom
