#include "kernels/functions.h"
#include "kernels/reference/backend.h"
#include "kernels/reference/select.h"
#include "kernels/reference/support.h"
#include "kernels/reference/weights.h"

namespace fathom::reference {

namespace {

// Inner columns of one task: one Q8 group, two panels.
constexpr std::int64_t kInnerColumns = 32;

struct Inner {  // what the inner vector of an expert goes through
    float limit = 0;
    DType act = DType::bf16;
    bool q8 = true;
};

float inner_value(float g, float u, const Inner& inner) {
    g = round_to(inner.act, g);
    u = round_to(inner.act, u);
    if (inner.limit > 0) {
        g = g > inner.limit ? inner.limit : g;
        u = u > inner.limit ? inner.limit : u < -inner.limit ? -inner.limit : u;
    }
    return functions::silu(g) * u;
}

// Columns [first, first + count) of inner(x) for n rows, to t[i·stride + column − first].
// weights[i], when given, multiplies row i.
void inner_columns(const ReferenceGateUp& w, std::int64_t first, std::int64_t count,
                   const float* const* x, const float* weights, std::int64_t n, const Inner& inner,
                   float* t, std::int64_t stride) {
    struct Gate;
    struct Up;
    float* g = scratch<Gate>(n * kLanes);
    float* u = scratch<Up>(n * kLanes);
    for (std::int64_t c = first; c < first + count; c += kLanes) {
        const std::int64_t lanes = std::min(kLanes, first + count - c);
        panel_product(w.gate, c, lanes, x, n, g);
        panel_product(w.up, c, lanes, x, n, u);
        for (std::int64_t i = 0; i < n; ++i) {
            for (std::int64_t j = 0; j < lanes; ++j) {
                float value = inner_value(g[i * kLanes + j], u[i * kLanes + j], inner);
                if (weights != nullptr) value *= weights[i];
                t[i * stride + c - first + j] = round_to(inner.act, value);
            }
        }
    }
    if (!inner.q8) return;
    std::uint8_t codes[kInnerColumns];
    std::uint8_t scale[1];
    for (std::int64_t i = 0; i < n; ++i) {
        const std::span<float> group(t + i * stride, kInnerColumns);
        quantise_q8(group, codes, scale);
        dequantise_q8(codes, scale, group);
    }
}

// The rows of one expert: `inputs` and `weights` of its rows, and where its inner rows begin.
struct ExpertRows {
    const PackedExpert* expert = nullptr;
    std::int64_t begin = 0;  // into the lists of MoeRows
    std::int64_t count = 0;
    std::int64_t t_offset = 0;  // floats from the start of the inner rows
    std::int64_t stride = 0;    // padded inner width
};

// All work of a moe() call, expert by expert in the order of the sum.
struct MoeRows {
    std::vector<ExpertRows> experts;
    std::vector<std::int64_t> row;  // token of each (expert, row)
    std::vector<const float*> x;    // its input
    std::vector<float> weight;      // its routing weight
    std::int64_t t_size = 0;

