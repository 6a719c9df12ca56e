// Page and ring layout, and snapshots of encoder windows.
#include "model/kv_cache.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>

namespace fathom {
namespace {

// The released model's cache geometry (model.md 1.2): owners 2, 8, 14 with ratio 2 and 20 with
// ratio 1.
ModelConfig released_geometry() {
    ModelConfig config;
    config.layers = 40;
    config.head_dim = 512;
    config.index_dim = 128;
    config.window = 128;
    config.kv_sources = {2, 8, 14, 20};
    config.roles.resize(40);
    for (const int owner : config.kv_sources) {
        LayerRole& role = config.roles[static_cast<std::size_t>(owner)];
        role.owns_kv = role.owns_index_k = true;
        role.ratio = owner == 20 ? 1 : 2;
    }
    return config;
}

TEST(KvLayout, ReleasedModelTakes890BytesATokenAnd113920APage) {
    const KvLayout layout = make_kv_layout(released_geometry(), CacheStorage::packed);
    EXPECT_EQ(layout.page_bytes, 113920);
    EXPECT_EQ(layout.page_bytes, 890 * kPageTokens);
}

TEST(KvLayout, OwnersFollowEachOtherIndexKeysBeforeMainKv) {
    const KvLayout layout = make_kv_layout(released_geometry(), CacheStorage::packed);
    ASSERT_EQ(layout.owners.size(), 4u);
    EXPECT_EQ(layout.owners[0].index_values, 0);
    EXPECT_EQ(layout.owners[0].index_scales, 64 * 64);
    EXPECT_EQ(layout.owners[0].main_values, 4352);
    EXPECT_EQ(layout.owners[0].main_scales, 4352 + 64 * 256);
    EXPECT_EQ(layout.owners[1].index_values, 22784);
    EXPECT_EQ(layout.owners[3].index_values, 68352);
    EXPECT_EQ(layout.owners[3].main_values, 77056);
    EXPECT_EQ(layout.owner(3), nullptr);
}

TEST(KvLayout, RingsHoldTheWindowAndWhatMayBeRolledBack) {
    const KvLayout layout = make_kv_layout(released_geometry(), CacheStorage::packed);
    EXPECT_EQ(layout.ring_rows, 134);
    EXPECT_EQ(layout.ring_bytes, 134 * 528);
}

TEST(KvLayout, RowsOfAPageNeverOverlap) {
    for (const CacheStorage storage :
         {CacheStorage::packed, CacheStorage::bf16, CacheStorage::f32}) {
        const KvLayout layout = make_kv_layout(released_geometry(), storage);
        std::vector<std::uint8_t> page(static_cast<std::size_t>(layout.page_bytes), 0);
        std::uint8_t* pages[] = {page.data()};
        const auto mark = [&](std::uint8_t* at, std::int64_t bytes) {
            for (std::int64_t i = 0; i < bytes; ++i)
                ++at[i];
        };
        for (const KvLayout::Owner& owner : layout.owners)
            for (const PagedRows& rows :
                 {layout.index_rows(owner, pages), layout.main_rows(owner, pages)})
                for (std::int64_t j = 0; j < owner.rows_per_page; ++j) {
                    const KvRow row = rows.row(j);
                    mark(row.values, kv_value_bytes(rows.format, rows.dim));
                    if (row.scales != nullptr)
                        mark(row.scales, kv_scale_bytes(rows.format, rows.dim));
                }
        for (const std::uint8_t count : page)
            ASSERT_EQ(count, 1);
    }
}

TEST(SequenceState, RingSlotsRepeatAfterRingRows) {
    const KvLayout layout = make_kv_layout(released_geometry(), CacheStorage::packed);
    const SequenceState state(layout);
    EXPECT_EQ(state.ring_row(5, 3).values, state.ring_row(5, 3 + layout.ring_rows).values);
    std::set<std::uint8_t*> slots;
    for (std::int64_t p = 0; p < layout.ring_rows; ++p)
        slots.insert(state.ring_row(5, p).values);
    EXPECT_EQ(static_cast<std::int64_t>(slots.size()), layout.ring_rows);
}

TEST(SequenceState, PendingRowsOfOwnersAndSidesAreApart) {
    const KvLayout layout = make_kv_layout(released_geometry(), CacheStorage::packed);
    const SequenceState state(layout);
    std::set<float*> rows;
    for (int owner = 0; owner < 3; ++owner)
        for (std::int64_t p = 0; p < kPendingRows; ++p) {
            rows.insert(state.pending_u(owner, p));
            rows.insert(state.pending_g(owner, p));
        }
    EXPECT_EQ(rows.size(), static_cast<std::size_t>(3 * kPendingRows * 2));
    EXPECT_EQ(state.pending_u(1, 2), state.pending_u(1, 2 + kPendingRows));
}

TEST(WindowSnapshot, RestoresTheRowsBeforeItsPosition) {
    const KvLayout layout = make_kv_layout(released_geometry(), CacheStorage::packed);
    const SequenceState from(layout);
    const std::int64_t position = 256;
    for (int layer = 0; layer < layout.encoder_layers; ++layer)
        for (std::int64_t p = position - layout.window; p < position; ++p) {
            const KvRow row = from.ring_row(layer, p);
            std::memset(row.values, static_cast<int>(layer + p), 512);
            std::memset(row.scales, static_cast<int>(layer * 7 + p), 16);
        }
    WindowSnapshot snapshot = make_window_snapshot(layout, position);
    EXPECT_EQ(snapshot.rows.size(), 20u * 127 * 528);
    EXPECT_EQ(window_snapshot_bytes(layout), 20 * 127 * 528);
    for (int layer = 0; layer < layout.encoder_layers; ++layer)
        for (std::int64_t p = snapshot_begin(layout, position); p < position; ++p) {
            const KvRow row = from.ring_row(layer, p);
            save_window_row(layout, {row.values, row.scales}, layer, p, snapshot);
        }
    SequenceState to(layout);
    restore_encoder_windows(snapshot, to);
    for (int layer = 0; layer < layout.encoder_layers; ++layer)
        for (std::int64_t p = position - 127; p < position; ++p) {
            ASSERT_EQ(
                std::memcmp(to.ring_row(layer, p).values, from.ring_row(layer, p).values, 512), 0);
            ASSERT_EQ(std::memcmp(to.ring_row(layer, p).scales, from.ring_row(layer, p).scales, 16),
                      0);
        }
}

TEST(WindowSnapshot, NearTheStartHoldsOnlyWhatExists) {
    const KvLayout layout = make_kv_layout(released_geometry(), CacheStorage::packed);
    EXPECT_EQ(snapshot_begin(layout, 5), 0);
    EXPECT_EQ(make_window_snapshot(layout, 5).rows.size(), 20u * 5 * 528);
}

}  // namespace
}  // namespace fathom
