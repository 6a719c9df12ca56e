// Single-block comparison: watches the intermediate tensors of one prefill and replaces each
// block's inputs by the golden ones, so that every block is judged alone (docs/verify.md).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/verify/case.h"
#include "cli/verify/compare.h"
#include "model/model.h"

namespace fathom::verify {

class BlockProbe : public Probe {
  public:
    enum class Teach {
        blocks,       // every block gets golden inputs, keys and selections
        round_trips,  // only rows before quantisation are replaced; only round trips are judged
        nothing,      // the run is watched as it is
    };
    // Tensors are looked up as PREFIX + name in `golden`. prompt is the run's length: where golden
    // holds fewer positions, they are the last ones.
    BlockProbe(const SafetensorsFile& golden, std::string prefix, const ModelConfig& config,
               std::int64_t prompt, NumericMode mode, Teach teach);

    void rows(int layer, std::string_view name, Rows x, std::int64_t rows_per_position,
              std::span<const std::int64_t> positions) override;
    void floats(int layer, std::string_view name, std::span<float> x, std::int64_t width,
                std::span<const std::int64_t> positions) override;
    void ints(int layer, std::string_view name, std::span<std::int32_t> x, std::int64_t width,
              std::span<const std::int64_t> positions) override;

    std::vector<Check> checks() const;

  private:
    struct Stats {
        double difference = 0, scale = 0;
        std::int64_t rows = 0, rows_equal = 0;
        bool broken = false;  // an infinity on one side only
    };
    struct Reference {
        GoldenTensor tensor;
        std::int64_t first = 0;  // position of its first row
    };
    const Reference* find(int layer, std::string_view name);
    void compare_row(Stats& stats, std::span<const float> ours, std::span<const float> golden);
    bool replaces(std::string_view name) const;

    const SafetensorsFile& golden_;
    std::string prefix_;
    const ModelConfig& config_;
    std::int64_t prompt_;
    NumericMode mode_;
    Teach teach_;
    std::map<std::string, Reference> references_;
    std::map<std::string, Stats> stats_;  // by tensor name without the layer, and worst per layer
};

}  // namespace fathom::verify
