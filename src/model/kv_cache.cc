#include "model/kv_cache.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/huge_memory.h"

namespace fathom {

namespace {

std::int64_t row_bytes(KvFormat format, std::int64_t dim) {
    return kv_value_bytes(format, dim) + kv_scale_bytes(format, dim);
}

}  // namespace

KvFormat window_format(CacheStorage storage, NumericMode mode) {
    if (mode == NumericMode::fp32 || storage == CacheStorage::f32) return KvFormat::f32;
    return storage == CacheStorage::bf16 ? KvFormat::bf16 : KvFormat::window_fp8;
}

KvLayout make_kv_layout(const ModelConfig& config, CacheStorage storage) {
    KvLayout layout;
    switch (storage) {
        case CacheStorage::packed:
            layout.index_format = KvFormat::index_fp4;
            layout.main_format = config.fp4_main_kv ? KvFormat::main_fp4 : KvFormat::window_fp8;
            break;
        case CacheStorage::bf16:
            layout.index_format = layout.main_format = KvFormat::bf16;
            break;
        case CacheStorage::f32:
            layout.index_format = layout.main_format = KvFormat::f32;
            break;
    }
    layout.window_format = window_format(storage, NumericMode::real);
    layout.index_dim = config.index_dim;
    layout.head_dim = config.head_dim;
    layout.window = config.window;
    layout.layers = config.layers;
    layout.encoder_layers = config.boundary();
    layout.ring_rows = config.window + kDraftTokensMax + 1;
    layout.ring_bytes = layout.ring_rows * row_bytes(layout.window_format, config.head_dim);

    std::int64_t pending_owners = 0;
    for (int layer = 0; layer < config.layers; ++layer) {
        const LayerRole& role = config.roles[static_cast<std::size_t>(layer)];
        if (!role.owns_kv) continue;
        KvLayout::Owner owner;
        owner.layer = layer;
        owner.ratio = role.ratio;
        owner.rows_per_page = kPageTokens / role.ratio;
        if (role.owns_index_k) {
            owner.index_values = layout.page_bytes;
            owner.index_scales =
                owner.index_values +
                owner.rows_per_page * kv_value_bytes(layout.index_format, layout.index_dim);
            layout.page_bytes +=
                owner.rows_per_page * row_bytes(layout.index_format, layout.index_dim);
        }
        owner.main_values = layout.page_bytes;
        owner.main_scales =
            owner.main_values +
            owner.rows_per_page * kv_value_bytes(layout.main_format, layout.head_dim);
        layout.page_bytes += owner.rows_per_page * row_bytes(layout.main_format, layout.head_dim);
        layout.owners.push_back(owner);
        if (role.ratio == 2) ++pending_owners;
    }
    layout.pending_offset = (layout.layers * layout.ring_bytes + 63) / 64 * 64;
    layout.state_bytes = layout.pending_offset + pending_owners * kPendingRows * 2 *
                                                     config.head_dim *
                                                     static_cast<std::int64_t>(sizeof(float));
    return layout;
}

const KvLayout::Owner* KvLayout::owner(int layer) const {
    for (const Owner& candidate : owners)
        if (candidate.layer == layer) return &candidate;
    return nullptr;
}

PagedRows KvLayout::index_rows(const Owner& owner, std::span<std::uint8_t* const> pages) const {
    return {.pages = pages,
            .format = index_format,
            .dim = index_dim,
            .rows_per_page = owner.rows_per_page,
            .values_offset = owner.index_values,
            .scales_offset = owner.index_scales};
}

PagedRows KvLayout::main_rows(const Owner& owner, std::span<std::uint8_t* const> pages) const {
    return {.pages = pages,
            .format = main_format,
            .dim = head_dim,
            .rows_per_page = owner.rows_per_page,
            .values_offset = owner.main_values,
            .scales_offset = owner.main_scales};
}

PageArena::PageArena(const KvLayout& layout, std::int64_t pages)
    : pages_(pages), page_bytes_((layout.page_bytes + 63) / 64 * 64) {
    FATHOM_CHECK(pages >= 0);
    const std::int64_t bytes = std::max<std::int64_t>(pages_ * page_bytes_, 1);
    memory_ = map_huge_memory(bytes);
    FATHOM_CHECK(memory_ != nullptr, "page arena: the memory plan allowed more than mmap grants");
}

std::uint8_t* PageArena::page(PageId id) const {
    FATHOM_CHECK(id.value < static_cast<std::uint64_t>(pages_));
    return reinterpret_cast<std::uint8_t*>(memory_.get()) +
           static_cast<std::int64_t>(id.value) * page_bytes_;
}

SequenceState::SequenceState(const KvLayout& kv_layout)
    : layout(&kv_layout), memory_(static_cast<std::size_t>(kv_layout.state_bytes) + 63) {}

std::uint8_t* SequenceState::base() const {
    auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    address = (address + 63) / 64 * 64;
    return reinterpret_cast<std::uint8_t*>(address);
}

void SequenceState::copy_rows(const SequenceState& from) {
    FATHOM_CHECK(layout == from.layout);
    std::memcpy(base(), from.base(), static_cast<std::size_t>(layout->state_bytes));
}

KvRow SequenceState::ring_row(int layer, std::int64_t position) const {
    const KvFormat format = layout->window_format;
    const std::int64_t slot = position % layout->ring_rows;
    const std::int64_t value_bytes = kv_value_bytes(format, layout->head_dim);
    const std::int64_t scale_bytes = kv_scale_bytes(format, layout->head_dim);
    std::uint8_t* ring = base() + layer * layout->ring_bytes;
    return {
        ring + slot * value_bytes,
        scale_bytes == 0 ? nullptr : ring + layout->ring_rows * value_bytes + slot * scale_bytes};
}

float* SequenceState::pending_u(int owner_number, std::int64_t position) const {
    const std::int64_t row = owner_number * kPendingRows + position % kPendingRows;
    auto* rows = reinterpret_cast<float*>(base() + layout->pending_offset);
    return rows + row * 2 * layout->head_dim;
}

float* SequenceState::pending_g(int owner_number, std::int64_t position) const {
    return pending_u(owner_number, position) + layout->head_dim;
}

void copy_window_row(const KvLayout& layout, ConstKvRow from, KvRow to) {
    const KvFormat format = layout.window_format;
    std::memcpy(to.values, from.values,
                static_cast<std::size_t>(kv_value_bytes(format, layout.head_dim)));
    if (to.scales != nullptr)
        std::memcpy(to.scales, from.scales,
                    static_cast<std::size_t>(kv_scale_bytes(format, layout.head_dim)));
}

std::int64_t window_snapshot_bytes(const KvLayout& layout) {
    return layout.encoder_layers * (layout.window - 1) *
           row_bytes(layout.window_format, layout.head_dim);
}

std::int64_t snapshot_begin(const KvLayout& layout, std::int64_t position) {
    return std::max<std::int64_t>(0, position - (layout.window - 1));
}

WindowSnapshot make_window_snapshot(const KvLayout& layout, std::int64_t position) {
    const std::int64_t rows = layout.encoder_layers * (position - snapshot_begin(layout, position));
    WindowSnapshot snapshot{.position = position, .rows = {}};
    snapshot.rows.resize(
        static_cast<std::size_t>(rows * row_bytes(layout.window_format, layout.head_dim)));
    return snapshot;
}

namespace {

std::size_t snapshot_offset(const KvLayout& layout, std::int64_t position, int layer,
                            std::int64_t p) {
    const std::int64_t begin = snapshot_begin(layout, position);
    return static_cast<std::size_t>((layer * (position - begin) + p - begin) *
                                    row_bytes(layout.window_format, layout.head_dim));
}

// A row at `values` with its scales right behind them.
template <typename Row, typename Byte>
Row packed_row(const KvLayout& layout, Byte* values) {
    const bool scales = kv_scale_bytes(layout.window_format, layout.head_dim) != 0;
    return {values,
            scales ? values + kv_value_bytes(layout.window_format, layout.head_dim) : nullptr};
}

}  // namespace

void save_window_row(const KvLayout& layout, ConstKvRow from, int layer, std::int64_t p,
                     WindowSnapshot& to) {
    std::uint8_t* values = to.rows.data() + snapshot_offset(layout, to.position, layer, p);
    copy_window_row(layout, from, packed_row<KvRow>(layout, values));
}

void restore_encoder_windows(const WindowSnapshot& snapshot, SequenceState& state) {
    const KvLayout& layout = *state.layout;
    FATHOM_CHECK(snapshot.rows.size() == snapshot_offset(layout, snapshot.position,
                                                         static_cast<int>(layout.encoder_layers),
                                                         snapshot_begin(layout, snapshot.position)),
                 "snapshot of another layout");
    for (int layer = 0; layer < layout.encoder_layers; ++layer)
        for (std::int64_t p = snapshot_begin(layout, snapshot.position); p < snapshot.position;
             ++p) {
            const std::uint8_t* values =
                snapshot.rows.data() + snapshot_offset(layout, snapshot.position, layer, p);
            copy_window_row(layout, packed_row<ConstKvRow>(layout, values),
                            state.ring_row(layer, p));
        }
}

}  // namespace fathom
