// The byte alphabet of byte-level BPE (recipe.md 1.2): a printable character for each of the 256
// bytes, so that a vocabulary of byte strings can be written as JSON text. Bytes 21–7E, A1–AC and
// AE–FF (hex) stand for themselves; the other 68, in increasing order, are U+0100 to U+0143.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fathom {

// The alphabet character of a byte, as UTF-8.
std::string byte_spelling(std::uint8_t byte);

// The bytes that a vocabulary string stands for; nothing when it holds a character outside the
// alphabet (then it is no BPE symbol).
std::optional<std::string> spelled_bytes(std::string_view spelling);

}  // namespace fathom
