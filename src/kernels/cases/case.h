// Operators on made-up inputs, for whoever wants to run the same work twice: the unit tests (other
// splits of the rows, other thread counts) and compare_backends_bench (two back ends). A case is
// data; adding one means adding a row to a table in one of the *_cases.h files.
//
// Inputs are drawn at several magnitudes, with signed zeros, denormals and extreme scales among
// them. These headers serve tests and benchmarks only; nothing in the library includes them.
#pragma once

#include <bit>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/formats.h"
#include "base/random.h"
#include "kernels/ops.h"

namespace fathom::cases {

// A case bound to a back end (weights packed, buffers made) and a range of its rows.
struct Bound {
    std::function<void()> run;  // once; repeatable
    std::function<std::vector<float>()>
        outputs;  // every number that the last run wrote, in row order
};

struct OperatorCase {
    std::string what;          // "linear fp4 [96, 2304] bf16 wide"
    std::int64_t rows = 0;     // independent rows
    double multiply_adds = 0;  // of all rows, roughly
    // Binds rows [begin, end). The back end must outlive the result.
    std::function<Bound(Backend&, std::int64_t begin, std::int64_t end)> bind;
};

// ----------------------------------------------------------------------------------------- inputs

enum class Magnitude {
    ordinary,  // standard normal
    wide,      // exponents spread over 2^±20, zeros of both signs among them
    tiny,      // around the smallest normal numbers and below
    huge,      // up to 2^60: products and sums stay finite
};

inline const char* magnitude_name(Magnitude m) {
    constexpr const char* kNames[] = {"ordinary", "wide", "tiny", "huge"};
    return kNames[static_cast<int>(m)];
}

inline float random_number(RandomStream& random, Magnitude m) {
    const auto normal = static_cast<float>(random.next_normal());
    const auto exponent = static_cast<int>(random.next_below(41)) - 20;
    switch (m) {
        case Magnitude::ordinary:
            return normal;
        case Magnitude::wide:
            if (random.next_below(16) == 0) return random.next_below(2) != 0 ? -0.0f : 0.0f;
            return std::ldexp(normal, exponent);
        case Magnitude::tiny:
            return std::ldexp(normal, exponent / 2 - 124);
        case Magnitude::huge:
            return std::ldexp(normal, exponent / 2 + 48);
    }
    return 0;
}

// Numbers in the activation dtype, row-major.
class Matrix {
  public:
    Matrix(DType dtype, std::int64_t rows, std::int64_t cols)
        : dtype_(dtype),
          rows_(rows),
          cols_(cols),
          bytes_(static_cast<std::size_t>(rows * cols * dtype_bytes(dtype))) {}

    std::int64_t rows() const { return rows_; }
    std::int64_t cols() const { return cols_; }
    Rows view() { return {bytes_.data(), dtype_, rows_, cols_, cols_}; }
    Rows view(std::int64_t begin, std::int64_t end) {
        return {bytes_.data() + begin * cols_ * dtype_bytes(dtype_), dtype_, end - begin, cols_,
                cols_};
    }
    void set(std::int64_t i, float x) {
        if (dtype_ == DType::f32) {
            reinterpret_cast<float*>(bytes_.data())[i] = x;
        } else {
            reinterpret_cast<Bf16*>(bytes_.data())[i] = bf16_from_float(x);
        }
    }
    std::vector<float> numbers() const {
        std::vector<float> out(static_cast<std::size_t>(rows_ * cols_));
        for (std::size_t i = 0; i < out.size(); ++i) {
            out[i] = dtype_ == DType::f32
                         ? reinterpret_cast<const float*>(bytes_.data())[i]
                         : bf16_to_float(reinterpret_cast<const Bf16*>(bytes_.data())[i]);
        }
        return out;
    }

