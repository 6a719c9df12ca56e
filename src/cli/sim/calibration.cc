#include "cli/sim/calibration.h"

#include <algorithm>
#include <vector>

#include "base/json_keys.h"
#include "cli/sim/fleet_settings.h"
#include "engine/model_shape.h"
#include "model/config.h"
#include "policy/cost_file.h"
#include "policy/prefill_cost.h"

namespace fathom {
namespace {

double step_us(const CostModel& model, const ModelShape& shape, const Slice& slice,
               std::int64_t count = 1) {
    StepFeatures step(shape);
    for (std::int64_t i = 0; i < count; ++i)
        step.add(slice);
    return model.cost_us(step);
}

Result<PrefillCost> prefill_of(const CostModel& model, const ModelShape& shape) {
    std::vector<PrefillSample> samples;
    for (const std::int64_t context : {0, 1'024, 4'096, 16'384, 65'536}) {
        for (const std::int64_t tokens : {1, 128, 512, 2'048, 8'192}) {
            for (const bool is_first : {false, true}) {
                for (const bool is_last : {false, true}) {
                    const Slice slice = {
                        .context = context,
                        .rows = tokens,
                        .decoder_rows = is_last ? std::min(tokens, kDecoderTailTokens) : 0,
                        .logits_rows = is_last ? 1 : 0,
                        .first = is_first,
                        .last = is_last};
                    samples.push_back({.slices = {{context, tokens, is_first, is_last}},
                                       .time_us = step_us(model, shape, slice),
                                       .spread = 0});
                }
            }
        }
    }
    FATHOM_ASSIGN(const PrefillFit fit, fit_prefill_cost(samples));
    return fit.cost;
}

DecodeCost decode_of(const CostModel& model, const ModelShape& shape) {
    constexpr std::int64_t kFew = 8, kMany = 64, kShort = 1'024, kLong = 65'536;
    const auto time = [&](std::int64_t sequences, std::int64_t context) {
        return step_us(
            model, shape,
            {.context = context, .rows = 1, .decoder_rows = 1, .logits_rows = 1, .last = true},
            sequences);
    };
    DecodeCost cost;
    cost.a2_us = std::max(0.0, (time(kFew, kLong) - time(kFew, kShort)) /
                                   static_cast<double>(kFew * (kLong - kShort)));
    const double each = (time(kMany, kShort) - time(kFew, kShort)) / (kMany - kFew);
    cost.verify_us = std::max(0.0, each - cost.a2_us * kShort);
    cost.c0_us = std::max(0.0, time(kFew, kShort) - kFew * (cost.verify_us + cost.a2_us * kShort));
    return cost;
}

// What the keys of a fleet may say, a file may say as well.
Status check_range(const std::string& path, const PrefillCost& prefill, const DecodeCost& decode) {
    for (const double us :
         {prefill.k0_us, prefill.k1_us, prefill.k2_us, prefill.k3_us, prefill.k4_us, prefill.k5_us,
          decode.c0_us, decode.verify_us, decode.a2_us})
        if (!(us <= kCostUsMax))
            return invalid_argument("{}: a part of a step costs {:g} us, expected at most {:g}",
                                    path, us, kCostUsMax);
    return {};
}

}  // namespace

Result<ModelShape> measured_shape(const char* key, const std::string& model_dir) {
    if (model_dir.empty())
        return invalid_argument("sim.model: missing; {} needs the model it measured", key);
    const std::string path = model_dir + "/config.json";
    FATHOM_ASSIGN(const Json root, parse_json_file(path));
    auto config = parse_model_config(root);
    if (!config.ok()) return config.status().with_context(path);
    return make_model_shape(*config);
}

Status apply_calibration(const std::string& path, const std::string& model_dir,
                         FleetConfig& config) {
    FATHOM_ASSIGN(const ModelShape shape, measured_shape("sim.calibration", model_dir));
    FATHOM_ASSIGN(const Json file, parse_json_file_of_single_keys(path));
    // Which kernels and threads it was is the measurement's own affair here.
    FATHOM_ASSIGN(const std::string kernels, json_string(file, "kernels", path));
    FATHOM_ASSIGN(const std::int64_t threads, json_int(file, "threads", path));
    const CostIdentity identity{
        .model = shape_digest(shape), .kernels = kernels, .threads = threads};
    const auto model = read_cost_file(file, identity);
    if (!model.ok()) return model.status().with_context(path);
    FATHOM_ASSIGN(const PrefillCost prefill, prefill_of(*model, shape));
    FATHOM_RETURN_IF_ERROR(check_range(path, prefill, decode_of(*model, shape)));
    config.prefill.policy.costs.fill(prefill);
    config.prefill.engines = config.prefill_cards();
    config.prefill.ranks = 1;
    config.decode.policy.cost = decode_of(*model, shape);
    config.decode.groups = config.decode_cards();
    config.decode.ranks = 1;
    config.decode.speculation.clear();
    config.measured.insert(config.measured.end(), {"prefill", "decode"});
    return check_fleet(config);
}

}  // namespace fathom
