// A block store as the tier of an engine (engine/block_tier.h).
//
//   engine ── persist ─> copy in a staging slot ── put ───────────> store
//          ── find, load ── longest_prefix, get ─────────────────> store
//
// What an engine persists is copied at once into one of a fixed number of staging slots (aligned,
// so that a store may write straight from it), with its digest taken before the copy, and written
// by the store when it gets to it. When no slot is free the block is dropped and counted:
// persisting never delays a token. Writes that the store refused are dropped too; the engine hears
// of them and gives a block again when it is used again.
//
// Lookups that fail are counted by cause and said in the log, once a minute at most.
//
// Several engines may share one tier. Any thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "base/metrics.h"
#include "engine/block_tier.h"
#include "pool/block_store.h"

namespace fathom {

struct PoolTierOptions {
    std::int64_t staging_bytes = std::int64_t{64} << 20;  // of blocks that wait to be stored
    std::int64_t put_deadline_us = 30'000'000;
    std::array<std::int64_t, kTrafficClasses> life_ms = {std::int64_t{3} * 86'400'000,
                                                         std::int64_t{7} * 86'400'000,
                                                         std::int64_t{7} * 86'400'000, 3'600'000};
    // Stored again when less than this share of its life is left (kvpool.md 6).
    double renew_share = 0.25;
};

class PoolTier final : public BlockTier {
  public:
    // The store, the clock and the registry outlive the tier.
    PoolTier(BlockStore& store, const PoolTierOptions& options, const Clock& clock,
             MetricsRegistry& metrics);
    ~PoolTier() override;  // what is staged may still be stored
    // Waits until what is staged is stored, but not beyond the deadline; then nothing more is
    // taken. No engine uses the tier any more. Before the store is closed.
    void close(Deadline deadline);

    void find(std::vector<BlockKey> chain, std::int64_t deadline_us,
              std::function<void(TierFound found)> done) override;
    std::function<void()> load(std::vector<BlockName> names, std::vector<std::uint8_t*> pages,
                               std::int64_t deadline_us, LoadCalls calls) override;
    std::int64_t persist(const BlockName& name, const std::uint8_t* page,
                         TrafficClass traffic_class) override;
    std::optional<BlockKey> next_refused() override;

  private:
    struct Shared;
    std::shared_ptr<Shared> shared_;
};

}  // namespace fathom
