#include <numeric>

#include "kernels/scratch.h"
#include "kernels/x86/backend.h"
#include "kernels/x86/support.h"

namespace fathom::x86 {

namespace {

// Writes the min(k, n) chosen of n; choose(memory) is left with 0 < k < n.
template <class Choose>
std::int64_t select(std::int64_t n, std::int64_t k, std::span<std::int32_t> out,
                    const Choose& choose) {
    const std::int64_t count = std::min(k, n);
    if (count <= 0) return 0;
    FATHOM_CHECK(count <= static_cast<std::int64_t>(out.size()) && n <= INT32_MAX);
    if (count == n) {
        std::iota(out.begin(), out.begin() + n, 0);
        return n;
    }
    struct Chosen;
    choose(scratch<Chosen, std::int32_t>(2 * n + 2 * kSelectSpare));
    return count;
}

}  // namespace

void X86Backend::index_scores(const IndexScoreArgs& args) {
    oracle_->index_scores(args);
}

std::int64_t X86Backend::select_top(std::span<const float> scores, std::int64_t k,
                                    std::span<std::int32_t> out) {
    return select(static_cast<std::int64_t>(scores.size()), k, out, [&](std::int32_t* memory) {
        select_.top(scores.data(), static_cast<std::int64_t>(scores.size()), k, memory, out.data());
    });
}

std::int64_t X86Backend::select_blocks(std::span<const float> scores, std::int64_t block_size,
                                       std::int64_t k, std::span<std::int32_t> out) {
    FATHOM_CHECK(block_size > 0);
    const auto n = static_cast<std::int64_t>(scores.size());
    const std::int64_t blocks = (n + block_size - 1) / block_size;
    return select(blocks, k, out, [&](std::int32_t* memory) {
        struct BlockRanks;
        auto* ranks = scratch<BlockRanks, std::int32_t>(blocks);
        select_.block_ranks(scores.data(), n, block_size, ranks);
        ranks[blocks - 1] = INT32_MAX;  // above +inf
        select_.top_ranks(ranks, blocks, k, memory, out.data());
    });
}

}  // namespace fathom::x86
