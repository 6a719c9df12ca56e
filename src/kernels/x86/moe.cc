#include <algorithm>

#include "kernels/reference/select.h"
#include "kernels/x86/backend.h"
#include "kernels/x86/panels.h"

namespace fathom::x86 {

namespace {

constexpr std::int64_t kInnerColumns = kPanelRows / 2;  // of a gate/up panel: one Q8 group
// Up to so many rows a thread keeps the sums of an output panel and walks the experts; beyond,
// reading every expert's inner rows for every panel would cost more than parts in memory.
constexpr std::int64_t kWalkRows = 16;
constexpr std::int64_t kPartsBytes = std::int64_t{32} << 20;  // of the parts of some columns

// The oracle's side of packed experts, for its moe(): borrowed, given back when done.
class OracleExperts {
  public:
    explicit OracleExperts(std::span<const PackedExpert> experts) {
        for (const PackedExpert& e : experts) {
            auto* gate_up = static_cast<const X86GateUp&>(*e.gate_up).oracle.get();
            auto* down = static_cast<const X86Weight&>(*e.down).oracle.get();
            FATHOM_CHECK(gate_up != nullptr && down != nullptr,
                         "weights without their source take bf16 inputs");
            experts_.push_back(
                {std::unique_ptr<PackedGateUp>(gate_up), std::unique_ptr<PackedWeight>(down)});
        }
    }
    ~OracleExperts() {
        for (PackedExpert& e : experts_) {
            (void)e.gate_up.release();
            (void)e.down.release();
        }
    }
    OracleExperts(const OracleExperts&) = delete;
    OracleExperts& operator=(const OracleExperts&) = delete;

    std::span<const PackedExpert> experts() const { return experts_; }

