#include "sim/study/expert_study.h"

#include <vector>

#include "policy/expert_balancer.h"
#include "sim/experts/popularity.h"
#include "sim/sim_random.h"

namespace fathom {
namespace {

class Layer {
  public:
    Layer(const ExpertStudy& study, std::uint64_t index)
        : study_(study),
          random_(study.seed, index, SimPurpose::service),
          popularity_(static_cast<std::size_t>(study.shape.experts)) {
        for (double& p : popularity_)
            p = random_.log_normal(1, study.popularity_sigma);
    }

    void drift() {
        for (double& p : popularity_)
            p *= random_.log_normal(1, study_.drift_sigma);
    }

    // Tokens of each expert in one step, all ranks together.
    void step(std::vector<std::int32_t>& tokens) {
        draw_expert_step(popularity_,
                         static_cast<double>(study_.tokens_per_rank * study_.shape.ranks *
                                             study_.experts_per_token),
                         study_.dispersion, random_, tokens);
    }

    LayerPlacement place(double* expected) {
        const LayerPlacement initial = initial_placement(study_.shape);
        if (!study_.is_balanced) return initial;
        ExpertWindow window(study_.shape.experts, study_.recorded);
        std::vector<std::int32_t> tokens;
        for (std::int64_t i = 0; i < study_.recorded; ++i) {
            step(tokens);
            window.add(tokens);
        }
        ExpertPredictor predictor(study_.shape.experts);
        predictor.observe(window.mean());
        const std::vector<double> loads = predictor.predict();
        const LayerPlan plan = plan_layer(study_.shape, loads, window, initial, {});
        const LayerPlacement placement = plan.apply() ? plan.placement : initial;
        *expected = balance_of(study_.shape, placement, loads).ratio();
        return placement;
    }

    Balance count(const LayerPlacement& placement) {
        const auto copies = count_copies(study_.shape, placement);
        std::vector<std::int32_t> tokens;
        ExpertSplit split;
        Balance total;
        for (std::int64_t i = 0; i < study_.counted; ++i) {
            step(tokens);
            total += split(study_.shape, placement, copies, tokens, random_);
        }
        return total;
    }

  private:
    ExpertStudy study_;
    SimRandom random_;
    std::vector<double> popularity_;
};

}  // namespace

Result<ExpertStudyResult> run_expert_study(const ExpertStudy& study) {
    FATHOM_RETURN_IF_ERROR(study.shape.check());
    Balance total;
    ExpertStudyResult result;
    double expected = 0;
    for (std::int64_t i = 0; i < study.layers; ++i) {
        Layer layer(study, static_cast<std::uint64_t>(i));
        double of_layer = 1;
        const LayerPlacement placement = layer.place(&of_layer);
        expected += of_layer;
        layer.drift();
        total += layer.count(placement);
    }
    result.realised = total.ratio();
    result.expected = study.layers > 0 ? expected / static_cast<double>(study.layers) : 1;
    return result;
}

}  // namespace fathom
