// Weights cut into panels (linear_kernels.h), packed once from the checkpoint or adopted from a
// file that holds the same bytes.
//
// An image is the panels one after the other. It is a pure function of the source: it has no
// pointers, no padding that is not zero (scales of missing rows are 1), and depends neither on the
// level nor on threads. Odd shapes are padded with zeros to whole panels and tiles (N2).
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/compute_pool.h"
#include "kernels/ops.h"
#include "kernels/x86/linear_kernels.h"

namespace fathom::x86 {

// The panels of a matrix, or of a gate and an up matrix: then the even 32 rows of a panel are gate
// rows and the odd ones the up rows beside them.
struct PanelLayout {
    TileFormat format = TileFormat::bf16;
    std::int64_t panels = 0;
    std::int64_t tiles = 0;  // of a panel
    std::int64_t panel_bytes = 0;

    std::int64_t bytes() const { return panels * panel_bytes; }
};
// f32 has none (its panels are 0 bytes).
PanelLayout panel_layout(const WeightSource& source);
PanelLayout gate_up_layout(const WeightSource& gate);

// Memory of an image: a piece of an arena, or borrowed.
class ImageMemory {
  public:
    ImageMemory() = default;
    static ImageMemory borrow(std::span<const std::byte> image);

    std::span<const std::byte> view() const { return view_; }
    // Of memory that is its own.
    std::uint8_t* data() const { return static_cast<std::uint8_t*>(owned_.get()); }
    std::int64_t owned_bytes() const {
        return owned_ == nullptr ? 0 : static_cast<std::int64_t>(view_.size());
    }

  private:
    friend class ImageArena;
    std::shared_ptr<void> owned_;  // of the region it lies in
    std::span<const std::byte> view_;
};

// Gives out memory for images, one behind the other in regions of huge pages: an expert of a narrow
// model is smaller than such a page, and walking through small ones made a decode step 15 % longer.
// A region lives as long as an image in it. Large images have regions of their own.
class ImageArena {
  public:
    ImageMemory allocate(std::int64_t bytes);

  private:
    std::shared_ptr<std::byte> region_;
    std::int64_t used_ = 0;
};

// Packs the panels, each on the thread of the pool that will read it first. `up` is null for a
// plain matrix.
ImageMemory pack_panels(const PanelLayout& layout, const WeightSource& source,
                        const WeightSource* up, ComputePool& pool, ImageArena& arena);

struct Panels {
    PanelLayout layout;
    ImageMemory memory;

    const std::uint8_t* panel(std::int64_t p) const {
        return reinterpret_cast<const std::uint8_t*>(memory.view().data()) + p * layout.panel_bytes;
    }
};

class X86Weight final : public PackedWeight {
  public:
    X86Weight(const WeightSource& source, Panels p, std::unique_ptr<PackedWeight> o)
        : PackedWeight(source.out, source.in), panels(std::move(p)), oracle(std::move(o)) {}
    std::int64_t bytes() const override { return panels.memory.owned_bytes(); }
    std::span<const std::byte> image() const override { return panels.memory.view(); }

    const Panels panels;                         // empty for f32
    const std::unique_ptr<PackedWeight> oracle;  // null without a source
};

class X86GateUp final : public PackedGateUp {
  public:
    X86GateUp(const WeightSource& gate, Panels p, std::unique_ptr<PackedGateUp> o)
        : PackedGateUp(gate.out, gate.in), panels(std::move(p)), oracle(std::move(o)) {}
    std::int64_t bytes() const override { return panels.memory.owned_bytes(); }
    std::span<const std::byte> image() const override { return panels.memory.view(); }

    const Panels panels;
    const std::unique_ptr<PackedGateUp> oracle;
};

}  // namespace fathom::x86
