// Which of the new columns becomes which rank.
#include <algorithm>

#include "policy/assignment.h"
#include "policy/expert_balancer.h"

namespace fathom {
namespace {

constexpr std::int64_t kSameNode = 1, kOtherNode = 4;

class Relabel {
  public:
    Relabel(const ExpertShape& shape, std::span<const std::int32_t> current,
            std::span<const std::uint8_t> alive, const LayerPlacement& planned)
        : shape_(shape),
          current_(current),
          alive_(alive),
          planned_(planned),
          on_rank_(static_cast<std::size_t>(shape.ranks * shape.experts)),
          on_node_(static_cast<std::size_t>(shape.nodes() * shape.experts)) {
        for (std::size_t s = 0; s < current.size(); ++s) {
            const std::int64_t rank = static_cast<std::int64_t>(s) / shape.slots;
            if (current[s] < 0 || !live(rank)) continue;
            on_rank_[static_cast<std::size_t>(rank * shape.experts + current[s])] = 1;
            on_node_[static_cast<std::size_t>(shape.node_of(rank) * shape.experts + current[s])] =
                1;
        }
    }

    bool live(std::int64_t rank) const {
        return alive_.empty() || alive_[static_cast<std::size_t>(rank)] != 0;
    }

    // What `rank` must fetch to become planned column `column`.
    MoveCost cost(std::int64_t column, std::int64_t rank) const {
        MoveCost cost;
        for (const std::int32_t expert : column_of(column)) {
            if (expert < 0 ||
                on_rank_[static_cast<std::size_t>(rank * shape_.experts + expert)] != 0)
                continue;
            ++cost.slots;
            cost.weighted += on_node_[static_cast<std::size_t>(
                                 shape_.node_of(rank) * shape_.experts + expert)] != 0
                                 ? kSameNode
                                 : kOtherNode;
        }
        return cost;
    }

    // The best rank for each of `columns`, among `ranks`, which are as many.
    struct Match {
        std::vector<std::int32_t> places;  // in `ranks`
        std::int64_t weighted = 0;
    };
    Match match(std::span<const std::int64_t> columns, std::span<const std::int64_t> ranks) const {
        std::vector<std::int64_t> costs;
        costs.reserve(columns.size() * ranks.size());
        for (const std::int64_t column : columns)
            for (const std::int64_t rank : ranks)
                costs.push_back(cost(column, rank).weighted);
        Match result{.places = assign_least(costs), .weighted = 0};
        for (std::size_t i = 0; i < columns.size(); ++i)
            result.weighted += costs[i * ranks.size() + static_cast<std::size_t>(result.places[i])];
        return result;
    }

    // Writes `column` as what lies on `rank`: what stays keeps its slot.
    void write(std::int64_t column, std::int64_t rank, LayerPlacement& out) const {
        std::vector<std::int32_t> come(column_of(column).begin(), column_of(column).end());
        const auto first = static_cast<std::size_t>(rank * shape_.slots);
        const auto end = first + static_cast<std::size_t>(shape_.slots);
        std::vector<std::size_t> open;
        for (std::size_t s = first; s < end; ++s) {
            const auto stays =
                current_[s] < 0 ? come.end() : std::find(come.begin(), come.end(), current_[s]);
            out[s] = -1;
            if (stays == come.end()) {
                open.push_back(s);
            } else {
                out[s] = current_[s];
                come.erase(stays);
            }
        }
        std::size_t next = 0;
        for (const std::int32_t expert : come)
            if (expert >= 0) out[open[next++]] = expert;
    }

  private:
    std::span<const std::int32_t> column_of(std::int64_t column) const {
        return std::span(planned_).subspan(static_cast<std::size_t>(column * shape_.slots),
                                           static_cast<std::size_t>(shape_.slots));
    }

    const ExpertShape& shape_;
    std::span<const std::int32_t> current_;
    std::span<const std::uint8_t> alive_;
    const LayerPlacement& planned_;
    std::vector<std::uint8_t> on_rank_, on_node_;
};

std::vector<std::int64_t> ranks_of(const ExpertShape& shape, const Relabel& relabel,
                                   std::int64_t first, std::int64_t count) {
    std::vector<std::int64_t> ranks;
    for (std::int64_t r = first; r < std::min(first + count, shape.ranks); ++r)
        if (relabel.live(r)) ranks.push_back(r);
    return ranks;
}

}  // namespace

MoveCost relabel(const ExpertShape& shape, std::span<const std::int32_t> current, bool keep_nodes,
                 std::span<const std::uint8_t> alive, LayerPlacement& placement) {
    const LayerPlacement planned = placement;
    const Relabel work(shape, current, alive, planned);
    MoveCost total;
    const auto apply = [&](std::span<const std::int64_t> columns,
                           std::span<const std::int64_t> ranks, const Relabel::Match& match) {
        for (std::size_t i = 0; i < columns.size(); ++i) {
            const std::int64_t rank = ranks[static_cast<std::size_t>(match.places[i])];
            const MoveCost cost = work.cost(columns[i], rank);
            total.slots += cost.slots;
            total.weighted += cost.weighted;
            work.write(columns[i], rank, placement);
        }
    };
    if (!keep_nodes || shape.nodes() == 1) {
        const std::vector<std::int64_t> ranks = ranks_of(shape, work, 0, shape.ranks);
        apply(ranks, ranks, work.match(ranks, ranks));
        return total;
    }
    // Whole nodes: the cost of a pair of nodes is that of its best match within.
    const std::int64_t nodes = shape.nodes(), size = shape.ranks_per_node;
    std::vector<Relabel::Match> matches;
    std::vector<std::int64_t> costs;
    for (std::int64_t from = 0; from < nodes; ++from)
        for (std::int64_t to = 0; to < nodes; ++to) {
            matches.push_back(work.match(ranks_of(shape, work, from * size, size),
                                         ranks_of(shape, work, to * size, size)));
            costs.push_back(matches.back().weighted);
        }
    const std::vector<std::int32_t> node_of = assign_least(costs);
    for (std::int64_t from = 0; from < nodes; ++from) {
        const std::int64_t to = node_of[static_cast<std::size_t>(from)];
        apply(ranks_of(shape, work, from * size, size), ranks_of(shape, work, to * size, size),
              matches[static_cast<std::size_t>(from * nodes + to)]);
    }
    return total;
}

}  // namespace fathom
