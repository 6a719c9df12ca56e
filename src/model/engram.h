// Engram's token-side arithmetic (model.md 3.11): pure functions of config, token map and ids.
//
// Each Engram layer has (orders 2..N) × heads hash columns, each with its own prime. Primes are
// found by walking layers, orders and heads; multipliers come from NumPy's default generator
// (SeedSequence and PCG64) seeded with 10007·layer, reproduced here bit for bit.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "model/config.h"

namespace fathom {

struct EngramHash {
    int layer = 0;
    std::vector<std::int64_t> primes;       // [columns], order-major
    std::vector<std::int64_t> offsets;      // [columns], row offset of each prime's range
    std::vector<std::int64_t> multipliers;  // [ngram_max]
    std::int64_t rows = 0;                  // sum of the primes
};

// What engram_num_embeddings must be: the table rows of each of `modules` Engram layers with
// `columns` hash columns, whose primes are searched from prime_start on.
std::vector<std::int64_t> engram_table_rows(std::int64_t prime_start, std::int64_t columns,
                                            std::int64_t modules);

// Errors when the primes do not add up to engram_rows of the config.
Result<std::vector<EngramHash>> make_engram_hashes(const ModelConfig& config);

// The table rows of positions [start, start + count) of a sequence: out is [count, columns]. Shifts
// that run before the start of the sequence or into an image span take the pad id, and so do all
// larger shifts. in_image is empty or beside ids. map is the token compression.
void engram_rows(const ModelConfig& config, const EngramHash& hash,
                 std::span<const std::int32_t> map, std::span<const TokenId> ids,
                 std::span<const std::uint8_t> in_image, std::int64_t start, std::int64_t count,
                 std::span<std::int64_t> out);

// NumPy's default_rng(seed).integers(0, bound) stream, bound > 2^32 (model.md 3.11).
class NumpyGenerator {
  public:
    explicit NumpyGenerator(std::uint64_t seed);
    std::uint64_t next();
    std::uint64_t below(std::uint64_t bound);

  private:
    __extension__ using Uint128 = unsigned __int128;
    Uint128 state_ = 0, increment_ = 0;
};

}  // namespace fathom
