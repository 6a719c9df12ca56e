#include "kernels/functions.h"
#include "kernels/reference/backend.h"
#include "kernels/reference/kv_rows.h"
#include "kernels/reference/support.h"

namespace fathom::reference {

namespace {

constexpr std::int64_t kCostPerElement = 16;  // of a quantiser

std::span<const std::uint8_t> bytes(const std::uint8_t* p, std::int64_t n) {
    return {p, static_cast<std::size_t>(n)};
}

void quantise(KvFormat format, std::span<const float> x, std::span<std::uint8_t> values,
              std::span<std::uint8_t> scales) {
    switch (format) {
        case KvFormat::window_fp8:
            return quantise_q8(x, values, scales);
        case KvFormat::main_fp4:
            return quantise_main_kv(x, values, scales);
        case KvFormat::index_fp4:
            return quantise_index(x, values, scales);
        case KvFormat::bf16:
        case KvFormat::f32:
            check_failed(__FILE__, __LINE__, "not a packed format");
    }
}

KvFormat packed_format(KvKind kind) {
    switch (kind) {
        case KvKind::window:
            return KvFormat::window_fp8;
        case KvKind::main:
            return KvFormat::main_fp4;
        case KvKind::index:
            return KvFormat::index_fp4;
    }
    check_failed(__FILE__, __LINE__, "KvKind out of range");
}

// A packed format is its own round trip; an unpacked one takes that of the kind.
void store_row(KvKind kind, KvFormat format, std::span<const float> x, const KvRow& dst,
               std::uint8_t* packed) {
    const auto dim = static_cast<std::int64_t>(x.size());
    if (format == KvFormat::f32) {
        std::memcpy(dst.values, x.data(), x.size_bytes());
        return;
    }
    const KvFormat trip = format == KvFormat::bf16 ? packed_format(kind) : format;
    const std::int64_t value_bytes = kv_value_bytes(trip, dim);
    const std::int64_t scale_bytes = kv_scale_bytes(trip, dim);
    const bool direct = format != KvFormat::bf16;
    std::uint8_t* values = direct ? dst.values : packed;
    std::uint8_t* scales = direct ? dst.scales : packed + value_bytes;
    quantise(trip, x, {values, static_cast<std::size_t>(value_bytes)},
             {scales, static_cast<std::size_t>(scale_bytes)});
    if (direct) return;
    struct Rounded;
    float* rounded = scratch<Rounded>(dim);
    load_kv_row(trip, dim, {values, scales}, rounded);
    for (std::int64_t k = 0; k < dim; ++k) {
        const Bf16 b = bf16_from_float(rounded[k]);
        std::memcpy(dst.values + 2 * k, &b, sizeof b);
    }
}

}  // namespace

void load_kv_row(KvFormat format, std::int64_t dim, const ConstKvRow& row, float* out) {
    const std::span<float> x(out, static_cast<std::size_t>(dim));
    const auto values = bytes(row.values, kv_value_bytes(format, dim));
    const auto scales = bytes(row.scales, kv_scale_bytes(format, dim));
    switch (format) {
        case KvFormat::window_fp8:
            return dequantise_q8(values, scales, x);
        case KvFormat::main_fp4:
            return dequantise_main_kv(values, scales, x);
        case KvFormat::index_fp4:
            return dequantise_index(values, scales, x);
        case KvFormat::bf16:
            for (std::int64_t k = 0; k < dim; ++k) {
                Bf16 b;
                std::memcpy(&b, row.values + 2 * k, sizeof b);
                out[k] = bf16_to_float(b);
            }
            return;
        case KvFormat::f32:
            std::memcpy(out, row.values, x.size_bytes());
            return;
    }
}

void ReferenceBackend::compress_pair(ConstRows u0, ConstRows g0, ConstRows u1, ConstRows g1,
                                     Rows y) {
    const std::int64_t dim = y.cols;
    for (const ConstRows* v : {&u0, &g0, &u1, &g1}) {
        FATHOM_CHECK(v->rows == y.rows && v->cols == dim && v->dtype == DType::f32);
    }
    for_ranges(pool(), y.rows, 40 * dim, [&](std::int64_t begin, std::int64_t end) {
        struct Pooled;
        float* out = scratch<Pooled>(dim);
        const auto row = [](const ConstRows& v, std::int64_t i) {
            return reinterpret_cast<const float*>(row_bytes(v, i));
        };
        for (std::int64_t i = begin; i < end; ++i) {
            const float *a0 = row(g0, i), *a1 = row(g1, i), *v0 = row(u0, i), *v1 = row(u1, i);
            for (std::int64_t k = 0; k < dim; ++k) {
                const float top = a0[k] > a1[k] ? a0[k] : a1[k];
                const float e0 = functions::exp(a0[k] - top);
                const float e1 = functions::exp(a1[k] - top);
                const float sum = e0 + e1;
                out[k] = e0 / sum * v0[k] + e1 / sum * v1[k];
            }
            write_row(y, i, out);
        }
    });
}

void ReferenceBackend::store_kv(ConstRows x, KvKind kind, KvFormat format,
                                std::span<const KvRow> dst) {
    FATHOM_CHECK(static_cast<std::int64_t>(dst.size()) == x.rows);
    const bool fits = format == KvFormat::bf16 || format == KvFormat::f32 ||
                      format == packed_format(kind) ||
                      (kind == KvKind::main && format == KvFormat::window_fp8);
    FATHOM_CHECK(fits, "a KV row of this kind has no such format");
    FATHOM_CHECK(format == KvFormat::f32 || x.cols % kQ8Group == 0);
    for_ranges(pool(), x.rows, x.cols * kCostPerElement, [&](std::int64_t begin, std::int64_t end) {
        struct Values;
        struct Packed;
        float* v = scratch<Values>(x.cols);
        auto* packed = scratch<Packed, std::uint8_t>(2 * x.cols);
        for (std::int64_t i = begin; i < end; ++i) {
            if (dst[i].values == nullptr) continue;
            read_row(x, i, v);
            store_row(kind, format, {v, static_cast<std::size_t>(x.cols)}, dst[i], packed);
        }
    });
}

void ReferenceBackend::load_kv(KvFormat format, std::span<const ConstKvRow> src, Rows y) {
    FATHOM_CHECK(static_cast<std::int64_t>(src.size()) == y.rows);
    for_ranges(pool(), y.rows, y.cols * 4, [&](std::int64_t begin, std::int64_t end) {
        struct Values;
        float* v = scratch<Values>(y.cols);
        for (std::int64_t i = begin; i < end; ++i) {
            load_kv_row(format, y.cols, src[i], v);
            write_row(y, i, v);
        }
    });
}

void ReferenceBackend::index_round_trip(Rows x) {
    FATHOM_CHECK(x.cols % kIndexGroup == 0);
    const auto n = static_cast<std::size_t>(x.cols);
    for_ranges(pool(), x.rows, x.cols * kCostPerElement, [&](std::int64_t begin, std::int64_t end) {
        struct Values;
        struct Packed;
        float* v = scratch<Values>(x.cols);
        auto* packed = scratch<Packed, std::uint8_t>(x.cols);
        const std::span<std::uint8_t> codes(packed, n / 2);
        const std::span<std::uint8_t> scales(packed + n / 2, n / kIndexGroup);
        for (std::int64_t i = begin; i < end; ++i) {
            read_row(x, i, v);
            quantise_index({v, n}, codes, scales);
            dequantise_index(codes, scales, {v, n});
            write_row(x, i, v);
        }
    });
}

}  // namespace fathom::reference
