// What a cluster can do to the rados store (kvpool.md 15.3, F22): devices and monitors that die or
// hang, bytes that change, no room; and what stores do to each other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <thread>

#include "pool/rados_names.h"
#include "pool/testing/embedded_rig.h"
#include "pool/testing/store_conformance.h"
#include "rados_raw.h"
#include "rados_rig.h"

namespace fathom::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kPayload = 113'920;

// What does not open fails its test and none behind it.
std::unique_ptr<RadosStore> opened(RadosOptions options) {
    Result<std::unique_ptr<RadosStore>> store = RadosStore::open(std::move(options));
    if (!store.ok()) throw std::runtime_error(store.status().to_string());
    return std::move(*store);
}

Deadline in_us(std::int64_t us) {
    return {real_clock().now_us() + us};
}

std::vector<PutOutcome> put(BlockStore& store, const std::vector<BlockName>& names,
                            std::uint64_t writer, Deadline deadline,
                            const PutOptions& options = {}) {
    const WritePages pages(names, writer, store.payload_bytes());
    const Call<PutResult> call = start_put(store, pages.requests(), options, deadline);
    call.wait_released();
    return call.wait().blocks;
}

// Reads; whatever is a hit is the writer's bytes.
std::vector<GetStatus> get(BlockStore& store, const std::vector<BlockName>& names,
                           std::uint64_t writer, Deadline deadline) {
    const ReadPages pages(names, store.payload_bytes());
    const Call<GetResult> call = start_get(store, pages.requests(), deadline);
    call.wait_released();
    const std::vector<GetStatus> blocks = call.wait().blocks;
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (blocks[i] != GetStatus::hit) continue;
        EXPECT_EQ(payload_writer(names[i].key, pages.pages[i].payload()), writer) << "block " << i;
    }
    return blocks;
}

bool all_hit(const std::vector<GetStatus>& blocks) {
    return std::all_of(blocks.begin(), blocks.end(),
                       [](GetStatus status) { return status == GetStatus::hit; });
}

Status collect(RadosStore& store) {
    std::promise<Status> done;
    store.collect({INT64_MAX}, [&](Status status) { done.set_value(std::move(status)); });
    return done.get_future().get();
}

