#include "kernels/x86/packed.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/huge_memory.h"

namespace fathom::x86 {

namespace {

constexpr std::int64_t kGroup = 32;  // inputs under one scale
constexpr std::int64_t kHalf = kPanelRows / 2;
constexpr std::uint8_t kScaleOne = 127;
constexpr std::int64_t kRegion = std::int64_t{64} << 20;

std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
    return (n + multiple - 1) / multiple * multiple;
}

std::shared_ptr<std::byte> planned_memory(std::int64_t bytes) {
    std::shared_ptr<std::byte> memory = map_huge_memory(bytes);
    FATHOM_CHECK(memory != nullptr, "weights: the memory plan allowed more than mmap grants");
    return memory;
}

PanelLayout layout_of(WeightFormat format, std::int64_t panels, std::int64_t in) {
    PanelLayout layout{.panels = panels, .tiles = (in + kTileInputs - 1) / kTileInputs};
    switch (format) {
        case WeightFormat::fp4_row32:
            layout.format = TileFormat::fp4;
            layout.panel_bytes = layout.tiles * kFp4TileBytes;
            break;
        case WeightFormat::fp8_block32:
            layout.format = TileFormat::fp8;
            layout.panel_bytes =
                layout.tiles * kFp8TileBytes +
                (layout.tiles + kFp8TilesPerScales - 1) / kFp8TilesPerScales * kLineBytes;
            break;
        case WeightFormat::bf16:
            layout.format = TileFormat::bf16;
            layout.panel_bytes = layout.tiles * kBf16TileBytes;
            break;
        case WeightFormat::f32:
            break;
    }
    return layout;
}

// Where the rows of one panel lie in the source; null where there is none.
struct PanelRows {
    const std::uint8_t* codes[kPanelRows] = {};
    const std::uint8_t* scales[kPanelRows] = {};  // fp4: of the row; fp8: of its block of 32
    std::int64_t row_bytes = 0;
};

PanelRows panel_rows(const WeightSource& source, const WeightSource* up, std::int64_t panel) {
    PanelRows rows;
    switch (source.format) {
        case WeightFormat::fp4_row32:
            rows.row_bytes = source.in / 2;
            break;
        case WeightFormat::fp8_block32:
            rows.row_bytes = source.in;
            break;
        case WeightFormat::bf16:
            rows.row_bytes = source.in * 2;
            break;
        case WeightFormat::f32:
            break;
    }
    const std::int64_t groups = (source.in + kGroup - 1) / kGroup;
    for (std::int64_t r = 0; r < kPanelRows; ++r) {
        const bool second = up != nullptr && r >= kHalf;
        const WeightSource& from = second ? *up : source;
        const std::int64_t row = up == nullptr ? panel * kPanelRows + r : panel * kHalf + r % kHalf;
        if (row >= from.out) continue;
        rows.codes[r] = static_cast<const std::uint8_t*>(from.codes) + row * rows.row_bytes;
        if (from.scales == nullptr) continue;
        rows.scales[r] =
            from.scales +
            (source.format == WeightFormat::fp4_row32 ? row * groups : row / kGroup * groups);
    }
    return rows;
}

// Four bytes of a row from `offset` on, zero past its end.
std::uint32_t word_at(const PanelRows& rows, std::int64_t r, std::int64_t offset) {
    std::uint32_t word = 0;
    if (rows.codes[r] == nullptr || offset >= rows.row_bytes) return word;
    const auto count = static_cast<std::size_t>(std::min<std::int64_t>(4, rows.row_bytes - offset));
    if (count == 4) {
        std::memcpy(&word, rows.codes[r] + offset, 4);
    } else {
        std::memcpy(&word, rows.codes[r] + offset, count);
    }
    return word;
}

// The nibbles 0, 2, 4, 6 of a word, side by side.
std::uint32_t even_nibbles(std::uint32_t word) {
    word &= 0x0f0f0f0fu;
    word = (word | word >> 4) & 0x00ff00ffu;
    return (word | word >> 8) & 0xffffu;
}

void put(std::uint8_t* to, std::uint32_t word) {
    std::memcpy(to, &word, 4);
}

void pack_fp4_tile(const PanelRows& rows, std::int64_t t, std::uint8_t* out) {
    for (std::int64_t r = 0; r < kPanelRows; ++r) {
        for (std::int64_t l = 0; l < 4; ++l) {
            const std::uint32_t word = word_at(rows, r, t * 16 + l * 4);
            put(out + (l * 4 + r / 16) * kLineBytes + r % 16 * 4,
                even_nibbles(word) | even_nibbles(word >> 4) << 16);
        }
        out[kFp4ScaleOffset + r] = rows.scales[r] == nullptr ? kScaleOne : rows.scales[r][t];
    }
}

void pack_fp8_tile(const PanelRows& rows, std::int64_t t, std::uint8_t* out) {
    for (std::int64_t r = 0; r < kPanelRows; ++r) {
        const std::int64_t h = r / kHalf, b = r % kHalf / 16, q = r % 16 / 4;
        for (std::int64_t l = 0; l < 8; ++l) {
            const std::uint32_t word = word_at(rows, r, t * kTileInputs + l * 4);
            std::uint8_t* lane = out + (16 * h + 2 * l + b) * kLineBytes + q * 16 + r % 4 * 2;
            std::memcpy(lane, &word, 2);
            const std::uint32_t second = word >> 16;
            std::memcpy(lane + 8, &second, 2);
        }
    }
}

void pack_bf16_tile(const PanelRows& rows, std::int64_t t, std::uint8_t* out) {
    for (std::int64_t r = 0; r < kPanelRows; ++r) {
        for (std::int64_t p = 0; p < 16; ++p)
            put(out + (p * 4 + r / 16) * kLineBytes + r % 16 * 4, word_at(rows, r, t * 64 + p * 4));
    }
}

void pack_panel(const PanelLayout& layout, const PanelRows& rows, std::uint8_t* out) {
    for (std::int64_t t = 0; t < layout.tiles; ++t) {
        switch (layout.format) {
            case TileFormat::fp4:
                pack_fp4_tile(rows, t, out);
                out += kFp4TileBytes;
                break;
            case TileFormat::fp8:
                if (t % kFp8TilesPerScales == 0) {
                    for (std::int64_t i = 0; i < kLineBytes; ++i) {
                        const std::uint8_t* scales = rows.scales[i % 2 * kHalf];
                        const std::int64_t tile = t + i / 2;
                        out[i] = tile >= layout.tiles ? 0
                                 : scales == nullptr  ? kScaleOne
                                                      : scales[tile];
                    }
                    out += kLineBytes;
                }
                pack_fp8_tile(rows, t, out);
                out += kFp8TileBytes;
                break;
            case TileFormat::bf16:
                pack_bf16_tile(rows, t, out);
                out += kBf16TileBytes;
                break;
        }
    }
}

}  // namespace

