#include <cstring>

#include "kernels/reference/kv_rows.h"
#include "kernels/scratch.h"
#include "kernels/x86/backend.h"
#include "kernels/x86/stored_rows.h"
#include "kernels/x86/support.h"

namespace fathom::x86 {

namespace {

constexpr double kUsPerElement = 4e-4;  // of a quantiser

KvFormat kv_format(RowFormat format) {
    constexpr KvFormat kFormats[] = {KvFormat::window_fp8, KvFormat::main_fp4, KvFormat::index_fp4,
                                     KvFormat::bf16};
    return kFormats[static_cast<int>(format)];
}

RowFormat format_of_kind(KvKind kind) {
    constexpr RowFormat kFormats[] = {RowFormat::fp8, RowFormat::main_fp4, RowFormat::index_fp4};
    return kFormats[static_cast<int>(kind)];
}

void quantise_exactly(RowFormat format, std::span<const float> x, std::span<std::uint8_t> values,
                      std::span<std::uint8_t> scales) {
    switch (format) {
        case RowFormat::fp8:
            return quantise_q8(x, values, scales);
        case RowFormat::main_fp4:
            return quantise_main_kv(x, values, scales);
        case RowFormat::index_fp4:
            return quantise_index(x, values, scales);
        case RowFormat::bf16:
            check_failed(__FILE__, __LINE__, "not a packed format");
    }
}

void quantise_row(const CacheKernels& kernels, RowFormat format, const std::uint16_t* x,
                  std::int64_t n, const KvRow& row) {
    if (kernels.quantise(format, x, n, row.values, row.scales)) return;
    struct Exact;
    float* numbers = scratch<Exact>(n);
    for (std::int64_t k = 0; k < n; ++k)
        numbers[k] = bf16_to_float(Bf16{x[k]});
    const KvFormat kv = kv_format(format);
    quantise_exactly(format, {numbers, static_cast<std::size_t>(n)},
                     {row.values, static_cast<std::size_t>(kv_value_bytes(kv, n))},
                     {row.scales, static_cast<std::size_t>(kv_scale_bytes(kv, n))});
}

// y is not x.
void round_trip(const CacheKernels& kernels, RowFormat format, const std::uint16_t* x,
                std::int64_t n, std::uint16_t* y) {
    if (kernels.round_trip(format, x, n, y)) return;
    struct Packed;
    auto* packed = scratch<Packed, std::uint8_t>(2 * n);
    quantise_row(kernels, format, x, n, {packed, packed + n});
    decode_exactly(format, packed, packed + n, n, y);
}

}  // namespace

RowFormat row_format(KvFormat format) {
    switch (format) {
        case KvFormat::window_fp8:
            return RowFormat::fp8;
        case KvFormat::main_fp4:
            return RowFormat::main_fp4;
        case KvFormat::index_fp4:
            return RowFormat::index_fp4;
        case KvFormat::bf16:
            return RowFormat::bf16;
        case KvFormat::f32:
            break;
    }
    check_failed(__FILE__, __LINE__, "a row in fp32 has no bf16 image");
}

void decode_exactly(RowFormat format, const std::uint8_t* values, const std::uint8_t* scales,
                    std::int64_t n, std::uint16_t* y) {
    struct Numbers;
    float* x = scratch<Numbers>(n);
    reference::load_kv_row(kv_format(format), n, {values, scales}, x);
    for (std::int64_t k = 0; k < n; ++k)
        y[k] = bf16_from_float(x[k]).bits;
}

void X86Backend::load_row(KvFormat format, std::int64_t dim, const ConstKvRow& row,
                          std::uint16_t* y) const {
    const RowFormat f = row_format(format);
    if (!cache_.decode(f, row.values, row.scales, dim, y))
        decode_exactly(f, row.values, row.scales, dim, y);
}

void X86Backend::compress_pair(ConstRows u0, ConstRows g0, ConstRows u1, ConstRows g1, Rows y) {
    if (y.dtype == DType::f32) return oracle_->compress_pair(u0, g0, u1, g1, y);
    for (const ConstRows* v : {&u0, &g0, &u1, &g1})
        FATHOM_CHECK(v->rows == y.rows && v->cols == y.cols && v->dtype == DType::f32);
    const auto row = [](const ConstRows& v, std::int64_t i) {
        return static_cast<const float*>(v.data) + i * v.stride;
    };
    constexpr double kUsPerChannel = 1e-3;
    for_rows(*pool_, y.rows, static_cast<double>(y.cols) * kUsPerChannel,
             [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; ++i)
                     cache_.compress_pair(row(u0, i), row(g0, i), row(u1, i), row(g1, i), y.cols,
                                          bf16_row(y, i));
             });
}

void X86Backend::store_kv(ConstRows x, KvKind kind, KvFormat format, std::span<const KvRow> dst) {
    if (x.dtype == DType::f32 || format == KvFormat::f32)
        return oracle_->store_kv(x, kind, format, dst);
    const RowFormat packed = format_of_kind(kind);
    FATHOM_CHECK(static_cast<std::int64_t>(dst.size()) == x.rows && x.cols % kQ8Group == 0);
    FATHOM_CHECK(format == KvFormat::bf16 || row_format(format) == packed ||
                     (kind == KvKind::main && format == KvFormat::window_fp8),
                 "a KV row of this kind has no such format");
    for_rows(*pool_, x.rows, static_cast<double>(x.cols) * kUsPerElement,
             [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; ++i) {
                     if (dst[i].values == nullptr) continue;
                     if (format != KvFormat::bf16) {
                         quantise_row(cache_, row_format(format), bf16_row(x, i), x.cols, dst[i]);
                         continue;
                     }
                     struct Rounded;
                     auto* rounded = scratch<Rounded, std::uint16_t>(x.cols);
                     round_trip(cache_, packed, bf16_row(x, i), x.cols, rounded);
                     std::memcpy(dst[i].values, rounded,
                                 static_cast<std::size_t>(x.cols) * sizeof(std::uint16_t));
                 }
             });
}

void X86Backend::load_kv(KvFormat format, std::span<const ConstKvRow> src, Rows y) {
    if (y.dtype == DType::f32 || format == KvFormat::f32) return oracle_->load_kv(format, src, y);
    FATHOM_CHECK(static_cast<std::int64_t>(src.size()) == y.rows);
    for_rows(*pool_, y.rows, static_cast<double>(y.cols) * kUsPerElement / 4,
             [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; ++i)
                     load_row(format, y.cols, src[i], bf16_row(y, i));
             });
}

void X86Backend::index_round_trip(Rows x) {
    if (x.dtype == DType::f32) return oracle_->index_round_trip(x);
    FATHOM_CHECK(x.cols % kIndexGroup == 0);
    for_rows(*pool_, x.rows, static_cast<double>(x.cols) * kUsPerElement,
             [&](std::int64_t begin, std::int64_t end) {
                 struct Row;
                 auto* y = scratch<Row, std::uint16_t>(x.cols);
                 for (std::int64_t i = begin; i < end; ++i) {
                     round_trip(cache_, RowFormat::index_fp4, bf16_row(x, i), x.cols, y);
                     std::copy_n(y, x.cols, bf16_row(x, i));
                 }
             });
}

}  // namespace fathom::x86
