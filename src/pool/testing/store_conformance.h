// What every block store promises, as tests that run on any kind of store (kvpool.md 15.1, 15.2).
// A test program links fathom_pool_testing and says
//
//   INSTANTIATE_TEST_SUITE_P(Mem, StoreConformance, ::testing::Values(mem_kind()), kind_name);
//
// Tests whose means a rig lacks (a clock moved by hand, blocks that outlive a process) are skipped.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "pool/testing/content_oracle.h"
#include "pool/testing/store_rig.h"

namespace fathom::testing {

std::string kind_name(const ::testing::TestParamInfo<StoreKind>& info);

class StoreConformance : public ::testing::TestWithParam<StoreKind> {
  protected:
    static constexpr std::int64_t kPayloadBytes = 3000;

    void SetUp() override;
    void TearDown() override;
    // Another life of the store, on the same rig or, with a size, on a new one.
    void open();
    void reopen();
    void open_anew(std::int64_t payload_bytes);

    Deadline in_us(std::int64_t us) const { return {rig_->clock().now_us() + us}; }
    Deadline soon() const { return in_us(kWaitUs); }

    // Puts the writer's payloads; waits. A store that is busy is asked again.
    std::vector<PutOutcome> put(const std::vector<BlockName>& names, std::uint64_t writer,
                                const PutOptions& options = {});
    // Reads, waits, and checks guards.
    struct Read {
        std::vector<GetStatus> blocks;
        std::vector<std::vector<std::uint8_t>> payloads;
    };
    Read get(const std::vector<BlockName>& names);
    std::vector<bool> exists(const std::vector<BlockName>& names);
    // All of the names hold the writer's bytes, or none is there.
    void expect_writer(const std::vector<BlockName>& names, std::uint64_t writer);
    void expect_absent(const std::vector<BlockName>& names);

    std::unique_ptr<StoreRig> rig_;
    std::unique_ptr<BlockStore> store_;
    std::int64_t payload_bytes_ = kPayloadBytes;
};

// Of stores that several processes may have open at once; for those a program instantiates this
// suite too.
class SharedStoreConformance : public StoreConformance {
  protected:
    void SetUp() override;
    void TearDown() override;
    // What is called `store_` from here on is the other one.
    void swap_stores() { std::swap(store_, other_); }

    std::unique_ptr<BlockStore> other_;
};

// Names of blocks 1 to count of a chain.
std::vector<BlockName> chain_names(std::uint64_t chain, std::uint32_t count, std::uint64_t ns = 0);
std::vector<BlockKey> keys_of(const std::vector<BlockName>& names);

// Pages for the names, every other one of whole slots, and what asks for them.
struct ReadPages {
    ReadPages(const std::vector<BlockName>& names, std::int64_t payload_bytes);
    std::vector<GetRequest> requests() const;
    std::vector<BlockName> names;
    std::vector<Page> pages;
};
// The writer's payloads of the names, and what puts them.
struct WritePages {
    WritePages(const std::vector<BlockName>& names, std::uint64_t writer,
               std::int64_t payload_bytes);
    std::vector<PutRequest> requests() const;
    std::vector<BlockName> names;
    std::vector<std::vector<std::uint8_t>> payloads;
};

}  // namespace fathom::testing
