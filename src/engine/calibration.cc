#include "engine/calibration.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/random.h"
#include "engine/model_shape.h"
#include "model/kv_cache.h"

namespace fathom {

namespace {

constexpr std::int64_t kDonorTokens = 512;
constexpr std::int64_t kTailRows = 140;
constexpr std::uint64_t kSeed = 0x5eed;

std::int64_t pages_for(std::int64_t tokens) {
    return (tokens + kPageTokens - 1) / kPageTokens;
}

bool fits(const CalibrationPoint& point, const Model& model) {
    return point.rows >= 1 && point.slices >= 1 && point.decoder_rows <= point.rows &&
           point.context % kPageTokens == 0 &&
           point.rows * point.slices <= model.options().rows_max &&
           point.context + point.rows < model.config().max_positions;
}

Slice slice_of(const CalibrationPoint& point) {
    Slice slice;
    slice.context = point.context;
    slice.rows = point.rows;
    slice.decoder_rows = point.decoder_rows;
    slice.first = point.first;
    slice.last = point.decoder_rows > 0;
    slice.logits_rows = slice.last ? 1 : 0;
    return slice;
}

// The sequences of steps: pages of a shared context, and pages of their own behind it.
class Bench {
  public:
    Bench(Model& model, std::int64_t context_max, std::int64_t own_pages)
        : model_(model),
          layout_(model.kv_layout()),
          context_pages_(std::max(pages_for(context_max), pages_for(kDonorTokens))),
          arena_(layout_, context_pages_ + own_pages) {
        RandomStream random(kSeed);
        const auto vocab = static_cast<std::uint64_t>(model.config().vocab_size);
        for (std::int64_t i = 0; i < context_pages_ * kPageTokens + model.options().rows_max; ++i)
            ids_.push_back(static_cast<TokenId>(random.next_below(vocab)));
        logits_.resize(static_cast<std::size_t>(model.config().vocab_size) * kSlicesMax);
        make_context();
    }

    // Fills `states` and `spans` for a point.
    void prepare(const CalibrationPoint& point) {
        states_.clear();
        spans_.clear();
        std::int64_t own = context_pages_;
        for (std::int64_t i = 0; i < point.slices; ++i) {
            SequenceState& state = states_.emplace_back(layout_);
            const auto tokens = static_cast<std::ptrdiff_t>(point.context + point.rows);
            state.ids.assign(ids_.begin(), ids_.begin() + tokens);
            state.store_floor = point.context;
            for (std::int64_t p = 0; p < point.context / kPageTokens; ++p)
                state.pages.push_back(page(p));
            for (std::int64_t p = 0; p < pages_for(point.rows); ++p)
                state.pages.push_back(page(own++));
        }
        for (SequenceState& state : states_) {
            StepSpan span;
            span.sequence = &state;
            span.start = point.context;
            span.count = point.rows;
            const std::int64_t end = span.start + span.count;
            span.decoder_begin = end - point.decoder_rows;
            span.logits_begin = point.decoder_rows > 0 ? end - 1 : end;
            spans_.push_back(span);
        }
        logit_rows_ = point.decoder_rows > 0 ? point.slices : 0;
    }

    void run() {
        const std::int64_t vocab = model_.config().vocab_size;
        model_.forward(spans_, {.data = logits_.data(),
                                .dtype = DType::f32,
                                .rows = logit_rows_,
                                .cols = vocab,
                                .stride = vocab});
    }

    static constexpr std::size_t kSlicesMax = 64;

  private:
    std::uint8_t* page(std::int64_t i) const {
        return arena_.page(PageId(static_cast<std::uint32_t>(i)));
    }

    void make_context() {
        const std::int64_t donor = std::min(kDonorTokens, context_pages_ * kPageTokens);
        SequenceState state(layout_);
        state.ids.assign(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(donor));
        for (std::int64_t p = 0; p < pages_for(donor); ++p)
            state.pages.push_back(page(p));
        const std::int64_t rows = std::min(donor, model_.options().rows_max);
        for (std::int64_t start = 0; start < donor && context_pages_ > 0; start += rows) {
            const std::int64_t count = std::min(rows, donor - start);
            const StepSpan span{&state, start, count, start + count, start + count};
            spans_ = {span};
            logit_rows_ = 0;
            run();
        }
        for (std::int64_t p = pages_for(donor); p < context_pages_; ++p)
            std::memcpy(page(p), page(p % pages_for(donor)),
                        static_cast<std::size_t>(layout_.page_bytes));
    }

