#include <bit>
#include <numeric>

#include "kernels/scratch.h"
#include "kernels/x86/backend.h"
#include "kernels/x86/support.h"

namespace fathom::x86 {

namespace {

constexpr std::int64_t kKeysPerPart = 512;

std::int64_t scored_rows(const IndexScoreArgs::Query& query) {
    if (query.blocks.empty()) return query.visible;
    std::int64_t rows = 0;
    for (const std::int32_t b : query.blocks)
        rows += std::clamp<std::int64_t>(query.visible - b * query.block_size, 0, query.block_size);
    return rows;
}

// Scores some keys of one query.
class QueryScorer {
  public:
    QueryScorer(const IndexKernels& kernels, const IndexScoreArgs& args,
                const IndexScoreArgs::Query& query)
        : kernels_(kernels), query_(query), row_(bf16_row(args.q, query.row)) {
        struct Codes;
        struct Numbers;
        struct Memory;
        const std::int64_t heads = args.heads, groups = args.dim / kIndexGroup;
        prepared_.heads = heads;
        prepared_.groups = groups;
        prepared_.codes = scratch<Codes, std::int8_t>(heads * args.dim);
        prepared_.scale = scratch<Numbers>(2 * heads * groups);
        prepared_.start = reinterpret_cast<std::int32_t*>(prepared_.scale + heads * groups);
        prepared_.weights = static_cast<const float*>(args.w.data) + query.row * args.w.stride;
        prepared_.memory = scratch<Memory, std::byte>(kernels.memory_bytes(heads, groups));
        plain_ = kernels.prepare(row_, prepared_);
    }

    void run(std::int64_t begin, std::int64_t end) const {
        const PagedRows& keys = query_.keys;
        const std::int64_t value_bytes = kv_value_bytes(keys.format, keys.dim);
        const std::int64_t scale_bytes = kv_scale_bytes(keys.format, keys.dim);
        std::int64_t page = 0, row = keys.rows_per_page, left = 0;  // left: rows up to a jump
        for (std::int64_t j = begin; j < end; j += kIndexKeys) {
            const std::int64_t count = std::min(kIndexKeys, end - j);
            const std::uint8_t *values[kIndexKeys], *scales[kIndexKeys];
            for (std::int64_t i = 0; i < count; ++i, ++row, --left) {
                if (left == 0 || row == keys.rows_per_page) {
                    const std::int64_t position = position_of(j + i, &left);
                    page = position / keys.rows_per_page;
                    row = position % keys.rows_per_page;
                }
                const std::uint8_t* p = keys.pages[static_cast<std::size_t>(page)];
                values[i] = p + keys.values_offset + row * value_bytes;
                scales[i] = p + keys.scales_offset + row * scale_bytes;
            }
            float scores[kIndexKeys];
            const std::uint32_t odd =
                plain_ ? kernels_.score(prepared_, values, scales, count, scores) : ~0u;
            for (std::int64_t i = 0; i < count; ++i) {
                query_.scores[j + i] =
                    (odd >> i & 1) != 0 ? exact_score(values[i], scales[i]) : scores[i];
            }
        }
    }

  private:
    // The position of number j, and how many numbers from there on have the positions that follow.
    // Only the last block can be cut short by `visible`, so number j lies in block j / block_size.
    std::int64_t position_of(std::int64_t j, std::int64_t* run_length) const {
        if (query_.blocks.empty()) {
            *run_length = query_.visible - j;
            return j;
        }
        const std::int64_t offset = j % query_.block_size;
        *run_length = query_.block_size - offset;
        return query_.blocks[j / query_.block_size] * query_.block_size + offset;
    }

    // 2^(byte − 127), exact also where fp32 would need a denormal.
    static double exact_scale(std::uint8_t byte) {
        return std::bit_cast<double>(static_cast<std::uint64_t>(byte - 127 + 1023) << 52);
    }

    // The contract, group by group, for scales of any size.
    float exact_score(const std::uint8_t* values, const std::uint8_t* scales) const {
        float score = 0;
        for (std::int64_t h = 0; h < prepared_.heads; ++h) {
            float dot = 0;
            for (std::int64_t g = 0; g < prepared_.groups; ++g) {
                float x[kIndexGroup];
                std::uint8_t codes[kIndexGroup / 2], scale;
                for (std::int64_t k = 0; k < kIndexGroup; ++k)
                    x[k] = bf16_to_float(Bf16{row_[(h * prepared_.groups + g) * kIndexGroup + k]});
                quantise_index(x, codes, {&scale, 1});
                double sum = 0;
                for (std::int64_t k = 0; k < kIndexGroup; ++k) {
                    const int shift = k % 2 * 4;
                    sum += static_cast<double>(e2m1_to_float(codes[k / 2] >> shift & 15)) *
                           static_cast<double>(
                               e2m1_to_float(values[g * kIndexGroup / 2 + k / 2] >> shift & 15));
                }
                dot += static_cast<float>(sum * (exact_scale(scale) * exact_scale(scales[g])));
            }
            score += prepared_.weights[h] * (dot > 0 ? dot : 0.0f);
        }
        return score;
    }

    const IndexKernels& kernels_;
    const IndexScoreArgs::Query& query_;
    const std::uint16_t* row_;
    IndexQuery prepared_;
    bool plain_ = false;
};

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
    const auto n = static_cast<std::int64_t>(args.queries.size());
    const auto packed = [](const IndexScoreArgs::Query& q) {
        return q.keys.format == KvFormat::index_fp4;
    };
    if (args.q.dtype == DType::f32 ||
        !std::all_of(args.queries.begin(), args.queries.end(), packed))
        return oracle_->index_scores(args);
    FATHOM_CHECK(args.q.cols == args.heads * args.dim && args.w.rows == args.q.rows);
    FATHOM_CHECK(args.w.cols == args.heads && args.w.dtype == DType::f32);
    FATHOM_CHECK(args.dim % kIndexGroup == 0);
    struct Starts;
    // Part t of query i: starts[i] <= t < starts[i + 1].
    auto* starts = scratch<Starts, std::int64_t>(n + 1);
    starts[0] = 0;
    for (std::int64_t i = 0; i < n; ++i) {
        const std::int64_t rows = scored_rows(args.queries[i]);
        FATHOM_CHECK(args.queries[i].row >= 0 && args.queries[i].row < args.q.rows);
        FATHOM_CHECK(static_cast<std::int64_t>(args.queries[i].scores.size()) == rows);
        starts[i + 1] = starts[i] + (rows + kKeysPerPart - 1) / kKeysPerPart;
    }
    constexpr double kUsPerProduct = 2e-6;
    for_rows(*pool_, starts[n],
             static_cast<double>(kKeysPerPart * args.heads * args.dim) * kUsPerProduct,
             [&](std::int64_t begin, std::int64_t end) {
                 std::int64_t i = std::upper_bound(starts, starts + n, begin) - starts - 1;
                 for (; begin < end; ++i) {
                     const std::int64_t stop = std::min(end, starts[i + 1]);
                     if (stop == begin) continue;
                     const auto rows = static_cast<std::int64_t>(args.queries[i].scores.size());
                     QueryScorer(index_, args, args.queries[i])
                         .run((begin - starts[i]) * kKeysPerPart,
                              std::min(rows, (stop - starts[i]) * kKeysPerPart));
                     begin = stop;
                 }
             });
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
