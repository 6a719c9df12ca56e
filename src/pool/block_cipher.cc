#include "pool/block_cipher.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/sha256.h"
#include "pool/block_store.h"

namespace fathom {

namespace {

template <typename Int>
void append(std::string& out, Int value) {
    for (std::size_t i = 0; i < sizeof(Int); ++i)
        out += static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i) & 0xff);
}

void append_bytes(std::string& out, std::span<const std::uint8_t> bytes) {
    out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

void append_place(std::string& out, const SlotPlace& place) {
    append(out, place.pool);
    append(out, place.segment);
    append(out, place.slot);
}

Sha256Digest slot_key(std::string_view group_key, const SlotTrailer& trailer) {
    std::string what = "kvpool/aes/1";
    append_bytes(what, trailer.name.key.bytes);
    append_place(what, trailer.place);
    return hmac_sha256(group_key, what);
}

// Everything that the trailer says, apart from nonce, tag and checksums.
std::string identity(const SlotTrailer& trailer) {
    std::string text;
    append(text, trailer.flags);
    append_bytes(text, trailer.name.key.bytes);
    append_bytes(text, trailer.name.parent.bytes);
    append_bytes(text, trailer.name.ns.bytes);
    append_bytes(text, trailer.name.token_mac);
    append(text, trailer.name.ordinal);
    append_place(text, trailer.place);
    append(text, trailer.payload_bytes);
    append(text, trailer.tokens);
    append(text, static_cast<std::uint8_t>(trailer.traffic_class));
    append(text, trailer.codec);
    append(text, trailer.written_unix_ms);
    append(text, trailer.expiry_unix_ms);
    append(text, trailer.writer);
    append(text, trailer.writer_sequence);
    append_bytes(text, trailer.digest);
    return text;
}

}  // namespace

struct BlockCipher::Context {
    EVP_CIPHER* algorithm = EVP_CIPHER_fetch(nullptr, "AES-256-GCM", nullptr);
    EVP_CIPHER_CTX* state = EVP_CIPHER_CTX_new();

    ~Context() {
        EVP_CIPHER_CTX_free(state);
        EVP_CIPHER_free(algorithm);
    }
    // Starts, feeds what is authenticated beside the payload, and runs over the payload in place.
    void run(bool encrypting, Sha256Digest key, const SlotTrailer& trailer,
             std::span<std::uint8_t> payload) {
        FATHOM_CHECK(EVP_CipherInit_ex2(state, algorithm, key.data(), trailer.nonce.data(),
                                        encrypting ? 1 : 0, nullptr) == 1);
        OPENSSL_cleanse(key.data(), key.size());
        const std::string beside = identity(trailer);
        int written = 0;
        FATHOM_CHECK(EVP_CipherUpdate(state, nullptr, &written,
                                      reinterpret_cast<const unsigned char*>(beside.data()),
                                      static_cast<int>(beside.size())) == 1);
        FATHOM_CHECK(EVP_CipherUpdate(state, payload.data(), &written, payload.data(),
                                      static_cast<int>(payload.size())) == 1);
    }
};

BlockCipher::BlockCipher(std::string group_key)
    : group_key_(std::move(group_key)), context_(std::make_unique<Context>()) {
    FATHOM_CHECK(context_->algorithm != nullptr && context_->state != nullptr,
                 "OpenSSL has no AES-256-GCM");
}

BlockCipher::~BlockCipher() {
    OPENSSL_cleanse(group_key_.data(), group_key_.size());
}

void BlockCipher::encrypt(std::span<std::uint8_t> payload, SlotTrailer& trailer) {
    trailer.flags |= kSlotEncrypted;
    FATHOM_CHECK(RAND_bytes(trailer.nonce.data(), static_cast<int>(trailer.nonce.size())) == 1);
    context_->run(true, slot_key(group_key_, trailer), trailer, payload);
    int written = 0;
    FATHOM_CHECK(EVP_CipherFinal_ex(context_->state, nullptr, &written) == 1);
    FATHOM_CHECK(EVP_CIPHER_CTX_ctrl(context_->state, EVP_CTRL_GCM_GET_TAG,
                                     static_cast<int>(trailer.tag.size()),
                                     trailer.tag.data()) == 1);
}

Status BlockCipher::decrypt(std::span<std::uint8_t> payload, const SlotTrailer& trailer) {
    std::array<std::uint8_t, 16> tag = trailer.tag;
    context_->run(false, slot_key(group_key_, trailer), trailer, payload);
    FATHOM_CHECK(EVP_CIPHER_CTX_ctrl(context_->state, EVP_CTRL_GCM_SET_TAG,
                                     static_cast<int>(tag.size()), tag.data()) == 1);
    int written = 0;
    const bool authentic = (trailer.flags & kSlotEncrypted) != 0 &&
                           EVP_CipherFinal_ex(context_->state, nullptr, &written) == 1;
    const auto bytes = static_cast<std::int64_t>(payload.size());
    if (authentic && payload_digest(payload.data(), bytes) == trailer.digest) return {};
    OPENSSL_cleanse(payload.data(), payload.size());
    if (authentic)
        return Status(StatusCode::data_loss,
                      "an encrypted block opens, but is not what its producer had; it is a miss");
    return Status(StatusCode::data_loss,
                  "an encrypted block does not open with this share group's key in this place: it "
                  "was changed, moved, or is another group's; it is a miss");
}

}  // namespace fathom
