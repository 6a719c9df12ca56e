#include "model/engram.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/check.h"

namespace fathom {
namespace {

__extension__ using Uint128 = unsigned __int128;

std::uint64_t multiply_modulo(std::uint64_t a, std::uint64_t b, std::uint64_t modulus) {
    return static_cast<std::uint64_t>(static_cast<Uint128>(a) * b % modulus);
}

std::uint64_t power_modulo(std::uint64_t base, std::uint64_t exponent, std::uint64_t modulus) {
    std::uint64_t result = 1;
    for (base %= modulus; exponent != 0; exponent >>= 1) {
        if ((exponent & 1) != 0) result = multiply_modulo(result, base, modulus);
        base = multiply_modulo(base, base, modulus);
    }
    return result;
}

// Miller-Rabin; the first twelve primes as bases decide every number below 3.3e24 (Sorenson and
// Webster, Strong pseudoprimes to twelve prime bases).
bool is_prime(std::uint64_t n) {
    constexpr std::array<std::uint64_t, 12> kBases = {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37};
    if (n < 2) return false;
    for (std::uint64_t p : kBases) {
        if (n % p == 0) return n == p;
    }
    std::uint64_t odd = n - 1;
    int twos = 0;
    for (; odd % 2 == 0; odd /= 2)
        ++twos;
    for (std::uint64_t base : kBases) {
        std::uint64_t x = power_modulo(base, odd, n);
        if (x == 1 || x == n - 1) continue;
        bool witness = true;
        for (int i = 1; i < twos && witness; ++i) {
            x = multiply_modulo(x, x, n);
            witness = x != n - 1;
        }
        if (witness) return false;
    }
    return true;
}

// NumPy's SeedSequence: entropy words to a pool of four, the pool to output words.
struct SeedPool {
    static constexpr std::uint32_t kMixLeft = 0xca01f9ddu, kMixRight = 0x4973f715u;

    std::array<std::uint32_t, 4> pool{};
    std::uint32_t hash = 0x43b0d7e5u;

    std::uint32_t absorb(std::uint32_t value) {
        value ^= hash;
        hash *= 0x931e8875u;
        value *= hash;
        return value ^ value >> 16;
    }

    explicit SeedPool(std::uint64_t seed) {
        const std::array<std::uint32_t, 4> words = {static_cast<std::uint32_t>(seed),
                                                    static_cast<std::uint32_t>(seed >> 32), 0, 0};
        for (std::size_t i = 0; i < 4; ++i)
            pool[i] = absorb(words[i]);
        for (std::size_t source = 0; source < 4; ++source) {
            for (std::size_t target = 0; target < 4; ++target) {
                if (source == target) continue;
                const std::uint32_t mixed =
                    kMixLeft * pool[target] - kMixRight * absorb(pool[source]);
                pool[target] = mixed ^ mixed >> 16;
            }
        }
    }

    std::array<std::uint64_t, 4> output() const {
        std::array<std::uint32_t, 8> words{};
        std::uint32_t g = 0x8b51f9ddu;
        for (std::size_t i = 0; i < 8; ++i) {
            std::uint32_t value = pool[i % 4] ^ g;
            g *= 0x58f38dedu;
            value *= g;
            words[i] = value ^ value >> 16;
        }
        std::array<std::uint64_t, 4> out{};
        for (std::size_t i = 0; i < 4; ++i)
            out[i] = words[2 * i] | static_cast<std::uint64_t>(words[2 * i + 1]) << 32;
        return out;
    }
};

constexpr Uint128 kPcgMultiplier =
    static_cast<Uint128>(2549297995355413924u) << 64 | 4865540595714422341u;

// The primes of one (layer, order, head) after the other. Each (layer, order) run starts at the
// same number and skips what earlier runs took, so the runs together take the primes in ascending
// order.
class PrimeWalk {
  public:
    explicit PrimeWalk(std::int64_t start) : candidate_(static_cast<std::uint64_t>(start)) {}
    std::int64_t next() {
        while (!is_prime(candidate_))
            ++candidate_;
        return static_cast<std::int64_t>(candidate_++);
    }

