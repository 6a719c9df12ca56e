// How a pool lies in a RADOS cluster.
//
//   blocks pool   b.<key>              a slot (slot.h); attributes: when it ends, whose it is
//   lists pool    POOL                 which pool this is (segment.h)
//                 lists.0 … lists.f    each a sorted set: names of lists, earliest end first
//                 l.<end>.<class>.<writer>.<number>
//                                      names of blocks, appended by one writer before it stores
//                                      them: whatever is stored is in some list
//
// A list holds blocks of one class that end together. Renewing a block moves its end and puts its
// name in a later list; the old list's sweep sees the later end and leaves the block alone. Pure
// functions; numbers in names are lower-case hex of fixed width, so that they sort as numbers do.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pool/block_store.h"
#include "pool/slot.h"

namespace fathom {

inline constexpr const char* kRadosPoolObject = "POOL";
inline constexpr int kRadosListSets = 16;
inline constexpr const char* kRadosEnd = "end";          // unix ms, 16 hex digits
inline constexpr const char* kRadosVersion = "version";  // another for every time it is written
inline constexpr const char* kRadosNamespace = "ns";     // the tag of its namespace

std::string rados_block_object(const BlockKey& key);
// Where a slot lies: in this pool, under this key.
SlotPlace rados_place(const PoolUuid& pool, const BlockKey& key);

std::string rados_number(std::uint64_t value);
std::optional<std::uint64_t> parse_rados_number(std::string_view text);

struct RadosListName {
    std::int64_t expiry_unix_ms = 0;
    TrafficClass traffic_class = TrafficClass::agent;
    std::uint64_t writer = 0;
    std::uint64_t number = 0;
    friend bool operator==(const RadosListName&, const RadosListName&) = default;
};
std::string rados_list_object(const RadosListName& name);
std::optional<RadosListName> parse_rados_list_object(std::string_view object);
std::string rados_list_set(int set);  // 0 to kRadosListSets − 1
std::string rados_list_set_of(const RadosListName& name);

// What a list says of one block: 48 bytes with a checksum.
inline constexpr std::int64_t kRadosEntryBytes = 48;
struct RadosEntry {
    BlockKey key;
    std::uint64_t ns_tag = 0;
    friend bool operator==(const RadosEntry&, const RadosEntry&) = default;
};
void append_rados_entry(std::vector<std::uint8_t>& to, const RadosEntry& entry);
// Entries of whole and partial ones; those that are damaged are left out.
std::vector<RadosEntry> read_rados_entries(std::span<const std::uint8_t> bytes);

}  // namespace fathom