PanelLayout panel_layout(const WeightSource& source) {
    return layout_of(source.format, (source.out + kPanelRows - 1) / kPanelRows, source.in);
}

PanelLayout gate_up_layout(const WeightSource& gate) {
    return layout_of(gate.format, (gate.out + kHalf - 1) / kHalf, gate.in);
}

ImageMemory ImageArena::allocate(std::int64_t bytes) {
    ImageMemory memory;
    if (bytes == 0) return memory;
    std::shared_ptr<std::byte> begin;
    if (bytes > kRegion / 4) {
        begin = planned_memory(bytes);
    } else {
        if (region_ == nullptr || used_ + bytes > kRegion) {
            region_ = planned_memory(kRegion);
            used_ = 0;
        }
        begin = {region_, region_.get() + used_};
        used_ += round_up(bytes, kLineBytes);
    }
    memory.view_ = {begin.get(), static_cast<std::size_t>(bytes)};
    memory.owned_ = std::move(begin);
    return memory;
}

ImageMemory ImageMemory::borrow(std::span<const std::byte> image) {
    ImageMemory memory;
    memory.view_ = image;
    return memory;
}

ImageMemory pack_panels(const PanelLayout& layout, const WeightSource& source,
                        const WeightSource* up, ComputePool& pool, ImageArena& arena) {
    ImageMemory memory = arena.allocate(layout.bytes());
    if (layout.bytes() == 0) return memory;
    pool.run_shares(layout.panels, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t p = begin; p < end; ++p)
            pack_panel(layout, panel_rows(source, up, p), memory.data() + p * layout.panel_bytes);
    });
    return memory;
}

}  // namespace fathom::x86
