#include "bench/linear_benches.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"

namespace fathom::bench {

namespace {

constexpr std::int64_t kDim = 5120, kInner = 2304;
constexpr std::int64_t kRotatedBytes = std::int64_t{256} << 20;

std::vector<std::uint8_t> random_bytes(RandomStream& random, std::int64_t n) {
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>((n + 7) / 8 * 8));
    for (std::size_t i = 0; i < bytes.size(); i += 8) {
        const std::uint64_t word = random.next_u64();
        std::memcpy(bytes.data() + i, &word, 8);
    }
    return bytes;
}

// A matrix with random codes; the checkpoint's form is dropped once packed.
struct Source {
    std::vector<std::uint8_t> codes, scales;
    WeightSource view;

    Source(RandomStream& random, WeightFormat format, std::int64_t out, std::int64_t in) {
        const std::int64_t groups = in / 32;
        switch (format) {
            case WeightFormat::fp4_row32:
                codes = random_bytes(random, out * in / 2);
                scales.assign(static_cast<std::size_t>(out * groups), 119);
                break;
            case WeightFormat::fp8_block32:
                codes = random_bytes(random, out * in);
                for (std::uint8_t& c : codes)
                    c = (c & 0x7f) == 0x7f ? 0 : c;  // no NaN
                scales.assign(static_cast<std::size_t>((out + 31) / 32 * groups), 119);
                break;
            case WeightFormat::bf16:
            case WeightFormat::f32:
                codes = random_bytes(random, out * in * 2);
                for (std::size_t i = 1; i < codes.size(); i += 2)  // of ordinary size
                    codes[i] = static_cast<std::uint8_t>((codes[i] & 0x80) | 0x3c);
                break;
        }
        view = {.format = format,
                .out = out,
                .in = in,
                .codes = codes.data(),
                .scales = scales.empty() ? nullptr : scales.data()};
    }
};

class Inputs {
  public:
    Inputs(RandomStream& random, std::int64_t rows, std::int64_t cols)
        : rows_(rows), cols_(cols), values_(static_cast<std::size_t>(rows * cols)) {
        for (Bf16& v : values_)
            v = bf16_from_float(static_cast<float>(random.next_below(15)) - 7.0f);
    }
    Rows view() { return {values_.data(), DType::bf16, rows_, cols_, cols_}; }

  private:
    std::int64_t rows_, cols_;
    std::vector<Bf16> values_;
};

class LinearBench {
  public:
    LinearBench(Backend& backend, Paired& paired, Report& report, std::string_view only)
        : backend_(backend), paired_(paired), report_(report), only_(only) {}

    void linear(const char* what, WeightFormat format, std::int64_t out, std::int64_t in,
                std::int64_t rows, std::int64_t rotated_bytes = kRotatedBytes) {
        if (!wanted(what)) return;
        std::vector<std::unique_ptr<PackedWeight>> weights;
        for (std::int64_t bytes = 0; bytes < rotated_bytes || weights.empty();) {
            const Source source(random_, format, out, in);
            weights.push_back(backend_.pack(source.view));
            bytes += size_of(*weights.back());
        }
        Inputs x(random_, rows, in), y(random_, rows, out);
        const Work work{.bytes = static_cast<double>(size_of(*weights[0])),
                        .flops = 2.0 * static_cast<double>(rows * out * in)};
        const auto call = [&](std::int64_t i) {
            backend_.linear(x.view(), *weights[static_cast<std::size_t>(i) % weights.size()],
                            y.view());
        };
        rows == 1 ? paired_.report_read(report_, what, work, call)
                  : paired_.report_flops(report_, what, work, call);
    }

