// A slot as it was read from a disk, by whoever read it: the store's own segments and those of
// others go through one check.
#pragma once

#include <cstdint>
#include <span>

#include "pool/key_ring.h"
#include "pool/slot.h"

namespace fathom {

// Which slots a reader believes.
struct SlotKeys {
    KeyRing* ring = nullptr;      // null: encrypted slots do not open
    bool encrypted_only = false;  // plain slots are refused: anybody who writes to the disk can
                                  // make one, and an encrypting pool never did
};

// verify_slot, and what it leaves to who has the key: an encrypted payload is decrypted in place.
// After `none` the payload is what its producer had; after anything else it is undefined. `tag`:
// the slot is not opened by its namespace's key, the key is gone, or it is plain where it may not
// be.
SlotFault open_slot(std::span<std::uint8_t> slot, const SlotGeometry& geometry,
                    const SlotPlace& place, const BlockName& name, const SlotKeys& keys,
                    SlotTrailer& trailer);

}  // namespace fathom