  private:
    DType dtype_;
    std::int64_t rows_, cols_;
    std::vector<std::byte> bytes_;
};
using MatrixPtr = std::shared_ptr<Matrix>;

inline MatrixPtr random_matrix(RandomStream& random, DType dtype, std::int64_t rows,
                               std::int64_t cols, Magnitude m = Magnitude::ordinary) {
    auto x = std::make_shared<Matrix>(dtype, rows, cols);
    for (std::int64_t i = 0; i < rows * cols; ++i)
        x->set(i, random_number(random, m));
    return x;
}

inline std::vector<float> random_floats(RandomStream& random, std::int64_t n,
                                        Magnitude m = Magnitude::ordinary) {
    std::vector<float> x(static_cast<std::size_t>(n));
    for (float& v : x)
        v = random_number(random, m);
    return x;
}

inline std::vector<Bf16> random_bf16(RandomStream& random, std::int64_t n) {
    std::vector<Bf16> x(static_cast<std::size_t>(n));
    for (Bf16& v : x)
        v = bf16_from_float(static_cast<float>(random.next_normal()));
    return x;
}

// The dequantised Q8 image of a row set: what quantised linears are fed.
inline void quantise_rows(Matrix& x) {
    const std::vector<float> numbers = x.numbers();
    const auto cols = static_cast<std::size_t>(x.cols());
    std::vector<std::uint8_t> codes(cols), scales(cols / kQ8Group);
    std::vector<float> out(cols);
    for (std::size_t i = 0; i < numbers.size(); i += cols) {
        quantise_q8({numbers.data() + i, cols}, codes, scales);
        dequantise_q8(codes, scales, out);
        for (std::size_t k = 0; k < cols; ++k)
            x.set(static_cast<std::int64_t>(i + k), out[k]);
    }
}

// ---------------------------------------------------------------------------------------- weights

inline const char* format_name(WeightFormat f) {
    constexpr const char* kNames[] = {"fp8", "fp4", "bf16", "f32"};
    return kNames[static_cast<int>(f)];
}

struct Weight {
    std::vector<std::uint8_t> codes, scales;
    WeightSource source;
};

// Scale bytes lie within `spread` of 2^-8 (or, with spread 127, anywhere in the format).
inline std::shared_ptr<Weight> random_weight(RandomStream& random, WeightFormat format,
                                             std::int64_t out, std::int64_t in, int spread = 4) {
    auto w = std::make_shared<Weight>();
    const std::int64_t groups = (in + 31) / 32;
    const auto scale_bytes = [&](std::int64_t n) {
        w->scales.resize(static_cast<std::size_t>(n));
        for (auto& s : w->scales) {
            const auto offset = static_cast<int>(random.next_below(2 * spread + 1)) - spread;
            s = static_cast<std::uint8_t>(std::min(std::max(119 + offset, 0), 254));
        }
    };
    const auto numbers = [&](auto zero, auto convert) {
        w->codes.resize(static_cast<std::size_t>(out * in) * sizeof zero);
        auto* p = reinterpret_cast<decltype(zero)*>(w->codes.data());
        for (std::int64_t i = 0; i < out * in; ++i) {
            p[i] = convert(static_cast<float>(random.next_normal() * 0.05));
        }
    };
    switch (format) {
        case WeightFormat::fp8_block32:
            w->codes.resize(static_cast<std::size_t>(out * in));
            for (auto& c : w->codes) {  // every code but the two NaNs
                do
                    c = static_cast<std::uint8_t>(random.next_u64());
                while ((c & 0x7f) == 0x7f);
            }
            scale_bytes((out + 31) / 32 * groups);
            break;
        case WeightFormat::fp4_row32:
            w->codes.resize(static_cast<std::size_t>(out * in / 2));
            for (auto& c : w->codes)
                c = static_cast<std::uint8_t>(random.next_u64());
            scale_bytes(out * groups);
            break;
        case WeightFormat::bf16:
            numbers(Bf16{}, [](float x) { return bf16_from_float(x); });
            break;
        case WeightFormat::f32:
            numbers(float{}, [](float x) { return x; });
            break;
    }
    w->source = {.format = format,
                 .out = out,
                 .in = in,
                 .codes = w->codes.data(),
                 .scales = w->scales.empty() ? nullptr : w->scales.data()};
    return w;
}

// -------------------------------------------------------------------------------------- stored KV

inline const char* format_name(KvFormat f) {
    constexpr const char* kNames[] = {"window_fp8", "main_fp4", "index_fp4", "bf16", "f32"};
    return kNames[static_cast<int>(f)];
}

// Rows of one sequence on pages of 64 rows, filled through store_kv of whatever back end is bound.
struct StoredRows {
    StoredRows(KvFormat format, std::int64_t dim, std::int64_t rows) : count(rows) {
        constexpr std::int64_t kRowsPerPage = 64;
        const std::int64_t values = kRowsPerPage * kv_value_bytes(format, dim);
        const std::int64_t scales = kRowsPerPage * kv_scale_bytes(format, dim);
        const std::int64_t page_count = (rows + kRowsPerPage - 1) / kRowsPerPage;
        memory.resize(static_cast<std::size_t>(page_count * (values + scales)));
        for (std::int64_t p = 0; p < page_count; ++p) {
            pages.push_back(memory.data() + p * (values + scales));
        }
        paged = {.pages = pages,
                 .format = format,
                 .dim = dim,
                 .rows_per_page = kRowsPerPage,
                 .values_offset = 0,
                 .scales_offset = values};
    }
    StoredRows(const StoredRows&) = delete;
    StoredRows& operator=(const StoredRows&) = delete;

    void fill(Backend& backend, KvKind kind, Matrix& x) {
        std::vector<KvRow> rows;
        for (std::int64_t j = 0; j < count; ++j)
            rows.push_back(paged.row(j));
        backend.store_kv(x.view(), kind, paged.format, rows);
    }
    ConstKvRow row(std::int64_t j) const {
        const KvRow r = paged.row(j);
        return {r.values, r.scales};
    }

    std::int64_t count;
    std::vector<std::uint8_t> memory;
    std::vector<std::uint8_t*> pages;
    PagedRows paged;
};

// ---------------------------------------------------------------------------------------- outputs

inline std::vector<float> numbers_of(std::span<const std::uint8_t> bytes) {
    return {bytes.begin(), bytes.end()};
}
inline void append(std::vector<float>& to, const std::vector<float>& from) {
    to.insert(to.end(), from.begin(), from.end());
}

// Equal in every bit, but that all NaNs count as one.
inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    if (a.size() != b.size()) return false;
    for (std::size_t i = 0; i < a.size(); ++i) {
        const bool nan = std::isnan(a[i]) && std::isnan(b[i]);
        if (!nan && std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i])) {
            return false;
        }
    }
    return true;
}

}  // namespace fathom::cases
