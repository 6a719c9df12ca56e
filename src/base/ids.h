// Strong index types. A TokenId cannot be passed where a PageId is meant; value is public, since an
// id carries no invariant beyond its type.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace fathom {

template <typename Tag, typename Int>
struct StrongId {
    Int value = 0;

    constexpr StrongId() = default;
    constexpr explicit StrongId(Int v) : value(v) {}
    friend constexpr auto operator<=>(StrongId, StrongId) = default;
};

// Token ids stay plain int32: they are data that is multiplied, hashed, stored and sent in bulk.
using TokenId = std::int32_t;

using SeqId = StrongId<struct SeqIdTag, std::uint64_t>;    // one request on one engine
using PageId = StrongId<struct PageIdTag, std::uint32_t>;  // a physical 128-token KV page

}  // namespace fathom

template <typename Tag, typename Int>
struct std::hash<fathom::StrongId<Tag, Int>> {
    std::size_t operator()(fathom::StrongId<Tag, Int> id) const {
        return std::hash<Int>()(id.value);
    }
};
