// Files of 32 random bytes that only their owner may read: the secret of a pool's names, and the
// keys of its tenants. A file is there whole or not at all; of several processes that make it at
// once, one does, and all read that one's bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace fathom {

inline constexpr std::int64_t kSecretBytes = 32;

// `what` names it in errors, which also name path, cause and remedy: not_found when it is absent,
// unavailable when the disk does not give it, invalid_argument when it has another size or others
// may read it.
Result<std::string> read_secret_file(const std::string& path, std::string_view what);
// Ok when somebody else made it first. What is left by a process that ended meanwhile has a name
// that begins with `path`.
Status make_secret_file(const std::string& path, std::string_view what);
// Another copy, whole or not at all, where none is.
Status copy_secret_file(const std::string& from, const std::string& to, std::string_view what);

}  // namespace fathom
