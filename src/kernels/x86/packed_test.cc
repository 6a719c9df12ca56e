// Images of packed weights: nothing is lost, they depend on the source alone, and a weight adopted
// from one is the weight.
#include <gtest/gtest.h>

#include <cstring>

#include "kernels/cases/linear_cases.h"
#include "kernels/x86/create.h"
#include "kernels/x86/packed.h"

namespace fathom {
namespace {

using cases::Matrix;
using cases::random_matrix;
using cases::random_weight;
using cases::Weight;

constexpr std::uint64_t kSeed = 99;

std::unique_ptr<Backend> backend(int threads) {
    auto b = make_backend("x86-avx2", std::make_shared<ComputePool>(threads));
    EXPECT_TRUE(b.ok()) << b.status().to_string();
    return std::move(*b);
}

std::vector<std::byte> bytes_of(std::span<const std::byte> image) {
    return {image.begin(), image.end()};
}

// The layout of linear_kernels.h read back, element by element.
class Unpacked {
  public:
    Unpacked(x86::PanelLayout layout, std::span<const std::byte> image)
        : layout_(layout), image_(reinterpret_cast<const std::uint8_t*>(image.data())) {}

    // A code, or the bits of a bf16 number.
    std::uint32_t code(std::int64_t row, std::int64_t k) const {
        const std::int64_t r = row % 64, i = r % 16, j = k % 32;
        const std::uint8_t* t = tile(row, k / 32);
        switch (layout_.format) {
            case x86::TileFormat::fp4: {
                const std::uint8_t* lane = t + (j / 8 * 4 + r / 16) * 64 + i * 4 + j % 2 * 2;
                return (lane[0] | lane[1] << 8) >> (j % 8 / 2 * 4) & 15;
            }
            case x86::TileFormat::fp8: {
                const std::uint8_t* line = t + (r / 32 * 16 + j / 4 * 2 + r % 32 / 16) * 64;
                return line[i / 4 * 16 + j % 4 / 2 * 8 + i % 4 * 2 + j % 2];
            }
            case x86::TileFormat::bf16: {
                const std::uint8_t* lane = t + (j / 2 * 4 + r / 16) * 64 + i * 4 + j % 2 * 2;
                return lane[0] | lane[1] << 8;
            }
        }
        return 0;
    }
    std::uint8_t scale(std::int64_t row, std::int64_t group) const {
        if (layout_.format == x86::TileFormat::fp4) return tile(row, group)[1024 + row % 64];
        return panel(row)[group / 32 * x86::kFp8ChunkBytes + group % 32 * 2 + row % 64 / 32];
    }

  private:
    const std::uint8_t* panel(std::int64_t row) const {
        return image_ + row / 64 * layout_.panel_bytes;
    }
    const std::uint8_t* tile(std::int64_t row, std::int64_t t) const {
        switch (layout_.format) {
            case x86::TileFormat::fp4:
                return panel(row) + t * 1088;
            case x86::TileFormat::fp8:
                return panel(row) + t / 32 * x86::kFp8ChunkBytes + 64 + t % 32 * 2048;
            case x86::TileFormat::bf16:
                break;
        }
        return panel(row) + t * 4096;
    }

