#include "base/sha256.h"

#include <openssl/evp.h>

#include <algorithm>

#include <fstream>

#include "base/check.h"

namespace fathom {

struct Sha256::Context {
    EVP_MD* algorithm = EVP_MD_fetch(nullptr, "SHA256", nullptr);
    EVP_MD_CTX* state = EVP_MD_CTX_new();

    void begin() { FATHOM_CHECK(EVP_DigestInit_ex2(state, algorithm, nullptr) == 1); }
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
    FATHOM_CHECK(context_->algorithm != nullptr && context_->state != nullptr,
                 "OpenSSL has no SHA-256");
    context_->begin();
}

Sha256::~Sha256() {
    EVP_MD_CTX_free(context_->state);
    EVP_MD_free(context_->algorithm);
}

void Sha256::update(std::span<const std::uint8_t> bytes) {
    FATHOM_CHECK(EVP_DigestUpdate(context_->state, bytes.data(), bytes.size()) == 1);
}

void Sha256::update(std::string_view bytes) {
    FATHOM_CHECK(EVP_DigestUpdate(context_->state, bytes.data(), bytes.size()) == 1);
}

Sha256Digest Sha256::finish() {
    Sha256Digest digest;
    FATHOM_CHECK(EVP_DigestFinal_ex(context_->state, digest.data(), nullptr) == 1);
    context_->begin();
    return digest;
}

// RFC 2104, from two digests that are kept: OpenSSL's own call looks its algorithm up each time,
// which costs more than the digests of short messages.
Sha256Digest hmac_sha256(std::string_view secret, std::string_view message) {
    thread_local Sha256 inner, outer;
    std::array<std::uint8_t, 64> inner_key{}, outer_key{};
    if (secret.size() > inner_key.size()) {
        inner.update(secret);
        const Sha256Digest digest = inner.finish();
        std::copy(digest.begin(), digest.end(), inner_key.begin());
    } else {
        std::copy(secret.begin(), secret.end(), inner_key.begin());
    }
    for (std::size_t i = 0; i < inner_key.size(); ++i) {
        outer_key[i] = inner_key[i] ^ 0x5c;
        inner_key[i] ^= 0x36;
    }
    inner.update(inner_key);
    inner.update(message);
    outer.update(outer_key);
    outer.update(inner.finish());
    return outer.finish();
}

Result<Sha256Digest> file_sha256(const std::string& path) {
    constexpr std::size_t kPieceBytes = 1 << 20;
    std::ifstream file(path, std::ios::binary);
    std::string piece(kPieceBytes, '\0');
    Sha256 hash;
    while (file.read(piece.data(), static_cast<std::streamsize>(piece.size())) || file.gcount() > 0)
        hash.update(std::string_view(piece.data(), static_cast<std::size_t>(file.gcount())));
    if (!file.eof()) return error(StatusCode::not_found, "{}: cannot be read", path);
    return hash.finish();
}

std::string hex_text(std::span<const std::uint8_t> bytes) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    std::string text;
    for (const std::uint8_t byte : bytes) {
        text += kDigits[byte >> 4];
        text += kDigits[byte & 15];
    }
    return text;
}

}  // namespace fathom
