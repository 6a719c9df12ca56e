// Replicas, packing and the refinement of foretold loads.
#include <algorithm>
#include <array>
#include <numeric>
#include <queue>
#include <utility>

#include "base/check.h"
#include "policy/expert_balancer.h"

namespace fathom {

std::vector<std::int32_t> replicate(std::span<const double> loads, std::int64_t total,
                                    std::int64_t ranks) {
    std::vector<std::int32_t> copies(loads.size(), 1);
    // Heaviest copy on top; of equal ones the lowest expert.
    using Item = std::pair<double, std::int64_t>;
    std::priority_queue<Item> heaviest;
    for (std::size_t e = 0; e < loads.size(); ++e)
        heaviest.emplace(loads[e], -static_cast<std::int64_t>(e));
    std::int64_t left = total - static_cast<std::int64_t>(loads.size());
    FATHOM_CHECK(left >= 0);
    while (left > 0 && !heaviest.empty()) {
        const auto e = static_cast<std::size_t>(-heaviest.top().second);
        heaviest.pop();
        if (copies[e] >= ranks) continue;
        ++copies[e];
        --left;
        heaviest.emplace(loads[e] / copies[e], -static_cast<std::int64_t>(e));
    }
    return copies;
}

namespace {

constexpr std::int32_t kEmpty = -1;

// A placement in the making: what lies on each rank, and what that weighs.
class Ranks {
  public:
    Ranks(const ExpertShape& shape, std::span<const double> weights, LayerPlacement& placement,
          std::span<const std::uint8_t> alive)
        : shape_(shape),
          weights_(weights),
          placement_(placement),
          alive_(alive),
          loads_(static_cast<std::size_t>(shape.ranks)),
          used_(loads_.size()),
          holds_(static_cast<std::size_t>(shape.ranks * shape.experts)) {
        for (std::size_t s = 0; s < placement.size(); ++s)
            if (placement[s] != kEmpty) count(s, placement[s], 1);
    }

    bool alive(std::int64_t rank) const {
        return alive_.empty() || alive_[static_cast<std::size_t>(rank)] != 0;
    }
    bool full(std::int64_t rank) const {
        return used_[static_cast<std::size_t>(rank)] == shape_.slots;
    }
    bool holds(std::int64_t rank, std::int32_t expert) const {
        return expert != kEmpty &&
               holds_[static_cast<std::size_t>(rank * shape_.experts + expert)] != 0;
    }
    double load(std::int64_t rank) const { return loads_[static_cast<std::size_t>(rank)]; }
    double weight(std::int32_t expert) const {
        return expert == kEmpty ? 0 : weights_[static_cast<std::size_t>(expert)];
    }
    std::span<std::int32_t> slots(std::int64_t rank) {
        return std::span(placement_)
            .subspan(static_cast<std::size_t>(rank * shape_.slots),
                     static_cast<std::size_t>(shape_.slots));
    }
    void set(std::int64_t rank, std::int64_t slot, std::int32_t expert) {
        const auto at = static_cast<std::size_t>(rank * shape_.slots + slot);
        if (placement_[at] != kEmpty) count(at, placement_[at], -1);
        placement_[at] = expert;
        if (expert != kEmpty) count(at, expert, 1);
    }
    void put(std::int64_t rank, std::int32_t expert) {
        const std::span<std::int32_t> own = slots(rank);
        set(rank, std::find(own.begin(), own.end(), kEmpty) - own.begin(), expert);
    }

    // The best exchange between a slot of `high` and one of `low` (empty ones too).
    struct Swap {
        std::int64_t low = -1, high_slot = 0, low_slot = 0;
        double worse = 0;  // the larger of both loads afterwards
    };
    void best_swap(std::int64_t high, std::int64_t low, Swap& best) {
        const std::span<const std::int32_t> from = slots(high), to = slots(low);
        for (std::size_t i = 0; i < from.size(); ++i) {
            if (from[i] == kEmpty || holds(low, from[i])) continue;
            for (std::size_t j = 0; j < to.size(); ++j) {
                const double change = weight(from[i]) - weight(to[j]);
                const double worse = std::max(load(high) - change, load(low) + change);
                if (worse < best.worse && !holds(high, to[j]))
                    best = {low, static_cast<std::int64_t>(i), static_cast<std::int64_t>(j), worse};
            }
        }
    }
    void apply(std::int64_t high, const Swap& swap) {
        const std::int32_t expert = slots(high)[static_cast<std::size_t>(swap.high_slot)];
        const std::int32_t other = slots(swap.low)[static_cast<std::size_t>(swap.low_slot)];
        set(high, swap.high_slot, other);
        set(swap.low, swap.low_slot, expert);
    }

