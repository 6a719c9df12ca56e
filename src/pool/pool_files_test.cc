#include "pool/pool_files.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "pool/testing/embedded_rig.h"
#include "pool/testing/store_calls.h"

namespace fathom {
namespace {

using namespace fathom::testing;

constexpr std::int64_t kPayload = 113'920;

class PoolFiles : public ::testing::Test {
  protected:
    std::unique_ptr<EmbeddedStore> open() {
        EmbeddedOptions options;
        options.directory = folder_.path();
        options.payload_bytes = kPayload;
        options.capacity_bytes = std::int64_t{4} << 30;
        options.io_depth = 8;
        auto store = EmbeddedStore::open(std::move(options));
        EXPECT_TRUE(store.ok()) << store.status().message();
        return store.ok() ? std::move(*store) : nullptr;
    }
    // Keys by what a reader without the lock finds, open segments and sealed ones.
    std::set<Sha256Digest> keys(PoolReader& reader) {
        std::set<Sha256Digest> found;
        const auto pool = reader.pool(folder_.path());
        const auto listing = list_pool_segments(reader.files(), folder_.path());
        EXPECT_TRUE(pool.ok() && listing.ok());
        std::vector<std::uint32_t> slots(static_cast<std::size_t>(geometry_.slots));
        std::iota(slots.begin(), slots.end(), 0);
        for (const PoolSegmentFile& segment : listing->segments) {
            const auto file = reader.files().open(segment.path, OpenMode::reading);
            const auto head = reader.head(*file, segment, pool->uuid, geometry_);
            if (head.ok() && !head->sealed) {
                const SlotPlace place{pool_low_bytes(pool->uuid), head->header.id, 0};
                for (const auto& trailer : reader.trailers(*file, geometry_, place, slots))
                    if (trailer) found.insert(trailer->name.key.bytes);
            }
            if (head.ok())
                for (const FooterEntry& entry : head->entries)
                    if (entry.flags != 0) found.insert(entry.key.bytes);
            sealed_ += head.ok() && head->sealed ? 1 : 0;
            EXPECT_EQ(reader.has_footer(*file), head.ok() && head->sealed);
            reader.files().close(*file);
        }
        return found;
    }

    const TemporaryFolder folder_;
    const SlotGeometry geometry_ = *slot_geometry(kPayload);
    int sealed_ = 0;
};

TEST_F(PoolFiles, AReaderWithoutTheLockSeesOpenAndSealedSegments) {
    PoolReader reader(make_thread_file_layer(8));
    EXPECT_EQ(reader.pool(folder_.path()).status().code(), StatusCode::not_found);
    EXPECT_TRUE(pool_directories(reader.files(), folder_.path())->empty());
    std::set<Sha256Digest> expected;
    for (const std::uint64_t number : {1, 2, 3})
        expected.insert(block_name(number).key.bytes);
    const auto store = open();
    put_blocks(*store, {1, 2, 3});
    EXPECT_EQ(keys(reader), expected);
    EXPECT_EQ(sealed_, 0);
    EXPECT_EQ(*pool_directories(reader.files(), folder_.path()),
              std::vector<std::string>{folder_.path()});
    store->close(kNever);
    EXPECT_EQ(keys(reader), expected);
    EXPECT_EQ(sealed_, 1);
}

TEST_F(PoolFiles, HeadsAreJudgedByTheirPlace) {
    const SegmentHeader header{.pool = {1, 2, 3},
                               .id = 0x100000002,
                               .traffic_class = TrafficClass::chatbot,
                               .bucket_start_unix_ms = 21'600'000,
                               .expiry_unix_ms = 43'200'000,
                               .payload_bytes = static_cast<std::uint32_t>(kPayload),
                               .slot_bytes = static_cast<std::uint32_t>(geometry_.slot_bytes),
                               .slots = static_cast<std::uint32_t>(geometry_.slots),
                               .writer = 1};
    std::vector<std::uint8_t> head(static_cast<std::size_t>(segment_head_bytes(geometry_)));
    write_segment_header(std::span(head).first(kPoolPageBytes), header);
    const auto code = [&](const PoolSegmentFile& file, std::span<const std::uint8_t> bytes) {
        return judge_segment_head(bytes, file, header.pool, geometry_).status().code();
    };
    const PoolSegmentFile right{"p", "chatbot", "21600", "0000000100000002.seg"};
    EXPECT_EQ(code(right, head), StatusCode::ok);
    EXPECT_EQ(code(right, {}), StatusCode::not_found);
    EXPECT_EQ(code(right, std::span(head).first(100)), StatusCode::invalid_argument);
    EXPECT_EQ(code({"p", "agent", "21600", right.name}, head), StatusCode::invalid_argument);
    EXPECT_EQ(code({"p", "chatbot", "0", right.name}, head), StatusCode::invalid_argument);
    EXPECT_EQ(code({"p", "chatbot", "21600", "x.seg"}, head), StatusCode::invalid_argument);
    EXPECT_EQ(code({"p", "chatbot", "21600", "0000000100000003.seg"}, head),
              StatusCode::invalid_argument);
    EXPECT_EQ(judge_segment_head(head, right, {9}, geometry_).status().code(),
              StatusCode::invalid_argument);
    head[50] ^= 1;
    EXPECT_EQ(code(right, head), StatusCode::invalid_argument);
    std::fill(head.begin(), head.end(), std::uint8_t{0});
    EXPECT_EQ(code(right, head), StatusCode::not_found);
}

}  // namespace
}  // namespace fathom
