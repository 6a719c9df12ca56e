// The text backbone (model.md 2 and 3): loads weights from a Checkpoint, runs rows of any mix of
// sequences through encoder and decoder, writes their serving state and returns logits.
//
// A step is a list of spans, each a run of consecutive new positions of one sequence. Any split of
// a sequence into spans, in any company, gives the same bits per row: chunked prefill, decoding and
// teacher-forced replay are all the same call. Which rows run the decoder half is the caller's
// choice (exact, tail-only, masked: see StepSpan), since prefill alone may leave it out.
//
// One thread at a time; work is spread by the back end's pool. forward() cannot fail: whatever
// could go wrong was checked at load, and spans are the engine's own.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kernels/ops.h"
#include "model/checkpoint.h"
#include "model/kv_cache.h"

namespace fathom {

struct StepSpan {
    SequenceState* sequence = nullptr;
    std::int64_t start = 0;  // absolute position of the first row
    std::int64_t count = 0;
    // Rows at positions >= decoder_begin run the decoder half; the others stop after the last KV
    // source has taken its entry (model.md 2.2). start: all rows (exact, masked). start + count:
    // none.
    std::int64_t decoder_begin = 0;
    // Rows at positions >= logits_begin (and >= decoder_begin) yield logits.
    std::int64_t logits_begin = 0;
    // Encoder windows to save on the way, wherever the span begins and ends: forward() fills the
    // rows of each. Made by make_window_snapshot for positions in (start, start + count].
    std::span<WindowSnapshot> snapshots = {};
};

// Watches intermediate tensors under the names of golden/README.md 2.2, and may overwrite them:
// that is how `fathom verify` feeds single blocks. Called on the calling thread between operators.
// `positions` holds each row's position, or group number for compressed rows.
class Probe {
  public:
    virtual ~Probe() = default;
    // x holds `rows_per_position` consecutive rows per position (streams for X, else 1).
    virtual void rows(int layer, std::string_view name, Rows x, std::int64_t rows_per_position,
                      std::span<const std::int64_t> positions) = 0;
    virtual void floats(int layer, std::string_view name, std::span<float> x, std::int64_t width,
                        std::span<const std::int64_t> positions) = 0;
    // Lists: `width` entries a position, −1 padded.
    virtual void ints(int layer, std::string_view name, std::span<std::int32_t> x,
                      std::int64_t width, std::span<const std::int64_t> positions) = 0;
};

struct ModelOptions {
    Numerics numerics;
    CacheStorage storage = CacheStorage::packed;  // f32 is forced by NumericMode::fp32
    std::int64_t rows_max = 2048;                 // rows in one step
};

class PackedFile;

class Model {
  public:
    // token_map is the Engram token compression of the tokenizer (recipe/engram_token_map.h); it
    // must have vocab_size entries and engram_compressed_vocab distinct ones. Empty when the model
    // has no Engram layer.
    // With `packed`, opened for this checkpoint and back end, weights are taken from it.
    static Result<std::unique_ptr<Model>> load(std::shared_ptr<const Checkpoint> checkpoint,
                                               std::vector<std::int32_t> token_map,
                                               std::shared_ptr<Backend> backend,
                                               const ModelOptions& options,
                                               std::shared_ptr<const PackedFile> packed = nullptr);
    virtual ~Model() = default;

    virtual const ModelConfig& config() const = 0;
    virtual const KvLayout& kv_layout() const = 0;
    virtual const ModelOptions& options() const = 0;
    // The threads that forward() works on; between calls others may run tasks there.
    virtual ComputePool& pool() = 0;

    // Runs one step. Total rows <= rows_max. `logits` is f32 [rows that asked, vocab], in span
    // order.
    virtual void forward(std::span<const StepSpan> spans, Rows logits, Probe* probe = nullptr) = 0;

    // Bytes of the packed weights beyond the mapped checkpoint, and of the workspace.
    virtual std::int64_t packed_bytes() const = 0;
    virtual std::int64_t workspace_bytes() const = 0;
};

}  // namespace fathom
