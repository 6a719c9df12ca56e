#include "kernels/x86/backend.h"

#include "kernels/reference/create.h"

namespace fathom::x86 {

const char* level_name(Level level) {
    return level == Level::avx512 ? "avx512" : "avx2";
}

Status check_level([[maybe_unused]] Level level) {
#if defined(__x86_64__)
    std::string missing;
    const auto need = [&](bool there, const char* feature) {
        if (there) return;
        if (!missing.empty()) missing += ", ";
        missing += feature;
    };
    need(__builtin_cpu_supports("avx2"), "AVX2");
    need(__builtin_cpu_supports("fma"), "FMA");
    if (level == Level::avx512) {
        need(__builtin_cpu_supports("avx512f"), "AVX512F");
        need(__builtin_cpu_supports("avx512bw"), "AVX512BW");
        need(__builtin_cpu_supports("avx512vl"), "AVX512VL");
        need(__builtin_cpu_supports("avx512dq"), "AVX512DQ");
        need(__builtin_cpu_supports("avx512bf16"), "AVX512_BF16");
        need(__builtin_cpu_supports("avx512vbmi"), "AVX512_VBMI");
        need(__builtin_cpu_supports("avx512vnni"), "AVX512_VNNI");
    }
    if (missing.empty()) return {};
    return error(StatusCode::unsupported, "this CPU lacks {}; the x86-{} kernels need it", missing,
                 level_name(level));
#else
    return error(StatusCode::unsupported, "the x86 kernels need an x86-64 CPU");
#endif
}

std::unique_ptr<Backend> create(std::shared_ptr<ComputePool> pool, Level level) {
    return std::make_unique<X86Backend>(std::move(pool), level);
}

X86Backend::X86Backend(std::shared_ptr<ComputePool> pool, Level level)
    : pool_(pool),
      level_(level),
      rows_(level == Level::avx512 ? avx512::row_kernels() : avx2::row_kernels()),
      mhc_(level == Level::avx512 ? avx512::mhc_kernels() : avx2::mhc_kernels()),
      cache_(level == Level::avx512 ? avx512::cache_kernels() : avx2::cache_kernels()),
      attention_(level == Level::avx512 ? avx512::attention_kernels() : avx2::attention_kernels()),
      select_(level == Level::avx512 ? avx512::select_kernels() : avx2::select_kernels()),
      index_(level == Level::avx512 ? avx512::index_kernels() : avx2::index_kernels()),
      linear_(level == Level::avx512 ? avx512::linear_kernels() : avx2::linear_kernels()),
      oracle_(reference::create(std::move(pool))) {}

const char* X86Backend::name() const {
    return level_ == Level::avx512 ? "x86-avx512" : "x86-avx2";
}

}  // namespace fathom::x86
