#include "kernels/x86/backend.h"
#include "kernels/x86/panels.h"

namespace fathom::x86 {

namespace {

bool is_scaled(const WeightSource& s) {
    return s.format == WeightFormat::fp8_block32 || s.format == WeightFormat::fp4_row32;
}

void check_source(const WeightSource& s) {
    FATHOM_CHECK(s.out > 0 && s.in > 0 && s.codes != nullptr);
    FATHOM_CHECK(is_scaled(s) == (s.scales != nullptr));
    FATHOM_CHECK(s.format != WeightFormat::fp4_row32 || s.in % 2 == 0);
}

void check_image(std::span<const std::byte> image, std::int64_t bytes) {
    FATHOM_CHECK(bytes > 0 && static_cast<std::int64_t>(image.size()) == bytes);
    FATHOM_CHECK(reinterpret_cast<std::uintptr_t>(image.data()) % kLineBytes == 0);
}

// The columns of one group of a grouped linear, and the panels that hold them. Panels are cut
// without regard to groups, so that a panel may belong to two.
struct GroupPanels {
    std::int64_t begin, end;  // columns
    std::int64_t first() const { return begin / kPanelRows; }
    std::int64_t count() const { return (end - 1) / kPanelRows - first() + 1; }
};

}  // namespace

std::unique_ptr<PackedWeight> X86Backend::pack(const WeightSource& source) {
    check_source(source);
    const PanelLayout layout = panel_layout(source);
    return std::make_unique<X86Weight>(
        source, Panels{layout, pack_panels(layout, source, nullptr, *pool_, arena_)},
        oracle_->pack(source));
}

std::unique_ptr<PackedGateUp> X86Backend::pack_gate_up(const WeightSource& gate,
                                                       const WeightSource& up) {
    check_source(gate);
    check_source(up);
    FATHOM_CHECK(gate.out == up.out && gate.in == up.in && gate.format == up.format);
    const PanelLayout layout = gate_up_layout(gate);
    return std::make_unique<X86GateUp>(
        gate, Panels{layout, pack_panels(layout, gate, &up, *pool_, arena_)},
        oracle_->pack_gate_up(gate, up));
}

std::int64_t X86Backend::image_bytes(const WeightSource& source) const {
    return panel_layout(source).bytes();
}

std::int64_t X86Backend::gate_up_image_bytes(const WeightSource& gate, const WeightSource&) const {
    return gate_up_layout(gate).bytes();
}

std::unique_ptr<PackedWeight> X86Backend::adopt(const WeightSource& source,
                                                std::span<const std::byte> image) {
    check_image(image, image_bytes(source));
    return std::make_unique<X86Weight>(source,
                                       Panels{panel_layout(source), ImageMemory::borrow(image)},
                                       source.codes == nullptr ? nullptr : oracle_->pack(source));
}

std::unique_ptr<PackedGateUp> X86Backend::adopt_gate_up(const WeightSource& gate,
                                                        const WeightSource& up,
                                                        std::span<const std::byte> image) {
    check_image(image, gate_up_image_bytes(gate, up));
    const bool data = gate.codes != nullptr && up.codes != nullptr;
    return std::make_unique<X86GateUp>(gate,
                                       Panels{gate_up_layout(gate), ImageMemory::borrow(image)},
                                       data ? oracle_->pack_gate_up(gate, up) : nullptr);
}

void X86Backend::linear(ConstRows x, const PackedWeight& w, Rows y) {
    grouped_linear(x, w, 1, y);
}

void X86Backend::grouped_linear(ConstRows x, const PackedWeight& w, std::int64_t groups, Rows y) {
    const auto& weight = static_cast<const X86Weight&>(w);
    const PanelLayout& layout = weight.panels.layout;
    if (x.dtype == DType::f32 || layout.panel_bytes == 0) {
        FATHOM_CHECK(weight.oracle != nullptr, "a weight without its source takes bf16 inputs");
        return oracle_->grouped_linear(x, *weight.oracle, groups, y);
    }
    FATHOM_CHECK(groups > 0 && w.out % groups == 0 && x.cols == groups * w.in);
    FATHOM_CHECK(y.cols == w.out && y.rows == x.rows);
    const std::int64_t n = x.rows, outputs = w.out / groups;
    if (n == 0) return;
    const std::uint16_t* const* inputs = input_rows(x, groups, w.in);
    const bool moderate =
        n >= kFoldRows && layout.format != TileFormat::bf16 &&
        all_moderate(*pool_, linear_, inputs, n * groups, layout.tiles * kTileInputs);
    // Items are (rows, group, panel); a group has one panel more than its width asks for when it
    // begins inside one.
    const std::int64_t part = rows_per_product(n), parts = (n + part - 1) / part;
    const std::int64_t span = (outputs + kPanelRows - 1) / kPanelRows + (outputs % kPanelRows != 0);
    const auto y_width = dtype_bytes(y.dtype);
    for_panels(*pool_, parts * groups * span, panel_us(layout, part),
               [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t item = begin; item < end; ++item) {
                       const std::int64_t g = item / span % groups, j = item % span;
                       const GroupPanels columns{g * outputs, (g + 1) * outputs};
                       if (j >= columns.count()) continue;
                       const std::int64_t p = columns.first() + j;
                       const std::int64_t row = item / span / groups * part;
                       const std::int64_t rows = std::min(part, n - row);
                       float* sums = sums_scratch();
                       linear_.product(
                           {.format = layout.format,
                            .panel = weight.panels.panel(p),
                            .tiles = layout.tiles,
                            .x = inputs + g * n + row,
                            .rows = rows,
                            .x_is_moderate = moderate,
                            .next = p + 1 < layout.panels ? weight.panels.panel(p + 1) : nullptr,
                            .sums = sums,
                            .scratch = product_scratch()});
                       const std::int64_t first = std::max(columns.begin, p * kPanelRows);
                       const std::int64_t last = std::min(columns.end, (p + 1) * kPanelRows);
                       linear_.store({.sums = sums,
                                      .rows = rows,
                                      .first = first - p * kPanelRows,
                                      .count = last - first,
                                      .y = static_cast<std::byte*>(y.data) +
                                           (row * y.stride + first) * y_width,
                                      .stride = y.stride,
                                      .bf16 = y.dtype == DType::bf16});
                   }
               });
}

}  // namespace fathom::x86
