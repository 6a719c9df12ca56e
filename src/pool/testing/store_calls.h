// Calls of a store that wait, for tests: blocks whose bytes follow from a number, so that any read
// can be judged.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <future>
#include <limits>
#include <memory>
#include <vector>

#include "base/random.h"
#include "pool/block_store.h"

namespace fathom::testing {

inline constexpr Deadline kNever{std::numeric_limits<std::int64_t>::max()};

inline BlockName block_name(std::uint64_t number, std::uint8_t ns = 1) {
    BlockName name;
    Sha256 hash;
    hash.update(std::span(reinterpret_cast<const std::uint8_t*>(&number), sizeof(number)));
    hash.update(std::span(&ns, 1));
    name.key.bytes = hash.finish();
    name.parent.bytes.fill(static_cast<std::uint8_t>(number));
    name.ns.bytes.fill(ns);
    name.token_mac.fill(static_cast<std::uint8_t>(number + 1));
    name.ordinal = static_cast<std::uint32_t>(number + 1);
    return name;
}

// A whole number of pages, so that whatever a store does to the room behind a payload is allowed.
class AlignedPage {
  public:
    explicit AlignedPage(std::int64_t payload_bytes)
        : memory_(static_cast<std::uint8_t*>(std::aligned_alloc(
                      4096, (static_cast<std::size_t>(payload_bytes) + 768 + 4095) / 4096 * 4096)),
                  &std::free) {
        std::memset(memory_.get(), 0xee, static_cast<std::size_t>(payload_bytes));
    }
    std::uint8_t* data() { return memory_.get(); }

  private:
    std::unique_ptr<std::uint8_t, void (*)(void*)> memory_;
};

inline std::vector<std::uint8_t> block_bytes(std::uint64_t number, std::int64_t payload_bytes) {
    std::uint64_t word = RandomStream(number).next_u64();
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(payload_bytes));
    for (std::size_t at = 0; at < bytes.size(); at += 8) {
        word = word * 6'364'136'223'846'793'005U + 1'442'695'040'888'963'407U;
        std::memcpy(bytes.data() + at, &word, std::min<std::size_t>(8, bytes.size() - at));
    }
    return bytes;
}

inline PutResult put_blocks(BlockStore& store, const std::vector<std::uint64_t>& numbers,
                            const PutOptions& options = {}, std::uint8_t ns = 1,
                            Deadline deadline = kNever) {
    std::vector<std::vector<std::uint8_t>> pages;
    std::vector<PutRequest> requests;
    for (const std::uint64_t number : numbers) {
        pages.push_back(block_bytes(number, store.payload_bytes()));
        requests.push_back({.name = block_name(number, ns), .page = pages.back().data()});
    }
    std::promise<PutResult> done;
    std::promise<void> released;
    (void)store.put(std::move(requests), options, deadline,
                    {.done = [&](PutResult result) { done.set_value(std::move(result)); },
                     .released = [&] { released.set_value(); }});
    PutResult result = done.get_future().get();
    released.get_future().wait();
    return result;
}

inline PutOutcome put_block(BlockStore& store, std::uint64_t number, const PutOptions& options = {},
                            std::uint8_t ns = 1) {
    return put_blocks(store, {number}, options, ns).blocks[0];
}

struct GotBlocks {
    GetResult result;
    std::int64_t wrong = 0;  // hits whose bytes are not the block's
};

inline GotBlocks get_blocks(BlockStore& store, const std::vector<std::uint64_t>& numbers,
                            bool whole_slot = true, std::uint8_t ns = 1,
                            Deadline deadline = kNever) {
    std::vector<std::unique_ptr<AlignedPage>> pages;
    std::vector<GetRequest> requests;
    for (const std::uint64_t number : numbers) {
        pages.push_back(std::make_unique<AlignedPage>(store.payload_bytes()));
        requests.push_back(
            {.name = block_name(number, ns), .destination = {pages.back()->data(), whole_slot}});
    }
    std::promise<GetResult> done;
    std::promise<void> released;
    (void)store.get(std::move(requests), deadline,
                    {.done = [&](GetResult result) { done.set_value(std::move(result)); },
                     .released = [&] { released.set_value(); }});
    GotBlocks got;
    got.result = done.get_future().get();
    released.get_future().wait();
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        if (got.result.blocks[i] != GetStatus::hit) continue;
        const std::vector<std::uint8_t> expected = block_bytes(numbers[i], store.payload_bytes());
        if (std::memcmp(pages[i]->data(), expected.data(), expected.size()) != 0) ++got.wrong;
    }
    return got;
}

inline GetStatus get_block(BlockStore& store, std::uint64_t number, std::uint8_t ns = 1) {
    const GotBlocks got = get_blocks(store, {number}, true, ns);
    return got.wrong == 0 ? got.result.blocks[0] : GetStatus::corrupt;
}

inline std::vector<bool> blocks_exist(BlockStore& store, const std::vector<std::uint64_t>& numbers,
                                      std::uint8_t ns = 1) {
    std::vector<BlockKey> keys;
    for (const std::uint64_t number : numbers)
        keys.push_back(block_name(number, ns).key);
    std::promise<std::vector<bool>> done;
    (void)store.exists(std::move(keys), kNever, [&](std::vector<bool> present, const Status&) {
        done.set_value(std::move(present));
    });
    return done.get_future().get();
}

inline Status drop_namespace(BlockStore& store, std::uint8_t ns) {
    std::promise<Status> done;
    (void)store.drop_namespace(block_name(0, ns).ns, kNever,
                               [&](Status status) { done.set_value(std::move(status)); });
    return done.get_future().get();
}

}  // namespace fathom::testing