  private:
    void count(std::size_t slot, std::int32_t expert, int sign) {
        const std::size_t rank = slot / static_cast<std::size_t>(shape_.slots);
        loads_[rank] += sign * weight(expert);
        used_[rank] += sign;
        holds_[rank * static_cast<std::size_t>(shape_.experts) + static_cast<std::size_t>(expert)] =
            sign > 0 ? 1 : 0;
    }

    const ExpertShape& shape_;
    std::span<const double> weights_;
    LayerPlacement& placement_;
    std::span<const std::uint8_t> alive_;
    std::vector<double> loads_;
    std::vector<std::int64_t> used_;
    std::vector<std::uint8_t> holds_;
};

std::vector<double> weights_of(std::span<const double> loads,
                               std::span<const std::int32_t> copies) {
    std::vector<double> weights(loads.size());
    for (std::size_t e = 0; e < loads.size(); ++e)
        weights[e] = loads[e] / std::max(copies[e], 1);
    return weights;
}

// Every rank with room has `expert` already: a rank without it, which is full, gives one of its
// experts to a rank with room and takes this one; the choice that weighs least afterwards.
void put_by_exchange(Ranks& ranks, const ExpertShape& shape, std::int32_t expert) {
    std::int64_t room = -1, giver = -1, slot = 0;
    double least = 0;
    for (std::int64_t r = 0; r < shape.ranks; ++r)
        if (ranks.alive(r) && !ranks.full(r) && (room < 0 || ranks.load(r) < ranks.load(room)))
            room = r;
    FATHOM_CHECK(room >= 0);
    for (std::int64_t r = 0; r < shape.ranks; ++r) {
        if (!ranks.alive(r) || ranks.holds(r, expert)) continue;
        const std::span<const std::int32_t> own = ranks.slots(r);
        for (std::size_t s = 0; s < own.size(); ++s) {
            if (ranks.holds(room, own[s])) continue;
            const double worse =
                std::max(ranks.load(r) - ranks.weight(own[s]) + ranks.weight(expert),
                         ranks.load(room) + ranks.weight(own[s]));
            if (giver >= 0 && worse >= least) continue;
            least = worse;
            giver = r;
            slot = static_cast<std::int64_t>(s);
        }
    }
    FATHOM_CHECK(giver >= 0);
    const std::int32_t given = ranks.slots(giver)[static_cast<std::size_t>(slot)];
    ranks.set(giver, slot, expert);
    ranks.put(room, given);
}

}  // namespace

LayerPlacement pack(const ExpertShape& shape, std::span<const double> loads,
                    std::span<const std::int32_t> copies, std::span<const std::uint8_t> alive) {
    LayerPlacement placement(static_cast<std::size_t>(shape.slots_total()), kEmpty);
    const std::vector<double> weights = weights_of(loads, copies);
    std::vector<std::int32_t> order(loads.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
        return weights[static_cast<std::size_t>(a)] > weights[static_cast<std::size_t>(b)];
    });
    Ranks ranks(shape, weights, placement, alive);
    for (const std::int32_t expert : order) {
        for (std::int32_t c = 0; c < copies[static_cast<std::size_t>(expert)]; ++c) {
            std::int64_t least = -1;
            for (std::int64_t r = 0; r < shape.ranks; ++r)
                if ((least < 0 || ranks.load(r) < ranks.load(least)) && ranks.alive(r) &&
                    !ranks.full(r) && !ranks.holds(r, expert))
                    least = r;
            if (least >= 0) {
                ranks.put(least, expert);
            } else {
                put_by_exchange(ranks, shape, expert);
            }
        }
    }
    return placement;
}

namespace {

constexpr double kGainMin = 1e-4;  // of the maximum
constexpr std::size_t kFew = 4;

// Lays what two or three ranks hold anew on the same ranks: all ways, heaviest copy first, cut
// where they cannot beat the best one so far. Beyond kNodesMax nodes the best one so far stands, so
// this is exact for some ten copies and an attempt for more.
class Repack {
  public:
    Repack(Ranks& ranks, std::int64_t slots, std::span<const std::int64_t> few)
        : ranks_(ranks), few_(few), slots_(slots) {
        for (const std::int64_t rank : few)
            for (const std::int32_t expert : ranks.slots(rank))
                if (expert != kEmpty) items_.push_back({ranks.weight(expert), expert});
        // Copies of one expert stand together, and go to ranks in rising order.
        std::sort(items_.begin(), items_.end(), [](const Item& a, const Item& b) {
            return a.weight > b.weight || (a.weight == b.weight && a.expert < b.expert);
        });
        where_.resize(items_.size());
    }

