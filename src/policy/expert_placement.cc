#include "policy/expert_placement.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "policy/decision_log.h"

namespace fathom {

Status ExpertShape::check() const {
    constexpr std::int64_t kRanksMax = 4096, kSlotsMax = 4096;
    if (experts < 1 || experts > kExpertsMax)
        return invalid_argument("experts: {}, expected 1 to {}", experts, kExpertsMax);
    if (ranks < 1 || ranks > kRanksMax)
        return invalid_argument("ranks: {}, expected 1 to {}", ranks, kRanksMax);
    if (slots < 1 || slots > kSlotsMax)
        return invalid_argument("slots: {}, expected 1 to {}", slots, kSlotsMax);
    if (slots_total() < experts)
        return invalid_argument("slots: {} on {} ranks are fewer than {} experts", slots, ranks,
                                experts);
    if (ranks_per_node < 0 || (ranks_per_node > 0 && ranks % ranks_per_node != 0))
        return invalid_argument("ranks_per_node: {} does not divide {} ranks", ranks_per_node,
                                ranks);
    if (groups < 1 || experts % groups != 0)
        return invalid_argument("groups: {} does not divide {} experts", groups, experts);
    return {};
}

LayerPlacement initial_placement(const ExpertShape& shape) {
    LayerPlacement placement(static_cast<std::size_t>(shape.slots_total()), -1);
    const std::int64_t share = (shape.experts + shape.ranks - 1) / shape.ranks;
    for (std::int64_t e = 0; e < shape.experts; ++e)
        placement[static_cast<std::size_t>(e / share * shape.slots + e % share)] =
            static_cast<std::int32_t>(e);
    std::int32_t next = 0;
    for (std::int64_t r = 0; r < shape.ranks; ++r) {
        const auto own = std::span(placement).subspan(static_cast<std::size_t>(r * shape.slots),
                                                      static_cast<std::size_t>(shape.slots));
        for (std::int32_t& slot : own) {
            if (slot >= 0) continue;
            for (std::int64_t tried = 0; tried < shape.experts && slot < 0; ++tried) {
                if (std::find(own.begin(), own.end(), next) == own.end()) slot = next;
                next = static_cast<std::int32_t>((next + 1) % shape.experts);
            }
        }
    }
    return placement;
}

Status check_placement(const ExpertShape& shape, std::span<const std::int32_t> placement) {
    if (static_cast<std::int64_t>(placement.size()) != shape.slots_total())
        return invalid_argument("placement: {} slots, expected {}", placement.size(),
                                shape.slots_total());
    std::vector<std::int64_t> last_rank(static_cast<std::size_t>(shape.experts), -1);
    for (std::size_t s = 0; s < placement.size(); ++s) {
        const std::int64_t rank = static_cast<std::int64_t>(s) / shape.slots;
        if (placement[s] == -1) continue;
        if (placement[s] < -1 || placement[s] >= shape.experts)
            return invalid_argument("placement: expert {}, expected -1 to {}", placement[s],
                                    shape.experts - 1);
        std::int64_t& last = last_rank[static_cast<std::size_t>(placement[s])];
        if (last == rank)
            return invalid_argument("placement: two copies of expert {} on rank {}", placement[s],
                                    rank);
        last = rank;
    }
    for (std::size_t e = 0; e < last_rank.size(); ++e)
        if (last_rank[e] < 0) return invalid_argument("placement: no copy of expert {}", e);
    return {};
}

std::vector<std::int32_t> count_copies(const ExpertShape& shape,
                                       std::span<const std::int32_t> placement) {
    std::vector<std::int32_t> copies(static_cast<std::size_t>(shape.experts));
    for (const std::int32_t expert : placement)
        if (expert >= 0) ++copies[static_cast<std::size_t>(expert)];
    return copies;
}

namespace {

template <typename Load>
Balance balance_of_step(const ExpertShape& shape, std::span<const std::int32_t> placement,
                        std::span<const std::int32_t> copies, std::span<const Load> loads) {
    Balance balance;
    for (std::int64_t r = 0; r < shape.ranks; ++r) {
        double rank = 0;
        for (std::int64_t s = r * shape.slots; s < (r + 1) * shape.slots; ++s)
            if (const std::int32_t expert = placement[static_cast<std::size_t>(s)]; expert >= 0)
                rank += static_cast<double>(loads[static_cast<std::size_t>(expert)]) /
                        copies[static_cast<std::size_t>(expert)];
        balance.max_sum = std::max(balance.max_sum, rank);
        balance.mean_sum += rank / static_cast<double>(shape.ranks);
    }
    return balance;
}

}  // namespace

Balance balance_of(const ExpertShape& shape, std::span<const std::int32_t> placement,
                   std::span<const double> loads) {
    return balance_of_step(shape, placement, count_copies(shape, placement), loads);
}

std::vector<Balance> step_balances(const ExpertShape& shape,
                                   std::span<const std::int32_t> placement,
                                   const ExpertWindow& window) {
    const std::vector<std::int32_t> copies = count_copies(shape, placement);
    std::vector<Balance> steps;
    for (std::int64_t i = 0; i < window.steps(); ++i)
        steps.push_back(balance_of_step<std::int32_t>(shape, placement, copies, window.step(i)));
    return steps;
}

std::int64_t slot_for_token(const ExpertShape& shape, std::span<const std::int32_t> placement,
                            std::int32_t expert, std::uint64_t token_hash, std::int64_t layer,
                            std::int64_t source_rank, std::span<const std::uint8_t> alive) {
    const auto usable = [&](std::size_t s) {
        const std::size_t rank = s / static_cast<std::size_t>(shape.slots);
        return placement[s] == expert && (alive.empty() || alive[rank] != 0);
    };
    std::uint64_t copies = 0;
    for (std::size_t s = 0; s < placement.size(); ++s)
        if (usable(s)) ++copies;
    if (copies == 0) return -1;
    std::uint64_t chosen = Digest().add(token_hash).add(layer).add(source_rank).value() % copies;
    for (std::size_t s = 0;; ++s)
        if (usable(s) && chosen-- == 0) return static_cast<std::int64_t>(s);
}

}  // namespace fathom
