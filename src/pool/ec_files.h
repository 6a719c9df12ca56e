// What devices of an erasure-coded pool say of it (ec_store.h). Beside the files of an embedded
// store, each device has
//
//   DIR/SET                     two pages: which set of devices this is, and which place this one
//                               has in it; the newer intact one counts
//   DIR/SET.LOCK                held while a process has the set open
//   DIR/par/<stripe>/<j>.seg    parity: a header, checksums, then rows as in a segment
//   DIR/par/rebuild             a segment that is being rebuilt
//
// A stripe is up to k sealed segments of one class and bucket on different devices, and m parity
// files on others. Its unit is the row: row 0 is what lies before the slots of a segment (header
// and footer), row 1 + i is slot i. Rows behind the last one of a member count as zeros, and so do
// members that are not there: a stripe with fewer than k is protected all the same. Every parity
// file has the checksum of every row of every shard as it was coded, so a row is either what was
// coded or not used. Pure functions over bytes; all numbers little-endian.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "pool/ec_code.h"
#include "pool/segment.h"

namespace fathom {

inline constexpr std::int64_t kSetFileBytes = 2 * kPoolPageBytes;
inline constexpr std::int64_t kEcDevicesMax = 64;

struct EcSetFile {
    struct Device {
        PoolUuid pool{};
        std::uint64_t pool_epoch = 0;  // at the last life it took part in
        friend bool operator==(const Device&, const Device&) = default;
    };
    PoolUuid set{};
    EcShape shape;
    std::uint32_t payload_bytes = 0;
    std::uint32_t position = 0;  // of the device that has this file
    // Lives are numbered. `attempt`: of the last one that this device was to take part in;
    // `begun`: of the last one that was known to have begun then. A life begins when all its
    // devices say so.
    std::uint64_t attempt = 0, begun = 0;
    // Until then blocks may lie elsewhere than where their key says.
    std::int64_t scattered_until_unix_ms = 0;
    std::vector<Device> devices;
    friend bool operator==(const EcSetFile&, const EcSetFile&) = default;
};
// One page of the two.
void write_set_page(std::span<std::uint8_t> page, const EcSetFile& file);
// data_loss when no page is intact; unsupported when one is of a later format.
Result<EcSetFile> read_set_file(std::span<const std::uint8_t> bytes);

struct EcMember {
    std::uint32_t device = 0;  // position
    std::uint32_t rows = 0;
    std::uint64_t segment = 0;
    friend bool operator==(const EcMember&, const EcMember&) = default;
};

struct EcStripe {
    PoolUuid set{};
    EcShape shape;
    std::uint64_t id = 0;  // never reused
    TrafficClass traffic_class = TrafficClass::agent;
    std::int64_t bucket_start_unix_ms = 0, expiry_unix_ms = 0;
    std::uint32_t payload_bytes = 0;
    std::uint32_t rows = 0;                     // of parity: as many as the longest member has
    std::vector<EcMember> members;              // 1 to k
    std::vector<std::uint32_t> parity_devices;  // m positions
    // CRC32C of the rows: of each member in turn, `rows` of each, then of each parity.
    std::vector<std::uint32_t> crcs;

    std::uint32_t& crc(int shard, std::uint32_t row) { return crcs[crc_at(shard, row)]; }
    std::uint32_t crc(int shard, std::uint32_t row) const { return crcs[crc_at(shard, row)]; }
    std::size_t crc_count() const {
        return (members.size() + static_cast<std::size_t>(shape.m)) * rows;
    }
    // Rows of a shard that are on a disk; the rest is zero.
    std::uint32_t rows_of(int shard) const;
    friend bool operator==(const EcStripe&, const EcStripe&) = default;

  private:
    std::size_t crc_at(int shard, std::uint32_t row) const {
        const auto of = static_cast<std::size_t>(shard);
        const std::size_t index =
            shard < shape.k ? of : members.size() + of - static_cast<std::size_t>(shape.k);
        return index * rows + row;
    }
};

// What stands before the rows of a parity file: a page and the checksums, whole pages.
std::int64_t parity_head_bytes(const EcStripe& stripe);
void write_parity_head(std::span<std::uint8_t> out, const EcStripe& stripe, int parity);
// How many bytes a head has whose first page this is, for who reads the rest.
Result<std::int64_t> parity_head_bytes(std::span<const std::uint8_t> page);
// The stripe, and which parity this is. data_loss when it was never finished or is damaged;
// invalid_argument when its numbers do not fit the geometry.
Result<EcStripe> read_parity_head(std::span<const std::uint8_t> bytes, const SlotGeometry& geometry,
                                  int& parity);

std::string stripe_directory(const std::string& directory, std::uint64_t stripe);
std::string parity_path(const std::string& directory, std::uint64_t stripe, int parity);

// Rows as pieces of a segment.
inline std::int64_t row_offset(const SlotGeometry& geometry, std::int64_t row) {
    return row == 0 ? 0 : geometry.slot_offset(row - 1);
}
inline std::int64_t row_bytes(const SlotGeometry& geometry, std::int64_t row) {
    return row == 0 ? geometry.slots_offset : geometry.slot_bytes;
}

}  // namespace fathom
