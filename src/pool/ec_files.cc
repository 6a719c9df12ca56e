#include "pool/ec_files.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/check.h"
#include "pool/le_bytes.h"

namespace fathom {

namespace {

constexpr std::uint64_t kSetMagic = 0x53544553'564b4c46;     // "FLKVSETS"
constexpr std::uint64_t kParityMagic = 0x59544952'564b4c46;  // "FLKVRITY"
constexpr std::uint32_t kEcFormat = 1;
constexpr std::size_t kPageCrcAt = kPoolPageBytes - 4;

// Of both: magic 0, format 8, k 12, m 13, uuid of the set 16.
constexpr std::size_t kFormatAt = 8, kDataAt = 12, kParityAt = 13, kUuidAt = 16;
constexpr std::size_t kPayloadAt = 32, kPositionAt = 36, kAttemptAt = 40, kBegunAt = 48,
                      kScatteredAt = 56, kDeviceCountAt = 64, kDevicesAt = 72, kDeviceBytes = 24;
constexpr std::size_t kWhichAt = 14, kClassAt = 15, kRowsAt = 36, kStripeAt = 40, kBucketAt = 48,
                      kExpiryAt = 56, kMemberCountAt = 64, kTableCrcAt = 68, kMembersAt = 72,
                      kMemberBytes = 16;
constexpr std::size_t kHoldersAt = kMembersAt + kEcDataMax * kMemberBytes;
static_assert(kDevicesAt + kEcDevicesMax * kDeviceBytes <= kPageCrcAt);
static_assert(kHoldersAt + kEcParityMax * 4 <= kPageCrcAt);

bool intact(std::span<const std::uint8_t> page, std::uint64_t magic) {
    return load_le<std::uint64_t>(page, 0) == magic &&
           load_le<std::uint32_t>(page, kPageCrcAt) == crc32c(page.first(kPageCrcAt));
}

void begin_page(std::span<std::uint8_t> page, std::uint64_t magic, EcShape shape,
                const PoolUuid& set) {
    FATHOM_CHECK(page.size() == static_cast<std::size_t>(kPoolPageBytes));
    std::fill(page.begin(), page.end(), std::uint8_t{0});
    store_le(page, 0, magic);
    store_le(page, kFormatAt, kEcFormat);
    store_le(page, kDataAt, static_cast<std::uint8_t>(shape.k));
    store_le(page, kParityAt, static_cast<std::uint8_t>(shape.m));
    store_le(page, kUuidAt, set);
}

void end_page(std::span<std::uint8_t> page) {
    store_le(page, kPageCrcAt, crc32c(page.first(kPageCrcAt)));
}

Status check_format(std::span<const std::uint8_t> page, EcShape& shape) {
    const auto format = load_le<std::uint32_t>(page, kFormatAt);
    if (format != kEcFormat) {
        return error(StatusCode::unsupported, "the set has format {}, this program knows {}",
                     format, kEcFormat);
    }
    shape = {load_le<std::uint8_t>(page, kDataAt), load_le<std::uint8_t>(page, kParityAt)};
    if (shape.k < 1 || shape.k > kEcDataMax || shape.m < 1 || shape.m > kEcParityMax)
        return error(StatusCode::unsupported, "a code of {}+{}", shape.k, shape.m);
    return {};
}

std::int64_t head_bytes_of(std::size_t crcs) {
    const auto bytes = static_cast<std::int64_t>(crcs * 4);
    return kPoolPageBytes + (bytes + kPoolPageBytes - 1) / kPoolPageBytes * kPoolPageBytes;
}

}  // namespace

void write_set_page(std::span<std::uint8_t> page, const EcSetFile& file) {
    FATHOM_CHECK(file.devices.size() <= static_cast<std::size_t>(kEcDevicesMax));
    begin_page(page, kSetMagic, file.shape, file.set);
    store_le(page, kPayloadAt, file.payload_bytes);
    store_le(page, kPositionAt, file.position);
    store_le(page, kAttemptAt, file.attempt);
    store_le(page, kBegunAt, file.begun);
    store_le(page, kScatteredAt, file.scattered_until_unix_ms);
    store_le(page, kDeviceCountAt, static_cast<std::uint32_t>(file.devices.size()));
    for (std::size_t i = 0; i < file.devices.size(); ++i) {
        store_le(page, kDevicesAt + i * kDeviceBytes, file.devices[i].pool);
        store_le(page, kDevicesAt + i * kDeviceBytes + 16, file.devices[i].pool_epoch);
    }
    end_page(page);
}

Result<EcSetFile> read_set_file(std::span<const std::uint8_t> bytes) {
    std::optional<EcSetFile> best;
    constexpr auto kPage = static_cast<std::size_t>(kPoolPageBytes);
    for (std::size_t at = 0; at + kPage <= bytes.size() && at < kSetFileBytes; at += kPage) {
        const std::span<const std::uint8_t> page = bytes.subspan(at, kPage);
        if (!intact(page, kSetMagic)) continue;
        EcSetFile file;
        FATHOM_RETURN_IF_ERROR(check_format(page, file.shape));
        file.set = load_le<PoolUuid>(page, kUuidAt);
        file.payload_bytes = load_le<std::uint32_t>(page, kPayloadAt);
        file.position = load_le<std::uint32_t>(page, kPositionAt);
        file.attempt = load_le<std::uint64_t>(page, kAttemptAt);
        file.begun = load_le<std::uint64_t>(page, kBegunAt);
        file.scattered_until_unix_ms = load_le<std::int64_t>(page, kScatteredAt);
        const auto devices = load_le<std::uint32_t>(page, kDeviceCountAt);
        if (devices > kEcDevicesMax || file.position >= devices)
            return error(StatusCode::unsupported, "device {} of a set of {}", file.position,
                         devices);
        for (std::size_t i = 0; i < devices; ++i) {
            file.devices.push_back(
                {load_le<PoolUuid>(page, kDevicesAt + i * kDeviceBytes),
                 load_le<std::uint64_t>(page, kDevicesAt + i * kDeviceBytes + 16)});
        }
        const bool later =
            !best || std::pair(file.attempt, file.begun) > std::pair(best->attempt, best->begun);
        if (later) best = std::move(file);
    }
    if (best) return *best;
    return Status(StatusCode::data_loss, "neither page of the set's file is intact");
}

std::uint32_t EcStripe::rows_of(int shard) const {
    if (shard >= shape.k) return rows;
    const auto member = static_cast<std::size_t>(shard);
    return member < members.size() ? members[member].rows : 0;
}

std::int64_t parity_head_bytes(const EcStripe& stripe) {
    return head_bytes_of(stripe.crc_count());
}

void write_parity_head(std::span<std::uint8_t> out, const EcStripe& stripe, int parity) {
    constexpr auto kPage = static_cast<std::size_t>(kPoolPageBytes);
    FATHOM_CHECK(out.size() == static_cast<std::size_t>(parity_head_bytes(stripe)) &&
                 stripe.crcs.size() == stripe.crc_count());
    const std::span<std::uint8_t> page = out.first(kPage), table = out.subspan(kPage);
    std::fill(table.begin(), table.end(), std::uint8_t{0});
    std::memcpy(table.data(), stripe.crcs.data(), stripe.crcs.size() * 4);
    begin_page(page, kParityMagic, stripe.shape, stripe.set);
    store_le(page, kWhichAt, static_cast<std::uint8_t>(parity));
    store_le(page, kClassAt, static_cast<std::uint8_t>(stripe.traffic_class));
    store_le(page, kPayloadAt, stripe.payload_bytes);
    store_le(page, kRowsAt, stripe.rows);
    store_le(page, kStripeAt, stripe.id);
    store_le(page, kBucketAt, stripe.bucket_start_unix_ms);
    store_le(page, kExpiryAt, stripe.expiry_unix_ms);
    store_le(page, kMemberCountAt, static_cast<std::uint32_t>(stripe.members.size()));
    store_le(page, kTableCrcAt, crc32c(table));
    for (std::size_t i = 0; i < stripe.members.size(); ++i) {
        const std::size_t at = kMembersAt + i * kMemberBytes;
        store_le(page, at, stripe.members[i].device);
        store_le(page, at + 4, stripe.members[i].rows);
        store_le(page, at + 8, stripe.members[i].segment);
    }
    for (std::size_t i = 0; i < stripe.parity_devices.size(); ++i)
        store_le(page, kHoldersAt + i * 4, stripe.parity_devices[i]);
    end_page(page);
}

Result<std::int64_t> parity_head_bytes(std::span<const std::uint8_t> page) {
    if (page.size() < static_cast<std::size_t>(kPoolPageBytes) ||
        !intact(page.first(kPoolPageBytes), kParityMagic))
        return Status(StatusCode::data_loss, "the parity was never finished, or is damaged");
    EcShape shape;
    FATHOM_RETURN_IF_ERROR(check_format(page, shape));
    const auto members = load_le<std::uint32_t>(page, kMemberCountAt);
    const auto rows = load_le<std::uint32_t>(page, kRowsAt);
    if (members < 1 || members > static_cast<std::uint32_t>(shape.k) ||
        rows > kSegmentBytes / kPoolPageBytes)
        return invalid_argument("a stripe of {} members with {} rows", members, rows);
    return head_bytes_of((members + static_cast<std::size_t>(shape.m)) * rows);
}

Result<EcStripe> read_parity_head(std::span<const std::uint8_t> bytes, const SlotGeometry& geometry,
                                  int& parity) {
    FATHOM_ASSIGN(const std::int64_t expected, parity_head_bytes(bytes));
    constexpr auto kPage = static_cast<std::size_t>(kPoolPageBytes);
    if (bytes.size() < static_cast<std::size_t>(expected))
        return Status(StatusCode::data_loss, "the parity file ends within its checksums");
    const std::span<const std::uint8_t> page = bytes.first(kPage);
    const std::span<const std::uint8_t> table =
        bytes.subspan(kPage, static_cast<std::size_t>(expected) - kPage);
    if (load_le<std::uint32_t>(page, kTableCrcAt) != crc32c(table))
        return Status(StatusCode::data_loss, "the checksums of the parity are damaged");
    EcStripe stripe;
    FATHOM_RETURN_IF_ERROR(check_format(page, stripe.shape));
    stripe.set = load_le<PoolUuid>(page, kUuidAt);
    parity = load_le<std::uint8_t>(page, kWhichAt);
    const auto traffic_class = load_le<std::uint8_t>(page, kClassAt);
    stripe.traffic_class = static_cast<TrafficClass>(traffic_class);
    stripe.payload_bytes = load_le<std::uint32_t>(page, kPayloadAt);
    stripe.rows = load_le<std::uint32_t>(page, kRowsAt);
    stripe.id = load_le<std::uint64_t>(page, kStripeAt);
    stripe.bucket_start_unix_ms = load_le<std::int64_t>(page, kBucketAt);
    stripe.expiry_unix_ms = load_le<std::int64_t>(page, kExpiryAt);
    const auto members = load_le<std::uint32_t>(page, kMemberCountAt);
    bool good = parity < stripe.shape.m && traffic_class < kTrafficClasses &&
                stripe.payload_bytes == geometry.payload_bytes && stripe.rows >= 1 &&
                stripe.rows <= geometry.slots + 1;
    std::uint32_t longest = 0;
    for (std::size_t i = 0; i < members; ++i) {
        const std::size_t at = kMembersAt + i * kMemberBytes;
        stripe.members.push_back({load_le<std::uint32_t>(page, at),
                                  load_le<std::uint32_t>(page, at + 4),
                                  load_le<std::uint64_t>(page, at + 8)});
        longest = std::max(longest, stripe.members.back().rows);
    }
    for (int i = 0; i < stripe.shape.m; ++i)
        stripe.parity_devices.push_back(
            load_le<std::uint32_t>(page, kHoldersAt + static_cast<std::size_t>(i) * 4));
    good = good && longest == stripe.rows;
    if (!good) return invalid_argument("the parity's numbers contradict one another");
    stripe.crcs.resize(stripe.crc_count());
    std::memcpy(stripe.crcs.data(), table.data(), stripe.crcs.size() * 4);
    return stripe;
}

std::string stripe_directory(const std::string& directory, std::uint64_t stripe) {
    return fmt::format("{}/par/{:016x}", directory, stripe);
}

std::string parity_path(const std::string& directory, std::uint64_t stripe, int parity) {
    return fmt::format("{}/{}.seg", stripe_directory(directory, stripe), parity);
}

}  // namespace fathom
