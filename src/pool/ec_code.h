// The erasure code of a pool over several devices (kvpool.md 7): k shards of data, m of parity, of
// equal length; any k of the k + m give back the others. A systematic Cauchy code over GF(2^8), so
// a byte at some offset depends only on bytes at the same offset of the other shards, and a part
// of a shard can be rebuilt from the same parts of others.
//
// Shards go by number: data 0 to k − 1, parity k to k + m − 1. Immutable; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace fathom {

struct EcShape {
    int k = 0, m = 0;
    int shards() const { return k + m; }
    friend bool operator==(const EcShape&, const EcShape&) = default;
};
inline constexpr int kEcDataMax = 32, kEcParityMax = 8;
// "4+2". invalid_argument says what is possible.
Result<EcShape> parse_ec_shape(std::string_view text);

class EcCode {
  public:
    explicit EcCode(EcShape shape);
    const EcShape& shape() const { return shape_; }

    // data: k pointers, parity: m, each to `bytes`; at most 2^30.
    void encode(std::span<const std::uint8_t* const> data, std::span<std::uint8_t* const> parity,
                std::int64_t bytes) const;
    // What shard `target` has, from the shards `sources` (k of them, different ones; `from` lies
    // beside them).
    void rebuild(int target, std::span<const int> sources,
                 std::span<const std::uint8_t* const> from, std::uint8_t* out,
                 std::int64_t bytes) const;

  private:
    EcShape shape_;
    std::vector<std::uint8_t> matrix_;  // a row of k for each shard
    std::vector<std::uint8_t> tables_;  // of the rows of parity
};

}  // namespace fathom
