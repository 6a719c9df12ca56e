#include "pool/bench/block_driver.h"

#include <fmt/core.h>

#include <chrono>
#include <cstring>
#include <limits>

#include "base/block_key.h"
#include "base/random.h"

namespace fathom {

namespace {

constexpr std::int64_t kAnswerUs = 120'000'000;
constexpr Deadline kNever{std::numeric_limits<std::int64_t>::max()};

double seconds_now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

}  // namespace

BlockName numbered_block(std::int64_t number) {
    BlockName name;
    Sha256 hash;
    hash.update(fmt::format("block {}", number));
    name.key.bytes = hash.finish();
    name.ordinal = static_cast<std::uint32_t>(number + 1);
    return name;
}

BlockDriver::BlockDriver(BlockStore& store, std::int64_t slot_bytes) : store_(store), ended_(1) {
    const auto bytes = static_cast<std::size_t>(slot_bytes);
    for (int i = 0; i < kDepthMax; ++i) {
        pages_.emplace_back(static_cast<std::uint8_t*>(std::aligned_alloc(4096, bytes)));
        std::memset(pages_.back().get(), i + 1, bytes);
    }
}

Result<double> BlockDriver::gets(const std::vector<BlockName>& names, std::int64_t n, int depth,
                                 std::uint64_t seed) {
    RandomStream random(seed);
    std::vector<std::size_t> order(static_cast<std::size_t>(n));
    for (std::size_t& at : order)
        at = random.next_below(names.size());
    return run(n, depth, [&](std::int64_t i, std::size_t page) {
        const BlockName& name = names[order[static_cast<std::size_t>(i)]];
        (void)store_.get({{.name = name, .destination = {pages_[page].get(), true}}}, kNever,
                         {.done = [this](GetResult r) { bad_ += r.leading_hits == 1 ? 0 : 1; },
                          .released = [this, page] { end_one(page); }});
    });
}

Result<double> BlockDriver::puts(const std::vector<BlockName>& names, std::int64_t first,
                                 std::int64_t n, int depth) {
    return run(n, depth, [&](std::int64_t i, std::size_t page) {
        const BlockName& name = names[static_cast<std::size_t>(first + i)];
        (void)store_.put(
            {{.name = name, .page = pages_[page].get()}}, {}, kNever,
            {.done = [this](PutResult r) { bad_ += r.blocks[0] == PutOutcome::stored ? 0 : 1; },
             .released = [this, page] { end_one(page); }});
    });
}

Result<double> BlockDriver::run(std::int64_t n, int depth, Start start) {
    start_ = std::move(start);
    calls_ = n;
    started_ = ended_calls_ = bad_ = 0;
    const double begin = seconds_now();
    for (int i = 0; i < depth; ++i)
        start_(started_++, static_cast<std::size_t>(i));
    if (!ended_.pop(kAnswerUs))
        return error(StatusCode::deadline_exceeded, "the store does not answer");
    const double seconds = seconds_now() - begin;
    if (bad_ > 0) return error(StatusCode::internal, "{} calls failed", bad_.load());
    return seconds;
}

void BlockDriver::end_one(std::size_t page) {
    if (const std::int64_t next = started_++; next < calls_) start_(next, page);
    if (++ended_calls_ == calls_) (void)ended_.try_push(true);
}

}  // namespace fathom
