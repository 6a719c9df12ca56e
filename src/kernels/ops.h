// The operators of the model, as contracts. A back end implements `Backend`; the model (src/model)
// is written against it alone; `reference/` is the scalar oracle, and bench/compare_backends runs
// every operator of two back ends on the same inputs and reports error, bit equality and time.
//
// Shapes are row-major views. A row is one token of one sequence; rows are independent: the bits of
// a row depend on that row's inputs only, never on how many rows a call has, on their order or on
// threads (cpu-kernels.md section 9). Quantities are bf16 in the real mode and fp32 in the fp32
// mode ("act dtype" below): a view carries its dtype, and all activation views of one call agree
// unless said otherwise. Rounding happens where a contract says "→ act": bf16 round-to-nearest-even
// in the real mode, nothing in the fp32 mode. Everything inside is fp32.
//
// Order of additions (cpu-kernels.md section 4; FTZ and DAZ on):
//   N1  linears: per group of 32 inputs B = 0, then for p = 0..15
//       B = fma(x[2p], w[2p], fma(x[2p+1], w[2p+1], B)); acc = fma(B, scale, acc); groups in K
//       order.
//   N2  K that is no multiple of 32 is padded with zeros; N3 and N4 pad to a multiple of 16.
//   N3  fp32 × fp32 products: lane j of 16 takes k ≡ j (mod 16) as an fma chain; then the tree
//       (lane j += lane j+8, then +4, +2, +1).
//   N4  row reductions: 16 lanes as N3, but in blocks of 512 elements; each block reduced by the
//       tree, block results added in order to a running sum that starts at +0. A sum of squares
//       is a chain of fma(x, x, lane); a mean is the sum divided by the count.
//   N5  exp, log1p, sin, cos are our own (kernels/math.h); 1/x is a true division, rsqrt(x) is
//       1/sqrt(x).
// Elsewhere every operation rounds once, left to right, without fma unless it is written; a sum
// over streams starts with its first term.
//
// Memory: views are borrowed for the call. Packed weights are owned by the caller and must outlive
// their use. Threads: one thread calls into a Backend at a time; it spreads work over its
// ComputePool. Errors: shapes and dtypes are the caller's duty (CHECK); nothing here can fail at
// run time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/compute_pool.h"
#include "base/formats.h"
#include "base/ids.h"
#include "base/result.h"
#include "kernels/numerics.h"

namespace fathom {

// ------------------------------------------------------------------------------------------ views

enum class DType : std::uint8_t { bf16, f32 };
inline std::int64_t dtype_bytes(DType t) {
    return t == DType::bf16 ? 2 : 4;
}

// A mutable matrix view; `stride` is in elements between row starts.
struct Rows {
    void* data = nullptr;
    DType dtype = DType::bf16;
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    std::int64_t stride = 0;
};

struct ConstRows {
    const void* data = nullptr;
    DType dtype = DType::bf16;
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    std::int64_t stride = 0;

    ConstRows() = default;
    ConstRows(const void* d, DType t, std::int64_t r, std::int64_t c, std::int64_t s)
        : data(d), dtype(t), rows(r), cols(c), stride(s) {}
    ConstRows(const Rows& v)  // NOLINT(google-explicit-constructor)
        : data(v.data), dtype(v.dtype), rows(v.rows), cols(v.cols), stride(v.stride) {}
};

// ---------------------------------------------------------------------------------------- weights

enum class WeightFormat : std::uint8_t {
    fp8_block32,  // E4M3 codes [out, in]; UE8M0 scale [ceil(out/32), ceil(in/32)]   (model.md 5)
    fp4_row32,  // E2M1 codes [out, in/2] packed; UE8M0 scale [out, in/32]           (model.md 5.4)
    bf16,       // [out, in], scale 1
    f32,        // [out, in], scale 1
};

// A weight matrix as it lies in the checkpoint (borrowed, usually memory-mapped).
struct WeightSource {
    WeightFormat format = WeightFormat::bf16;
    std::int64_t out = 0;
    std::int64_t in = 0;
    const void* codes = nullptr;
    const std::uint8_t* scales = nullptr;  // null for bf16 and f32
};

// A weight in a back end's own layout. Opaque; only the back end that packed it may use it. The
// reference keeps the checkpoint's bytes in place, so the source must outlive it.
class PackedWeight {
  public:
    PackedWeight(std::int64_t out_features, std::int64_t in_features)
        : out(out_features), in(in_features) {}
    virtual ~PackedWeight() = default;
    PackedWeight(const PackedWeight&) = delete;
    PackedWeight& operator=(const PackedWeight&) = delete;
    virtual std::int64_t bytes() const = 0;  // memory owned by it
    // The packed form as bytes, for Backend::adopt; empty for a form that has none.
    virtual std::span<const std::byte> image() const { return {}; }

