#include "bench/row_benches.h"

#include <fmt/core.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <string>

#include "base/random.h"

namespace fathom::bench {

namespace {

constexpr std::int64_t kRowsPerPage = 128, kLists = 48;

struct Free {
    void operator()(void* p) const { std::free(p); }
};

// Random bytes on huge pages.
class Memory {
  public:
    Memory(RandomStream& random, std::int64_t bytes) {
        constexpr std::int64_t kHuge = std::int64_t{2} << 20;
        const std::int64_t size = (bytes + kHuge - 1) / kHuge * kHuge;
        memory_.reset(
            static_cast<std::uint8_t*>(std::aligned_alloc(kHuge, static_cast<std::size_t>(size))));
        ::madvise(memory_.get(), static_cast<std::size_t>(size), MADV_HUGEPAGE);
        for (std::int64_t i = 0; i < size; i += 8) {
            const std::uint64_t word = random.next_u64();
            std::memcpy(memory_.get() + i, &word, 8);
        }
    }
    std::uint8_t* data() const { return memory_.get(); }

  private:
    std::unique_ptr<std::uint8_t, Free> memory_;
};

// Stored rows with random codes and ordinary scales, one sequence.
class Stored {
  public:
    Stored(RandomStream& random, KvFormat format, std::int64_t dim, std::int64_t rows)
        : memory_(random, rows * (kv_value_bytes(format, dim) + kv_scale_bytes(format, dim))) {
        const std::int64_t values = kRowsPerPage * kv_value_bytes(format, dim);
        const std::int64_t scales = kRowsPerPage * kv_scale_bytes(format, dim);
        for (std::int64_t p = 0; p < rows / kRowsPerPage; ++p) {
            pages_.push_back(memory_.data() + p * (values + scales));
            for (std::int64_t i = 0; format == KvFormat::window_fp8 && i < values; ++i) {
                std::uint8_t& code = pages_.back()[i];
                code = (code & 0x7f) == 0x7f ? 0 : code;  // no NaN
            }
            for (std::int64_t i = 0; i < scales; ++i) {
                std::uint8_t& scale = pages_.back()[values + i];
                scale = static_cast<std::uint8_t>(scale % 8 +
                                                  (format == KvFormat::main_fp4 ? 0x30 : 119));
            }
        }
        rows_ = {.pages = pages_,
                 .format = format,
                 .dim = dim,
                 .rows_per_page = kRowsPerPage,
                 .values_offset = 0,
                 .scales_offset = values};
    }
    const PagedRows& rows() const { return rows_; }

