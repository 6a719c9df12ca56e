#include "base/machine_limits.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "base/huge_memory.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace fathom {

namespace {

// Twelve independent chains fill two pipes of latency up to 6.
constexpr int kChains = 12;
constexpr std::int64_t kSteps = 1 << 20;

// Each runs `steps` rounds of all chains in registers. Nobody wants the sums: the empty statement
// keeps the compiler from dropping them.
#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) void chains_avx2(std::int64_t steps) {
    __m256 a[kChains], x = _mm256_set1_ps(0.5f);
    for (auto& v : a)
        v = _mm256_set1_ps(1.0f);
    for (std::int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 12
        for (int c = 0; c < kChains; ++c)
            a[c] = _mm256_fmadd_ps(a[c], x, x);
    }
    for (auto& v : a)
        asm volatile("" : "+x"(v));
}

__attribute__((target("avx512f"))) void chains_avx512(std::int64_t steps) {
    __m512 a[kChains], x = _mm512_set1_ps(0.5f);
    for (auto& v : a)
        v = _mm512_set1_ps(1.0f);
    for (std::int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 12
        for (int c = 0; c < kChains; ++c)
            a[c] = _mm512_fmadd_ps(a[c], x, x);
    }
    for (auto& v : a)
        asm volatile("" : "+v"(v));
}

__attribute__((target("avx512f,avx512bf16"))) void chains_bf16(std::int64_t steps) {
    __m512 a[kChains];
    const __m512bh x = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.5f), _mm512_set1_ps(0.25f));
    for (auto& v : a)
        v = _mm512_set1_ps(1.0f);
    for (std::int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 12
        for (int c = 0; c < kChains; ++c)
            a[c] = _mm512_dpbf16_ps(a[c], x, x);
    }
    for (auto& v : a)
        asm volatile("" : "+v"(v));
}
#endif

constexpr std::int64_t kReadUnit = std::int64_t{2} << 20;
constexpr std::int64_t kLine = 64;
constexpr std::int64_t kPrefetchBytes = 8 << 10;

// Reads every line of [p, p + bytes), a multiple of 512 bytes, and nothing else. The results of the
// loads go nowhere, so the compiler must be kept from dropping them.
#if defined(__x86_64__)
__attribute__((target("avx2"))) void read_lines(const std::byte* p, std::int64_t bytes) {
    __m256i sum[8] = {};
    for (std::int64_t at = 0; at < bytes; at += 8 * kLine) {
#pragma GCC unroll 8
        for (std::int64_t line = 0; line < 8; ++line) {
            const std::byte* from = p + at + line * kLine;
            _mm_prefetch(reinterpret_cast<const char*>(from + kPrefetchBytes), _MM_HINT_T0);
            sum[line] = _mm256_xor_si256(sum[line],
                                         _mm256_load_si256(reinterpret_cast<const __m256i*>(from)));
            sum[line] = _mm256_xor_si256(
                sum[line], _mm256_load_si256(reinterpret_cast<const __m256i*>(from + 32)));
        }
    }
    for (__m256i& s : sum)
        asm volatile("" : "+x"(s));
}
#else
void read_lines(const std::byte* p, std::int64_t bytes) {
    std::uint64_t sum = 0;
    for (std::int64_t at = 0; at < bytes; at += 8) {
        std::uint64_t word = 0;
        std::memcpy(&word, p + at, 8);
        sum += word;
    }
    volatile std::uint64_t keep = sum;
    (void)keep;
}
#endif

// Operations per second when every thread runs `burst` once, best of three.
double rate(ComputePool& pool, const std::function<double()>& burst) {
    const int threads = pool.threads();
    std::vector<double> done(static_cast<std::size_t>(threads));
    const double seconds = best_seconds(3, [&] {
        pool.run(threads, [&](std::int64_t t) { done[static_cast<std::size_t>(t)] = burst(); });
    });
    return std::accumulate(done.begin(), done.end(), 0.0) / seconds;
}

}  // namespace

std::string cpu_name() {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
        if (line.rfind("model name", 0) != 0) continue;
        const std::size_t colon = line.find(": ");
        if (colon != std::string::npos) return line.substr(colon + 2);
    }
    return "unknown";
}

std::string isa_name() {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512bf16")) return "avx512-bf16";
    if (__builtin_cpu_supports("avx512f")) return "avx512";
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "avx2";
    return "x86-64";
#else
    return "other";
#endif
}

double run_fp32_flops([[maybe_unused]] std::int64_t steps, [[maybe_unused]] int lanes_max) {
#if defined(__x86_64__)
    const double each = 2.0 * kChains * static_cast<double>(steps);
    if (lanes_max >= 16 && __builtin_cpu_supports("avx512f")) {
        chains_avx512(steps);
        return 16 * each;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        chains_avx2(steps);
        return 8 * each;
    }
#endif
    return 0;
}

double run_bf16_flops([[maybe_unused]] std::int64_t steps) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512bf16")) {
        chains_bf16(steps);
        return 64.0 * kChains * static_cast<double>(steps);
    }
#endif
    return 0;
}

double peak_fp32_flops(ComputePool& pool, int lanes_max) {
    return rate(pool, [lanes_max] { return run_fp32_flops(kSteps, lanes_max); });
}

double peak_bf16_flops(ComputePool& pool) {
    return rate(pool, [] { return run_bf16_flops(kSteps); });
}

ReadProbe::ReadProbe(ComputePool& pool, std::int64_t bytes) : pool_(pool) {
    const std::int64_t unit = kReadUnit * pool.threads();
    bytes_ = (bytes + unit - 1) / unit * unit;
    memory_ = map_huge_memory(bytes_);
    FATHOM_CHECK(memory_ != nullptr, "no memory for the read probe");
    pool_.run_shares(bytes_ / kReadUnit, [&](std::int64_t begin, std::int64_t end) {
        std::memset(memory_.get() + begin * kReadUnit, 1,
                    static_cast<std::size_t>((end - begin) * kReadUnit));
    });
}

double ReadProbe::bytes_per_second() {
    const auto read = [&](std::int64_t begin, std::int64_t end) {
        read_lines(memory_.get() + begin * kReadUnit, (end - begin) * kReadUnit);
    };
    const auto start = std::chrono::steady_clock::now();
    pool_.run_ranges(bytes_ / kReadUnit, 1, read);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    return static_cast<double>(bytes_) / taken.count();
}

std::int64_t ReadProbe::read_some() {
    const std::int64_t bytes = std::min(4 * kReadUnit, bytes_ - next_);
    read_lines(memory_.get() + next_, bytes);
    next_ = (next_ + bytes) % bytes_;
    return bytes;
}

double read_bandwidth(ComputePool& pool) {
    ReadProbe probe(pool);
    double best = 0;
    for (int i = 0; i < 3; ++i)
        best = std::max(best, probe.bytes_per_second());
    return best;
}

double best_seconds(int repeats, const std::function<void()>& call) {
    double best = 1e300;
    for (int i = 0; i < repeats; ++i) {
        const auto start = std::chrono::steady_clock::now();
        call();
        const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
        best = std::min(best, taken.count());
    }
    return best;
}

}  // namespace fathom