    const std::int64_t out;
    const std::int64_t in;
};

// The gate and up projections of one expert, packed together so that a back end may interleave
// them.
class PackedGateUp {
  public:
    PackedGateUp(std::int64_t inter_features, std::int64_t in_features)
        : inter(inter_features), in(in_features) {}
    virtual ~PackedGateUp() = default;
    PackedGateUp(const PackedGateUp&) = delete;
    PackedGateUp& operator=(const PackedGateUp&) = delete;
    virtual std::int64_t bytes() const = 0;
    virtual std::span<const std::byte> image() const { return {}; }

    const std::int64_t inter;
    const std::int64_t in;
};

struct PackedExpert {
    std::unique_ptr<PackedGateUp> gate_up;  // w1 (gate) and w3 (up)
    std::unique_ptr<PackedWeight> down;     // w2
};

// ----------------------------------------------------------------------------------- cache records

// How a KV row is stored (model.md 4.3). `values` and `scales` of a row may lie apart.
enum class KvFormat : std::uint8_t {
    window_fp8,  // head_dim E4M3 codes; head_dim/32 UE8M0 bytes
    main_fp4,    // head_dim/2 packed E2M1; head_dim/16 E4M3 scale codes
    index_fp4,   // dim/2 packed E2M1; dim/32 UE8M0 bytes
    bf16,        // dim bf16 numbers that already went through the matching round trip; no scales
    f32,         // dim fp32 numbers, never rounded (fp32 mode); no scales
};
std::int64_t kv_value_bytes(KvFormat format, std::int64_t dim);
std::int64_t kv_scale_bytes(KvFormat format, std::int64_t dim);

// Which round trip a row goes through before it is stored; in the fp32 mode none.
enum class KvKind : std::uint8_t { window, main, index };

struct KvRow {  // where one stored row lies; scales is null for bf16 and f32
    std::uint8_t* values = nullptr;
    std::uint8_t* scales = nullptr;
};
struct ConstKvRow {
    const std::uint8_t* values = nullptr;
    const std::uint8_t* scales = nullptr;
};

// Rows of one sequence and one owner that lie on 128-token pages: row j is row j % rows_per_page of
// page j / rows_per_page, its values at values_offset + (row in page)·value_bytes of the page.
struct PagedRows {
    std::span<std::uint8_t* const> pages;
    KvFormat format = KvFormat::main_fp4;
    std::int64_t dim = 0;
    std::int64_t rows_per_page = 0;
    std::int64_t values_offset = 0;
    std::int64_t scales_offset = 0;