  private:
    Memory memory_;
    std::vector<std::uint8_t*> pages_;
    PagedRows rows_;
};

std::vector<Bf16> random_numbers(RandomStream& random, std::int64_t n) {
    std::vector<Bf16> x(static_cast<std::size_t>(n));
    for (Bf16& v : x)
        v = bf16_from_float(static_cast<float>(random.next_normal()));
    return x;
}
std::vector<float> random_floats(RandomStream& random, std::int64_t n) {
    std::vector<float> x(static_cast<std::size_t>(n));
    for (float& v : x)
        v = static_cast<float>(random.next_normal());
    return x;
}
Rows view(std::vector<Bf16>& x, std::int64_t cols) {
    return {x.data(), DType::bf16, static_cast<std::int64_t>(x.size()) / cols, cols, cols};
}

double cpu_seconds() {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

class RowBench {
  public:
    RowBench(Backend& backend, Paired& paired, Report& report, std::string_view only)
        : backend_(backend), paired_(paired), report_(report), only_(only) {}

    // Window rows that follow each other in FP8, 512 selected ones anywhere in FP4.
    void attention(const std::string& what, std::int64_t heads, std::int64_t queries) {
        if (!wanted(what)) return;
        constexpr std::int64_t kDim = 512, kWindow = 128, kSelected = 512;
        constexpr std::int64_t kStoredWindow = 1 << 16, kStored = 1 << 18;
        const Stored window(random_, KvFormat::window_fp8, kDim, kStoredWindow);
        const Stored main(random_, KvFormat::main_fp4, kDim, kStored);
        std::vector<std::vector<ConstKvRow>> windows(kLists);
        std::vector<std::vector<std::int32_t>> selected(kLists);
        std::vector<AttentionList> lists;
        for (std::int64_t i = 0; i < kLists; ++i) {
            auto first = static_cast<std::int64_t>(random_.next_below(kStoredWindow - kWindow));
            for (std::int64_t j = 0; j < kWindow; ++j) {
                const KvRow row = window.rows().row(first + j);
                windows[i].push_back({row.values, row.scales});
            }
            for (std::int64_t j = 0; j < kSelected; ++j)
                selected[i].push_back(static_cast<std::int32_t>(random_.next_below(kStored)));
            std::sort(selected[i].begin(), selected[i].end());
            lists.push_back({.window = windows[i],
                             .window_format = KvFormat::window_fp8,
                             .compressed = main.rows(),
                             .selected = selected[i]});
        }
        std::vector<Bf16> q = random_numbers(random_, queries * heads * kDim), o(q.size());
        const std::vector<float> sink(static_cast<std::size_t>(heads), 0.5f);
        const double products = static_cast<double>(queries * heads * (kWindow + kSelected) * kDim);
        paired_.report_flops(report_, what, {.flops = 4 * products}, [&](std::int64_t i) {
            const auto first = static_cast<std::size_t>(i * queries % kLists);
            backend_.sparse_attention(
                {.q = view(q, heads * kDim),
                 .heads = heads,
                 .head_dim = kDim,
                 .sink = sink,
                 .scale = 0.044f,
                 .lists = std::span(lists).subspan(first, static_cast<std::size_t>(queries)),
                 .o = view(o, heads * kDim)});
        });
    }

    void index_scores(const std::string& what) {
        if (!wanted(what)) return;
        constexpr std::int64_t kHeads = 32, kDim = 128, kKeys = 1 << 20, kScored = 1 << 14;
        const Stored keys(random_, KvFormat::index_fp4, kDim, kKeys);
        std::vector<Bf16> q = random_numbers(random_, kHeads * kDim);
        backend_.index_round_trip(view(q, kHeads * kDim));
        const std::vector<float> w = random_floats(random_, kHeads);
        std::vector<float> scores(kScored);
        const double products = static_cast<double>(kScored * kHeads * kDim);
        paired_.report_flops(report_, what, {.flops = 2 * products}, [&](std::int64_t i) {
            constexpr std::int64_t kPages = kScored / kRowsPerPage;
            PagedRows some = keys.rows();
            some.pages =
                some.pages.subspan(static_cast<std::size_t>(i * kPages % (kKeys / kRowsPerPage)),
                                   static_cast<std::size_t>(kPages));
            const IndexScoreArgs::Query query{
                .row = 0, .keys = some, .visible = kScored, .blocks = {}, .scores = scores};
            backend_.index_scores({.q = view(q, kHeads * kDim),
                                   .w = {w.data(), DType::f32, 1, kHeads, kHeads},
                                   .heads = kHeads,
                                   .dim = kDim,
                                   .queries = {&query, 1}});
        });
    }

    void select_top(const std::string& what, std::int64_t n) {
        if (!wanted(what)) return;
        constexpr std::int64_t kTop = 512;
        constexpr int kSamples = 41;
        std::vector<std::int32_t> out(kTop);
        std::vector<std::uint64_t> keys(static_cast<std::size_t>(n));
        std::vector<double> ratios, times;
        for (int s = 0; s < kSamples; ++s) {
            const std::vector<float> scores = random_floats(random_, n);
            const double start = cpu_seconds();
            backend_.select_top(scores, kTop, out);
            const double middle = cpu_seconds();
            for (std::int64_t i = 0; i < n; ++i) {
                const auto u = std::bit_cast<std::uint32_t>(scores[static_cast<std::size_t>(i)]);
                const std::uint32_t rank = (u & 0x80000000u) != 0 ? ~u : u | 0x80000000u;
                keys[static_cast<std::size_t>(i)] =
                    static_cast<std::uint64_t>(rank) << 32 | (0xffffffffu - i);
            }
            std::nth_element(keys.begin(), keys.begin() + kTop, keys.end(), std::greater<>());
            const double end = cpu_seconds();
            times.push_back(middle - start);
            ratios.push_back((end - middle) / times.back());
        }
        std::sort(ratios.begin(), ratios.end());
        std::sort(times.begin(), times.end());
        fmt::print("{:<20} {:>9.1f} us  {:.1f} times as fast as nth_element\n", what,
                   1e6 * times[kSamples / 2], ratios[kSamples / 2]);
        report_.add(what, ratios[kSamples / 2], "x");
    }

    // Operators on rows of 5120; rows that were not read lately, in turn.
    void rows() {
        constexpr std::int64_t kDim = 5120, kRows = 8192, kAtOnce = 32;
        if (!wanted("rms_norm") && !wanted("q8") && !wanted("rope") && !wanted("mhc.mix")) return;
        std::vector<Bf16> x = random_numbers(random_, kRows * kDim), y(kAtOnce * kDim);
        const std::vector<Bf16> w = random_numbers(random_, kDim);
        const auto some = [&](std::int64_t i) {
            return Rows{x.data() + i * kAtOnce % kRows * kDim, DType::bf16, kAtOnce, kDim, kDim};
        };
        const double bytes = 2.0 * 2 * kAtOnce * kDim;  // read and written
        if (wanted("rms_norm")) {
            paired_.report_read(report_, "rms_norm", {.bytes = bytes}, [&](std::int64_t i) {
                backend_.rms_norm(some(i), w.data(), 1e-20f, view(y, kDim));
            });
        }
        if (wanted("q8")) {
            paired_.report_read(report_, "q8", {.bytes = bytes}, [&](std::int64_t i) {
                backend_.q8_round_trip(some(i), view(y, kDim));
            });
        }
        if (wanted("rope")) {
            const RopeTable table = make_rope_table(10000, 64, {});
            std::vector<std::int64_t> positions(kAtOnce);
            std::iota(positions.begin(), positions.end(), 1000);
            paired_.report_read(report_, "rope", {.bytes = bytes / 8}, [&](std::int64_t i) {
                backend_.rope(some(i), kDim / 512, 512, positions, table, false);
            });
        }
        if (wanted("mhc.mix")) mhc_mix(x);
    }

  private:
    bool wanted(std::string_view what) const { return what.starts_with(only_); }

    // One token: bound by reading fn.
    void mhc_mix(std::vector<Bf16>& x) {
        constexpr std::int64_t kStreams = 4, kDim = 5120, kMixes = 24, kLayers = 32;
        constexpr std::int64_t kFn = kMixes * kStreams * kDim;
        const std::vector<float> fn = random_floats(random_, kLayers * kFn);
        const std::vector<float> base = random_floats(random_, kMixes);
        const std::vector<float> scale(3, 0.1f);
        std::vector<float> pre(kStreams), post(kStreams), comb(kStreams * kStreams);
        const Work work{.bytes = 4.0 * kFn, .flops = 2.0 * kFn};
        paired_.report_read(report_, "mhc.mix", work, [&](std::int64_t i) {
            backend_.mhc_mix({x.data(), DType::bf16, kStreams, kDim, kDim},
                             {.fn = fn.data() + i % kLayers * kFn,
                              .base = base.data(),
                              .scale = scale.data(),
                              .streams = kStreams,
                              .dim = kDim},
                             pre, post, comb);
        });
    }

    Backend& backend_;
    Paired& paired_;
    Report& report_;
    const std::string_view only_;
    RandomStream random_{2};
};

}  // namespace

void bench_rows(Backend& backend, Paired& paired, Report& report, std::string_view only) {
    RowBench bench(backend, paired, report, only);
    bench.attention("attention.640", 64, 1);
    bench.attention("attention.640.heads32", 32, 1);
    bench.attention("attention.640.prefill", 64, 8);
    bench.index_scores("index.score");
    bench.select_top("topk.262144", 262144);
    bench.select_top("topk.65536", 65536);
    bench.rows();
}

}  // namespace fathom::bench
