#include "bench/pool_ec.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <limits>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "base/queue.h"
#include "base/random.h"
#include "pool/ec_code.h"
#include "pool/ec_store.h"
#include "pool/slot_buffers.h"

namespace fathom::bench {

namespace {

constexpr std::int64_t kPayload = 113'920, kSlot = 114'688;
constexpr std::int64_t kBlocks = 1'200, kBatch = 8;
constexpr int kRounds = 15, kGroups = 24;  // of stripes of blocks: more than caches hold
constexpr std::int64_t kAnswerUs = 120'000'000;
constexpr Deadline kNever{std::numeric_limits<std::int64_t>::max()};

double seconds_now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

// Blocks of many stripes, one after the other, so that none is in a cache when it is needed.
class Blocks {
  public:
    explicit Blocks(EcShape shape)
        : shape_(shape), memory_(aligned_bytes(kSlot * shape.shards() * kGroups)) {
        RandomStream random(1);
        for (std::int64_t at = 0; at < kSlot * shape.shards() * kGroups; at += 8) {
            const std::uint64_t word = random.next_u64();
            std::memcpy(memory_.get() + at, &word, 8);
        }
    }
    std::uint8_t* at(int group, int shard) const {
        return memory_.get() + (std::int64_t{group} * shape_.shards() + shard) * kSlot;
    }