    KvRow row(std::int64_t j) const {
        std::uint8_t* page = pages[static_cast<std::size_t>(j / rows_per_page)];
        const std::int64_t r = j % rows_per_page;
        const std::int64_t scale_bytes = kv_scale_bytes(format, dim);
        return {page + values_offset + r * kv_value_bytes(format, dim),
                scale_bytes == 0 ? nullptr : page + scales_offset + r * scale_bytes};
    }
};

// --------------------------------------------------------------------------------------- arguments

// Rotary table: fp32 base frequencies f_k of rope_dim/2 pairs, made once by make_rope_table.
struct RopeTable {
    std::int64_t rope_dim = 0;
    std::vector<float> freqs;
};
struct YarnScaling {  // model.md 3.4; factor <= 1 means no scaling
    double factor = 0;
    double beta_fast = 32;
    double beta_slow = 1;
    std::int64_t original_max_position = 0;
};
// The released model's two tables are stored as bits (golden kernels/rope); any other combination
// follows the reference's fp32 steps, with the power taken in double and rounded once, which gives
// the bits of every golden table.
RopeTable make_rope_table(double base, std::int64_t rope_dim, const YarnScaling& yarn);

struct MhcWeights {
    const float* fn = nullptr;     // [(2+h)·h, h·dim], stream-major columns
    const float* base = nullptr;   // [(2+h)·h]
    const float* scale = nullptr;  // [3]
    std::int64_t streams = 0;      // h
    std::int64_t dim = 0;
    std::int64_t sinkhorn_iters = 20;
    float eps = 1e-6f;        // hc_eps
    float norm_eps = 1e-20f;  // of the row statistic
};

struct RouterArgs {
    ConstRows x;                             // [n, dim] act
    const PackedWeight* gate = nullptr;      // [experts, dim]
    std::span<const float> bias;             // [experts]
    std::span<const float> bias_vl;          // [experts], for rows inside an image span
    std::span<const std::uint8_t> in_image;  // [n], or empty for none
    std::int64_t top_k = 0;
    float gate_temp = 1.0f;
    float route_scale = 1.0f;
    std::span<std::int32_t> experts;  // out [n, top_k], ascending expert id
    std::span<float> weights;         // out [n, top_k], beside it
};

struct MoeArgs {
    ConstRows x_q8;  // [n, dim], output of q8_round_trip (fp32 mode: the plain x)
    std::int64_t top_k = 0;
    std::span<const std::int32_t> experts;  // [n, top_k], ascending
    std::span<const float> weights;         // [n, top_k]
    std::span<const PackedExpert> routed;
    const PackedExpert* shared = nullptr;
    float swiglu_limit = 0;
    const Numerics* numerics = nullptr;
    Rows y;  // [n, dim] act
};

// One query row's keys. Window rows come first, oldest to newest, then the selected compressed rows
// in ascending position.
struct AttentionList {
    std::span<const ConstKvRow> window;
    KvFormat window_format = KvFormat::window_fp8;
    PagedRows compressed;                    // unused when selected is empty
    std::span<const std::int32_t> selected;  // row numbers in `compressed`
};

struct AttentionArgs {
    ConstRows q;  // [n, heads·head_dim] act, rotated
    std::int64_t heads = 0;
    std::int64_t head_dim = 0;
    std::span<const float> sink;           // [heads]
    float scale = 0;                       // head_dim^-0.5
    std::span<const AttentionList> lists;  // [n]
    Rows o;                                // [n, heads·head_dim] act, before the inverse rotation
};

struct IndexScoreArgs {
    ConstRows q;  // [n, heads·dim] act, rotated and round-tripped
    ConstRows w;  // [n, heads] f32, already times dim^-0.5 · heads^-0.5
    std::int64_t heads = 0;
    std::int64_t dim = 0;
    struct Query {
        std::int64_t row = 0;  // of q and w
        PagedRows keys;
        std::int64_t visible = 0;  // L: rows [0, L) may be scored
        // Empty: all visible rows. Otherwise ascending block numbers; row r of block b is position
        // b·block_size + r, and scores are written densely in that order, rows >= visible left out.
        std::span<const std::int32_t> blocks;
        std::int64_t block_size = 0;
        std::span<float> scores;  // out; as long as the number of scored rows
    };
    std::span<const Query> queries;  // for any of the n rows
};

struct EngramTable {  // model.md 5.3: rows of dim E4M3 codes and dim/32 UE8M0 scales, or bf16 rows
    WeightFormat format = WeightFormat::fp8_block32;
    std::int64_t rows = 0;
    std::int64_t dim = 0;
    const void* codes = nullptr;
    const std::uint8_t* scales = nullptr;
};

struct EngramGateArgs {
    Rows x;        // [n·streams, dim] act, updated in place; row t·streams + i is stream i
    ConstRows kv;  // [n, (streams+1)·dim] act: keys of the streams, then the shared value
    const Bf16* q_weight = nullptr;  // [streams, dim]
    const Bf16* k_weight = nullptr;  // [streams, dim]
    std::int64_t streams = 0;
    float eps = 1e-20f;
    std::span<const std::uint8_t> in_image;  // [n]; such rows get gate 0 and are left untouched
    std::span<float> gates;                  // out [n, streams], or empty
};

// ----------------------------------------------------------------------------------------- backend

class Backend {
  public:
    virtual ~Backend() = default;
    virtual const char* name() const = 0;
    virtual ComputePool& pool() = 0;

    // ---- packing (at load; may allocate)
    virtual std::unique_ptr<PackedWeight> pack(const WeightSource& source) = 0;
    virtual std::unique_ptr<PackedGateUp> pack_gate_up(const WeightSource& gate,
                                                       const WeightSource& up) = 0;