  private:
    std::vector<PackedExpert> experts_;
};

// Best k of n scores by `rank`, ties to the lower index, ascending.
void take_best(const float* scores, std::int64_t n, std::int64_t k, std::int32_t* best) {
    struct Kept;
    auto* kept = scratch<Kept, std::uint32_t>(k);  // ranks, highest first
    std::int64_t count = 0;
    for (std::int64_t e = 0; e < n; ++e) {
        const std::uint32_t rank = reference::score_rank(scores[e]);
        if (count == k && rank <= kept[k - 1]) continue;
        std::int64_t at = count < k ? count++ : k - 1;
        for (; at > 0 && kept[at - 1] < rank; --at) {
            kept[at] = kept[at - 1];
            best[at] = best[at - 1];
        }
        kept[at] = rank;
        best[at] = static_cast<std::int32_t>(e);
    }
    std::sort(best, best + k);
}

const Panels& panels_of(const PackedGateUp& w) {
    return static_cast<const X86GateUp&>(w).panels;
}
const Panels& panels_of(const PackedWeight& w) {
    return static_cast<const X86Weight&>(w).panels;
}

}  // namespace

void MoePlan::add(const PackedExpert& expert, std::int64_t begin, std::int64_t end, bool weighted) {
    const std::int64_t part = rows_per_product(end - begin);
    for (std::int64_t i = begin; i < end; i += part) {
        experts.push_back({&panels_of(*expert.gate_up), &panels_of(*expert.down), i,
                           std::min(part, end - i), weighted});
    }
}

void MoePlan::build(const MoeArgs& args, const std::uint16_t* const* inputs) {
    const std::int64_t n = args.x_q8.rows, k = args.top_k;
    slots = k + (args.shared != nullptr ? 1 : 0);
    const auto entries = static_cast<std::size_t>(n * slots);
    row.resize(entries);
    x.resize(entries);
    weight.resize(entries);
    place.resize(entries);
    t.resize(entries);
    experts.clear();
    start.assign(args.routed.size() + 1, 0);
    for (std::int64_t s = 0; s < n * k; ++s) {
        const std::int32_t e = args.experts[s];
        FATHOM_CHECK(e >= 0 && static_cast<std::size_t>(e) < args.routed.size());
        FATHOM_CHECK(s % k == 0 || args.experts[s - 1] < e, "experts must ascend");
        ++start[e + 1];
    }
    for (std::size_t e = 0; e < args.routed.size(); ++e) {
        start[e + 1] += start[e];
        if (start[e + 1] > start[e]) add(args.routed[e], start[e], start[e + 1], true);
    }
    const auto put = [&](std::int64_t at, std::int64_t i, std::int64_t slot, float w) {
        row[at] = static_cast<std::int32_t>(i);
        x[at] = inputs[i];
        weight[at] = w;
        place[i * slots + slot] = at;
    };
    for (std::int64_t s = 0; s < n * k; ++s)
        put(start[args.experts[s]]++, s / k, s % k, args.weights[s]);
    if (args.shared == nullptr) return;
    for (std::int64_t i = 0; i < n; ++i)
        put(n * k + i, i, k, 1.0f);
    add(*args.shared, n * k, n * k + n, false);
}

void X86Backend::route(const RouterArgs& args) {
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
    constexpr double kUsPerExpert = 4e-3;
    for_rows(*pool_, n, static_cast<double>(experts) * kUsPerExpert,
             [&](std::int64_t begin, std::int64_t end) {
                 struct Biased;
                 float* biased = scratch<Biased>(experts);
                 for (std::int64_t i = begin; i < end; ++i) {
                     float* a = logits + i * experts;
                     linear_.router_scores(a, experts, args.gate_temp);
                     const bool image = !args.in_image.empty() && args.in_image[i] != 0;
                     const float* bias = image ? args.bias_vl.data() : args.bias.data();
                     for (std::int64_t e = 0; e < experts; ++e)
                         biased[e] = a[e] + bias[e];
                     std::int32_t* chosen = args.experts.data() + i * k;
                     take_best(biased, experts, k, chosen);
                     float sum = 0;
                     for (std::int64_t j = 0; j < k; ++j)
                         sum += a[chosen[j]];
                     for (std::int64_t j = 0; j < k; ++j) {
                         const float weight = a[chosen[j]];
                         args.weights[i * k + j] =
                             (k == 1 ? weight : weight / (sum + 1e-20f)) * args.route_scale;
                     }
                 }
             });
}

void X86Backend::gate_up(ConstRows x, const PackedGateUp& w, std::span<const float> weights,
                         float limit, NumericMode mode, Rows t) {
    const auto& packed = static_cast<const X86GateUp&>(w);
    if (x.dtype == DType::f32 || t.dtype == DType::f32 || mode != NumericMode::real ||
        packed.panels.layout.panel_bytes == 0) {
        FATHOM_CHECK(packed.oracle != nullptr, "a weight without its source takes bf16 inputs");
        return oracle_->gate_up(x, *packed.oracle, weights, limit, mode, t);
    }
    const std::int64_t n = x.rows;
    FATHOM_CHECK(x.cols == w.in && t.rows == n && t.cols == w.inter);
    FATHOM_CHECK(weights.empty() || static_cast<std::int64_t>(weights.size()) == n);
    FATHOM_CHECK(w.inter % kInnerColumns == 0);
    const std::uint16_t* const* inputs = input_rows(x, 1, w.in);
    MoePlan& plan = moe_plan_;
    plan.experts.clear();
    plan.x.assign(inputs, inputs + n);
    plan.weight.assign(weights.begin(), weights.end());
    plan.t.clear();
    for (std::int64_t i = 0; i < n; ++i)
        plan.t.push_back(bf16_row(t, i));
    const std::int64_t part = rows_per_product(n);
    for (std::int64_t i = 0; i < n; i += part)
        plan.experts.push_back(
            {&packed.panels, nullptr, i, std::min(part, n - i), !weights.empty()});
    plan.x_is_moderate = n >= kFoldRows && all_moderate(*pool_, linear_, inputs, n,
                                                        packed.panels.layout.tiles * kTileInputs);
    run_inner(plan, limit);
}

// Inner rows of all experts by (expert, panel).
void X86Backend::run_inner(const MoePlan& plan, float limit) {
    auto& first_panel = moe_plan_.first_panel;
    first_panel.assign(1, 0);
    double us = 0;
    for (const ExpertRows& e : plan.experts) {
        const PanelLayout& layout = e.gate_up->layout;
        first_panel.push_back(first_panel.back() + layout.panels);
        us += panel_us(layout, e.count) * static_cast<double>(layout.panels);
    }
    const std::int64_t items = first_panel.back();
    for_panels(
        *pool_, items, us / static_cast<double>(std::max<std::int64_t>(items, 1)),
        [&](std::int64_t begin, std::int64_t end) {
            auto e = static_cast<std::size_t>(
                std::upper_bound(first_panel.begin(), first_panel.end(), begin) -
                first_panel.begin() - 1);
            for (std::int64_t item = begin; item < end; ++item) {
                while (item >= first_panel[e + 1])
                    ++e;
                const ExpertRows& expert = plan.experts[e];
                const Panels& panels = *expert.gate_up;
                const std::int64_t p = item - first_panel[e];
                const std::uint8_t* next = nullptr;
                if (p + 1 < panels.layout.panels) {
                    next = panels.panel(p + 1);
                } else if (e + 1 < plan.experts.size()) {
                    next = plan.experts[e + 1].gate_up->panel(0);
                }
                float* sums = sums_scratch();
                linear_.product({.format = panels.layout.format,
                                 .panel = panels.panel(p),
                                 .tiles = panels.layout.tiles,
                                 .x = plan.x.data() + expert.begin,
                                 .rows = expert.count,
                                 .x_is_moderate = plan.x_is_moderate,
                                 .next = next,
                                 .sums = sums,
                                 .scratch = product_scratch()});
                linear_.swiglu_q8(
                    {.sums = sums,
                     .rows = expert.count,
                     .weights = expert.weighted ? plan.weight.data() + expert.begin : nullptr,
                     .limit = limit,
                     .t = plan.t.data() + expert.begin,
                     .column = p * kInnerColumns});
            }
        });
}

// Few rows: a thread owns some neighbouring output panels and walks the experts, so that it reads
// each in a long stretch.
void X86Backend::walk_down(const MoePlan& plan, Rows y) {
    const std::int64_t panels = (y.cols + kPanelRows - 1) / kPanelRows;
    const std::int64_t width = y.rows * kPanelRows;
    constexpr std::int64_t kGrain = 8;
    const auto last_expert = plan.experts.size() - 1;
    const auto walk = [&](std::int64_t begin, std::int64_t end) {
        struct Totals;
        float* totals = scratch<Totals>((end - begin) * width);
        std::fill_n(totals, (end - begin) * width, 0.0f);
        for (std::size_t e = 0; e <= last_expert; ++e) {
            const ExpertRows& expert = plan.experts[e];
            const Panels& down = *expert.down;
            for (std::int64_t p = begin; p < end; ++p) {
                const std::uint8_t* next = nullptr;
                if (p + 1 < end) {
                    next = down.panel(p + 1);
                } else if (e < last_expert) {
                    next = plan.experts[e + 1].down->panel(begin);
                } else if (end < panels) {
                    next = plan.experts[0].down->panel(end);
                }
                float* sums = sums_scratch();
                linear_.product({.format = down.layout.format,
                                 .panel = down.panel(p),
                                 .tiles = down.layout.tiles,
                                 .x = plan.t.data() + expert.begin,
                                 .rows = expert.count,
                                 .x_is_moderate = false,
                                 .next = next,
                                 .sums = sums,
                                 .scratch = product_scratch()});
                linear_.add_rounded(sums, expert.count, plan.row.data() + expert.begin,
                                    totals + (p - begin) * width);
            }
        }
        for (std::int64_t p = begin; p < end; ++p)
            linear_.store({.sums = totals + (p - begin) * width,
                           .rows = y.rows,
                           .first = 0,
                           .count = std::min(kPanelRows, y.cols - p * kPanelRows),
                           .y = bf16_row(y, 0) + p * kPanelRows,
                           .stride = y.stride,
                           .bf16 = true});
    };
    pool_->run_ranges(panels, kGrain, walk);
}

// Many rows: outputs of (expert, panel) to memory, some columns at a time, then the sums.
void X86Backend::run_down(const MoePlan& plan, Rows y) {
    const std::int64_t panels = (y.cols + kPanelRows - 1) / kPanelRows;
    const auto entries = static_cast<std::int64_t>(plan.row.size());
    const std::int64_t span =
        std::clamp<std::int64_t>(kPartsBytes / (entries * kPanelRows * 2), 1, panels);
    const std::int64_t stride = span * kPanelRows;
    moe_plan_.parts.resize(static_cast<std::size_t>(entries * stride));
    std::uint16_t* const parts = moe_plan_.parts.data();
    const auto experts = static_cast<std::int64_t>(plan.experts.size());
    for (std::int64_t first = 0; first < panels; first += span) {
        const std::int64_t count = std::min(span, panels - first);
        const std::int64_t columns = std::min(count * kPanelRows, y.cols - first * kPanelRows);
        for_panels(
            *pool_, experts * count, panel_us(plan.experts[0].down->layout, entries / experts),
            [&](std::int64_t begin, std::int64_t end) {
                for (std::int64_t item = begin; item < end; ++item) {
                    const ExpertRows& expert = plan.experts[item / count];
                    const Panels& down = *expert.down;
                    const std::int64_t p = first + item % count;
                    const bool more = item % count + 1 < count;
                    float* sums = sums_scratch();
                    linear_.product({.format = down.layout.format,
                                     .panel = down.panel(p),
                                     .tiles = down.layout.tiles,
                                     .x = plan.t.data() + expert.begin,
                                     .rows = expert.count,
                                     .x_is_moderate = plan.t_is_moderate,
                                     .next = more ? down.panel(p + 1) : nullptr,
                                     .sums = sums,
                                     .scratch = product_scratch()});
                    linear_.store({.sums = sums,
                                   .rows = expert.count,
                                   .first = 0,
                                   .count = std::min(kPanelRows, y.cols - p * kPanelRows),
                                   .y = parts + expert.begin * stride + item % count * kPanelRows,
                                   .stride = stride,
                                   .bf16 = true});
                }
            });
        constexpr double kUsPerNumber = 1e-4;
        for_rows(*pool_, y.rows, static_cast<double>(columns * plan.slots) * kUsPerNumber,
                 [&](std::int64_t begin, std::int64_t end) {
                     struct Parts;
                     auto** of_row = scratch<Parts, const std::uint16_t*>(plan.slots);
                     for (std::int64_t i = begin; i < end; ++i) {
                         for (std::int64_t s = 0; s < plan.slots; ++s)
                             of_row[s] = parts + plan.place[i * plan.slots + s] * stride;
                         linear_.sum_parts(of_row, plan.slots, columns,
                                           bf16_row(y, i) + first * kPanelRows);
                     }
                 });
    }
}

void X86Backend::moe(const MoeArgs& args) {
    const std::int64_t n = args.x_q8.rows;
    FATHOM_CHECK(args.numerics != nullptr);
    if (args.x_q8.dtype == DType::f32 || args.y.dtype == DType::f32 ||
        args.numerics->mode != NumericMode::real) {
        const OracleExperts routed(args.routed);
        const OracleExperts shared(args.shared == nullptr
                                       ? std::span<const PackedExpert>()
                                       : std::span<const PackedExpert>(args.shared, 1));
        MoeArgs plain = args;
        plain.routed = routed.experts();
        plain.shared = args.shared == nullptr ? nullptr : shared.experts().data();
        return oracle_->moe(plain);
    }
    FATHOM_CHECK(args.y.rows == n && args.y.cols == args.x_q8.cols);
    FATHOM_CHECK(static_cast<std::int64_t>(args.experts.size()) == n * args.top_k &&
                 args.weights.size() == args.experts.size());
    if (n == 0) return;
    MoePlan& plan = moe_plan_;
    const std::int64_t in = args.x_q8.cols;
    const std::uint16_t* const* inputs = input_rows(args.x_q8, 1, in);
    plan.build(args, inputs);
    std::int64_t t_size = 0, rows_max = 0;
    for (const ExpertRows& e : plan.experts) {
        FATHOM_CHECK(e.gate_up->layout.panel_bytes > 0 && e.down->layout.panel_bytes > 0);
        t_size += e.count * e.gate_up->layout.panels * kInnerColumns;
        rows_max = std::max(rows_max, e.count);
    }
    plan.t_memory.resize(static_cast<std::size_t>(t_size));
    std::uint16_t* t = plan.t_memory.data();
    for (const ExpertRows& e : plan.experts) {
        const std::int64_t inter = e.gate_up->layout.panels * kInnerColumns;
        FATHOM_CHECK(e.down->layout.tiles * kTileInputs == inter);
        for (std::int64_t i = 0; i < e.count; ++i, t += inter)
            plan.t[e.begin + i] = t;
    }
    const bool fold = rows_max >= kFoldRows;
    plan.x_is_moderate =
        fold && all_moderate(*pool_, linear_, inputs, n, reference::round_up(in, kTileInputs));
    run_inner(plan, args.swiglu_limit);
    if (n <= kWalkRows) return walk_down(plan, args.y);
    plan.t_is_moderate = fold;
    for (const ExpertRows& e : plan.experts) {
        if (!plan.t_is_moderate) break;
        plan.t_is_moderate = all_moderate(*pool_, linear_, plan.t.data() + e.begin, e.count,
                                          e.down->layout.tiles * kTileInputs);
    }
    run_down(plan, args.y);
}

}  // namespace fathom::x86
