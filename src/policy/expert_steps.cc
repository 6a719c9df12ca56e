// Packing and refinement over recorded steps.
#include <algorithm>
#include <array>
#include <numeric>
#include <tuple>
#include <utility>

#include "policy/expert_balancer.h"

namespace fathom {
namespace {

constexpr std::size_t kLanes = 8;      // sums in so many parts, which compilers vectorise
constexpr std::size_t kOpen = 16;      // ranks that a copy may be packed to
constexpr std::size_t kPartners = 12;  // ranks that the hottest one may exchange with

// Tokens of a copy of each expert and of each rank, as series over the steps (with zeros to whole
// lanes). The expert behind the last one stands for an empty slot.
class StepLoads {
  public:
    StepLoads(const ExpertShape& shape, std::span<const double> loads,
              std::span<const std::int32_t> counts, const ExpertWindow& window,
              LayerPlacement& placement)
        : shape_(shape),
          placement_(placement),
          steps_((static_cast<std::size_t>(window.steps()) + kLanes - 1) / kLanes * kLanes),
          copies_((static_cast<std::size_t>(shape.experts) + 1) * steps_),
          ranks_(static_cast<std::size_t>(shape.ranks) * steps_),
          weights_(static_cast<std::size_t>(shape.experts) + 1),
          loads_(static_cast<std::size_t>(shape.ranks)),
          maxima_(steps_),
          peaks_(steps_) {
        for (std::size_t e = 0; e < counts.size(); ++e)
            weights_[e] = loads[e] / std::max(counts[e], 1);
        for (std::int64_t i = 0; i < window.steps(); ++i) {
            const std::span<const std::int32_t> tokens = window.step(i);
            for (std::size_t e = 0; e < counts.size(); ++e)
                copies_[e * steps_ + static_cast<std::size_t>(i)] =
                    static_cast<float>(tokens[e]) / static_cast<float>(std::max(counts[e], 1));
        }
        for (std::size_t r = 0; r < loads_.size(); ++r)
            for (std::size_t s = 0; s < slots(); ++s)
                add(r, expert_at(r, s), 1);
    }

    // One more copy to a rank with room and without that expert: of the kOpen with least foretold
    // the one where the sum of maxima stays lowest, of equal ones the lightest. False: there is
    // none.
    bool put(std::int32_t expert) {
        const float* const x = copy(expert);
        open_.clear();
        for (std::size_t r = 0; r < loads_.size(); ++r)
            if (holds(r, -1) && !holds(r, expert)) open_.emplace_back(loads_[r], r);
        const std::size_t count = std::min(kOpen, open_.size());
        std::partial_sort(open_.begin(), open_.begin() + static_cast<std::ptrdiff_t>(count),
                          open_.end());
        std::size_t best = kNone;
        double best_sum = 0;
        for (std::size_t i = 0; i < count; ++i) {
            const double sum = sum_with(open_[i].second, x);
            if (best == kNone || sum < best_sum * (1 - 1e-6)) {
                best = open_[i].second;
                best_sum = sum;
            }
        }
        if (best == kNone) return false;
        const auto first = placement_.begin() + static_cast<std::ptrdiff_t>(best * slots());
        *std::find(first, first + shape_.slots, -1) = expert;
        add(best, expert, 1);
        for (std::size_t i = 0; i < steps_; ++i)
            maxima_[i] = std::max(maxima_[i], ranks_[best * steps_ + i]);
        return true;
    }

    // One exchange that lowers the sum of maxima; false where none does.
    bool improve() {
        const std::size_t hot = find_peaks();
        Swap best;
        for (const Peak& peak : peaks_)
            best.sum += static_cast<double>(peak.values[0]);
        best.sum *= 1 - 1e-5;
        for (const std::size_t other : partners_of(hot))
            try_rank(hot, other, best);
        if (best.rank == kNone) return false;
        const std::int32_t from = expert_at(hot, best.slot);
        const std::int32_t to = expert_at(best.rank, best.other_slot);
        for (const auto& [rank, gone, come] :
             {std::tuple(hot, from, to), std::tuple(best.rank, to, from)}) {
            add(rank, gone, -1);
            add(rank, come, 1);
        }
        std::swap(placement_[hot * slots() + best.slot],
                  placement_[best.rank * slots() + best.other_slot]);
        return true;
    }

  private:
    static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
    struct Peak {  // the three most loaded ranks of a step
        std::array<float, 3> values{};
        std::array<std::size_t, 3> ranks{};
    };
    struct Swap {
        std::size_t rank = kNone, slot = 0, other_slot = 0;
        double sum = 0;
    };

    std::size_t slots() const { return static_cast<std::size_t>(shape_.slots); }
    std::int32_t expert_at(std::size_t rank, std::size_t slot) const {
        const std::int32_t expert = placement_[rank * slots() + slot];
        return expert >= 0 ? expert : static_cast<std::int32_t>(shape_.experts);
    }
    const float* copy(std::int32_t expert) const {
        return copies_.data() + static_cast<std::size_t>(expert) * steps_;
    }
    bool holds(std::size_t rank, std::int32_t expert) const {
        const auto first = placement_.begin() + static_cast<std::ptrdiff_t>(rank * slots());
        return std::find(first, first + shape_.slots, expert) != first + shape_.slots;
    }
    void add(std::size_t rank, std::int32_t expert, float sign) {
        loads_[rank] += static_cast<double>(sign) * weights_[static_cast<std::size_t>(expert)];
        for (std::size_t i = 0; i < steps_; ++i)
            ranks_[rank * steps_ + i] += sign * copy(expert)[i];
    }