  private:
    EcShape shape_;
    std::shared_ptr<std::uint8_t> memory_;
};

template <typename Work>
double us_per_block(std::int64_t blocks_of_group, const Work& work) {
    std::vector<double> rounds;
    for (int round = 0; round < kRounds; ++round) {
        const double begin = seconds_now();
        for (int group = 0; group < kGroups; ++group)
            work(group);
        rounds.push_back((seconds_now() - begin) * 1e6 /
                         static_cast<double>(blocks_of_group * kGroups));
    }
    return median(rounds);
}

void add_shape(Report& report, EcShape shape, const std::string& name, bool rebuild) {
    const Blocks blocks(shape);
    const EcCode code(shape);
    const auto copies = aligned_bytes(kSlot * shape.k);
    const double copy_us = us_per_block(shape.k, [&](int group) {
        for (int i = 0; i < shape.k; ++i)
            std::memcpy(copies.get() + i * kSlot, blocks.at(group, i), kSlot);
    });
    const auto pointers = [&](int group) {
        std::vector<const std::uint8_t*> data;
        for (int i = 0; i < shape.k; ++i)
            data.push_back(blocks.at(group, i));
        return data;
    };
    const double encode_us = us_per_block(shape.k, [&](int group) {
        std::vector<std::uint8_t*> parity;
        for (int i = shape.k; i < shape.shards(); ++i)
            parity.push_back(blocks.at(group, i));
        code.encode(pointers(group), parity, kSlot);
    });
    report.add("ec.encode_" + name + "_us", encode_us, "us", copy_us);
    if (!rebuild) return;
    // Shards 0 and 1 are lost; the parity stands in for them.
    const double rebuild_us = us_per_block(shape.k, [&](int group) {
        std::vector<int> sources;
        std::vector<const std::uint8_t*> from;
        for (int i = 2; i < shape.shards(); ++i) {
            sources.push_back(i);
            from.push_back(blocks.at(group, i));
        }
        code.rebuild(0, sources, from, copies.get(), kSlot);
    });
    report.add("ec.rebuild_" + name + "_us", rebuild_us, "us", copy_us);
}

BlockName name_of(std::int64_t number) {
    BlockName name;
    Sha256 hash;
    hash.update(fmt::format("ec block {}", number));
    name.key.bytes = hash.finish();
    name.ordinal = static_cast<std::uint32_t>(number + 1);
    return name;
}

Status put_all(EcStore& store, std::uint8_t* page) {
    std::vector<PutRequest> requests;
    for (std::int64_t i = 0; i < kBlocks; ++i)
        requests.push_back({.name = name_of(i), .page = page});
    BoundedQueue<PutResult> answer(1);
    BoundedQueue<bool> released(1);
    (void)store.put(std::move(requests), {}, kNever,
                    {.done = [&](PutResult result) { (void)answer.try_push(std::move(result)); },
                     .released = [&] { (void)released.try_push(true); }});
    const auto result = answer.pop(kAnswerUs);
    if (!result || !released.pop(kAnswerUs))
        return error(StatusCode::deadline_exceeded, "the store does not answer");
    return result->status;
}

// Blocks a second of those in `numbers`.
Result<double> get_all(EcStore& store, const std::vector<std::int64_t>& numbers,
                       std::uint8_t* pages) {
    const double begin = seconds_now();
    for (std::size_t at = 0; at < numbers.size(); at += kBatch) {
        const std::size_t end = std::min(numbers.size(), at + kBatch);
        std::vector<GetRequest> requests;
        for (std::size_t i = at; i < end; ++i) {
            requests.push_back(
                {.name = name_of(numbers[i]),
                 .destination = {pages + static_cast<std::int64_t>(i - at) * kSlot, true}});
        }
        BoundedQueue<std::size_t> answer(1);
        BoundedQueue<bool> released(1);
        (void)store.get(
            std::move(requests), kNever,
            {.done = [&](GetResult r) { (void)answer.try_push(std::move(r.leading_hits)); },
             .released = [&] { (void)released.try_push(true); }});
        const auto hits = answer.pop(kAnswerUs);
        if (!released.pop(kAnswerUs) || !hits)
            return error(StatusCode::deadline_exceeded, "the store does not answer");
        if (*hits != end - at) return error(StatusCode::internal, "a block is not there");
    }
    return static_cast<double>(numbers.size()) / (seconds_now() - begin);
}

}  // namespace

void add_code_rows(Report& report) {
    add_shape(report, {4, 2}, "4p2", false);
    add_shape(report, {10, 2}, "10p2", true);
}

namespace {

Status bench_degraded(Report& report, const std::string& folder) {
    const auto pages = aligned_bytes(kSlot * kBatch);
    const auto open = [&] {
        EcOptions options;
        for (int i = 0; i < 6; ++i)
            options.directories.push_back(fmt::format("{}/d{}", folder, i));
        options.shape = {4, 2};
        options.payload_bytes = kPayload;
        options.capacity_bytes = std::int64_t{1} << 36;
        options.work_bytes_per_s = 0;
        return EcStore::open(std::move(options));
    };
    std::vector<std::int64_t> all, lost;
    double healthy = 0;
    {
        FATHOM_ASSIGN(const auto store, open());
        FATHOM_RETURN_IF_ERROR(put_all(*store, pages.get()));
        store->close(kNever);
    }
    for (std::int64_t i = 0; i < kBlocks; ++i)
        all.push_back(i);
    {
        FATHOM_ASSIGN(const auto store, open());
        FATHOM_ASSIGN(healthy, get_all(*store, all, pages.get()));
        store->close(kNever);
    }
    std::filesystem::remove_all(folder + "/d0");
    FATHOM_ASSIGN(const auto store, open());
    for (const std::int64_t number : all) {  // which of them were there
        const std::int64_t before = store->degraded_reads();
        FATHOM_RETURN_IF_ERROR(get_all(*store, {number}, pages.get()).status());
        if (store->degraded_reads() > before) lost.push_back(number);
    }
    FATHOM_ASSIGN(const double degraded, get_all(*store, lost, pages.get()));
    store->close(kNever);
    report.add("ec.get", healthy, "blocks/s");
    report.add("ec.get_degraded", degraded, "blocks/s", healthy);
    return {};
}

}  // namespace

Status add_degraded_rows(Report& report, const std::string& directory) {
    std::string folder = directory + "/fathom_ec_bench_XXXXXX";
    if (::mkdtemp(folder.data()) == nullptr)
        return invalid_argument("--dir {}: nothing can be made there", directory);
    const Status status = bench_degraded(report, folder);
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
    return status;
}

}  // namespace fathom::bench