    void add(const PackedExpert& expert, std::int64_t begin) {
        const auto count = static_cast<std::int64_t>(row.size()) - begin;
        const std::int64_t stride = round_up(expert.gate_up->inter, kGroup);
        experts.push_back({&expert, begin, count, t_size, stride});
        t_size += count * stride;
    }
};

MoeRows group_rows(const MoeArgs& args) {
    const std::int64_t n = args.x_q8.rows;
    const float* const* x = padded_rows(args.x_q8, 1, args.x_q8.cols);
    MoeRows rows;
    std::vector<std::vector<std::int64_t>> slots(args.routed.size());
    for (std::int64_t s = 0; s < n * args.top_k; ++s) {
        const std::int32_t e = args.experts[s];
        FATHOM_CHECK(e >= 0 && static_cast<std::size_t>(e) < args.routed.size());
        FATHOM_CHECK(s % args.top_k == 0 || args.experts[s - 1] < e, "experts must ascend");
        slots[e].push_back(s);
    }
    for (std::size_t e = 0; e < slots.size(); ++e) {
        if (slots[e].empty()) continue;
        const auto begin = static_cast<std::int64_t>(rows.row.size());
        for (const std::int64_t s : slots[e]) {
            rows.row.push_back(s / args.top_k);
            rows.x.push_back(x[s / args.top_k]);
            rows.weight.push_back(args.weights[s]);
        }
        rows.add(args.routed[e], begin);
    }
    if (args.shared != nullptr) {
        const auto begin = static_cast<std::int64_t>(rows.row.size());
        for (std::int64_t i = 0; i < n; ++i) {
            rows.row.push_back(i);
            rows.x.push_back(x[i]);
            rows.weight.push_back(1.0f);
        }
        rows.add(*args.shared, begin);
    }
    return rows;
}

// Inner rows of all experts, tasks of 32 columns.
void run_inner(ComputePool& pool, const MoeRows& rows, const MoeArgs& args, const Inner& inner,
               float* t) {
    std::vector<std::int64_t> starts{0};
    std::int64_t work = 0;
    for (const ExpertRows& e : rows.experts) {
        starts.push_back(starts.back() + e.stride / kInnerColumns);
        work += (e.count + kLanes) * e.stride * e.expert->gate_up->in;
    }
    const std::int64_t tasks = starts.back();
    if (tasks == 0) return;
    for_ranges(pool, tasks, 2 * work / tasks, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t task = begin; task < end; ++task) {
            const auto e = static_cast<std::size_t>(
                std::upper_bound(starts.begin(), starts.end(), task) - starts.begin() - 1);
            const ExpertRows& expert = rows.experts[e];
            const ReferenceGateUp& w = reference_of(*expert.expert->gate_up);
            const std::int64_t first = (task - starts[e]) * kInnerColumns;
            const bool weighted = expert.expert != args.shared;
            inner_columns(w, first, std::min(kInnerColumns, w.inter - first),
                          rows.x.data() + expert.begin,
                          weighted ? rows.weight.data() + expert.begin : nullptr, expert.count,
                          inner, t + expert.t_offset + first, expert.stride);
        }
    });
}

// y columns [first, first + count): every expert's output → act, added in expert order.
void sum_columns(const MoeRows& rows, const float* const* t, std::int64_t first, std::int64_t count,
                 const Rows& y) {
    struct Total;
    struct Output;
    float* total = scratch<Total>(y.rows * kLanes);
    std::fill_n(total, y.rows * kLanes, 0.0f);
    for (const ExpertRows& e : rows.experts) {
        float* out = scratch<Output>(e.count * kLanes);
        panel_product(source_of(*e.expert->down), first, count, t + e.begin, e.count, out);
        for (std::int64_t i = 0; i < e.count; ++i) {
            float* sum = total + rows.row[e.begin + i] * kLanes;
            for (int j = 0; j < kLanes; ++j)
                sum[j] += round_to(y.dtype, out[i * kLanes + j]);
        }
    }
    for (std::int64_t i = 0; i < y.rows; ++i)
        write_row(y, i, first, count, total + i * kLanes);
}

}  // namespace

void ReferenceBackend::route(const RouterArgs& args) {
    const std::int64_t n = args.x.rows, experts = args.gate->out, k = args.top_k;
    FATHOM_CHECK(k > 0 && k <= experts);
    FATHOM_CHECK(static_cast<std::int64_t>(args.bias.size()) == experts);
    FATHOM_CHECK(static_cast<std::int64_t>(args.experts.size()) == n * k &&
                 args.weights.size() == args.experts.size());
    FATHOM_CHECK(args.in_image.empty() || (static_cast<std::int64_t>(args.in_image.size()) == n &&
                                           args.bias_vl.size() == args.bias.size()));
    struct Logits;
    float* logits = scratch<Logits>(n * experts);
    linear(args.x, *args.gate, {logits, DType::f32, n, experts, experts});
    for_ranges(pool(), n, experts * 60, [&](std::int64_t begin, std::int64_t end) {
        struct Ranks;
        auto* ranks = scratch<Ranks, std::uint32_t>(experts);
        for (std::int64_t i = begin; i < end; ++i) {
            float* a = logits + i * experts;
            const bool image = !args.in_image.empty() && args.in_image[i] != 0;
            const float* bias = image ? args.bias_vl.data() : args.bias.data();
            for (std::int64_t e = 0; e < experts; ++e) {
                a[e] = std::sqrt(functions::softplus(a[e] / args.gate_temp));
                ranks[e] = score_rank(a[e] + bias[e]);
            }
            const auto chosen = args.experts.subspan(i * k, k);
            take_best({ranks, static_cast<std::size_t>(experts)}, k, chosen);
            float sum = 0;
            for (const std::int32_t e : chosen)
                sum += a[e];
            for (std::int64_t j = 0; j < k; ++j) {
                const float weight = a[chosen[j]];
                args.weights[i * k + j] =
                    (k == 1 ? weight : weight / (sum + 1e-20f)) * args.route_scale;
            }
        }
    });
}