    // Every row chooses top_k of the experts, all of them equally often.
    void moe(const char* what, std::int64_t experts, std::int64_t top_k, std::int64_t rows,
             bool with_shared) {
        if (!wanted(what)) return;
        std::vector<PackedExpert> routed;
        for (std::int64_t e = 0; e < experts; ++e)
            routed.push_back(expert(WeightFormat::fp4_row32));
        const PackedExpert shared = expert(WeightFormat::fp8_block32);
        const auto bytes_of = [](const PackedExpert& e) {
            return static_cast<double>(size_of(*e.gate_up) + size_of(*e.down));
        };
        Inputs x(random_, rows, kDim), y(random_, rows, kDim);
        const Numerics numerics;
        std::vector<std::int32_t> chosen(static_cast<std::size_t>(rows * top_k));
        const std::vector<float> weights(chosen.size(), 0.25f);
        const double used = rows * top_k < experts ? static_cast<double>(rows * top_k)
                                                   : static_cast<double>(experts);
        const Work work{
            .bytes = used * bytes_of(routed[0]) + (with_shared ? bytes_of(shared) : 0),
            .flops = 6.0 * static_cast<double>(rows * (top_k + with_shared) * kDim * kInner)};
        const auto call = [&](std::int64_t i) {
            for (std::int64_t r = 0; r < rows; ++r) {
                const auto row = chosen.begin() + r * top_k;
                for (std::int64_t s = 0; s < top_k; ++s)
                    row[s] = static_cast<std::int32_t>(((i * rows + r) * top_k + s) % experts);
                std::sort(row, row + top_k);
            }
            backend_.moe({.x_q8 = x.view(),
                          .top_k = top_k,
                          .experts = chosen,
                          .weights = weights,
                          .routed = routed,
                          .shared = with_shared ? &shared : nullptr,
                          .swiglu_limit = 10,
                          .numerics = &numerics,
                          .y = y.view()});
        };
        rows == 1 ? paired_.report_read(report_, what, work, call)
                  : paired_.report_flops(report_, what, work, call);
    }

  private:
    bool wanted(std::string_view what) const { return what.starts_with(only_); }

    // What a call reads of a weight: its packed form, or else the source's.
    template <class Packed>
    static std::int64_t size_of(const Packed& w) {
        return std::max<std::int64_t>(w.bytes(), 1);
    }
    PackedExpert expert(WeightFormat format) {
        const Source gate(random_, format, kInner, kDim), up(random_, format, kInner, kDim);
        const Source down(random_, format, kDim, kInner);
        return {backend_.pack_gate_up(gate.view, up.view), backend_.pack(down.view)};
    }

    Backend& backend_;
    Paired& paired_;
    Report& report_;
    const std::string_view only_;
    RandomStream random_{1};
};

}  // namespace

void bench_linears(Backend& backend, Paired& paired, Report& report, std::string_view only) {
    LinearBench bench(backend, paired, report, only);
    constexpr auto kFp4 = WeightFormat::fp4_row32, kFp8 = WeightFormat::fp8_block32;
    constexpr auto kBf16 = WeightFormat::bf16;
    bench.linear("linear.fp4.m1", kFp4, kInner, kDim, 1);
    bench.linear("linear.fp8.m1", kFp8, 1280, kDim, 1);
    bench.linear("linear.bf16.m1", kBf16, 640, kDim, 1);
    bench.linear("linear.fp4.m4", kFp4, kInner, kDim, 4);
    bench.linear("linear.fp4.m8", kFp4, kInner, kDim, 8);
    bench.linear("linear.fp4.m16", kFp4, kInner, kDim, 16);
    bench.linear("linear.fp4.m48", kFp4, kInner, kDim, 48);
    bench.linear("linear.fp4.m192", kFp4, kInner, kDim, 192);
    bench.linear("linear.fp8.m8", kFp8, 1280, kDim, 8);
    bench.linear("linear.fp8.m32", kFp8, 1280, kDim, 32);
    bench.linear("linear.fp8.m96", kFp8, 1280, kDim, 96);
    bench.linear("micro.bf16", kBf16, 64, 512, 96, 0);  // one panel, in the nearest caches
    bench.moe("moe.decode", 12, 6, 1, true);
    bench.moe("moe.prefill48", 4, 3, 64, false);
}

}  // namespace fathom::bench
