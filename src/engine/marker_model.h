// A Model for tests of the engine: instead of numbers it stores markers, and it verifies that what
// it stored is there when it must be. The marker of a position is a hash of all token ids up to it;
// row p writes it into its page and its window slots, after checking the earlier rows it may see.
// Logits are a function of the marker alone, so the tokens of a request are known without an engine
// (expected_tokens).
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "engine/sampler.h"
#include "engine/types.h"
#include "model/model.h"

namespace fathom::testing {

inline std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
    std::uint64_t x = a * 0x9e3779b97f4a7c15ull ^ (b + 0x7f4a7c159e3779b9ull);
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

inline constexpr std::int64_t kMarkerVocab = 48;
inline constexpr std::int64_t kMarkerWindow = 16;
inline constexpr std::int64_t kMarkerPositions = 640;

inline std::vector<std::uint64_t> markers_of(std::span<const TokenId> ids) {
    std::vector<std::uint64_t> markers;
    std::uint64_t marker = 1;
    for (const TokenId id : ids) {
        marker = mix(marker, static_cast<std::uint64_t>(id));
        markers.push_back(marker);
    }
    return markers;
}

inline std::vector<float> marker_logits(std::uint64_t marker) {
    std::vector<float> logits;
    for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(kMarkerVocab); ++i)
        logits.push_back(static_cast<float>(mix(marker, i) % 1024) / 128.0f);
    return logits;
}

// What an engine must produce for the request, `committed` left out.
inline std::vector<TokenId> expected_tokens(const EngineRequest& request) {
    std::vector<TokenId> ids = request.prompt;
    ids.insert(ids.end(), request.committed.begin(), request.committed.end());
    const auto prompt = static_cast<std::int64_t>(request.prompt.size());
    const std::int64_t limit = std::min(request.max_tokens, kMarkerPositions - prompt);
    const auto& stops = request.stop_tokens;
    const auto stopped = [&] {
        return static_cast<std::int64_t>(ids.size()) > prompt &&
               std::find(stops.begin(), stops.end(), ids.back()) != stops.end();
    };
    std::vector<TokenId> out;
    SamplerWorkspace workspace;
    while (static_cast<std::int64_t>(ids.size()) - prompt < limit && !stopped()) {
        const std::vector<float> logits = marker_logits(markers_of(ids).back());
        TokenHistory history(request.sampling, request.prompt);
        for (std::size_t i = request.prompt.size(); i < ids.size(); ++i)
            history.append(ids[i]);
        out.push_back(sample_token({.logits = logits,
                                    .params = request.sampling,
                                    .history = history,
                                    .stop_tokens = stops,
                                    .position = static_cast<std::int64_t>(ids.size())},
                                   workspace)
                          .token);
        ids.push_back(out.back());
    }
    return out;
}

class MarkerModel final : public Model {
  public:
    explicit MarkerModel(std::int64_t rows_max = 512) {
        config_.vocab_size = kMarkerVocab;
        config_.layers = 4;
        config_.head_dim = 32;
        config_.index_dim = 32;
        config_.window = kMarkerWindow;
        config_.max_positions = kMarkerPositions;
        config_.compress_ratios = {0, 0, 1, 1};
        config_.kv_sources = {2};
        config_.roles.resize(4);
        config_.roles[2].ratio = config_.roles[3].ratio = 1;
        config_.roles[2].owns_kv = config_.roles[2].owns_index_k = true;
        layout_ = make_kv_layout(config_, CacheStorage::f32);
        options_.rows_max = rows_max;
    }

    const ModelConfig& config() const override { return config_; }
    const KvLayout& kv_layout() const override { return layout_; }
    const ModelOptions& options() const override { return options_; }
    ComputePool& pool() override { return pool_; }
    std::int64_t packed_bytes() const override { return 0; }
    std::int64_t workspace_bytes() const override { return 0; }

