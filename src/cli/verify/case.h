// A golden case: a checkpoint, sequences, runs and expected tensors (the layout is described in
// docs/verify.md). Read once, then immutable.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/json.h"
#include "base/result.h"
#include "kernels/numerics.h"
#include "model/safetensors.h"

namespace fathom::verify {

struct GoldenSequence {
    std::string name;
    std::vector<TokenId> ids;
    std::int64_t prompt = 0;
    std::vector<std::int64_t> lengths;  // prompt lengths worth testing
    std::vector<std::int64_t> chunks;   // chunk sizes that must not change a bit
    std::int64_t activations = 0;  // prompt length of the run with intermediate tensors; 0: none
    std::vector<std::int32_t> token_types;  // −1 text, 0 start, 1 image, 2 newline, 3 end; or empty
    struct Image {
        std::int64_t start = 0;
        std::vector<std::int32_t> types;
    };
    std::vector<Image> images;
};

struct GoldenRun {
    std::string name, kind;  // decode | greedy | tail | replay | snapshot | halo | draft
    std::size_t sequence = 0;
    std::vector<TokenId> prompt_ids;
    std::vector<TokenId> tokens;  // fed one by one after the prompt
    std::int64_t hit = 0, rows = 0, steps = 0;
    bool activations = false;
};

struct GoldenCase {
    std::string name, dir, checkpoint_dir;
    std::optional<Json> overrides;
    std::vector<GoldenSequence> sequences;
    std::vector<GoldenRun> runs;
    bool has_mode(NumericMode mode) const;
    // Runs of kind greedy whose tokens are known not to depend on the order of additions.
    bool greedy_is_stable(const std::string& run) const;
    std::optional<Json> report;  // report.json, for greedy_is_stable
};

Result<GoldenCase> load_case(const std::string& dir);

// "_fp32" for the fp32 mode's files, "" for the real mode's.
const char* mode_suffix(NumericMode mode);

// A tensor as floats, whatever its dtype; integers are converted.
struct GoldenTensor {
    std::vector<std::int64_t> shape;
    std::vector<float> values;
    std::int64_t rows() const { return shape.empty() ? 0 : shape.front(); }
    std::int64_t width() const;  // elements per entry of the first axis
};
// Empty when the file has no such tensor.
std::optional<GoldenTensor> read_tensor(const SafetensorsFile& file, const std::string& name);

}  // namespace fathom::verify