    // Fills peaks_; the rank that is above the second by most, over all steps.
    std::size_t find_peaks() {
        std::vector<double> excess(loads_.size());
        for (std::size_t i = 0; i < steps_; ++i) {
            Peak peak{.values = {-1, -1, -1}, .ranks = {kNone, kNone, kNone}};
            for (std::size_t r = 0; r < loads_.size(); ++r) {
                float value = ranks_[r * steps_ + i];
                if (value <= peak.values[2]) continue;
                std::size_t rank = r;
                for (std::size_t k = 0; k < 3; ++k) {
                    if (value <= peak.values[k]) continue;
                    std::swap(value, peak.values[k]);
                    std::swap(rank, peak.ranks[k]);
                }
            }
            peaks_[i] = peak;
            excess[peak.ranks[0]] += static_cast<double>(peak.values[0] - peak.values[1]);
        }
        return static_cast<std::size_t>(std::max_element(excess.begin(), excess.end()) -
                                        excess.begin());
    }

    // Those with least to do at the steps that wait for `hot`.
    std::vector<std::size_t> partners_of(std::size_t hot) const {
        std::vector<std::pair<double, std::size_t>> busy;
        for (std::size_t r = 0; r < loads_.size(); ++r) {
            double sum = 0;
            for (std::size_t i = 0; i < steps_; ++i)
                if (peaks_[i].ranks[0] == hot) sum += static_cast<double>(ranks_[r * steps_ + i]);
            if (r != hot) busy.emplace_back(sum, r);
        }
        const std::size_t count = std::min(kPartners, busy.size());
        std::partial_sort(busy.begin(), busy.begin() + static_cast<std::ptrdiff_t>(count),
                          busy.end());
        std::vector<std::size_t> partners;
        for (std::size_t i = 0; i < count; ++i)
            partners.push_back(busy[i].second);
        return partners;
    }

    void try_rank(std::size_t hot, std::size_t other, Swap& best) {
        rest_.resize(steps_);
        for (std::size_t i = 0; i < steps_; ++i) {
            std::size_t k = 0;
            while (k < 3 && (peaks_[i].ranks[k] == hot || peaks_[i].ranks[k] == other))
                ++k;
            rest_[i] = k < 3 ? std::max(peaks_[i].values[k], 0.0f) : 0.0f;
        }
        for (std::size_t s = 0; s < slots(); ++s) {
            const std::int32_t from = expert_at(hot, s);
            if (from == shape_.experts || holds(other, from)) continue;
            for (std::size_t t = 0; t < slots(); ++t) {
                const std::int32_t to = expert_at(other, t);
                if (to < shape_.experts && holds(hot, to)) continue;
                const double sum = sum_after(hot, other, from, to);
                if (sum < best.sum) best = {other, s, t, sum};
            }
        }
    }

    // The sum of maxima if `rank` had another copy.
    double sum_with(std::size_t rank, const float* x) const {
        const float* const own = ranks_.data() + rank * steps_;
        const float* const most = maxima_.data();
        std::array<float, kLanes> sums{};
        for (std::size_t i = 0; i < steps_; i += kLanes)
            for (std::size_t lane = 0; lane < kLanes; ++lane)
                sums[lane] += std::max(most[i + lane], own[i + lane] + x[i + lane]);
        double sum = 0;
        for (const float part : sums)
            sum += static_cast<double>(part);
        return sum;
    }

    double sum_after(std::size_t hot, std::size_t other, std::int32_t from, std::int32_t to) const {
        const float* const a = ranks_.data() + hot * steps_;
        const float* const b = ranks_.data() + other * steps_;
        const float *const x = copy(from), *const y = copy(to), *const rest = rest_.data();
        std::array<float, kLanes> sums{};
        for (std::size_t i = 0; i < steps_; i += kLanes)
            for (std::size_t lane = 0; lane < kLanes; ++lane) {
                const float change = x[i + lane] - y[i + lane];
                const float larger = std::max(a[i + lane] - change, b[i + lane] + change);
                sums[lane] += std::max(larger, rest[i + lane]);
            }
        double sum = 0;
        for (const float part : sums)
            sum += static_cast<double>(part);
        return sum;
    }

    const ExpertShape& shape_;
    LayerPlacement& placement_;
    std::size_t steps_;
    std::vector<float> copies_, ranks_;
    std::vector<double> weights_, loads_;               // foretold
    std::vector<std::pair<double, std::size_t>> open_;  // load and rank, while it is being packed
    std::vector<float> maxima_;                         // of each step, while it is being packed
    std::vector<Peak> peaks_;
    std::vector<float> rest_;  // of each step, the most loaded rank beside two
};

}  // namespace

LayerPlacement pack_steps(const ExpertShape& shape, std::span<const double> loads,
                          std::span<const std::int32_t> copies, const ExpertWindow& window) {
    LayerPlacement placement(static_cast<std::size_t>(shape.slots_total()), -1);
    StepLoads steps(shape, loads, copies, window, placement);
    std::vector<std::int32_t> order(copies.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
        const auto i = static_cast<std::size_t>(a), j = static_cast<std::size_t>(b);
        return loads[i] / copies[i] > loads[j] / copies[j];
    });
    for (const std::int32_t expert : order)
        for (std::int32_t c = 0; c < copies[static_cast<std::size_t>(expert)]; ++c)
            if (!steps.put(expert)) return {};
    return placement;
}

void refine_steps(const ExpertShape& shape, std::span<const double> loads,
                  const ExpertWindow& window, int swaps_max, LayerPlacement& placement) {
    if (window.steps() == 0 || shape.ranks < 2 || swaps_max <= 0) return;
    const std::vector<std::int32_t> copies = count_copies(shape, placement);
    StepLoads steps(shape, loads, copies, window, placement);
    for (int swaps = 0; swaps < swaps_max; ++swaps)
        if (!steps.improve()) return;
}

}  // namespace fathom
