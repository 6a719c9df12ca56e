#include "pool/segment.h"

#include <gtest/gtest.h>

#include <vector>

namespace fathom {
namespace {

PoolFile some_pool() {
    return {.uuid = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
            .payload_bytes = 113'920,
            .slot_bytes = 114'688,
            .epoch = 3,
            .created_unix_ms = 1'764'460'800'000};
}

SegmentHeader some_header() {
    return {.pool = some_pool().uuid,
            .id = 0x1'0000'0002,
            .traffic_class = TrafficClass::chatbot,
            .bucket_start_unix_ms = 1'764'460'800'000,
            .expiry_unix_ms = 1'765'087'200'000,
            .payload_bytes = 113'920,
            .slot_bytes = 114'688,
            .slots = 584,
            .writer = 99};
}

const SlotPlace kPlace{.pool = 11, .segment = 12, .slot = 0};

std::vector<FooterEntry> some_entries(const SlotGeometry& geometry) {
    std::vector<FooterEntry> entries(static_cast<std::size_t>(geometry.slots));
    for (std::size_t i = 0; i < entries.size(); i += 3) {
        SlotTrailer trailer;
        trailer.name.key.bytes.fill(static_cast<std::uint8_t>(i));
        trailer.name.ns.bytes.fill(static_cast<std::uint8_t>(i + 1));
        trailer.page_crcs.fill(static_cast<std::uint32_t>(i));
        trailer.payload_bytes = static_cast<std::uint32_t>(geometry.payload_bytes);
        trailer.written_unix_ms = 1'764'460'800'999;
        entries[i] = footer_entry(trailer);
    }
    return entries;
}

// Flips every bit of `bytes` in turn; found(bit) says whether that was noticed.
template <typename Found>
void expect_every_flip_found(std::vector<std::uint8_t>& bytes, Found found) {
    for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
        bytes[bit / 8] ^= static_cast<std::uint8_t>(1U << bit % 8);
        ASSERT_TRUE(found()) << "bit " << bit;
        bytes[bit / 8] ^= static_cast<std::uint8_t>(1U << bit % 8);
    }
}

TEST(Segment, PoolFileComesBack) {
    std::vector<std::uint8_t> bytes(kPoolFileBytes);
    write_pool_file(bytes, some_pool());
    const auto found = read_pool_file(bytes);
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(*found, some_pool());
    EXPECT_EQ(pool_low_bytes(found->uuid), 0x0807060504030201U);
}

TEST(Segment, OneCopyOfThePoolFileIsEnough) {
    std::vector<std::uint8_t> bytes(kPoolFileBytes);
    write_pool_file(bytes, some_pool());
    for (const std::size_t at : {std::size_t{20}, std::size_t{kPoolPageBytes + 20}}) {
        std::vector<std::uint8_t> damaged = bytes;
        damaged[at] ^= 1;
        const auto found = read_pool_file(damaged);
        ASSERT_TRUE(found.ok());
        EXPECT_EQ(*found, some_pool());
    }
    bytes[20] ^= 1;
    bytes[kPoolPageBytes + 20] ^= 1;
    EXPECT_EQ(read_pool_file(bytes).status().code(), StatusCode::data_loss);
    EXPECT_EQ(read_pool_file({}).status().code(), StatusCode::data_loss);
}

TEST(Segment, TheLaterCopyOfThePoolFileWins) {
    std::vector<std::uint8_t> bytes(kPoolFileBytes), later(kPoolFileBytes);
    PoolFile pool = some_pool();
    write_pool_file(bytes, pool);
    pool.epoch += 1;
    write_pool_file(later, pool);
    std::copy(later.begin(), later.begin() + kPoolPageBytes, bytes.begin());
    EXPECT_EQ(read_pool_file(bytes)->epoch, pool.epoch);
}

TEST(Segment, AnyFlippedBitOfACopyOfThePoolFileIsFound) {
    std::vector<std::uint8_t> bytes(kPoolFileBytes);
    write_pool_file(bytes, some_pool());
    bytes.resize(kPoolPageBytes);  // no second copy to fall back on
    expect_every_flip_found(bytes, [&] { return !read_pool_file(bytes).ok(); });
}

TEST(Segment, HeaderComesBack) {
    std::vector<std::uint8_t> page(kPoolPageBytes);
    EXPECT_EQ(read_segment_header(page).status().code(), StatusCode::not_found);
    write_segment_header(page, some_header());
    const auto found = read_segment_header(page);
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(*found, some_header());
    EXPECT_FALSE(read_segment_header(std::span(page).first(100)).ok());
}

TEST(Segment, AnyFlippedBitOfAHeaderIsFound) {
    std::vector<std::uint8_t> page(kPoolPageBytes);
    write_segment_header(page, some_header());
    expect_every_flip_found(page, [&] { return !read_segment_header(page).ok(); });
}

TEST(Segment, FooterComesBack) {
    for (const std::int64_t payload : {113'920, 1'000}) {
        const SlotGeometry geometry = *slot_geometry(payload);
        std::vector<std::uint8_t> bytes(static_cast<std::size_t>(footer_bytes(geometry)));
        EXPECT_EQ(read_footer(bytes, geometry, kPlace).status().code(), StatusCode::not_found);
        const std::vector<FooterEntry> entries = some_entries(geometry);
        write_footer(bytes, geometry, kPlace, entries);
        const auto found = read_footer(bytes, geometry, kPlace);
        ASSERT_TRUE(found.ok());
        EXPECT_EQ(*found, entries);
        EXPECT_LE(kPoolPageBytes + footer_bytes(geometry), geometry.slots_offset);
    }
}

TEST(Segment, AnyFlippedBitOfAFooterIsFound) {
    const SlotGeometry geometry = *slot_geometry(113'920);
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(footer_bytes(geometry)));
    write_footer(bytes, geometry, kPlace, some_entries(geometry));
    bytes.resize(static_cast<std::size_t>(geometry.slots * kFooterEntryBytes + kFooterTailBytes));
    expect_every_flip_found(bytes, [&] { return !read_footer(bytes, geometry, kPlace).ok(); });
}

TEST(Segment, AFooterOfAnotherSegmentIsNotBelieved) {
    const SlotGeometry geometry = *slot_geometry(113'920);
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(footer_bytes(geometry)));
    write_footer(bytes, geometry, kPlace, some_entries(geometry));
    SlotPlace other = kPlace;
    other.segment += 1;
    EXPECT_EQ(read_footer(bytes, geometry, other).status().code(), StatusCode::data_loss);
    other = kPlace;
    other.pool += 1;
    EXPECT_EQ(read_footer(bytes, geometry, other).status().code(), StatusCode::data_loss);
    EXPECT_FALSE(read_footer(std::span(bytes).first(500), geometry, kPlace).ok());
}

TEST(Segment, FileNamesComeBack) {
    EXPECT_EQ(segment_file_name(0x1'0000'0002), "0000000100000002.seg");
    EXPECT_EQ(*parse_segment_file_name("0000000100000002.seg"), 0x1'0000'0002U);
    for (const char* name : {"", "1.seg", "000000010000000g.seg", "0000000100000002.tmp",
                             "0000000100000002.seg2", "0000000100000A02.seg"})
        EXPECT_FALSE(parse_segment_file_name(name).ok()) << name;
}

}  // namespace
}  // namespace fathom