    x86::PanelLayout layout_;
    const std::uint8_t* image_;
};

std::uint32_t source_code(const WeightSource& w, std::int64_t row, std::int64_t k) {
    const auto* codes = static_cast<const std::uint8_t*>(w.codes);
    const std::int64_t at = row * w.in + k;
    switch (w.format) {
        case WeightFormat::fp4_row32:
            return codes[at / 2] >> (k % 2 * 4) & 15;
        case WeightFormat::fp8_block32:
            return codes[at];
        default:
            return codes[2 * at] | codes[2 * at + 1] << 8;
    }
}

std::uint8_t source_scale(const WeightSource& w, std::int64_t row, std::int64_t group) {
    const std::int64_t groups = (w.in + 31) / 32;
    return w.scales[(w.format == WeightFormat::fp4_row32 ? row : row / 32) * groups + group];
}

// Row `row` of the weight is row `at` of the panels.
void expect_row(const Unpacked& unpacked, const WeightSource& w, std::int64_t row,
                std::int64_t at) {
    for (std::int64_t k = 0; k < (w.in + 31) / 32 * 32; ++k) {
        ASSERT_EQ(unpacked.code(at, k), k < w.in ? source_code(w, row, k) : 0)
            << "row " << row << " input " << k;
    }
    for (std::int64_t g = 0; w.scales != nullptr && g < (w.in + 31) / 32; ++g)
        ASSERT_EQ(unpacked.scale(at, g), source_scale(w, row, g))
            << "row " << row << " group " << g;
}

std::vector<std::shared_ptr<Weight>> weights() {
    RandomStream random(kSeed);
    std::vector<std::shared_ptr<Weight>> list;
    for (const WeightFormat f :
         {WeightFormat::fp4_row32, WeightFormat::fp8_block32, WeightFormat::bf16}) {
        list.push_back(random_weight(random, f, 192, 1184, 127));
        list.push_back(random_weight(random, f, 77, 46, 127));
        auto every = random_weight(random, f, 64, 512, 127);  // every code everywhere
        for (std::size_t i = 0; i < every->codes.size(); ++i)
            every->codes[i] = static_cast<std::uint8_t>(i + i / 256);
        list.push_back(std::move(every));
    }
    return list;
}

TEST(PackedImage, HoldsEveryCodeAndScale) {
    const auto b = backend(2);
    for (const auto& w : weights()) {
        const auto packed = b->pack(w->source);
        const x86::PanelLayout layout = x86::panel_layout(w->source);
        ASSERT_EQ(static_cast<std::int64_t>(packed->image().size()), layout.bytes());
        ASSERT_EQ(b->image_bytes(w->source), layout.bytes());
        ASSERT_EQ(packed->bytes(), layout.bytes());
        const Unpacked unpacked(layout, packed->image());
        for (std::int64_t row = 0; row < w->source.out; ++row)
            expect_row(unpacked, w->source, row, row);
    }
}

TEST(PackedImage, AlternatesGateAndUpRows) {
    const auto b = backend(3);
    RandomStream random(kSeed);
    for (const WeightFormat f :
         {WeightFormat::fp4_row32, WeightFormat::fp8_block32, WeightFormat::bf16}) {
        const auto gate = random_weight(random, f, 72, 96), up = random_weight(random, f, 72, 96);
        const auto packed = b->pack_gate_up(gate->source, up->source);
        const x86::PanelLayout layout = x86::gate_up_layout(gate->source);
        ASSERT_EQ(b->gate_up_image_bytes(gate->source, up->source), layout.bytes());
        ASSERT_EQ(static_cast<std::int64_t>(packed->image().size()), layout.bytes());
        const Unpacked unpacked(layout, packed->image());
        for (std::int64_t row = 0; row < 72; ++row) {
            const std::int64_t at = row / 32 * 64 + row % 32;
            expect_row(unpacked, gate->source, row, at);
            expect_row(unpacked, up->source, row, at + 32);
        }
    }
}

TEST(PackedImage, DependsOnTheSourceAlone) {
    for (const auto& w : weights()) {
        const auto one = backend(1)->pack(w->source);
        const Weight copy = *w;
        WeightSource moved = w->source;
        moved.codes = copy.codes.data();
        moved.scales = copy.scales.empty() ? nullptr : copy.scales.data();
        EXPECT_EQ(bytes_of(one->image()), bytes_of(backend(3)->pack(moved)->image()));
    }
}

TEST(PackedImage, AdoptedIsTheWeight) {
    const auto b = backend(2);
    RandomStream random(kSeed);
    for (const auto& w : weights()) {
        const auto packed = b->pack(w->source);
        const auto image = packed->image();
        // Elsewhere, on a multiple of 64, and without the source's data.
        x86::ImageArena arena;
        const x86::ImageMemory elsewhere = arena.allocate(static_cast<std::int64_t>(image.size()));
        std::memcpy(elsewhere.data(), image.data(), image.size());
        WeightSource shape = w->source;
        shape.codes = nullptr;
        shape.scales = nullptr;
        const auto adopted = b->adopt(shape, elsewhere.view());
        ASSERT_NE(adopted, nullptr);
        EXPECT_EQ(adopted->bytes(), 0);
        const auto x = random_matrix(random, DType::bf16, 3, w->source.in);
        Matrix y(DType::f32, 3, w->source.out), again(DType::f32, 3, w->source.out);
        b->linear(x->view(), *packed, y.view());
        b->linear(x->view(), *adopted, again.view());
        EXPECT_TRUE(cases::same_bits(y.numbers(), again.numbers()));
    }
}

TEST(PackedImage, LiesInHugePages) {
    x86::ImageArena arena;
    const auto place = [](const x86::ImageMemory& memory) {
        return reinterpret_cast<std::uintptr_t>(memory.data());
    };
    constexpr std::int64_t kMiB = 1 << 20;
    const x86::ImageMemory small = arena.allocate(70), next = arena.allocate(kMiB),
                           large = arena.allocate(40 * kMiB + 64);
    EXPECT_EQ(place(small) % (2 * kMiB), 0u);
    EXPECT_EQ(place(next), place(small) + 128) << "behind the other, at a multiple of 64";
    EXPECT_EQ(place(large) % (2 * kMiB), 0u);
    large.data()[0] = large.data()[40 * kMiB + 63] = 1;  // both ends are there
    EXPECT_EQ(large.owned_bytes(), 40 * kMiB + 64);
    EXPECT_EQ(arena.allocate(0).owned_bytes(), 0);
}

TEST(PackedImage, OutlivesTheArenaAndItsNeighbours) {
    auto arena = std::make_unique<x86::ImageArena>();
    std::vector<x86::ImageMemory> images;
    for (int i = 0; i < 9; ++i) {  // more than a region holds
        images.push_back(arena->allocate(std::int64_t{15} << 20));
        images.back().data()[0] = static_cast<std::uint8_t>(i);
    }
    arena.reset();
    for (int i : {8, 0, 3})
        images.erase(images.begin() + i % static_cast<int>(images.size()));
    EXPECT_EQ(images.front().data()[0], 1);
    EXPECT_EQ(images.back().data()[0], 7);
}

TEST(PackedImage, Fp32HasNone) {
    RandomStream random(kSeed);
    const auto b = backend(1);
    const auto w = random_weight(random, WeightFormat::f32, 8, 8);
    EXPECT_EQ(b->image_bytes(w->source), 0);
    EXPECT_TRUE(b->pack(w->source)->image().empty());
    const auto reference = make_reference_backend(std::make_shared<ComputePool>(1));
    EXPECT_EQ((*reference)->image_bytes(weights()[0]->source), 0);
    EXPECT_EQ((*reference)->adopt(w->source, {}), nullptr);
}

}  // namespace
}  // namespace fathom