class RadosFaults : public ::testing::Test {
  protected:
    // On the real clock, with blocks as the released model has them.
    RadosOptions options() const {
        RadosOptions options = rados_options(namespace_, kPayload);
        options.cluster.timeout_s = 2;
        options.beat_us = 500'000;
        return options;
    }
    RadosOptions options(const Clock& clock) const {
        RadosOptions options = rados_options(namespace_, 3000);
        options.cluster.pool = CephCluster::kSmallPool;
        options.clock = &clock;
        return options;
    }
    static CephCluster& cluster() { return *shared_cluster(); }
    // Until the store's health has the words; meanwhile asks for blocks, each time for a while.
    static bool becomes(BlockStore& store, const std::vector<BlockName>& names,
                        const std::string& words) {
        for (int i = 0; i < 300; ++i) {
            const StoreHealth health = store.health();
            if (words.empty() ? health.state == StoreHealth::State::ok
                              : health.reason.find(words) != std::string::npos)
                return true;
            for (const GetStatus status : get(store, names, 1, in_us(300'000)))
                EXPECT_TRUE(status == GetStatus::hit || status == GetStatus::timeout)
                    << get_status_name(status);
        }
        return false;
    }

    const std::string namespace_ = new_rados_namespace();
};

TEST_F(RadosFaults, ADeviceKilledAmongReadsAndWritesLosesNothing) {
    const auto store = opened(options());
    const std::vector<BlockName> before = chain_names(1, 60);
    for (const PutOutcome outcome : put(*store, before, 1, in_us(kWaitUs)))
        ASSERT_EQ(put_outcome_name(outcome), "stored");
    std::atomic<bool> over{false};
    std::vector<BlockName> stored;
    std::thread writer([&] {
        for (std::uint64_t chain = 2; !over; ++chain) {
            const std::vector<BlockName> names = chain_names(chain, 4);
            const std::vector<PutOutcome> outcomes = put(*store, names, 1, in_us(kWaitUs));
            for (std::size_t i = 0; i < names.size(); ++i)
                if (outcomes[i] == PutOutcome::stored) stored.push_back(names[i]);
        }
    });
    for (int round = 0; round < 20; ++round) {
        if (round == 5) cluster().kill_osd(5);
        for (const GetStatus status : get(*store, before, 1, in_us(kWaitUs)))
            EXPECT_TRUE(status == GetStatus::hit || status == GetStatus::timeout)
                << get_status_name(status);
    }
    over = true;
    writer.join();
    EXPECT_TRUE(cluster().await_osds(CephCluster::kOsds - 1));
    EXPECT_TRUE(all_hit(get(*store, before, 1, in_us(kWaitUs))));
    EXPECT_TRUE(all_hit(get(*store, stored, 1, in_us(kWaitUs))));
    cluster().start_osd(5);
    EXPECT_TRUE(cluster().await_osds(CephCluster::kOsds));
    EXPECT_TRUE(becomes(*store, before, ""));
}

TEST_F(RadosFaults, WithTooFewDevicesIoStopsAndSaysSo) {
    const auto store = opened(options());
    const std::vector<BlockName> names = chain_names(1, 20);
    put(*store, names, 1, in_us(kWaitUs));
    cluster().kill_osd(4);
    cluster().kill_osd(5);
    EXPECT_TRUE(becomes(*store, names, "degraded-stop: placement group"));
    EXPECT_THAT(store->health().reason, HasSubstr("of the 5 devices"));
    // Calls end, and the store does, while nothing moves.
    for (const PutOutcome outcome : put(*store, chain_names(2, 8), 1, in_us(200'000)))
        EXPECT_EQ(put_outcome_name(outcome), "timeout");
    {
        const auto other = opened(options());
        const ReadPages reads(names, kPayload);
        const Call<GetResult> call = start_get(*other, reads.requests(), in_us(kWaitUs));
        const auto prefix = start_prefix(*other, keys_of(names), in_us(kWaitUs));
        other->close(in_us(100'000));
        EXPECT_TRUE(call.released());
        EXPECT_TRUE(prefix.done());
    }
    cluster().start_osd(4);
    cluster().start_osd(5);
    EXPECT_TRUE(cluster().await_osds(CephCluster::kOsds));
    EXPECT_TRUE(becomes(*store, names, ""));
    EXPECT_TRUE(all_hit(get(*store, names, 1, in_us(kWaitUs))));
}

TEST_F(RadosFaults, WithoutAMonitorCallsEndAndBlocksAreFound) {
    const auto store = opened(options());
    const std::vector<BlockName> names = chain_names(1, 20);
    put(*store, names, 1, in_us(kWaitUs));
    cluster().stop_monitor();
    EXPECT_TRUE(becomes(*store, names, "no monitor of the cluster answers"));
    EXPECT_TRUE(all_hit(get(*store, names, 1, in_us(kWaitUs))));
    for (const PutOutcome outcome : put(*store, chain_names(2, 4), 1, in_us(kWaitUs)))
        EXPECT_EQ(put_outcome_name(outcome), "stored");
    const auto refused = RadosStore::open(options());
    EXPECT_EQ(refused.status().code(), StatusCode::unavailable);
    EXPECT_THAT(refused.status().message(), HasSubstr("check that its monitors run"));
    cluster().continue_monitor();
    EXPECT_TRUE(becomes(*store, names, ""));
}

// Whatever lies under a block's name, it is the block or a miss; what is damaged makes room.
TEST_F(RadosFaults, ObjectsThatSomebodyChangedAreMisses) {
    const auto store = opened(options());
    const std::vector<BlockName> names = chain_names(1, 5);
    put(*store, names, 1, in_us(kWaitUs));
    const RawObjects raw(cluster().conf(), CephCluster::kPool, namespace_);
    std::vector<std::string> objects;
    for (const BlockName& name : names)
        objects.push_back(rados_block_object(name.key));
    std::vector<char> flipped = raw.read(objects[0]), trailer = raw.read(objects[1]);
    flipped[70'000] ^= 4;
    trailer[static_cast<std::size_t>(kPayload) + 20] ^= 1;
    raw.write(objects[0], flipped);
    raw.write(objects[1], trailer);
    raw.write(objects[2], std::vector<char>(100, 'x'));
    raw.write(objects[3], raw.read(objects[4]));
    const std::vector<GetStatus> read = get(*store, names, 1, in_us(kWaitUs));
    for (std::size_t i = 0; i < 4; ++i)
        EXPECT_EQ(get_status_name(read[i]), "corrupt") << i;
    EXPECT_EQ(get_status_name(read[4]), "hit");
    // Removals of what is damaged come before what is put behind them.
    const std::vector<PutOutcome> again = put(*store, names, 1, in_us(kWaitUs));
    for (std::size_t i = 0; i < 4; ++i)
        EXPECT_EQ(put_outcome_name(again[i]), "stored") << i;
    EXPECT_EQ(put_outcome_name(again[4]), "exists");
    EXPECT_TRUE(all_hit(get(*store, names, 1, in_us(kWaitUs))));
    // What has nothing of a block but its name is written over at once.
    const std::vector<BlockName> other = chain_names(2, 1);
    raw.write(rados_block_object(other[0].key), std::vector<char>(100, 'x'));
    EXPECT_FALSE(start_exists(*store, keys_of(other), in_us(kWaitUs)).wait().present[0]);
    EXPECT_EQ(put_outcome_name(put(*store, other, 1, in_us(kWaitUs))[0]), "stored");
    EXPECT_TRUE(all_hit(get(*store, other, 1, in_us(kWaitUs))));
}

TEST_F(RadosFaults, AFullClusterRefusesAndOldBlocksMakeRoom) {
    ManualClock clock;
    clock.advance_us(1'750'000'000'123'456);
    const Deadline never{INT64_MAX};
    const auto store = opened(options(clock));
    const std::vector<BlockName> old = chain_names(1, 30), recent = chain_names(2, 5);
    put(*store, old, 1, never);
    clock.advance_us(2 * kHourMs * 1000);
    put(*store, recent, 1, never);
    // The devices and the client learn of it some time after the monitors.
    const auto put_while = [&](PutOutcome before, std::uint64_t chain) {
        PutOutcome outcome = before;
        for (const std::int64_t end_us = in_us(kWaitUs).at_us;
             outcome == before && real_clock().now_us() < end_us; ++chain)
            outcome = put(*store, chain_names(chain, 1), 1, never)[0];
        return outcome;
    };
    cluster().set_full(true);
    EXPECT_EQ(put_outcome_name(put_while(PutOutcome::stored, 100)), "full");
    EXPECT_TRUE(all_hit(get(*store, recent, 1, never)));
    bool gone = false;
    for (const std::int64_t end_us = in_us(kWaitUs).at_us;
         !gone && real_clock().now_us() < end_us;) {
        const auto present = start_exists(*store, keys_of(old), never).wait().present;
        gone = std::none_of(present.begin(), present.end(), [](bool there) { return there; });
    }
    EXPECT_TRUE(gone) << "what ends first was not removed";
    EXPECT_TRUE(all_hit(get(*store, recent, 1, never)));
    cluster().set_full(false);
    EXPECT_EQ(put_outcome_name(put_while(PutOutcome::full, 1'000'000)), "stored");
}

// One store renews blocks while another one, whose clock is ahead, takes them for expired. A block
// is renewed or removed, never both; what was removed is stored anew.
TEST_F(RadosFaults, ASweepLeavesWhatIsRenewedMeanwhile) {
    ManualClock early, late;
    early.advance_us(1'750'000'000'123'456);
    late.advance_us(early.now_us());
    const Deadline never{INT64_MAX};
    const auto renewing = opened(options(early)), sweeping = opened(options(late));
    const PutOptions brief{.traffic_class = TrafficClass::ephemeral,
                           .renew_before_ms = 15 * kMinuteMs};
    const std::vector<BlockName> names = chain_names(1, 200), left = chain_names(2, 50);
    put(*renewing, names, 1, never, brief);
    put(*renewing, left, 1, never, brief);
    early.advance_us(58 * kMinuteMs * 1000);
    late.advance_us((kHourMs + 6 * kMinuteMs) * 1000);
    std::promise<Status> swept;
    sweeping->collect(never, [&](Status status) { swept.set_value(std::move(status)); });
    for (const PutOutcome outcome : put(*renewing, names, 1, never, brief))
        EXPECT_TRUE(outcome == PutOutcome::renewed || outcome == PutOutcome::stored)
            << put_outcome_name(outcome);
    EXPECT_TRUE(swept.get_future().get().ok());
    EXPECT_TRUE(collect(*sweeping).ok());
    EXPECT_TRUE(all_hit(get(*renewing, names, 1, never)));
    const RawObjects raw(cluster().conf(), CephCluster::kSmallPool, namespace_);
    EXPECT_EQ(raw.list().size(), names.size());
    // In the end nothing stays, of blocks or of lists.
    late.advance_us(3 * kHourMs * 1000);
    EXPECT_TRUE(collect(*sweeping).ok());
    EXPECT_TRUE(raw.list().empty());
    const RawObjects lists(cluster().conf(), CephCluster::kIndexPool, namespace_);
    for (const std::string& object : lists.list())
        EXPECT_FALSE(parse_rados_list_object(object).has_value()) << object;
}

TEST_F(RadosFaults, ADropTakesWhatAllWritersStored) {
    const auto one = opened(options()), two = opened(options()), three = opened(options());
    const Deadline soon = in_us(kWaitUs);
    put(*one, chain_names(1, 20, 1), 1, soon);
    put(*two, chain_names(2, 20, 1), 1, soon, {.traffic_class = TrafficClass::chatbot});
    const std::vector<BlockName> others = chain_names(3, 10, 2);
    put(*two, others, 1, soon);
    ASSERT_TRUE(start_drop(*three, oracle_namespace(1), soon).wait().ok());
    const RawObjects raw(cluster().conf(), CephCluster::kPool, namespace_);
    EXPECT_EQ(raw.list().size(), others.size());
    EXPECT_TRUE(all_hit(get(*one, others, 1, soon)));
}

TEST_F(RadosFaults, EncryptedBlocksOpenWithTheirKeyAlone) {
    const TemporaryFolder folder;
    const auto with_keys = [&](bool encrypt) {
        RadosOptions with = options();
        auto keys = KeyRing::open(folder.path() + "/keys", real_clock());
        EXPECT_TRUE(keys.ok()) << keys.status().to_string();
        with.keys = std::move(*keys);
        with.encrypt = encrypt;
        return opened(std::move(with));
    };
    const auto encrypting = with_keys(true);
    const std::vector<BlockName> names = chain_names(1, 8), plain = chain_names(2, 4);
    const Deadline soon = in_us(kWaitUs);
    for (const PutOutcome outcome : put(*encrypting, names, 1, soon))
        ASSERT_EQ(put_outcome_name(outcome), "stored");
    for (const GetStatus status : get(*encrypting, names, 1, soon))
        EXPECT_EQ(get_status_name(status), "hit");
    EXPECT_TRUE(all_hit(get(*with_keys(false), names, 1, soon)));
    const auto without = opened(options());
    for (const GetStatus status : get(*without, names, 1, soon))
        EXPECT_EQ(get_status_name(status), "miss");
    // A plain block is not believed, and replaced.
    put(*without, plain, 1, soon);
    for (const GetStatus status : get(*encrypting, plain, 1, soon))
        EXPECT_EQ(get_status_name(status), "miss");
    for (const PutOutcome outcome : put(*encrypting, plain, 1, soon))
        EXPECT_EQ(put_outcome_name(outcome), "stored");
    EXPECT_TRUE(all_hit(get(*encrypting, names, 1, soon)));
    ASSERT_TRUE(start_drop(*encrypting, names[0].ns, soon).wait().ok());
    EXPECT_TRUE(std::filesystem::is_empty(folder.path() + "/keys"));
}

TEST_F(RadosFaults, WhatCannotBeOpenedSaysWhy) {
    const auto refused = [](RadosOptions options) {
        const auto store = RadosStore::open(std::move(options));
        return store.ok() ? "opened" : store.status().message();
    };
    RadosOptions wrong = options();
    wrong.cluster.pool = "nowhere";
    EXPECT_THAT(refused(std::move(wrong)), HasSubstr("no pool \"nowhere\""));
    wrong = options();
    wrong.cluster.index_pool = CephCluster::kSmallPool;
    EXPECT_THAT(refused(std::move(wrong)), HasSubstr("cannot hold lists"));
    wrong = options();
    wrong.cluster.conf = "/nowhere/ceph.conf";
    EXPECT_THAT(refused(std::move(wrong)), HasSubstr("/nowhere/ceph.conf"));
    opened(options());
    wrong = options();
    wrong.payload_bytes = 3000;
    EXPECT_THAT(refused(std::move(wrong)),
                HasSubstr("blocks of 113920 bytes, this model's have 3000"));
    const RawObjects raw(cluster().conf(), CephCluster::kIndexPool, namespace_);
    raw.write(kRadosPoolObject, std::vector<char>(8192, 'x'));
    EXPECT_THAT(refused(options()), HasSubstr("lists/POOL"));
}

}  // namespace
}  // namespace fathom::testing
