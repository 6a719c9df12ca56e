// Encryption of a slot's payload (kvpool.md 10): AES-256-GCM under a key of the share group, nonce
// and tag in the trailer. What the trailer says of the block (name, place, size, times, writer) is
// authenticated with it, so a payload that was moved to another key, slot or pool does not open.
// Erasing a tenant is destroying its key.
//
//   key of a slot = HMAC-SHA-256(group key, "kvpool/aes/1" || K || place)
//
// A key of its own for each slot keeps random nonces of 12 bytes apart, however many blocks a group
// has. Names stay readable: who holds the disk, without the key, can find out whether a prompt that
// it guesses was stored, but not what a stored one says.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "pool/slot.h"

namespace fathom {

// One thread at a time.
class BlockCipher {
  public:
    explicit BlockCipher(std::string group_key);
    ~BlockCipher();
    BlockCipher(const BlockCipher&) = delete;
    BlockCipher& operator=(const BlockCipher&) = delete;

    // Encrypts in place, before the slot is sealed, and sets nonce, tag and kSlotEncrypted. All
    // else in the trailer that is not computed by seal_slot must be final; `digest` is of the plain
    // payload and has been set.
    void encrypt(std::span<std::uint8_t> payload, SlotTrailer& trailer);
    // Decrypts in place what verify_slot found good. data_loss when it is not what was encrypted
    // for this trailer under this key, or not what the producer had: the payload is then zeroed,
    // and the block is a miss.
    Status decrypt(std::span<std::uint8_t> payload, const SlotTrailer& trailer);

  private:
    struct Context;
    std::string group_key_;
    const std::unique_ptr<Context> context_;
};

}  // namespace fathom
