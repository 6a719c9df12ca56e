// Published vectors (FIPS 180-4, RFC 4231), and that pieces and the whole agree.
#include "base/sha256.h"

#include <gtest/gtest.h>

#include <string>

namespace fathom {
namespace {

std::string sha256_hex(std::string_view text) {
    Sha256 hash;
    hash.update(text);
    return hex_text(hash.finish());
}

TEST(Sha256, AgreesWithPublishedVectors) {
    EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    EXPECT_EQ(sha256_hex("abc"),
              "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    EXPECT_EQ(sha256_hex(std::string(1'000'000, 'a')),
              "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PiecesAndReuseChangeNothing) {
    const std::string text = "a digest does not depend on how its bytes arrive";
    Sha256 hash;
    for (std::size_t piece = 1; piece < text.size(); ++piece) {
        for (std::size_t at = 0; at < text.size(); at += piece)
            hash.update(std::string_view(text).substr(at, piece));
        EXPECT_EQ(hex_text(hash.finish()), sha256_hex(text));
    }
}

TEST(Sha256, HmacAgreesWithRfc4231) {
    EXPECT_EQ(hex_text(hmac_sha256("Jefe", "what do ya want for nothing?")),
              "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    EXPECT_EQ(hex_text(hmac_sha256(std::string(131, '\xaa'),
                                   "Test Using Larger Than Block-Size Key - Hash Key First")),
              "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    EXPECT_EQ(hex_text(hmac_sha256("", "")),
              "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

}  // namespace
}  // namespace fathom
