// Checkpoints made up from a config, in the release's files and formats: for measurements that need
// a model of some size where only its shape and its statistics matter. Each weight is drawn from a
// normal distribution with the published deviations of the release (model.md 9), in its own format:
// FP8 codes that fill their range under one UE8M0 scale a tile, FP4 codes under one a group of 32.
// Activations stay finite, and tokens spread over the experts.
//
// Each byte is a pure function of seed, tensor name and position: files are equal on every machine,
// whatever the number of threads.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace fathom {

struct RandomCheckpointOptions {
    std::uint64_t seed = 0;
    int threads = 1;
    // Further files of the folder, name and content: tokenizer.json.
    std::vector<std::pair<std::string, std::string>> files;
    // Called on the calling thread now and then with bytes written and in all; false stops the
    // work (Status cancelled).
    std::function<bool(std::uint64_t done, std::uint64_t total)> on_progress;
};

// Writes the folder `dir`: config.json, one shard a layer, the index, and options.files. It appears
// under its name only when it is complete; until then it is `dir`.partial beside it, which is
// removed when something fails. Memory: a few MiB a thread. invalid_argument: the config, or `dir`
// exists and is not an empty folder; resource_exhausted: the disk has too little room.
Status write_random_checkpoint(const std::string& dir, const Json& config,
                               const RandomCheckpointOptions& options);

}  // namespace fathom