    void forward(std::span<const StepSpan> spans, Rows logits, Probe* /*probe*/) override {
        if (before_forward) before_forward();
        ends.clear();
        std::set<const SequenceState*> seen;
        std::int64_t rows = 0, out = 0;
        ++steps;
        decode_rows = prompt_rows = 0;
        for (const StepSpan& span : spans) {
            rows += span.count;
            ends.push_back(span.start + span.count);
            require(span.count > 0, "an empty span");
            require(seen.insert(span.sequence).second, "two spans of one sequence");
            run_span(span, logits, out);
        }
        require(rows <= options_.rows_max, "more rows than rows_max");
        require(out == logits.rows, "another number of logits rows than announced");
        last_rows = rows;
        last_spans = static_cast<std::int64_t>(spans.size());
    }

    std::function<void()> before_forward;
    std::int64_t damaged_position = -1;  // its logits hold a NaN
    std::string violation;               // the first thing found wrong; empty when all is well
    std::int64_t steps = 0, last_rows = 0, last_spans = 0, decode_rows = 0, prompt_rows = 0;
    std::int64_t decoder_half_rows = 0;  // all steps
    std::vector<std::int64_t> ends;      // of the last step's spans

  private:
    void require(bool holds, const char* what) {
        if (!holds && violation.empty()) violation = what;
    }

    void run_span(const StepSpan& span, Rows logits, std::int64_t& out) {
        const SequenceState& state = *span.sequence;
        const std::int64_t end = span.start + span.count;
        const auto ids = static_cast<std::int64_t>(state.ids.size());
        require(end <= ids, "rows past the known ids");
        require(state.in_image.empty() || state.in_image.size() == state.ids.size(),
                "in_image does not lie beside ids");
        require(static_cast<std::int64_t>(state.pages.size()) * kPageTokens >= end,
                "rows without a page");
        require(span.decoder_begin >= span.start && span.decoder_begin <= end, "decoder_begin");
        require(span.logits_begin >= span.decoder_begin && span.logits_begin <= end,
                "logits_begin");
        (span.count == 1 ? decode_rows : prompt_rows) += span.count;
        const std::vector<std::uint64_t> markers =
            markers_of(std::span(state.ids).first(static_cast<std::size_t>(end)));
        for (std::int64_t p = span.start; p < end; ++p) {
            check_pages(state, p, markers);
            check_window(state, 0, p, state.encoder_floor, markers);
            write(state.ring_row(0, p), markers, p);
            save_snapshots(span, p + 1);
            if (p >= state.store_floor) write(page_row(state, p), markers, p);
            require(read(page_row(state, p)) == marker(markers, p), "a cached row has no marker");
            if (p < span.decoder_begin) continue;
            ++decoder_half_rows;
            if (p >= state.decoder_floor) check_window(state, 3, p, state.decoder_floor, markers);
            write(state.ring_row(3, p), markers, p);
            if (p < span.logits_begin) continue;
            std::vector<float> values = marker_logits(marker(markers, p));
            if (p == damaged_position) values[7] = std::numeric_limits<float>::quiet_NaN();
            if (out < logits.rows)
                std::copy(values.begin(), values.end(),
                          static_cast<float*>(logits.data) + out * logits.stride);
            ++out;
        }
    }

    void save_snapshots(const StepSpan& span, std::int64_t position) {
        for (WindowSnapshot& snapshot : span.snapshots) {
            require(snapshot.position > span.start && snapshot.position <= span.start + span.count,
                    "a snapshot outside its span");
            if (snapshot.position != position) continue;
            for (int layer = 0; layer < layout_.encoder_layers; ++layer)
                for (std::int64_t q = snapshot_begin(layout_, position); q < position; ++q) {
                    const KvRow row = span.sequence->ring_row(layer, q);
                    save_window_row(layout_, {row.values, row.scales}, layer, q, snapshot);
                }
        }
    }

    // The newest earlier row, the first one, and one in between, chosen by the marker.
    void check_pages(const SequenceState& state, std::int64_t p,
                     const std::vector<std::uint64_t>& markers) {
        if (p == 0) return;
        const auto between =
            static_cast<std::int64_t>(marker(markers, p) % static_cast<std::uint64_t>(p));
        for (const std::int64_t q : std::array<std::int64_t, 3>{0, between, p - 1})
            require(read(page_row(state, q)) == marker(markers, q), "an earlier row's marker");
    }

