// The tensors that a checkpoint of a config has: names, dtypes and shapes of model.md 5.1–5.5, in
// the release's storage (fp8 pairs, packed FP4 experts, FP8 Engram tables) or, for a checkpoint
// without quantization_config, all matrices in BF16 and no scales. Pure functions; the list is made
// one tensor at a time, since a config may imply millions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "model/safetensors.h"

namespace fathom {

struct ExpectedTensor {
    std::string name;
    TensorType type = TensorType::bf16;
    std::vector<std::int64_t> shape;
};

// Calls `visit` once a tensor, block by block.
void for_each_expected_tensor(const ModelConfig& config,
                              const std::function<void(const ExpectedTensor&)>& visit);

// All of them in name order.
std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config);

// Tensors that an export may carry and that nothing reads: the drafter's copies of the backbone's
// embedding and head, mtp.*.embed.weight and mtp.*.head.weight.
bool is_ignored_tensor(std::string_view name);

}  // namespace fathom
