#include "pool/ec_code.h"

#include <isa-l/erasure_code.h>

#include <algorithm>
#include <charconv>

#include "base/check.h"

namespace fathom {

namespace {

constexpr std::size_t kTableBytes = 32;  // of ISA-L, for one coefficient

std::uint8_t** as_isal(std::span<const std::uint8_t* const> pointers) {
    return const_cast<std::uint8_t**>(pointers.data());  // NOLINT: read only, the API says not so
}

// Some releases of the library take tables as const, some do not.
std::uint8_t* as_isal(const std::vector<std::uint8_t>& bytes) {
    return const_cast<std::uint8_t*>(bytes.data());  // NOLINT
}

}  // namespace

Result<EcShape> parse_ec_shape(std::string_view text) {
    EcShape shape;
    const char* end = text.data() + text.size();
    const auto k = std::from_chars(text.data(), end, shape.k);
    const bool plus = k.ec == std::errc() && k.ptr != end && *k.ptr == '+';
    const auto m = plus ? std::from_chars(k.ptr + 1, end, shape.m) : k;
    const bool whole = plus && m.ec == std::errc() && m.ptr == end;
    if (!whole || shape.k < 1 || shape.k > kEcDataMax || shape.m < 1 || shape.m > kEcParityMax) {
        return invalid_argument("\"{}\": expected data+parity, as 4+2, up to {}+{}", text,
                                kEcDataMax, kEcParityMax);
    }
    return shape;
}

EcCode::EcCode(EcShape shape)
    : shape_(shape),
      matrix_(static_cast<std::size_t>(shape.shards() * shape.k)),
      tables_(static_cast<std::size_t>(shape.k * shape.m) * kTableBytes) {
    FATHOM_CHECK(shape.k >= 1 && shape.k <= kEcDataMax && shape.m >= 1 && shape.m <= kEcParityMax);
    gf_gen_cauchy1_matrix(matrix_.data(), shape.shards(), shape.k);
    ec_init_tables(shape.k, shape.m, matrix_.data() + shape.k * shape.k, tables_.data());
}

void EcCode::encode(std::span<const std::uint8_t* const> data,
                    std::span<std::uint8_t* const> parity, std::int64_t bytes) const {
    FATHOM_CHECK(data.size() == static_cast<std::size_t>(shape_.k) &&
                 parity.size() == static_cast<std::size_t>(shape_.m));
    ec_encode_data(static_cast<int>(bytes), shape_.k, shape_.m, as_isal(tables_), as_isal(data),
                   const_cast<std::uint8_t**>(parity.data()));  // NOLINT
}

void EcCode::rebuild(int target, std::span<const int> sources,
                     std::span<const std::uint8_t* const> from, std::uint8_t* out,
                     std::int64_t bytes) const {
    const auto k = static_cast<std::size_t>(shape_.k);
    FATHOM_CHECK(sources.size() == k && from.size() == k && target < shape_.shards());
    std::vector<std::uint8_t> chosen(k * k), inverse(k * k), row(k, 0), tables(k * kTableBytes);
    for (std::size_t i = 0; i < k; ++i) {
        const auto at = matrix_.begin() + sources[i] * shape_.k;
        std::copy(at, at + shape_.k, chosen.begin() + static_cast<std::ptrdiff_t>(i * k));
    }
    // Every choice of k rows of a Cauchy code can be inverted.
    FATHOM_CHECK(gf_invert_matrix(chosen.data(), inverse.data(), shape_.k) == 0);
    const std::uint8_t* wanted = matrix_.data() + target * shape_.k;
    for (std::size_t column = 0; column < k; ++column)
        for (std::size_t i = 0; i < k; ++i)
            row[column] ^= gf_mul(wanted[i], inverse[i * k + column]);
    ec_init_tables(shape_.k, 1, row.data(), tables.data());
    ec_encode_data(static_cast<int>(bytes), shape_.k, 1, tables.data(), as_isal(from), &out);
}

}  // namespace fathom
