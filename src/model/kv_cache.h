// The serving state of a sequence (model.md 8.1) and how it lies in memory.
//
//   pages    128 tokens of global KV: for each owner in layer order, index K then main KV, each as
//   a
//            value region followed by a scale region. 113,920 bytes on the released model (890 a
//            token). Append-only; immutable once full; may be shared between sequences.
//   rings    window KV of every layer, private to a sequence: ring_rows slots, position p in slot
//            p mod ring_rows. At least window + γ + 1 rows, so that γ + 1 rows can be rolled back.
//   pending  u and g (fp32) of ratio-2 owners for the last kPendingRows positions: an open group
//   waits
//            for its second token here, and rolled-back rows are simply overwritten.
//
// KvLayout is a pure function of config and storage. A PageArena owns page memory; who may write
// which page is decided by the engine's page pool. One thread (the engine's) touches a
// SequenceState.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "kernels/ops.h"
#include "model/config.h"

namespace fathom {

inline constexpr std::int64_t kPageTokens = 128;
inline constexpr std::int64_t kPendingRows = 8;
inline constexpr std::int64_t kDraftTokensMax = 5;  // γ; sizes the rings

// packed: the released formats. bf16: the same values as bf16 numbers, bit-identical results, for
// checking. f32: the fp32 mode.
enum class CacheStorage { packed, bf16, f32 };

struct KvLayout {
    struct Owner {
        int layer = 0;
        int ratio = 1;
        std::int64_t rows_per_page = 0;
        std::int64_t index_values = 0, index_scales = 0;  // byte offsets in a page
        std::int64_t main_values = 0, main_scales = 0;
    };
    std::vector<Owner> owners;  // in layer order
    KvFormat index_format{}, main_format{}, window_format{};
    std::int64_t index_dim = 0, head_dim = 0;
    std::int64_t page_bytes = 0;
    std::int64_t window = 0;
    std::int64_t layers = 0, encoder_layers = 0;
    std::int64_t ring_rows = 0;
    std::int64_t ring_bytes = 0;      // of one layer: values of all rows, then scales of all rows
    std::int64_t pending_offset = 0;  // of the pending rows in a sequence's state
    std::int64_t state_bytes = 0;     // rings of all layers and pending rows of one sequence

    const Owner* owner(int layer) const;  // nullptr when the layer owns nothing
    // Rows of an owner's caches over a sequence's pages.
    PagedRows index_rows(const Owner& owner, std::span<std::uint8_t* const> pages) const;
    PagedRows main_rows(const Owner& owner, std::span<std::uint8_t* const> pages) const;
};

// How window rows are stored; the fp32 mode always keeps f32.
KvFormat window_format(CacheStorage storage, NumericMode mode);

KvLayout make_kv_layout(const ModelConfig& config, CacheStorage storage);

class PageArena {
  public:
    PageArena(const KvLayout& layout, std::int64_t pages);
    PageArena(const PageArena&) = delete;
    PageArena& operator=(const PageArena&) = delete;
    std::int64_t pages() const { return pages_; }
    std::uint8_t* page(PageId id) const;

  private:
    std::int64_t pages_, page_bytes_;
    std::shared_ptr<std::byte> memory_;  // pages are backed when first written
};

// An image (or any other precomputed) span: rows that replace the token embeddings.
struct EmbeddingSpan {
    std::int64_t start = 0;
    std::int64_t count = 0;
    const float* rows = nullptr;  // [count, hidden]; bf16 numbers in the real mode
};

struct SequenceState {
    explicit SequenceState(const KvLayout& layout);
    SequenceState(SequenceState&&) = default;
    SequenceState& operator=(SequenceState&&) = default;

    // What the model reads: ids of every position run so far and to be run (Engram looks back
    // three).
    std::vector<TokenId> ids;
    std::vector<std::uint8_t> in_image;  // beside ids, or empty when the sequence has no image
    std::vector<EmbeddingSpan> embeddings;
    // Pages of positions [128 i, 128 (i+1)); must cover every position of a step before it runs.
    std::vector<std::uint8_t*> pages;

    // Anchors (design.md): what makes a run repeatable.
    std::int64_t encoder_floor = 0;  // encoder window keys before it count as absent (replay)
    std::int64_t store_floor = 0;    // global rows of positions before it are not written (hit)
    std::int64_t decoder_floor = 0;  // s: rows at or after s see decoder window keys from s on only

    KvRow ring_row(int layer, std::int64_t position) const;
    // owner_number counts the ratio-2 owners in layer order.
    float* pending_u(int owner_number, std::int64_t position) const;  // [head_dim]
    float* pending_g(int owner_number, std::int64_t position) const;

    // Takes over the window and pending rows of a sequence of the same layout.
    void copy_rows(const SequenceState& from);

    const KvLayout* layout = nullptr;

  private:
    std::uint8_t* base() const;                 // 64-byte aligned start within memory
    mutable std::vector<std::uint8_t> memory_;  // rings, then pending rows
};

// Copies a window row in stored form.
void copy_window_row(const KvLayout& layout, ConstKvRow from, KvRow to);

// The encoder layers' last window − 1 rows before `position` (a block boundary), for an exact
// continuation there (model.md 8.3): layer by layer, oldest first, each row its values, then its
// scales. Model::forward fills it on the way (StepSpan::snapshots).
struct WindowSnapshot {
    std::int64_t position = 0;
    std::vector<std::uint8_t> rows;
};
std::int64_t window_snapshot_bytes(const KvLayout& layout);  // of one that is not near the start
std::int64_t snapshot_begin(const KvLayout& layout, std::int64_t position);  // its oldest row
WindowSnapshot make_window_snapshot(const KvLayout& layout, std::int64_t position);  // zeros
// Puts the row of position p in [snapshot_begin, position) of an encoder layer in its place.
void save_window_row(const KvLayout& layout, ConstKvRow from, int layer, std::int64_t p,
                     WindowSnapshot& to);
void restore_encoder_windows(const WindowSnapshot& snapshot, SequenceState& state);

}  // namespace fathom
