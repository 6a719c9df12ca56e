// Conformance: which bytes a store gives back.
#include <algorithm>
#include <thread>

#include "base/random.h"
#include "pool/testing/store_conformance.h"

namespace fathom::testing {

void link_content_tests() {}

TEST_P(StoreConformance, GivesBackAnyPayloadOfAnySize) {
    // One page and less, exactly one with its trailer, the trailer across a boundary, the released
    // model's.
    for (const std::int64_t bytes : {8, 3000, 3328, 3329, 4096, 20'000, 113'920}) {
        SCOPED_TRACE(bytes);
        open_anew(bytes);
        const std::vector<BlockName> names = chain_names(1, 4);
        const auto size = static_cast<std::size_t>(bytes);
        std::vector<std::vector<std::uint8_t>> payloads = {
            oracle_payload(names[0].key, 1, bytes), std::vector<std::uint8_t>(size, 0),
            std::vector<std::uint8_t>(size, 0xff), std::vector<std::uint8_t>(size, 0x5a)};
        std::vector<PutRequest> requests;
        for (std::size_t i = 0; i < names.size(); ++i)
            requests.push_back({.name = names[i],
                                .page = payloads[i].data(),
                                .digest = payload_digest(payloads[i].data(), bytes),
                                .has_digest = true});
        const Call<PutResult> call = start_put(*store_, requests, {}, soon());
        for (const PutOutcome outcome : call.wait().blocks)
            ASSERT_EQ(put_outcome_name(outcome), "stored");
        call.wait_released();
        for (int round = 0; round < 2; ++round) {
            const Read read = get(names);
            for (std::size_t i = 0; i < names.size(); ++i) {
                EXPECT_EQ(get_status_name(read.blocks[i]), "hit");
                EXPECT_EQ(read.payloads[i], payloads[i]);
            }
            if (rig_->traits.durable) reopen();
        }
    }
}

TEST_P(StoreConformance, HasNothingThatNobodyPut) {
    expect_absent(chain_names(1, 8));
    EXPECT_EQ(start_prefix(*store_, keys_of(chain_names(1, 8)), soon()).wait().blocks, 0u);
}

TEST_P(StoreConformance, KeepsTheFirstBytesOfABlock) {
    const std::vector<BlockName> names = chain_names(1, 8);
    for (const PutOutcome outcome : put(names, 1))
        EXPECT_EQ(put_outcome_name(outcome), "stored");
    for (const PutOutcome outcome : put(names, 2))
        EXPECT_EQ(put_outcome_name(outcome), "exists");
    expect_writer(names, 1);
}

TEST_P(StoreConformance, TakesABlockNamedTwiceInOneBatchOnce) {
    const BlockName name = oracle_name(1, 1);
    const std::vector<PutOutcome> outcomes = put({name, name, name}, 1);
    EXPECT_EQ(std::count(outcomes.begin(), outcomes.end(), PutOutcome::stored), 1);
    for (const PutOutcome outcome : outcomes)
        EXPECT_TRUE(outcome == PutOutcome::stored || outcome == PutOutcome::exists ||
                    outcome == PutOutcome::in_flight)
            << put_outcome_name(outcome);
    expect_writer({name, name, name}, 1);
}

TEST_P(StoreConformance, OneOfManyWritersOfABlockWins) {
    constexpr std::uint64_t kWriters = 32;
    const BlockName name = oracle_name(1, 1);
    std::vector<PutOutcome> outcomes(kWriters);
    std::vector<std::thread> writers;
    for (std::uint64_t writer = 0; writer < kWriters; ++writer)
        writers.emplace_back([&, writer] { outcomes[writer] = put({name}, writer + 1)[0]; });
    for (std::thread& thread : writers)
        thread.join();
    const auto winner = std::find(outcomes.begin(), outcomes.end(), PutOutcome::stored);
    ASSERT_NE(winner, outcomes.end());
    EXPECT_EQ(std::count(outcomes.begin(), outcomes.end(), PutOutcome::stored), 1);
    for (const PutOutcome outcome : outcomes)
        EXPECT_TRUE(outcome == PutOutcome::stored || outcome == PutOutcome::exists ||
                    outcome == PutOutcome::in_flight)
            << put_outcome_name(outcome);
    const auto writer = static_cast<std::uint64_t>(winner - outcomes.begin() + 1);
    expect_writer(std::vector<BlockName>(32, name), writer);
}

TEST_P(StoreConformance, HolesHaveTheirOwnStatusAndShiftNothing) {
    RandomStream random(11);
    const std::vector<BlockName> names = chain_names(1, 100);
    std::vector<bool> there(names.size());
    std::vector<BlockName> stored;
    for (std::size_t i = 0; i < names.size(); ++i) {
        if ((there[i] = random.next_below(2) == 0)) stored.push_back(names[i]);
    }
    put(stored, 1);
    std::vector<std::size_t> order(names.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
        order[i] = i;
        std::swap(order[i], order[random.next_below(i + 1)]);
    }
    std::vector<BlockName> shuffled;
    for (const std::size_t i : order)
        shuffled.push_back(names[i]);
    const Read read = get(shuffled);
    EXPECT_EQ(exists(names), there);
    for (std::size_t i = 0; i < order.size(); ++i) {
        SCOPED_TRACE(i);
        EXPECT_EQ(get_status_name(read.blocks[i]), there[order[i]] ? "hit" : "miss");
        if (there[order[i]]) {
            EXPECT_EQ(payload_writer(shuffled[i].key, read.payloads[i]), std::uint64_t{1});
        }
    }
}

TEST_P(StoreConformance, ANameThatAgreesInItsKeyAloneIsAMissAndCounted) {
    const BlockName name = oracle_name(1, 1), other = oracle_name(2, 2, 7);
    put({name}, 1);
    std::vector<BlockName> names(5, name);
    names[0].parent = other.parent;
    names[1].ns = other.ns;
    names[2].token_mac = other.token_mac;
    names[3].ordinal = other.ordinal;
    // An index may know the first half of a key; then the block itself must tell.
    std::copy(other.key.bytes.begin() + 16, other.key.bytes.end(), names[4].key.bytes.begin() + 16);
    const std::optional<std::uint64_t> before = rig_->collisions(*store_);
    const Read read = get(names);
    for (std::size_t i = 0; i < names.size(); ++i)
        EXPECT_EQ(get_status_name(read.blocks[i]), "miss") << i;
    if (before) {
        EXPECT_GE(rig_->collisions(*store_).value(), *before + 4);
    }
    expect_writer({name}, 1);
}

TEST_P(StoreConformance, StoresNothingThatIsNotWhatItsProducerHad) {
    const BlockName name = oracle_name(1, 1);
    const WritePages pages({name}, 1, payload_bytes_);
    std::vector<PutRequest> requests = pages.requests();
    requests[0].has_digest = true;
    requests[0].digest[3] ^= 1;
    const Call<PutResult> call = start_put(*store_, requests, {}, soon());
    EXPECT_EQ(put_outcome_name(call.wait().blocks[0]), "failed");
    EXPECT_FALSE(call.wait().status.ok());
    call.wait_released();
    expect_absent({name});
    EXPECT_EQ(put_outcome_name(put({name}, 2)[0]), "stored");
    expect_writer({name}, 2);
}

// Threads put and read the same blocks, each with bytes of its own. Every block that is read is
// one writer's, and always the same one's.
TEST_P(StoreConformance, ReadersAmongWritersSeeWholeBlocksOfOneWriter) {
    constexpr std::uint64_t kThreads = 6;
    constexpr std::uint32_t kBlocks = 40;
    const std::vector<BlockName> names = chain_names(1, kBlocks);
    std::vector<std::vector<std::uint64_t>> seen(kThreads, std::vector<std::uint64_t>(kBlocks));
    std::vector<std::thread> threads;
    for (std::uint64_t thread = 0; thread < kThreads; ++thread) {
        threads.emplace_back([&, thread] {
            RandomStream random(100 + thread);
            for (int step = 0; step < 40; ++step) {
                std::vector<BlockName> some;
                std::vector<std::size_t> which;
                for (int i = 0; i < 4; ++i) {
                    which.push_back(random.next_below(kBlocks));
                    some.push_back(names[which.back()]);
                }
                if (random.next_below(2) == 0) {
                    put(some, thread + 1);
                    continue;
                }
                const Read read = get(some);
                for (std::size_t i = 0; i < some.size(); ++i) {
                    if (read.blocks[i] != GetStatus::hit) continue;
                    const auto writer = payload_writer(some[i].key, read.payloads[i]);
                    ASSERT_TRUE(writer.has_value()) << "bytes of nobody";
                    std::uint64_t& known = seen[thread][which[i]];
                    EXPECT_TRUE(known == 0 || known == *writer) << "bytes changed";
                    known = *writer;
                }
            }
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    const Read read = get(names);
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (read.blocks[i] != GetStatus::hit) continue;
        const std::uint64_t writer = payload_writer(names[i].key, read.payloads[i]).value_or(0);
        for (const auto& known : seen)
            EXPECT_TRUE(known[i] == 0 || known[i] == writer) << "bytes changed";
    }
}

// Any sequence of puts, reads, drops and closings leaves what the oracle says.
TEST_P(StoreConformance, AgreesWithTheOracleOverRandomHistories) {
    constexpr std::uint64_t kSeed = 5;
    SCOPED_TRACE(kSeed);
    RandomStream random(kSeed);
    ContentOracle oracle;
    std::vector<BlockName> names;
    for (std::uint64_t ns = 0; ns < 3; ++ns) {
        for (const BlockName& name : chain_names(ns, 20, ns))
            names.push_back(name);
    }
    for (std::uint64_t step = 1; step <= 150; ++step) {
        std::vector<BlockName> some;
        for (std::uint64_t i = random.next_below(8) + 1; i > 0; --i)
            some.push_back(names[random.next_below(names.size())]);
        const std::uint64_t what = random.next_below(40);
        if (what < 18) {
            const std::vector<PutOutcome> outcomes = put(some, step);
            for (std::size_t i = 0; i < some.size(); ++i)
                oracle.put(some[i], step, outcomes[i]);
        } else if (what < 38) {
            const Read read = get(some);
            for (std::size_t i = 0; i < some.size(); ++i)
                ASSERT_EQ(oracle.check(some[i], read.blocks[i], read.payloads[i]), "")
                    << "step " << step;
        } else if (what < 39) {
            ASSERT_TRUE(start_drop(*store_, some[0].ns, soon()).wait().ok());
            oracle.dropped(some[0].ns);
        } else {
            reopen();
            if (!rig_->traits.durable) oracle.may_have_lost();
        }
    }
}

}  // namespace fathom::testing