    Model& model_;
    const KvLayout& layout_;
    const std::int64_t context_pages_;
    PageArena arena_;
    std::vector<TokenId> ids_;
    std::vector<float> logits_;
    std::vector<SequenceState> states_;
    std::vector<StepSpan> spans_;
    std::int64_t logit_rows_ = 0;
};

CostSample sample_of(const CalibrationPoint& point, const ModelShape& shape,
                     std::vector<double> times) {
    StepFeatures step(shape);
    for (std::int64_t i = 0; i < point.slices; ++i)
        step.add(slice_of(point));
    std::sort(times.begin(), times.end());
    const std::size_t last = times.size() - 1;
    CostSample sample;
    sample.features = step.values();
    sample.time_us = std::max(times[last / 2], 1.0);
    sample.spread = (times[last * 9 / 10] - times[last / 10]) / sample.time_us;
    return sample;
}

}  // namespace

std::vector<CalibrationPoint> calibration_grid(const Model& model, std::int64_t context_max) {
    std::vector<CalibrationPoint> grid;
    const auto add = [&](const CalibrationPoint& point) {
        if (point.context <= context_max && fits(point, model) &&
            point.slices <= static_cast<std::int64_t>(Bench::kSlicesMax))
            grid.push_back(point);
    };
    for (const std::int64_t rows : {1, 8, 32, 128, 512, 2048, 4096, 8192, 16'384, 32'768}) {
        for (const std::int64_t context :
             {0, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10}) {
            for (const std::int64_t slices : {1, 2, 4, 16, 64}) {
                if (slices > 4 && rows > 128) continue;
                const std::int64_t tail = std::min(rows, kTailRows);
                add({context, rows, slices, tail, false});
                if (rows >= 128) add({context, rows, slices, 0, slices == 1});
            }
        }
    }
    return grid;
}

Result<std::vector<CostSample>> measure_steps(Model& model, const CalibrationOptions& options,
                                              const Clock& clock) {
    const ModelShape shape = make_model_shape(model.config());
    const std::int64_t end_us = clock.now_us() + options.time_limit_us;
    std::int64_t context_max = 0, own_pages = 1;
    std::vector<CalibrationPoint> points;
    for (const CalibrationPoint& point : options.points) {
        if (!fits(point, model) || point.slices > static_cast<std::int64_t>(Bench::kSlicesMax))
            continue;
        points.push_back(point);
        context_max = std::max(context_max, point.context);
        own_pages = std::max(own_pages, point.slices * pages_for(point.rows));
    }
    Bench bench(model, context_max, own_pages);
    std::vector<CostSample> samples;
    double most_flops = 0, most_us = 0;  // of the largest point so far: less takes no longer
    for (std::size_t i = 0; i < points.size(); ++i) {
        if (options.on_progress && !options.on_progress(i, points.size()))
            return error(StatusCode::cancelled, "interrupted after {} of {} steps", i,
                         points.size());
        const double flops =
            useful_flops(shape, slice_of(points[i])) * static_cast<double>(points[i].slices);
        const auto left_us = static_cast<double>(end_us - clock.now_us());
        const int runs = options.warm_ups + options.repeats;
        if (i > 0 && most_us * std::max(1.0, flops / most_flops) * runs > left_us) continue;
        bench.prepare(points[i]);
        std::vector<double> times;
        for (int run = 0; run < runs; ++run) {
            const std::int64_t start_us = clock.now_us();
            bench.run();
            if (run >= options.warm_ups)
                times.push_back(static_cast<double>(clock.now_us() - start_us));
        }
        samples.push_back(sample_of(points[i], shape, std::move(times)));
        if (options.on_sample) options.on_sample(points[i], samples.back());
        if (flops > most_flops) {
            most_flops = flops;
            most_us = samples.back().time_us;
        }
    }
    return samples;
}

bool is_prefill(const CalibrationPoint& point) {
    return point.rows >= kPageTokens;
}

PrefillSample prefill_sample(const CalibrationPoint& point, const CostSample& sample) {
    PrefillSample step;
    step.slices.assign(static_cast<std::size_t>(point.slices), {.context = point.context,
                                                                .tokens = point.rows,
                                                                .first = point.first,
                                                                .last = point.decoder_rows > 0});
    step.time_us = sample.time_us;
    step.spread = sample.spread;
    return step;
}

CostModel probe_cost_model(Model& model, const Clock& clock, std::int64_t time_limit_us) {
    CalibrationOptions options;
    options.repeats = 1;
    options.time_limit_us = time_limit_us;
    // Those that tell most by their time come first, since a large model has time for few. A single
    // row is not the first: it is all reading, and would price the others by it.
    options.points = {{.rows = 64},
                      {.rows = 1, .decoder_rows = 1},
                      {.rows = 16, .decoder_rows = 16},
                      {.rows = 32},
                      {.rows = 64, .decoder_rows = 64},
                      {.rows = 256},
                      {.rows = 256, .decoder_rows = 128}};
    const Result<std::vector<CostSample>> samples = measure_steps(model, options, clock);
    FATHOM_CHECK(samples.ok(), "the probe is not interrupted");
    return fit_rough_model(*samples, make_model_shape(model.config()));
}

}  // namespace fathom
