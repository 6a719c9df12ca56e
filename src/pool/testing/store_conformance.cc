#include "pool/testing/store_conformance.h"

#include <thread>

namespace fathom::testing {

// Defined beside the tests that they name: a program that uses the suite links all of it.
void link_content_tests();
void link_call_tests();
void link_life_tests();
void link_shared_tests();

std::string kind_name(const ::testing::TestParamInfo<StoreKind>& info) {
    return info.param.name;
}

void StoreConformance::SetUp() {
    link_content_tests();
    link_call_tests();
    link_life_tests();
    link_shared_tests();
    rig_ = GetParam().make();
    open();
}

void StoreConformance::TearDown() {
    if (store_ != nullptr) store_->close(soon());
    store_.reset();
    rig_.reset();
}

void StoreConformance::open() {
    Result<std::unique_ptr<BlockStore>> store = rig_->open(payload_bytes_);
    ASSERT_TRUE(store.ok()) << store.status().to_string();
    store_ = std::move(*store);
    ASSERT_EQ(store_->payload_bytes(), payload_bytes_);
}

void StoreConformance::reopen() {
    store_->close(soon());
    store_.reset();
    open();
}

void StoreConformance::open_anew(std::int64_t payload_bytes) {
    TearDown();
    payload_bytes_ = payload_bytes;
    rig_ = GetParam().make();
    open();
}

std::vector<PutOutcome> StoreConformance::put(const std::vector<BlockName>& names,
                                              std::uint64_t writer, const PutOptions& options) {
    const WritePages pages(names, writer, payload_bytes_);
    std::vector<PutRequest> requests = pages.requests();
    std::vector<PutOutcome> outcomes(names.size(), PutOutcome::busy);
    std::vector<std::size_t> left(names.size());
    for (std::size_t i = 0; i < left.size(); ++i)
        left[i] = i;
    for (std::size_t round = 0; !left.empty() && round <= names.size(); ++round) {
        std::vector<PutRequest> again;
        for (const std::size_t i : left)
            again.push_back(requests[i]);
        const Call<PutResult> call = start_put(*store_, std::move(again), options, soon());
        const PutResult result = call.wait();
        call.wait_released();
        std::vector<std::size_t> still;
        for (std::size_t i = 0; i < left.size(); ++i) {
            outcomes[left[i]] = result.blocks[i];
            if (result.blocks[i] == PutOutcome::busy) still.push_back(left[i]);
        }
        left = std::move(still);
    }
    return outcomes;
}

StoreConformance::Read StoreConformance::get(const std::vector<BlockName>& names) {
    const ReadPages pages(names, payload_bytes_);
    const Call<GetResult> call = start_get(*store_, pages.requests(), soon());
    const GetResult result = call.wait();
    call.wait_released();
    Read read{.blocks = result.blocks, .payloads = {}};
    for (const Page& page : pages.pages) {
        EXPECT_TRUE(page.intact()) << "a read wrote behind its destination";
        read.payloads.emplace_back(page.payload().begin(), page.payload().end());
    }
    return read;
}

std::vector<bool> StoreConformance::exists(const std::vector<BlockName>& names) {
    const ExistsAnswer answer = start_exists(*store_, keys_of(names), soon()).wait();
    EXPECT_TRUE(answer.status.ok()) << answer.status.to_string();
    return answer.present;
}

void StoreConformance::expect_writer(const std::vector<BlockName>& names, std::uint64_t writer) {
    const Read read = get(names);
    const std::vector<bool> present = exists(names);
    for (std::size_t i = 0; i < names.size(); ++i) {
        ASSERT_EQ(get_status_name(read.blocks[i]), "hit") << "block " << i;
        EXPECT_EQ(payload_writer(names[i].key, read.payloads[i]), writer) << "block " << i;
        EXPECT_TRUE(present[i]) << "block " << i;
    }
}

void StoreConformance::expect_absent(const std::vector<BlockName>& names) {
    const Read read = get(names);
    const std::vector<bool> present = exists(names);
    for (std::size_t i = 0; i < names.size(); ++i) {
        EXPECT_EQ(get_status_name(read.blocks[i]), "miss") << "block " << i;
        EXPECT_FALSE(present[i]) << "block " << i;
    }
}

std::vector<BlockName> chain_names(std::uint64_t chain, std::uint32_t count, std::uint64_t ns) {
    std::vector<BlockName> names;
    for (std::uint32_t number = 1; number <= count; ++number)
        names.push_back(oracle_name(chain, number, ns));
    return names;
}

std::vector<BlockKey> keys_of(const std::vector<BlockName>& names) {
    std::vector<BlockKey> keys;
    for (const BlockName& name : names)
        keys.push_back(name.key);
    return keys;
}

ReadPages::ReadPages(const std::vector<BlockName>& block_names, std::int64_t payload_bytes)
    : names(block_names) {
    for (std::size_t i = 0; i < names.size(); ++i)
        pages.emplace_back(payload_bytes, i % 2 == 0);
}

std::vector<GetRequest> ReadPages::requests() const {
    std::vector<GetRequest> requests;
    for (std::size_t i = 0; i < names.size(); ++i)
        requests.push_back({.name = names[i], .destination = pages[i].destination()});
    return requests;
}

WritePages::WritePages(const std::vector<BlockName>& block_names, std::uint64_t writer,
                       std::int64_t payload_bytes)
    : names(block_names) {
    for (const BlockName& name : names)
        payloads.push_back(oracle_payload(name.key, writer, payload_bytes));
}

std::vector<PutRequest> WritePages::requests() const {
    std::vector<PutRequest> requests;
    for (std::size_t i = 0; i < names.size(); ++i) {
        PutRequest request{
            .name = names[i], .page = payloads[i].data(), .digest = {}, .has_digest = i % 2 == 0};
        if (request.has_digest)
            request.digest =
                payload_digest(request.page, static_cast<std::int64_t>(payloads[i].size()));
        requests.push_back(request);
    }
    return requests;
}

}  // namespace fathom::testing
