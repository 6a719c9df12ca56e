#include <bit>

#include "kernels/reference/backend.h"
#include "kernels/reference/kv_rows.h"
#include "kernels/reference/lanes.h"
#include "kernels/reference/select.h"
#include "kernels/reference/support.h"

namespace fathom::reference {

namespace {

constexpr std::int64_t kKeysPerTask = 128;

// 2^(byte − 127), exact also where fp32 would need a denormal.
double exact_scale(std::uint8_t byte) {
    return std::bit_cast<double>(static_cast<std::uint64_t>(byte - 127 + 1023) << 52);
}

// A row that went through the index round trip, taken apart into code values (multiples of 0.5 up
// to 6) and scales. Quantising such a row again gives the same numbers.
struct CodedRow {
    float* values;
    double* scales;
};

void decode(std::span<const std::uint8_t> packed, std::span<const std::uint8_t> scales,
            const CodedRow& out) {
    for (std::size_t b = 0; b < packed.size(); ++b) {
        out.values[2 * b] = e2m1_to_float(packed[b] & 15);
        out.values[2 * b + 1] = e2m1_to_float(packed[b] >> 4);
    }
    for (std::size_t g = 0; g < scales.size(); ++g)
        out.scales[g] = exact_scale(scales[g]);
}

void decode_numbers(std::span<const float> x, const CodedRow& out) {
    struct Packed;
    const std::size_t n = x.size();
    auto* packed = scratch<Packed, std::uint8_t>(static_cast<std::int64_t>(n));
    const std::span<std::uint8_t> codes(packed, n / 2);
    const std::span<std::uint8_t> scales(packed + n / 2, n / kIndexGroup);
    quantise_index(x, codes, scales);
    decode(codes, scales, out);
}

// The queries of one row, transposed: panel p holds heads 16p..16p+15 as [dim][16]; scales
// [groups][padded heads]. Heads beyond the last are zero.
struct QueryPanels {
    const float* values;
    const double* scales;  // null in the fp32 form
    std::int64_t padded_heads;
};

QueryPanels make_query(const IndexScoreArgs& args, std::int64_t i, bool coded) {
    struct Row;
    struct Scales;
    struct Panels;
    struct PanelScales;
    const std::int64_t dim = args.dim, groups = dim / kIndexGroup;
    const std::int64_t padded = round_up(args.heads, kLanes);
    float* row = scratch<Row>(dim);
    double* scales = scratch<Scales, double>(groups);
    float* panels = scratch<Panels>(padded * dim);
    double* panel_scales = scratch<PanelScales, double>(padded * groups);
    std::fill_n(panels, padded * dim, 0.0f);
    std::fill_n(panel_scales, padded * groups, 0.0);
    for (std::int64_t h = 0; h < args.heads; ++h) {
        read_row(args.q, i, h * dim, dim, row);
        if (coded) {
            decode_numbers({row, static_cast<std::size_t>(dim)}, {row, scales});
            for (std::int64_t g = 0; g < groups; ++g)
                panel_scales[g * padded + h] = scales[g];
        }
        float* panel = panels + h / kLanes * dim * kLanes + h % kLanes;
        for (std::int64_t k = 0; k < dim; ++k)
            panel[k * kLanes] = row[k];
    }
    return {panels, coded ? panel_scales : nullptr, padded};
}

// dots[r][h] of R keys with all heads: group sums, in the coded form times both scales (exact in
// double, rounded once), added in K order.
template <int R>
void head_products(const QueryPanels& q, const CodedRow (&keys)[R], std::int64_t dim, float* dots) {
    const std::int64_t groups = dim / kIndexGroup;
    for (std::int64_t p = 0; p < q.padded_heads / kLanes; ++p) {
        float dot[R][kLanes] = {};
        for (std::int64_t g = 0; g < groups; ++g) {
            const float* rows[R];
            for (int r = 0; r < R; ++r)
                rows[r] = keys[r].values + g * kIndexGroup;
            float sum[R][kLanes] = {};
            pair_chain<R>(rows, q.values + (p * dim + g * kIndexGroup) * kLanes, kLanes,
                          kIndexGroup / 2, sum);
            for (int r = 0; r < R; ++r) {
                for (int j = 0; j < kLanes; ++j) {
                    if (q.scales != nullptr) {
                        const double scale =
                            q.scales[g * q.padded_heads + p * kLanes + j] * keys[r].scales[g];
                        sum[r][j] = static_cast<float>(static_cast<double>(sum[r][j]) * scale);
                    }
                    dot[r][j] += sum[r][j];
                }
            }
        }
        for (int r = 0; r < R; ++r) {
            std::copy_n(dot[r], kLanes, dots + r * q.padded_heads + p * kLanes);
        }
    }
}

std::int64_t scored_rows(const IndexScoreArgs::Query& query) {
    if (query.blocks.empty()) return query.visible;
    std::int64_t rows = 0;
    for (const std::int32_t b : query.blocks) {
        rows += std::clamp<std::int64_t>(query.visible - b * query.block_size, 0, query.block_size);
    }
    return rows;
}

// Only the last block can be cut short by `visible`, so number j lies in block j / block_size.
std::int64_t position_of(const IndexScoreArgs::Query& query, std::int64_t j) {
    if (query.blocks.empty()) return j;
    return query.blocks[j / query.block_size] * query.block_size + j % query.block_size;
}

void score_range(const IndexScoreArgs& args, std::int64_t i, std::int64_t begin, std::int64_t end) {
    const IndexScoreArgs::Query& query = args.queries[i];
    const std::int64_t dim = args.dim, groups = dim / kIndexGroup;
    const KvFormat format = query.keys.format;
    const bool coded = format != KvFormat::f32;
    const QueryPanels q = make_query(args, query.row, coded);
    struct Keys;
    struct KeyScales;
    struct Dots;
    struct HeadWeights;
    float* values = scratch<Keys>(4 * dim);
    double* scales = scratch<KeyScales, double>(4 * groups);
    float* dots = scratch<Dots>(4 * q.padded_heads);
    float* weights = scratch<HeadWeights>(args.heads);
    read_row(args.w, query.row, weights);
    in_fours(end - begin, [&]<int R>(std::int64_t offset) {
        CodedRow keys[R];
        for (int r = 0; r < R; ++r) {
            keys[r] = {values + r * dim, scales + r * groups};
            const KvRow row = query.keys.row(position_of(query, begin + offset + r));
            if (format == KvFormat::index_fp4) {
                decode({row.values, static_cast<std::size_t>(dim / 2)},
                       {row.scales, static_cast<std::size_t>(groups)}, keys[r]);
                continue;
            }
            load_kv_row(format, dim, {row.values, row.scales}, keys[r].values);
            if (coded) {
                decode_numbers({keys[r].values, static_cast<std::size_t>(dim)}, keys[r]);
            }
        }
        head_products<R>(q, keys, dim, dots);
        for (int r = 0; r < R; ++r) {
            const float* d = dots + r * q.padded_heads;
            float score = 0;
            for (std::int64_t h = 0; h < args.heads; ++h) {
                score += weights[h] * (d[h] > 0 ? d[h] : 0.0f);
            }
            query.scores[begin + offset + r] = score;
        }
    });
}

}  // namespace

std::int64_t take_best(std::span<const std::uint32_t> ranks, std::int64_t k,
                       std::span<std::int32_t> out) {
    const auto n = static_cast<std::int64_t>(ranks.size());
    const std::int64_t count = std::min(k, n);
    if (count <= 0) return 0;
    FATHOM_CHECK(count <= static_cast<std::int64_t>(out.size()) && n <= INT32_MAX);
    if (count == n) {
        for (std::int64_t i = 0; i < n; ++i)
            out[i] = static_cast<std::int32_t>(i);
        return n;
    }
    struct Keys;
    // Rank above, complemented index below: keys are distinct and larger is better.
    auto* keys = scratch<Keys, std::uint64_t>(n);
    for (std::int64_t i = 0; i < n; ++i) {
        keys[i] = static_cast<std::uint64_t>(ranks[i]) << 32 | (0xffffffffu - i);
    }
    std::nth_element(keys, keys + count - 1, keys + n, std::greater<>());
    for (std::int64_t i = 0; i < count; ++i) {
        out[i] = static_cast<std::int32_t>(0xffffffffu - (keys[i] & 0xffffffffu));
    }
    std::sort(out.begin(), out.begin() + count);
    return count;
}

void ReferenceBackend::index_scores(const IndexScoreArgs& args) {
    const auto n = static_cast<std::int64_t>(args.queries.size());
    FATHOM_CHECK(args.q.cols == args.heads * args.dim && args.w.rows == args.q.rows);
    FATHOM_CHECK(args.w.cols == args.heads && args.w.dtype == DType::f32);
    FATHOM_CHECK(args.dim % kIndexGroup == 0);
    struct Starts;
    // Task t of query i: starts[i] <= t < starts[i + 1].
    auto* starts = scratch<Starts, std::int64_t>(n + 1);
    starts[0] = 0;
    for (std::int64_t i = 0; i < n; ++i) {
        const std::int64_t rows = scored_rows(args.queries[i]);
        FATHOM_CHECK(args.queries[i].row >= 0 && args.queries[i].row < args.q.rows);
        FATHOM_CHECK(static_cast<std::int64_t>(args.queries[i].scores.size()) == rows);
        starts[i + 1] = starts[i] + (rows + kKeysPerTask - 1) / kKeysPerTask;
    }
    for_ranges(pool(), starts[n], kKeysPerTask * args.heads * args.dim / kLanes,
               [&](std::int64_t begin, std::int64_t end) {
                   std::int64_t i = std::upper_bound(starts, starts + n, begin) - starts - 1;
                   while (begin < end) {
                       const std::int64_t stop = std::min(end, starts[i + 1]);
                       const auto rows = static_cast<std::int64_t>(args.queries[i].scores.size());
                       if (stop > begin) {
                           score_range(args, i, (begin - starts[i]) * kKeysPerTask,
                                       std::min(rows, (stop - starts[i]) * kKeysPerTask));
                       }
                       begin = stop;
                       ++i;
                   }
               });
}

std::int64_t ReferenceBackend::select_top(std::span<const float> scores, std::int64_t k,
                                          std::span<std::int32_t> out) {
    struct Ranks;
    const auto n = static_cast<std::int64_t>(scores.size());
    auto* ranks = scratch<Ranks, std::uint32_t>(n);
    for (std::int64_t i = 0; i < n; ++i)
        ranks[i] = score_rank(scores[i]);
    return take_best({ranks, scores.size()}, k, out);
}

std::int64_t ReferenceBackend::select_blocks(std::span<const float> scores, std::int64_t block_size,
                                             std::int64_t k, std::span<std::int32_t> out) {
    FATHOM_CHECK(block_size > 0);
    struct Ranks;
    const auto n = static_cast<std::int64_t>(scores.size());
    const std::int64_t blocks = (n + block_size - 1) / block_size;
    auto* ranks = scratch<Ranks, std::uint32_t>(blocks);
    for (std::int64_t b = 0; b < blocks; ++b) {
        std::uint32_t best = 0;
        const std::int64_t end = std::min(n, (b + 1) * block_size);
        for (std::int64_t i = b * block_size; i < end; ++i) {
            best = std::max(best, score_rank(scores[i]));
        }
        ranks[b] = best;
    }
    if (blocks > 0) ranks[blocks - 1] = UINT32_MAX;  // above +inf, whose rank is 0xff800000
    return take_best({ranks, static_cast<std::size_t>(blocks)}, k, out);
}

}  // namespace fathom::reference
