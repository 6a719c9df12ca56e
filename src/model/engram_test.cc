#include "model/engram.h"

#include <gtest/gtest.h>

#include <vector>

namespace fathom {
namespace {

// The released model's layout; golden values from model.md 3.11.
ModelConfig released() {
    ModelConfig config;
    config.layers = 40;
    config.engram_layers = {1, 14};
    config.engram_rows = {384006168, 384016682};
    config.engram_ngram_max = 4;
    config.engram_heads = 8;
    config.engram_head_dim = 256;
    config.engram_prime_start = 16000000;
    config.engram_compressed_vocab = 99092;
    return config;
}

TEST(Engram, FindsTheReleasedPrimesAndMultipliers) {
    const auto hashes = make_engram_hashes(released());
    ASSERT_TRUE(hashes.ok()) << hashes.status().message();
    ASSERT_EQ(hashes->size(), 2u);
    EXPECT_EQ((*hashes)[0].primes.front(), 16000057);
    EXPECT_EQ((*hashes)[0].primes.back(), 16000463);
    EXPECT_EQ((*hashes)[1].primes.front(), 16000477);
    EXPECT_EQ((*hashes)[1].primes[8], 16000667);
    EXPECT_EQ((*hashes)[1].primes.back(), 16000889);
    EXPECT_EQ(
        (*hashes)[0].multipliers,
        (std::vector<std::int64_t>{76632096046245, 4839876093313, 35959672319349, 73987337458391}));
    EXPECT_EQ((*hashes)[1].multipliers,
              (std::vector<std::int64_t>{67716810739261, 51510806800915, 30921347202721,
                                         82619226485591}));
}

TEST(Engram, RefusesTablesThatThePrimesDoNotFill) {
    ModelConfig config = released();
    config.engram_rows[1] += 1;
    const auto hashes = make_engram_hashes(config);
    ASSERT_FALSE(hashes.ok());
    EXPECT_NE(hashes.status().message().find("engram_num_embeddings[1] = 384016683"),
              std::string::npos);
    EXPECT_NE(hashes.status().message().find("384016682"), std::string::npos);
}

std::vector<TokenId> some_ids(std::size_t count) {
    std::vector<TokenId> ids;
    for (std::size_t i = 0; i < count; ++i)
        ids.push_back(static_cast<TokenId>(i * i % 97 + i % 3));
    return ids;
}

std::vector<std::int64_t> rows_of(const ModelConfig& config, const EngramHash& hash,
                                  const std::vector<TokenId>& ids,
                                  const std::vector<std::uint8_t>& in_image, std::int64_t start,
                                  std::int64_t count) {
    std::vector<std::int32_t> map(128);
    for (std::size_t i = 0; i < map.size(); ++i)
        map[i] = static_cast<std::int32_t>(i / 2);
    std::vector<std::int64_t> out(static_cast<std::size_t>(count * config.engram_columns()));
    engram_rows(config, hash, map, ids, in_image, start, count, out);
    return out;
}

TEST(Engram, RowsDoNotDependOnChunks) {
    const ModelConfig config = released();
    const EngramHash hash = make_engram_hashes(config)->front();
    const std::vector<TokenId> ids = some_ids(50);
    const auto whole = rows_of(config, hash, ids, {}, 0, 50);
    for (std::int64_t chunk : {1, 3, 7, 49}) {
        std::vector<std::int64_t> pieces;
        for (std::int64_t start = 0; start < 50; start += chunk) {
            const auto piece =
                rows_of(config, hash, ids, {}, start, std::min<std::int64_t>(chunk, 50 - start));
            pieces.insert(pieces.end(), piece.begin(), piece.end());
        }
        EXPECT_EQ(pieces, whole) << "chunk " << chunk;
    }
}

TEST(Engram, AnImageTokenChangesItsOwnRowAndTheNextThree) {
    const ModelConfig config = released();
    const EngramHash hash = make_engram_hashes(config)->front();
    const std::vector<TokenId> ids = some_ids(20);
    std::vector<std::uint8_t> in_image(20, 0);
    const auto plain = rows_of(config, hash, ids, in_image, 0, 20);
    in_image[9] = 1;
    const auto spanned = rows_of(config, hash, ids, in_image, 0, 20);
    const auto columns = static_cast<std::ptrdiff_t>(config.engram_columns());
    for (std::ptrdiff_t p = 0; p < 20; ++p) {
        const bool equal =
            std::equal(plain.begin() + p * columns, plain.begin() + (p + 1) * columns,
                       spanned.begin() + p * columns);
        EXPECT_EQ(equal, p < 9 || p > 12) << "position " << p;
    }
}

TEST(NumpyGenerator, BoundedDrawsStayBelowTheirBound) {
    NumpyGenerator generator(12345);
    const std::uint64_t bound = (std::uint64_t{1} << 63) + 12345;  // rejects almost half the draws
    for (int i = 0; i < 1000; ++i)
        EXPECT_LT(generator.below(bound), bound);
}

}  // namespace
}  // namespace fathom
