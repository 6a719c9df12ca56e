#include "cli/sim/prefill_costs.h"

#include <algorithm>

#include "base/json_keys.h"
#include "cli/sim/calibration.h"
#include "cli/sim/fleet_settings.h"
#include "policy/cost_file.h"
#include "policy/prefill_cost_file.h"

namespace fathom {

static_assert(kPrefillCostUsMax == kCostUsMax);

Status apply_prefill_costs(const std::string& path, const std::string& model_dir,
                           bool is_engines_given, FleetConfig& config) {
    FATHOM_ASSIGN(const ModelShape shape, measured_shape("sim.prefill_costs", model_dir));
    FATHOM_ASSIGN(const Json file, parse_json_file_of_single_keys(path));
    // Which kernels and card it was is the measurement's own affair here.
    PrefillCostIdentity identity;
    identity.model = shape_digest(shape);
    FATHOM_ASSIGN(identity.kernels, json_string(file, "kernels", path));
    FATHOM_ASSIGN(identity.card, json_string(file, "card", path));
    FATHOM_ASSIGN(identity.ranks, json_int(file, "ranks", path));
    if (identity.ranks < 1 || identity.ranks > kRanksMax)
        return invalid_argument("{}: ranks: {}, expected 1 to {}", path, identity.ranks, kRanksMax);
    const std::int64_t cards = config.prefill_cards();
    if (identity.ranks > cards && !is_engines_given)
        return invalid_argument(
            "{}: ranks: {}, expected at most the fleet's {} prefill cards; or say prefill.engines",
            path, identity.ranks, cards);
    const auto costs = read_prefill_cost_file(file, identity);
    if (!costs.ok()) return costs.status().with_context(path);
    config.prefill.policy.costs = *costs;
    config.prefill.engines = std::max<std::int64_t>(1, cards / identity.ranks);
    config.prefill.ranks = identity.ranks;
    if (std::find(config.measured.begin(), config.measured.end(), "prefill") ==
        config.measured.end())
        config.measured.emplace_back("prefill");
    return check_fleet(config);
}

}  // namespace fathom
