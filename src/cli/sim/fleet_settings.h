// The keys of a fleet's configuration file (docs/simulator.md): each is bound to a field of a
// FleetConfig that holds a preset's value.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/config.h"
#include "base/result.h"
#include "sim/fleet/fleet_config.h"

namespace fathom {

inline constexpr double kCostUsMax = 1e9;        // of any part of a step, by a key or a file
inline constexpr std::int64_t kRanksMax = 1024;  // of an engine or group

class FleetSettings {
  public:
    explicit FleetSettings(const FleetConfig& preset);
    FleetSettings(const FleetSettings&) = delete;
    FleetSettings& operator=(const FleetSettings&) = delete;

    ConfigSchema& schema() { return schema_; }
    static const std::vector<std::string>& tables();
    const std::string& preset() const { return config_.preset; }
    // Files of `fathom calibrate` and their model; empty: none.
    const std::string& calibration() const { return calibration_; }
    const std::string& prefill_costs() const { return prefill_costs_; }
    const std::string& model() const { return model_; }
    // As they are bound, unchecked.
    const FleetConfig& values() const { return config_; }
    // What the keys say. invalid_argument names key, value and expectation.
    Result<FleetConfig> config() const;

  private:
    void bind_run();
    void bind_lifecycle();
    void bind_prefill();
    void bind_decode();
    void bind_drafts();
    void bind_kv();
    void bind_experts();
    void bind_workload();
    Status set_prefill_costs(FleetConfig& config) const;
    void bind_sessions(const std::string& table, SessionConfig& session);

    FleetConfig config_;
    ConfigSchema schema_;
    // Spelled differently in a file than in the structs.
    std::int64_t seed_ = 1;
    std::string calibration_, prefill_costs_, model_;
    std::string source_, trace_traffic_, rule_, verification_, scope_;
    std::vector<std::string> speculation_;
    PrefillCost cost_;  // keys of [prefill]: each that is given is of all length classes
};

// A finite number and nothing else.
std::optional<double> fleet_number(std::string_view text);
// "16:5.4:3.256": sequences a rank, rows and accepted tokens of each in a step. Sequences must
// rise. One empty word is no point, as the list without any.
Result<std::vector<SpeculationPoint>> parse_speculation(const std::vector<std::string>& points);

}  // namespace fathom
