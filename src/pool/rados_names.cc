#include "pool/rados_names.h"

#include <fmt/core.h>

#include <charconv>

#include "base/check.h"
#include "pool/le_bytes.h"
#include "pool/segment.h"

namespace fathom {

namespace {

constexpr std::size_t kDigits = 16;
constexpr std::uint32_t kEntryMagic = 0x314c4b46;  // "FKL1"
constexpr std::size_t kTagAt = 32, kMagicAt = 40, kCrcAt = 44;

}  // namespace

std::string rados_block_object(const BlockKey& key) {
    return "b." + hex_text(key.bytes);
}

SlotPlace rados_place(const PoolUuid& pool, const BlockKey& key) {
    return {
        .pool = pool_low_bytes(pool), .segment = load_le<std::uint64_t>(key.bytes, 0), .slot = 0};
}

std::string rados_number(std::uint64_t value) {
    return fmt::format("{:016x}", value);
}

std::optional<std::uint64_t> parse_rados_number(std::string_view text) {
    std::uint64_t value = 0;
    if (text.size() != kDigits) return std::nullopt;
    const char* end = text.data() + text.size();
    const auto [at, failed] = std::from_chars(text.data(), end, value, 16);
    if (failed != std::errc() || at != end || rados_number(value) != text) return std::nullopt;
    return value;
}

std::string rados_list_object(const RadosListName& name) {
    return fmt::format("l.{:016x}.{}.{:016x}.{:016x}", name.expiry_unix_ms,
                       static_cast<int>(name.traffic_class), name.writer, name.number);
}

std::optional<RadosListName> parse_rados_list_object(std::string_view object) {
    constexpr std::size_t kExpiryAt = 2, kClassAt = kExpiryAt + kDigits + 1,
                          kWriterAt = kClassAt + 2, kNumberAt = kWriterAt + kDigits + 1;
    if (object.size() != kNumberAt + kDigits) return std::nullopt;
    const auto expiry = parse_rados_number(object.substr(kExpiryAt, kDigits));
    const auto writer = parse_rados_number(object.substr(kWriterAt, kDigits));
    const auto number = parse_rados_number(object.substr(kNumberAt, kDigits));
    const int traffic_class = object[kClassAt] - '0';
    if (!expiry || *expiry > INT64_MAX || !writer || !number || traffic_class < 0 ||
        traffic_class >= kTrafficClasses)
        return std::nullopt;
    const RadosListName name{.expiry_unix_ms = static_cast<std::int64_t>(*expiry),
                             .traffic_class = static_cast<TrafficClass>(traffic_class),
                             .writer = *writer,
                             .number = *number};
    if (rados_list_object(name) != object) return std::nullopt;
    return name;
}

std::string rados_list_set(int set) {
    FATHOM_CHECK(set >= 0 && set < kRadosListSets);
    return fmt::format("lists.{:x}", set);
}

std::string rados_list_set_of(const RadosListName& name) {
    return rados_list_set(static_cast<int>(name.writer % kRadosListSets));
}

void append_rados_entry(std::vector<std::uint8_t>& to, const RadosEntry& entry) {
    std::array<std::uint8_t, static_cast<std::size_t>(kRadosEntryBytes)> bytes{};
    store_le(bytes, 0, entry.key.bytes);
    store_le(bytes, kTagAt, entry.ns_tag);
    store_le(bytes, kMagicAt, kEntryMagic);
    store_le(bytes, kCrcAt, crc32c(std::span(bytes).first(kCrcAt)));
    to.insert(to.end(), bytes.begin(), bytes.end());
}

std::vector<RadosEntry> read_rados_entries(std::span<const std::uint8_t> bytes) {
    constexpr auto kBytes = static_cast<std::size_t>(kRadosEntryBytes);
    std::vector<RadosEntry> entries;
    entries.reserve(bytes.size() / kBytes);
    for (; bytes.size() >= kBytes; bytes = bytes.subspan(kBytes)) {
        const auto one = bytes.first(kBytes);
        if (load_le<std::uint32_t>(one, kMagicAt) != kEntryMagic ||
            load_le<std::uint32_t>(one, kCrcAt) != crc32c(one.first(kCrcAt)))
            continue;
        RadosEntry& entry = entries.emplace_back();
        entry.key.bytes = load_le<Sha256Digest>(one, 0);
        entry.ns_tag = load_le<std::uint64_t>(one, kTagAt);
    }
    return entries;
}

}  // namespace fathom