  private:
    std::uint64_t candidate_;
};

// Odd factors below 2^63 / vocabulary, so that id · factor never reaches the sign bit.
std::vector<std::int64_t> make_multipliers(int layer, std::int64_t count, std::int64_t vocabulary) {
    const std::int64_t bound = std::numeric_limits<std::int64_t>::max() / vocabulary / 2;
    NumpyGenerator generator(std::uint64_t{10007} * static_cast<std::uint64_t>(layer));
    std::vector<std::int64_t> multipliers;
    for (std::int64_t i = 0; i < count; ++i)
        multipliers.push_back(
            static_cast<std::int64_t>(2 * generator.below(static_cast<std::uint64_t>(bound)) + 1));
    return multipliers;
}

}  // namespace

NumpyGenerator::NumpyGenerator(std::uint64_t seed) {
    const std::array<std::uint64_t, 4> words = SeedPool(seed).output();
    increment_ = (static_cast<Uint128>(words[2]) << 64 | words[3]) << 1 | 1;
    state_ = increment_;  // one step from state 0
    state_ += static_cast<Uint128>(words[0]) << 64 | words[1];
    state_ = state_ * kPcgMultiplier + increment_;
}

std::uint64_t NumpyGenerator::next() {
    state_ = state_ * kPcgMultiplier + increment_;
    const auto folded =
        static_cast<std::uint64_t>(state_ >> 64) ^ static_cast<std::uint64_t>(state_);
    const auto turn = static_cast<unsigned>(state_ >> 122);
    return folded >> turn | folded << ((64 - turn) % 64);
}

std::uint64_t NumpyGenerator::below(std::uint64_t bound) {
    FATHOM_CHECK(bound > std::numeric_limits<std::uint32_t>::max());
    Uint128 product = static_cast<Uint128>(next()) * bound;
    if (static_cast<std::uint64_t>(product) < bound) {
        const std::uint64_t threshold = (0 - bound) % bound;
        while (static_cast<std::uint64_t>(product) < threshold)
            product = static_cast<Uint128>(next()) * bound;
    }
    return static_cast<std::uint64_t>(product >> 64);
}

std::vector<std::int64_t> engram_table_rows(std::int64_t prime_start, std::int64_t columns,
                                            std::int64_t modules) {
    PrimeWalk primes(prime_start);
    std::vector<std::int64_t> rows(static_cast<std::size_t>(modules), 0);
    for (std::int64_t& sum : rows) {
        for (std::int64_t column = 0; column < columns; ++column)
            sum += primes.next();
    }
    return rows;
}

Result<std::vector<EngramHash>> make_engram_hashes(const ModelConfig& config) {
    std::vector<EngramHash> hashes;
    PrimeWalk primes(config.engram_prime_start);
    for (std::size_t module = 0; module < config.engram_layers.size(); ++module) {
        EngramHash hash;
        hash.layer = config.engram_layers[module];
        for (std::int64_t column = 0; column < config.engram_columns(); ++column) {
            hash.primes.push_back(primes.next());
            hash.offsets.push_back(hash.rows);
            hash.rows += hash.primes.back();
        }
        if (hash.rows != config.engram_rows[module])
            return invalid_argument(
                "engram_num_embeddings[{}] = {}: the {} primes from engram_vocab_size = {} for "
                "layer {} add up to {}",
                module, config.engram_rows[module], hash.primes.size(), config.engram_prime_start,
                hash.layer, hash.rows);
        hash.multipliers =
            make_multipliers(hash.layer, config.engram_ngram_max, config.engram_compressed_vocab);
        hashes.push_back(std::move(hash));
    }
    return hashes;
}

void engram_rows(const ModelConfig& config, const EngramHash& hash,
                 std::span<const std::int32_t> map, std::span<const TokenId> ids,
                 std::span<const std::uint8_t> in_image, std::int64_t start, std::int64_t count,
                 std::span<std::int64_t> out) {
    const std::int64_t columns = config.engram_columns();
    const std::int64_t heads = config.engram_heads;
    FATHOM_CHECK(start >= 0 && count >= 0 &&
                 start + count <= static_cast<std::int64_t>(ids.size()));
    FATHOM_CHECK(in_image.empty() || in_image.size() == ids.size());
    FATHOM_CHECK(static_cast<std::int64_t>(out.size()) == count * columns);
    const auto compressed = [&](TokenId id) {
        return static_cast<std::int64_t>(map[static_cast<std::size_t>(id)]);
    };
    const std::int64_t pad = compressed(config.engram_pad_id);
    for (std::int64_t row = 0; row < count; ++row) {
        std::int64_t* const rows = out.data() + row * columns;
        std::int64_t mixed = 0;
        bool barrier = false;  // once a shift meets the start or an image, larger ones do too
        for (std::int64_t shift = 0; shift < config.engram_ngram_max; ++shift) {
            const std::int64_t position = start + row - shift;
            const auto at = static_cast<std::size_t>(std::max<std::int64_t>(position, 0));
            barrier = barrier || position < 0 || (!in_image.empty() && in_image[at] != 0);
            mixed ^= (barrier ? pad : compressed(ids[at])) *
                     hash.multipliers[static_cast<std::size_t>(shift)];
            if (shift == 0) continue;
            for (std::int64_t head = 0; head < heads; ++head) {
                const auto column = static_cast<std::size_t>((shift - 1) * heads + head);
                rows[column] = mixed % hash.primes[column] + hash.offsets[column];
            }
        }
    }
}

}  // namespace fathom