    // ---- images: packed weights as bytes, to be stored in a file and mapped. An image is a pure
    // function of the source, position independent, and the same for all levels of a back end.
    // image_layout names the form and its version, empty where there are no images.
    virtual std::string_view image_layout() const { return {}; }
    // Sizes need no data (codes and scales may be null); 0 where a format or back end has no image.
    virtual std::int64_t image_bytes([[maybe_unused]] const WeightSource& source) const {
        return 0;
    }
    virtual std::int64_t gate_up_image_bytes([[maybe_unused]] const WeightSource& gate,
                                             [[maybe_unused]] const WeightSource& up) const {
        return 0;
    }
    // A weight from an image of image_bytes(source) bytes that begins on a multiple of 64 and
    // outlives it; null where there are no images. The source may be without data: then the weight
    // takes bf16 inputs alone.
    virtual std::unique_ptr<PackedWeight> adopt([[maybe_unused]] const WeightSource& source,
                                                [[maybe_unused]] std::span<const std::byte> image) {
        return nullptr;
    }
    virtual std::unique_ptr<PackedGateUp> adopt_gate_up(
        [[maybe_unused]] const WeightSource& gate, [[maybe_unused]] const WeightSource& up,
        [[maybe_unused]] std::span<const std::byte> image) {
        return nullptr;
    }

    // ---- linears
    // y = W x → y.dtype (bf16 rounds once; f32 keeps the accumulator). Rule N1 for every format;
    // the weight scale multiplies the group sum. x is [n, in]: for fp8/fp4 weights the caller
    // passes the dequantised Q8 row (q8_round_trip) in the real mode, except wo_a of the reference
    // form.
    virtual void linear(ConstRows x, const PackedWeight& w, Rows y) = 0;
    // The same with block-diagonal weights (wo_a, model.md 3.9): group g maps columns
    // [g·w.in, (g+1)·w.in) of x to columns [g·out/groups, …) of y; w is [groups·rows, in].
    virtual void grouped_linear(ConstRows x, const PackedWeight& w, std::int64_t groups,
                                Rows y) = 0;
    // dst = dequantised Q8(src) (model.md 4.2), groups of 32 along the row, real mode only. In
    // place is allowed.
    virtual void q8_round_trip(ConstRows src, Rows dst) = 0;

    // ---- rows
    // y = w · (x · rsqrt(mean(x²) + eps)) → act (model.md 3.2); mean by N4, ((x·r)·w) in that
    // order.
    virtual void rms_norm(ConstRows x, const Bf16* w, float eps, Rows y) = 0;
    // Rotates (or, with inverse, rotates back) the last rope_dim of each head of width head_dim,
    // pairs (2k, 2k+1) by the angle float(position)·f_k; fp32, → act (model.md 3.4). In place:
    // (a, b) ← (a·cos − b·sin, a·sin + b·cos), the sine negated for the inverse.
    virtual void rope(Rows x, std::int64_t heads, std::int64_t head_dim,
                      std::span<const std::int64_t> positions, const RopeTable& table,
                      bool inverse) = 0;

    // ---- mHC (model.md 3.3). Streams X are [n·streams, dim] act.
    // pre, post [n, streams], comb [n, streams, streams] (first index = source stream), fp32. The
    // products with fn by N3, the row statistic by N4 over the flattened streams.
    virtual void mhc_mix(ConstRows streams, const MhcWeights& w, std::span<float> pre,
                         std::span<float> post, std::span<float> comb) = 0;
    // x = Σ_i pre_i X_i → act, i ascending.
    virtual void mhc_collapse(ConstRows streams, std::int64_t n_streams, std::span<const float> pre,
                              Rows x) = 0;
    // X'_j = post_j·y + (Σ_i comb_ij X_i) → act; in place over `streams`.
    virtual void mhc_expand(Rows streams, std::int64_t n_streams, ConstRows y,
                            std::span<const float> post, std::span<const float> comb) = 0;

    // ---- compressor and caches
    // Ratio-2 pooling of one group (model.md 3.6): per channel softmax over (g0, g1), Σ weight·u →
    // act. All [n, dim]; u, g are f32.
    virtual void compress_pair(ConstRows u0, ConstRows g0, ConstRows u1, ConstRows g1, Rows y) = 0;
    // Applies the round trip of `kind` to row i of x and stores it at dst[i] in `format`. A null
    // values pointer skips the row (masked write). bf16 stores the rounded values; f32 stores x as
    // it is. A packed format is its own round trip and must be that of `kind`, but for main rows in
    // window_fp8 (a model whose main KV is FP8); such a model stores them in bf16 as kind window.
    virtual void store_kv(ConstRows x, KvKind kind, KvFormat format,
                          std::span<const KvRow> dst) = 0;
    // Reads rows back as numbers (exact in bf16).
    virtual void load_kv(KvFormat format, std::span<const ConstKvRow> src, Rows y) = 0;
    // The MXFP4 round trip of indexer queries (model.md 3.7), per group of 32, in place; real mode
    // only.
    virtual void index_round_trip(Rows x) = 0;

