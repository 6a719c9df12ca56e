// CHECK: for what cannot happen. On in every build; prints where and why, then aborts. Never
// reachable from input: what a user, a file or a peer can cause is a Result (result.h). DCHECK is
// for invariants too costly to verify in release and is compiled out when NDEBUG is set.
#pragma once

#include <string_view>

namespace fathom {

[[noreturn]] void check_failed(const char* file, int line, const char* expression,
                               std::string_view detail = {});

}  // namespace fathom

#define FATHOM_CHECK(condition, ...)                                                           \
    do {                                                                                       \
        if (!(condition)) [[unlikely]]                                                         \
            ::fathom::check_failed(__FILE__, __LINE__, #condition __VA_OPT__(, ) __VA_ARGS__); \
    } while (false)

#ifdef NDEBUG
#define FATHOM_DCHECK(condition, ...) \
    do {                              \
    } while (false)
#else
#define FATHOM_DCHECK(condition, ...) FATHOM_CHECK(condition __VA_OPT__(, ) __VA_ARGS__)
#endif