    // Whether there is a way with all loads below `limit`; if so, the ranks hold the best one
    // found.
    bool run(double limit) {
        most_ = limit;
        go(0, 0);
        if (best_.empty()) return false;
        for (const std::int64_t rank : few_)
            for (std::int64_t slot = 0; slot < slots_; ++slot)
                ranks_.set(rank, slot, kEmpty);
        for (std::size_t i = 0; i < items_.size(); ++i)
            ranks_.put(few_[best_[i]], items_[i].expert);
        return true;
    }

  private:
    static constexpr std::int64_t kNodesMax = 4096;
    struct Item {
        double weight = 0;
        std::int32_t expert = 0;
    };

    void go(std::size_t item, double most) {
        if (item == items_.size()) {
            most_ = most;
            best_ = where_;
            return;
        }
        const Item& next = items_[item];
        const bool again = item > 0 && items_[item - 1].expert == next.expert;
        bool empty_tried = false;
        for (std::size_t r = again ? where_[item - 1] + 1 : 0; r < few_.size(); ++r) {
            const bool empty = used_[r] == 0;
            if (used_[r] == slots_ || (empty && empty_tried && !again)) continue;
            empty_tried = empty_tried || empty;
            const double before = loads_[r];
            if (before + next.weight >= most_ || ++nodes_ > kNodesMax) continue;
            loads_[r] = before + next.weight;
            ++used_[r];
            where_[item] = r;
            go(item + 1, std::max(most, loads_[r]));
            --used_[r];
            loads_[r] = before;
        }
    }

    Ranks& ranks_;
    std::span<const std::int64_t> few_;
    std::int64_t slots_;
    std::vector<Item> items_;
    std::vector<std::size_t> where_, best_;
    std::array<double, 3> loads_{};
    std::array<std::int64_t, 3> used_{};
    double most_ = 0;
    std::int64_t nodes_ = 0;
};

// The most loaded rank anew with one or two of the lightest. `order`: lightest first.
bool repack_some(Ranks& ranks, const ExpertShape& shape, std::span<const std::int64_t> order,
                 double limit) {
    const std::int64_t high = order.back();
    const std::size_t lightest = std::min(kFew, order.size() - 1);
    for (std::size_t i = 0; i < lightest; ++i) {
        if (lightest == 1) return Repack(ranks, shape.slots, std::array{order[i], high}).run(limit);
        for (std::size_t j = i + 1; j < lightest; ++j)
            if (Repack(ranks, shape.slots, std::array{order[i], order[j], high}).run(limit))
                return true;
    }
    return false;
}

// No placement of these copies has a lighter heaviest rank.
double load_floor(const Ranks& ranks, std::span<const std::int64_t> live,
                  std::span<const double> weights) {
    double sum = 0;
    for (const std::int64_t rank : live)
        sum += ranks.load(rank);
    return std::max(sum / static_cast<double>(live.size()),
                    *std::max_element(weights.begin(), weights.end()));
}

}  // namespace

void refine(const ExpertShape& shape, std::span<const double> loads, LayerPlacement& placement,
            std::span<const std::uint8_t> alive) {
    const std::vector<double> weights = weights_of(loads, count_copies(shape, placement));
    Ranks ranks(shape, weights, placement, alive);
    std::vector<std::int64_t> order;
    for (std::int64_t r = 0; r < shape.ranks; ++r)
        if (ranks.alive(r)) order.push_back(r);
    const auto lighter = [&](std::int64_t a, std::int64_t b) {
        return ranks.load(a) < ranks.load(b) || (ranks.load(a) == ranks.load(b) && a < b);
    };
    if (order.size() < 2) return;
    const double floor = load_floor(ranks, order, weights);
    for (std::int64_t round = 0; round < 8 * shape.ranks; ++round) {
        std::sort(order.begin(), order.end(), lighter);
        const std::int64_t high = order.back();
        const double limit = ranks.load(high) * (1 - kGainMin);
        if (limit <= floor) return;
        Ranks::Swap best{.worse = limit};
        for (std::size_t i = 0; i + 1 < order.size(); ++i) {
            if (i >= kFew && best.low >= 0) break;  // the lightest ranks suffice
            ranks.best_swap(high, order[i], best);
        }
        if (best.low >= 0) {
            ranks.apply(high, best);
        } else if (!repack_some(ranks, shape, order, limit)) {
            return;
        }
    }
}

}  // namespace fathom