    // ---- indexer
    // score_t = Σ_h w_h · max(0, q_h · k_t), heads in order from +0, fp32 (model.md 3.7). Keys in
    // index_fp4 or bf16: the dot product adds, in K order from +0, the exact value of each group of
    // 32 rounded once to fp32. Keys in f32 (fp32 mode): rule N1 with scale 1.
    virtual void index_scores(const IndexScoreArgs& args) = 0;
    // The min(k, scores.size()) highest scores, listed ascending; ties to the lower index; −0 = +0,
    // NaN below −inf.
    // out must hold k entries; returns how many were written. Pure; may be called from any thread.
    virtual std::int64_t select_top(std::span<const float> scores, std::int64_t k,
                                    std::span<std::int32_t> out) = 0;
    // Two-level selection (model.md 3.7): the min(k, #blocks) best blocks by their highest score,
    // the block of the last entry forced in, ties to the lower block, listed ascending.
    virtual std::int64_t select_blocks(std::span<const float> scores, std::int64_t block_size,
                                       std::int64_t k, std::span<std::int32_t> out) = 0;

    // ---- attention (model.md 3.8)
    // Tiles of 64 list rows. Scores: one chain over pairs p = 0..head_dim/2−1, acc =
    // fma(q[2p],k[2p], fma(q[2p+1],k[2p+1],acc)), then · scale. Per tile: M' = max(M, tile max), M
    // starting at −1e30; a = exp(M − M'); probabilities exp(s − M'), → act for the value product
    // only; l = fma(l, a, N4 sum of the unrounded probabilities); o = o·a, then chains over row
    // pairs like the scores. A row missing to complete a pair counts as zero. At the end o / (l +
    // exp(sink − M)) → act. An empty list gives zeros.
    virtual void sparse_attention(const AttentionArgs& args) = 0;

    // ---- mixture of experts (model.md 3.10)
    // r = gate·x (fp32)/gate_temp; a = sqrt(softplus(r)), softplus(v) = v for v > 20; the top_k
    // experts by a + bias (ties to the lower expert), listed ascending; weights a / (Σ a + 1e-20) ·
    // route_scale, the sum in ascending expert order; with top_k == 1 the division is left out.
    virtual void route(const RouterArgs& args) = 0;
    // t = silu(min(g, limit)) · clamp(u, ±limit) · weight → act, then Q8 in the real mode. g, u are
    // the linears' act outputs. weights: [n], or empty for 1 without a multiplication. limit <= 0:
    // no clamping.
    virtual void gate_up(ConstRows x, const PackedGateUp& w, std::span<const float> weights,
                         float limit, NumericMode mode, Rows t) = 0;
    // y = Σ_e down_e·gate_up_e(x) → act: each expert's output → act, summed in fp32 in ascending
    // expert order from +0, the shared expert (no weight) last.
    virtual void moe(const MoeArgs& args) = 0;

    // ---- Engram (model.md 3.11)
    // Gathers table rows, dequantised (exact in bf16): y is [n, ids_per_row·dim] act, ids
    // [n·ids_per_row].
    virtual void engram_lookup(const EngramTable& table, std::span<const std::int64_t> ids,
                               std::int64_t ids_per_row, Rows y) = 0;
    // Sums by N4, the first with fma(x·(qw·kw), K, lane): d = (Σ x·(qw·kw)·K) · rsqrt(mean x² +
    // eps) · rsqrt(mean K² + eps) · dim^-0.5; gate = sigmoid(±sqrt(max(|d|, 1e-6))), minus where d
    // < 0 (so that d = 0 gives sigmoid(1e-3), as golden engram_gate has it); X ← fma(gate, V, X) →
    // act.
    virtual void engram_gate(const EngramGateArgs& args) = 0;
};

// The scalar oracle. Unsupported on a CPU without AVX2 and FMA.
Result<std::unique_ptr<Backend>> make_reference_backend(std::shared_ptr<ComputePool> pool);

// A back end by name: "reference", "x86-avx2", "x86-avx512"; "x86" is the widest level of them that
// this machine runs, "auto" the fastest back end.
Result<std::unique_ptr<Backend>> make_backend(const std::string& name,
                                              std::shared_ptr<ComputePool> pool);

}  // namespace fathom
