// How sequences leave a decode group that drains.
#include <algorithm>
#include <map>
#include <utility>

#include "sim/fleet/decode_side.h"

namespace fathom {

void DecodeSide::list(std::size_t index, std::vector<DrainSequence>* out) const {
    const Group& group = groups_[index];
    for (const auto& [r, slot] : group.joining)
        out->push_back({.id = slot, .kv_tokens = host_.entry_of(slot).context_tokens});
    for (const Rank& rank : group.ranks)
        for (const Sequence& sequence : rank.running.items())
            out->push_back({.id = sequence.slot,
                            .kv_tokens = host_.entry_of(sequence.slot).context_tokens +
                                         generated_by(rank, sequence)});
}

std::int64_t DecodeSide::arriving(std::size_t index) const {
    std::int64_t sum = -static_cast<std::int64_t>(groups_[index].joining.size());
    for (const Rank& rank : groups_[index].ranks)
        sum += rank.promised;
    return sum;
}

bool DecodeSide::has_room_elsewhere(std::size_t index) const {
    std::int64_t slots = 0, blocks = 0;  // free ones, less what is needed
    bool has_other = false;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
        if (g != index && groups_[g].mode != Mode::works) continue;
        has_other = has_other || g != index;
        for (const Rank& rank : groups_[g].ranks) {
            const std::int64_t used =
                static_cast<std::int64_t>(rank.running.size()) + rank.promised;
            slots += g == index ? -used : config_.sequences_max - used;
            blocks += g == index ? -rank.used_blocks : config_.blocks_per_rank - rank.used_blocks;
        }
    }
    return has_other && slots >= 0 && blocks >= 0;
}

double DecodeSide::step_us(std::size_t index) const {
    const Group& group = groups_[index];
    return static_cast<double>(group.step.total_ns) / 1000 /
           static_cast<double>(group.ranks.size());
}

void DecodeSide::leave(std::size_t index, std::uint32_t slot) {
    groups_[index].leaving.push_back(slot);
}

void DecodeSide::send_off(std::size_t index) {
    Group& group = groups_[index];
    struct Left {
        bool is_here = false;
        std::int64_t generated = 0;
    };
    std::map<std::uint32_t, Left> left;
    for (const std::uint32_t slot : group.leaving)
        left[slot];
    const auto take = [&](Rank& rank, const DecodeEntry& entry, std::int64_t generated) {
        const auto found = left.find(entry.slot);
        if (found == left.end()) return false;
        found->second = {true, generated};
        rank.used_blocks -= entry.blocks();
        rank.growth_tokens -= entry.growth_tokens;
        return true;
    };
    std::erase_if(group.joining, [&](const auto& joining) {
        Rank& rank = group.ranks[joining.first];
        const DecodeEntry& entry = host_.entry_of(joining.second);
        if (!take(rank, entry, 0)) return false;
        --rank.promised;
        rank.promised_kv -= entry.context_tokens;
        return true;
    });
    for (Rank& rank : group.ranks) {
        const std::size_t before = rank.running.size();
        std::erase_if(rank.running.items(), [&](const Sequence& sequence) {
            const DecodeEntry& entry = host_.entry_of(sequence.slot);
            if (!take(rank, entry, generated_by(rank, sequence))) return false;
            rank.base_kv -= static_cast<double>(entry.context_tokens) - entry.begin;
            return true;
        });
        if (rank.running.size() == before) continue;
        order_ends(rank);
    }
    for (const std::uint32_t slot : std::exchange(group.leaving, {})) {
        const Left& one = left[slot];
        if (!one.is_here) {
            host_.stayed(slot, index);
            continue;
        }
        generated_tokens_ += one.generated;
        --sequences_;
        host_.moved(slot, one.generated);
    }
}

void DecodeSide::withdraw(const DecodeSeat& seat, const DecodeEntry& entry) {
    Rank& rank = groups_[seat.group].ranks[seat.rank];
    --rank.promised;
    rank.promised_kv -= entry.context_tokens;
    rank.used_blocks -= entry.blocks();
    rank.growth_tokens -= entry.growth_tokens;
    if (!groups_[seat.group].is_stepping) report(seat.group, true);
}

}  // namespace fathom
