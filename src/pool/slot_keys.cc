#include "pool/slot_keys.h"

namespace fathom {

SlotFault open_slot(std::span<std::uint8_t> slot, const SlotGeometry& geometry,
                    const SlotPlace& place, const BlockName& name, const SlotKeys& keys,
                    SlotTrailer& trailer) {
    const SlotFault fault = verify_slot(slot, geometry, place, &name, trailer);
    if (fault != SlotFault::none) return fault;
    if ((trailer.flags & kSlotEncrypted) == 0)
        return keys.encrypted_only ? SlotFault::tag : SlotFault::none;
    if (keys.ring == nullptr) return SlotFault::tag;
    const Result<BlockCipher*> cipher = keys.ring->find(name.ns);
    if (!cipher.ok()) return SlotFault::tag;
    const auto payload = slot.first(static_cast<std::size_t>(geometry.payload_bytes));
    return (*cipher)->decrypt(payload, trailer).ok() ? SlotFault::none : SlotFault::tag;
}

}  // namespace fathom
