#include "base/sha256.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

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

Sha256Digest hmac_sha256(std::string_view secret, std::string_view message) {
    Sha256Digest digest;
    const unsigned char* result = HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
                                       reinterpret_cast<const unsigned char*>(message.data()),
                                       message.size(), digest.data(), nullptr);
    FATHOM_CHECK(result != nullptr);
    return digest;
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
