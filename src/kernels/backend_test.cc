#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/numerics.h"
#include "kernels/ops.h"
#include "kernels/x86/create.h"

namespace fathom {
namespace {

using ::testing::HasSubstr;

TEST(Backend, IsMadeByName) {
    const bool wide = x86::check_level(x86::Level::avx512).ok();
    const char* widest = wide ? "x86-avx512" : "x86-avx2";
    for (const auto& [name, full] : {std::pair{"reference", "reference"},
                                     {"x86-avx2", "x86-avx2"},
                                     {"x86", widest},
                                     {"auto", widest}}) {
        auto b = make_backend(name, std::make_shared<ComputePool>(1));
        ASSERT_TRUE(b.ok()) << b.status().to_string();
        EXPECT_STREQ((*b)->name(), full);
        EXPECT_EQ((*b)->pool().threads(), 1);
    }
    EXPECT_EQ(make_backend("x86-avx512", std::make_shared<ComputePool>(1)).ok(), wide);
}

TEST(Backend, UnknownNameIsRefusedWithTheKnownOnes) {
    const auto b = make_backend("gpu9", std::make_shared<ComputePool>(1));
    ASSERT_FALSE(b.ok());
    EXPECT_EQ(b.status().code(), StatusCode::invalid_argument);
    EXPECT_THAT(b.status().message(), HasSubstr("gpu9"));
    EXPECT_THAT(b.status().message(), HasSubstr("reference"));
}

TEST(NumericsCheck, DefaultsAndFp8OutputProjectionAreSupported) {
    EXPECT_TRUE(validate_numerics({}).ok());
    EXPECT_TRUE(validate_numerics({.mode = NumericMode::fp32}).ok());
    EXPECT_TRUE(validate_numerics({.woa = WoA::fp8}).ok());
}

TEST(NumericsCheck, NamedButUnsupportedValuesAreRefused) {
    const struct {
        Numerics numerics;
        const char* name;
    } rows[] = {
        {{.index_score = IndexScore::bf16_pairs}, "index_score = bf16_pairs"},
        {{.woa = WoA::fp8_out8}, "woa = fp8_out8"},
        {{.moe_inner = MoeInner::fp32}, "moe_inner = fp32"},
        {{.moe_order = MoeOrder::slot}, "moe_order = slot"},
        {{.mhc = MhcMix::tf32}, "mhc = tf32"},
        {{.main_kv_scale = MainKvScale::reciprocal}, "main_kv_scale = reciprocal"},
    };
    for (const auto& row : rows) {
        const Status status = validate_numerics(row.numerics);
        EXPECT_EQ(status.code(), StatusCode::unsupported);
        EXPECT_THAT(status.message(), HasSubstr(row.name));
        EXPECT_THAT(status.message(), HasSubstr("supported: "));
    }
}

}  // namespace
}  // namespace fathom
