// Back ends by name, the CPU check, and the sizes of stored rows.
#include <string>

#include "base/check.h"
#include "kernels/ops.h"
#include "kernels/reference/create.h"
#include "kernels/x86/create.h"

namespace fathom {

namespace {

Status check_cpu() {
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
        return error(StatusCode::unsupported,
                     "this CPU lacks {}; the reference back end needs AVX2 and FMA",
                     __builtin_cpu_supports("avx2") ? "FMA" : "AVX2");
    }
#endif
    return {};
}

}  // namespace

std::int64_t kv_value_bytes(KvFormat format, std::int64_t dim) {
    switch (format) {
        case KvFormat::window_fp8:
            return dim;
        case KvFormat::main_fp4:
        case KvFormat::index_fp4:
            return dim / 2;
        case KvFormat::bf16:
            return dim * 2;
        case KvFormat::f32:
            return dim * 4;
    }
    check_failed(__FILE__, __LINE__, "KvFormat out of range");
}

std::int64_t kv_scale_bytes(KvFormat format, std::int64_t dim) {
    switch (format) {
        case KvFormat::window_fp8:
            return dim / kQ8Group;
        case KvFormat::main_fp4:
            return dim / kMainKvGroup;
        case KvFormat::index_fp4:
            return dim / kIndexGroup;
        case KvFormat::bf16:
        case KvFormat::f32:
            return 0;
    }
    check_failed(__FILE__, __LINE__, "KvFormat out of range");
}

Result<std::unique_ptr<Backend>> make_reference_backend(std::shared_ptr<ComputePool> pool) {
    FATHOM_RETURN_IF_ERROR(check_cpu());
    return reference::create(std::move(pool));
}

Result<std::unique_ptr<Backend>> make_backend(const std::string& name,
                                              std::shared_ptr<ComputePool> pool) {
    if (name == "reference") return make_reference_backend(std::move(pool));
    x86::Level level = x86::Level::avx2;
    if (name == "auto" || name == "x86") {
        if (x86::check_level(x86::Level::avx512).ok()) level = x86::Level::avx512;
    } else if (name == "x86-avx512") {
        level = x86::Level::avx512;
    } else if (name != "x86-avx2") {
        return invalid_argument(
            "backend: \"{}\" is unknown; known: auto, reference, x86, x86-avx2, x86-avx512", name);
    }
    FATHOM_RETURN_IF_ERROR(x86::check_level(level));
    return x86::create(std::move(pool), level);
}

}  // namespace fathom
