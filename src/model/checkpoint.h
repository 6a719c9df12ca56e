// A checkpoint directory in the release's layout (model.md 5): config.json, sharded safetensors
// resolved through model.safetensors.index.json, never by shard number. open() maps the shards and
// checks every name, dtype and shape against what the config implies, so that what follows can
// trust the tensors. Nothing is copied but BF16 and F32 tensors that lie misaligned in their file
// (a writer that does not sort by element size leaves such): a 510 GB checkpoint opens in seconds
// and touches only headers. Engram tables are read by row through the mapping. An optional "model."
// prefix of names is dropped. A checkpoint of one file, model.safetensors, needs no index. Files
// must not be shortened while open. Immutable after open; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "kernels/ops.h"
#include "model/config.h"
#include "model/inventory.h"
#include "model/safetensors.h"

namespace fathom {

struct CheckpointOptions {
    const Json* config_overrides = nullptr;  // text_config keys to replace (golden t1full)
    // When set, receives everything found wrong (up to a limit), not only the first.
    std::vector<std::string>* problems = nullptr;
};

class Checkpoint {
  public:
    // Errors: not_found (file, tensor), data_loss (truncated, bad offsets), invalid_argument
    // (config, dtype, shape, foreign tensor); each names file, tensor, value and expectation.
    static Result<std::shared_ptr<const Checkpoint>> open(const std::string& dir,
                                                          const CheckpointOptions& options = {});
    ~Checkpoint();

    const std::string& dir() const { return dir_; }
    const ModelConfig& config() const { return config_; }

    bool has(std::string_view name) const;
    const std::map<std::string, TensorRef, std::less<>>& tensors() const { return tensors_; }
    // The tensor must exist (its presence was checked at open, so a miss is a CHECK failure).
    TensorRef tensor(std::string_view name) const;
    // NAME gives "NAME.weight" (with "NAME.scale" where it is quantised) as a linear's source.
    // Works for fp8 pairs, packed FP4, BF16 and F32.
    WeightSource weight(std::string_view name) const;
    EngramTable engram_table(int layer) const;
    const Bf16* bf16(std::string_view name) const;  // a BF16 tensor's numbers
    const float* f32(std::string_view name) const;  // an F32 tensor's numbers
    // Gives back the memory of what was read so far, for whoever packed it into a layout of its
    // own.
    void drop_pages() const;

    struct Summary {
        std::uint64_t tensors = 0, bytes = 0;
        std::map<std::string, std::pair<std::uint64_t, std::uint64_t>>
            by_type;  // type: count, bytes
        std::uint64_t shards = 0;
        std::uint64_t ignored = 0;       // tensors that is_ignored_tensor() names
        std::uint64_t copied_bytes = 0;  // of misaligned tensors
    };
    const Summary& summary() const { return summary_; }

  private:
    Checkpoint() = default;
    std::string dir_;
    ModelConfig config_;
    Summary summary_;
    std::vector<std::unique_ptr<SafetensorsFile>> shards_;
    std::map<std::string, TensorRef, std::less<>> tensors_;
    std::vector<std::unique_ptr<std::uint64_t[]>> copies_;  // of misaligned tensors

    friend class CheckpointOpener;
};

}  // namespace fathom
