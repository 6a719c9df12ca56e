#include "sim/experts/switch_run.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace fathom {

SwitchRun::SwitchRun(const ExpertShape& shape, const SwitchRules& rules, std::int64_t layers)
    : shape_(shape),
      rules_(rules),
      layers_(layers),
      fetch_ns_(std::max<SimTime>(1, std::llround(1000 * static_cast<double>(rules.fetch_bytes) /
                                                  (rules.link_bytes_per_us * rules.link_part)))),
      leader_(
          shape, rules,
          std::vector<LayerPlacement>(static_cast<std::size_t>(layers), initial_placement(shape))) {
}

std::uint64_t SwitchRun::weights_of(std::int64_t layer, std::int32_t expert) const {
    return Digest().add(layer).add(expert).value();
}

// Ranks are built anew from the maps in force: between two plans they have nothing else to know.
void SwitchRun::begin(SimTime now_ns, std::span<const std::int64_t> layers,
                      std::vector<LayerPlacement> next) {
    std::vector<LayerPlacement> maps;
    for (std::int64_t layer = 0; layer < layers_; ++layer)
        maps.push_back(leader_.map(layer));
    ranks_.clear();
    for (std::int64_t rank = 0; rank < shape_.ranks; ++rank) {
        if (leader_.alive()[static_cast<std::size_t>(rank)] == 0) leader_.join(rank);
        ranks_.emplace_back(shape_, rules_, rank, maps, leader_.epoch());
    }
    transfers_.assign(ranks_.size(), {});
    std::vector<LayerChange> plan;
    for (std::size_t i = 0; i < layers.size(); ++i) {
        LayerChange change{.layer = layers[i], .next = std::move(next[i]), .weights = {}};
        for (std::int32_t e = 0; e < shape_.experts; ++e)
            change.weights.push_back(weights_of(layers[i], e));
        plan.push_back(std::move(change));
    }
    planned_ = plan.size();
    flipped_ = 0;
    steps_ = 0;
    began_ns_ = turned_ns_ = now_ns;
    ++figures_.begun;
    const Status begun = leader_.begin(now_ns / 1000, std::move(plan));
    FATHOM_CHECK(begun.ok());
    settle(now_ns);
}

SimTime SwitchRun::turn_ns(double step_us) const {
    const auto step_ns = static_cast<SimTime>(std::llround(1000 * step_us));
    return std::max<SimTime>(1'000'000, std::min(step_ns, fetch_ns_));
}

void SwitchRun::deliver(SimTime now_ns) {
    const std::int64_t now_us = now_ns / 1000;
    const auto step = static_cast<std::int64_t>(steps_);
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
        std::vector<Transfer>& own = transfers_[r];
        std::size_t ended = 0;
        for (; ended < own.size() && own[ended].end_ns <= now_ns; ++ended) {
            const SwitchFetch& fetch = own[ended].fetch;
            ranks_[r].fetched(fetch, true, weights_of(fetch.layer, fetch.expert));
            ++figures_.fetched;
        }
        own.erase(own.begin(), own.begin() + static_cast<std::ptrdiff_t>(ended));
        for (const SwitchReply& reply : ranks_[r].take_replies())
            leader_.receive(now_us, step, reply);
    }
    leader_.tick(now_us, step);
}

void SwitchRun::turn(SimTime now_ns, double step_us) {
    if (!busy()) return;
    // At most one a turn: else a commit could be passed before anybody has heard of it.
    steps_ +=
        std::min(1.0, static_cast<double>(now_ns - turned_ns_) / (1000 * std::max(step_us, 1.0)));
    turned_ns_ = now_ns;
    const std::int64_t epoch = leader_.epoch();
    const std::size_t chunk =
        std::min(static_cast<std::size_t>(rules_.layers_per_chunk), planned_ - flipped_);
    deliver(now_ns);
    if (leader_.epoch() != epoch) {
        flipped_ += chunk;
        ++figures_.chunks;
    }
    const std::int64_t now_us = now_ns / 1000;
    for (const SwitchOrder& order : leader_.take_orders())
        for (SwitchRank& rank : ranks_)
            rank.receive(now_us, order);
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
        ranks_[r].begin_step(static_cast<std::int64_t>(steps_));
        while (const auto fetch = ranks_[r].next_fetch(now_us))
            transfers_[r].push_back({*fetch, now_ns + fetch_ns_});
    }
    settle(now_ns);
}

void SwitchRun::lose(SimTime now_ns) {
    if (!busy()) return;
    const std::int64_t epoch = leader_.epoch();
    for (std::int64_t rank = 0; rank < shape_.ranks; ++rank)
        leader_.lose(now_ns / 1000, rank);
    // A chunk that was committed stays: the group comes back with it.
    if (leader_.epoch() != epoch) {
        flipped_ +=
            std::min(static_cast<std::size_t>(rules_.layers_per_chunk), planned_ - flipped_);
        ++figures_.chunks;
    }
    settle(now_ns);
}

void SwitchRun::settle(SimTime now_ns) {
    if (busy()) return;
    leader_.take_orders();
    if (flipped_ < planned_) {
        ++figures_.aborted;
        return;
    }
    ++figures_.completed;
    const double took_s = static_cast<double>(now_ns - began_ns_) / 1e9;
    figures_.total_s += took_s;
    figures_.longest_s = std::max(figures_.longest_s, took_s);
}

}  // namespace fathom
