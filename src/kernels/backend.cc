// Back ends by name, the CPU check, and the sizes of stored rows.
#include <string>

#include "base/check.h"
#include "kernels/ops.h"
#include "kernels/reference/create.h"

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
    if (name == "reference" || name == "auto") return make_reference_backend(std::move(pool));
    return invalid_argument("backend: \"{}\" is unknown; known: auto, reference", name);
}

}  // namespace fathom