    void check_window(const SequenceState& state, int layer, std::int64_t p, std::int64_t floor,
                      const std::vector<std::uint64_t>& markers) {
        for (std::int64_t q = std::max({floor, p - kMarkerWindow + 1, std::int64_t{0}}); q < p; ++q)
            require(read(state.ring_row(layer, q)) == marker(markers, q),
                    layer == 0 ? "an encoder window row" : "a decoder window row");
    }

    KvRow page_row(const SequenceState& state, std::int64_t p) const {
        return layout_.main_rows(layout_.owners[0], state.pages).row(p);
    }
    static std::uint64_t marker(const std::vector<std::uint64_t>& markers, std::int64_t p) {
        return markers[static_cast<std::size_t>(p)];
    }
    static std::uint64_t read(KvRow row) {
        std::uint64_t value = 0;
        std::memcpy(&value, row.values, sizeof(value));
        return value;
    }
    static void write(KvRow row, const std::vector<std::uint64_t>& markers, std::int64_t p) {
        const std::uint64_t value = marker(markers, p);
        std::memcpy(row.values, &value, sizeof(value));
    }

    ModelConfig config_;
    KvLayout layout_;
    ModelOptions options_;
    ComputePool pool_{1};
};

// Collects the events of one request and checks their order.
class Recorder final : public EventSink {
  public:
    explicit Recorder(std::int64_t committed = 0) : next_index_(committed) {}
    void on_event(EngineEvent event) override {
        if (finish != FinishReason::none && violation.empty()) violation = "an event after the end";
        if (event.first_index != next_index_ && violation.empty()) violation = "first_index";
        next_index_ += static_cast<std::int64_t>(event.tokens.size());
        tokens.insert(tokens.end(), event.tokens.begin(), event.tokens.end());
        finish = event.finish;
        last = std::move(event);
        ++events;
    }
    void on_logits(std::uint64_t, std::int64_t position, std::span<const float> row) override {
        if (!logits.emplace(position, std::vector<float>(row.begin(), row.end())).second &&
            violation.empty())
            violation = "logits of a position came twice";
    }

    std::vector<TokenId> tokens;
    FinishReason finish = FinishReason::none;
    EngineEvent last;
    std::map<std::int64_t, std::vector<float>> logits;
    std::string violation;
    int events = 0;

  private:
    std::int64_t next_index_;
};

// Collects the events of a request with several choices, each by its id.
class ChoiceRecorder final : public EventSink {
  public:
    explicit ChoiceRecorder(const EngineRequest& request) {
        const auto committed = static_cast<std::int64_t>(request.committed.size());
        choices.emplace(request.id, Recorder(committed));
        for (const Branch& branch : request.branches)
            choices.emplace(branch.id, Recorder(committed));
    }
    void on_event(EngineEvent event) override { choices.at(event.id).on_event(std::move(event)); }
    void on_logits(std::uint64_t id, std::int64_t position, std::span<const float> row) override {
        choices.at(id).on_logits(id, position, row);
    }

    std::map<std::uint64_t, Recorder> choices;
};

// The choice with this id as a request alone.
inline EngineRequest choice_alone(const EngineRequest& request, std::uint64_t id) {
    EngineRequest alone = request;
    alone.branches.clear();
    for (const Branch& branch : request.branches) {
        if (branch.id != id) continue;
        alone.id = id;
        alone.sampling.seed = branch.seed;
    }
    return alone;
}

inline std::vector<TokenId> make_ids(std::int64_t count, std::uint64_t seed) {
    std::vector<TokenId> ids;
    for (std::int64_t i = 0; i < count; ++i)
        ids.push_back(static_cast<TokenId>(mix(seed, static_cast<std::uint64_t>(i)) %
                                           static_cast<std::uint64_t>(kMarkerVocab)));
    return ids;
}

inline EngineRequest make_request(std::uint64_t id, std::int64_t prompt, std::int64_t max_tokens) {
    EngineRequest request;
    request.id = id;
    request.prompt = make_ids(prompt, id + 1000);
    request.max_tokens = max_tokens;
    request.sampling.seed = id * 7 + 1;
    return request;
}

}  // namespace fathom::testing