void ReferenceBackend::gate_up(ConstRows x, const PackedGateUp& w, std::span<const float> weights,
                               float limit, NumericMode mode, Rows t) {
    const std::int64_t n = x.rows;
    FATHOM_CHECK(x.cols == w.in && t.rows == n && t.cols == w.inter);
    FATHOM_CHECK(weights.empty() || static_cast<std::int64_t>(weights.size()) == n);
    const Inner inner{.limit = limit, .act = t.dtype, .q8 = mode == NumericMode::real};
    FATHOM_CHECK(!inner.q8 || w.inter % kInnerColumns == 0);
    const float* const* rows = padded_rows(x, 1, w.in);
    const std::int64_t stride = round_up(w.inter, kInnerColumns);
    for_ranges(pool(), stride / kInnerColumns, 2 * (n + kLanes) * w.in * kInnerColumns,
               [&](std::int64_t begin, std::int64_t end) {
                   struct Columns;
                   float* values = scratch<Columns>(n * kInnerColumns);
                   for (std::int64_t task = begin; task < end; ++task) {
                       const std::int64_t first = task * kInnerColumns;
                       const std::int64_t count = std::min(kInnerColumns, w.inter - first);
                       inner_columns(reference_of(w), first, count, rows,
                                     weights.empty() ? nullptr : weights.data(), n, inner, values,
                                     kInnerColumns);
                       for (std::int64_t i = 0; i < n; ++i) {
                           write_row(t, i, first, count, values + i * kInnerColumns);
                       }
                   }
               });
}

void ReferenceBackend::moe(const MoeArgs& args) {
    const std::int64_t n = args.x_q8.rows;
    FATHOM_CHECK(args.y.rows == n && args.y.cols == args.x_q8.cols && args.numerics != nullptr);
    FATHOM_CHECK(static_cast<std::int64_t>(args.experts.size()) == n * args.top_k &&
                 args.weights.size() == args.experts.size());
    const Inner inner{.limit = args.swiglu_limit,
                      .act = args.y.dtype,
                      .q8 = args.numerics->mode == NumericMode::real};
    const MoeRows rows = group_rows(args);
    struct InnerRows;
    float* t = scratch<InnerRows>(rows.t_size);
    std::int64_t down_work = 0;
    std::vector<const float*> inputs(rows.row.size());
    for (const ExpertRows& e : rows.experts) {
        const std::int64_t inter = e.expert->gate_up->inter;
        FATHOM_CHECK(e.expert->gate_up->in == args.y.cols && e.expert->down->in == inter &&
                     e.expert->down->out == args.y.cols);
        FATHOM_CHECK(!inner.q8 || inter == e.stride);
        for (std::int64_t i = 0; i < e.count; ++i) {
            float* row = t + e.t_offset + i * e.stride;
            std::fill(row + inter, row + e.stride, 0.0f);
            inputs[e.begin + i] = row;
        }
        down_work += (e.count + kLanes) * inter * kLanes;
    }
    run_inner(pool(), rows, args, inner, t);
    const std::int64_t panels = (args.y.cols + kLanes - 1) / kLanes;
    for_ranges(pool(), panels, down_work, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t p = begin; p < end; ++p) {
            sum_columns(rows, inputs.data(), p * kLanes, std::min(kLanes, args.y.cols - p * kLanes),
                        args.y);
        }
    });
}

}  // namespace fathom::reference
