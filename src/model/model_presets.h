// Configs for checkpoints that are made up (random_checkpoint.h): the architecture with all its
// roles at sizes that a machine at hand can hold.
//
//   tiny   a few MB: 12 layers of width 192 with drafts, for tests
//   mid    about 8 GB: the released model's 40 layers and roles at hidden 2048 with 64 experts, so
//          that a decode step is bound by memory as the real one is
//   wide   about 5 GB: the released widths in 8 layers, one for every role, with 16 experts
//
// Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/json.h"
#include "model/config.h"

namespace fathom {

enum class ModelPreset { tiny, mid, wide };
std::optional<ModelPreset> parse_model_preset(std::string_view name);

// Which vocabulary a tokenizer should be made with for the preset.
std::int64_t preset_vocab_size(ModelPreset preset);

// What a config takes over from the tokenizer beside it. Ids 0, 1 and 2 are begin, end and pad.
struct PresetTokens {
    std::int64_t vocab_size = 0;
    std::int64_t compressed_vocab = 0;  // distinct keys of its Engram token map
    TokenId image_id = 0;
    TokenId noise_id = 0;  // the drafter's mask token
};

// The root object of config.json in the release's spelling; parse_model_config accepts it.
Json preset_config(ModelPreset preset, const PresetTokens& tokens);

// The bytes of weights that one decoded token reads when it is alone, by kind: what a decode step
// at batch 1 moves from memory beside its KV (spec cpu-kernels.md 3). Scales count; of experts, the
// experts_per_token chosen ones; of embedding and Engram tables, the rows looked up; drafts and
// vision not at all.
struct ActiveBytes {
    struct Item {
        std::string kind;
        std::int64_t bytes = 0;
    };
    std::vector<Item> items;
    std::int64_t total = 0;
};
ActiveBytes active_weight_bytes(const ModelConfig& config);

}  // namespace fathom
