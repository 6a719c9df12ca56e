#include "cli/verify/suite.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "cli/verify/blocks.h"

namespace fathom::verify {

namespace {

// A case whose measured noise exceeds this in some row is chaotic; one whose median stays below the
// second bound can be held to a tighter median than others.
constexpr double kChaoticNoise = 0.2;
constexpr double kQuietNoise = 0.01;
constexpr double kQuietMedian = 0.03;

struct CaseNoise {
    double worst = 0, median_worst = 0;
};

// From the noise rows of the golden file (rms over the deviation, per row of each sequence).
CaseNoise measured_noise(const GoldenCase& c, const SafetensorsFile& expected) {
    CaseNoise noise;
    for (const GoldenSequence& s : c.sequences) {
        std::optional<GoldenTensor> rows = read_tensor(expected, s.name + ".noise_rms");
        if (!rows || rows->values.empty()) continue;
        std::sort(rows->values.begin(), rows->values.end());
        noise.worst = std::max<double>(noise.worst, rows->values.back());
        noise.median_worst =
            std::max<double>(noise.median_worst, rows->values[rows->values.size() / 2]);
    }
    return noise;
}

bool equal_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return !a.empty() && a.size() == b.size() &&
           std::equal(a.begin(), a.end(), b.begin(), [](float x, float y) {
               return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
           });
}

Check bits_check(const std::string& what, const std::vector<float>& a,
                 const std::vector<float>& b) {
    const bool same = equal_bits(a, b);
    return {.what = what,
            .worst = same ? 0.0 : 1.0,
            .tolerance = 0,
            .pass = same,
            .note = "bit for bit"};
}

class Suite {
  public:
    Suite(const GoldenCase& c, const SuiteOptions& options) : case_(c), options_(options) {}

    Result<std::vector<Check>> run() {
        FATHOM_ASSIGN(expected_,
                      SafetensorsFile::open(case_.dir + "/expected" + mode_suffix(options_.mode) +
                                            ".safetensors"));
        FATHOM_ASSIGN(runner_, make_runner(runner_options()));
        const CaseNoise noise = measured_noise(case_, *expected_);
        const Sharpness real_sharpness =
            noise.worst > kChaoticNoise ? Sharpness::chaotic : Sharpness::settled;
        sharpness_ = options_.mode == NumericMode::fp32 ? Sharpness::fp32 : real_sharpness;
        comparison_.emplace(sharpness_, noise.median_worst <= kQuietNoise ? kQuietMedian : 0.0);
        FATHOM_RETURN_IF_ERROR(token_map());
        for (const GoldenSequence& sequence : case_.sequences)
            FATHOM_RETURN_IF_ERROR(exact(sequence));
        for (const GoldenRun& run : case_.runs)
            FATHOM_RETURN_IF_ERROR(one_run(run));
        for (const GoldenSequence& sequence : case_.sequences)
            FATHOM_RETURN_IF_ERROR(activations(sequence));
        for (Check& check : comparison_->pooled())
            checks_.push_back(std::move(check));
        return std::move(checks_);
    }

  private:
    RunnerOptions runner_options() const {
        RunnerOptions options;
        options.numerics.mode = options_.mode;
        options.threads = options_.threads;
        options.backend = options_.backend;
        return options;
    }
    Result<std::unique_ptr<CaseRunner>> make_runner(const RunnerOptions& options) const {
        return CaseRunner::create(case_, options);
    }
    void progress(const std::string& what) const {
        if (options_.progress) options_.progress(what);
    }
    std::optional<GoldenTensor> golden(const std::string& name) const {
        return read_tensor(*expected_, name);
    }
    double deviation(const GoldenSequence& s) const {
        const std::optional<GoldenTensor> logits = golden(s.name + ".exact.logits");
        const double spread = logits ? standard_deviation(logits->values) : 0.0;
        return spread > 0 ? spread : 1.0;
    }

    // What cannot be compared is a miss: a case that lost its tensors must not pass.
    void miss(const std::string& what, const std::string& why) {
        checks_.push_back({.what = what,
                           .worst = std::numeric_limits<double>::infinity(),
                           .pass = false,
                           .note = why});
    }

    // Compares all golden rows NAME.logits with our rows that end before position `end`.
    void compare(const std::string& name, const std::string& kind, const Outcome& outcome,
                 std::int64_t end, double spread) {
        const std::optional<GoldenTensor> logits = golden(name + ".logits");
        if (!logits) return miss(name + ".logits", "not in the golden file");
        compare_rows(name, name, kind, outcome, end - logits->rows(), logits->rows(), spread);
    }

    // Compares the first `rows` golden rows NAME.logits with our rows from position `first` on.
    // Golden gaps may cover more rows than the logits; they end together.
    void compare_rows(const std::string& label, const std::string& name, const std::string& kind,
                      const Outcome& outcome, std::int64_t first, std::int64_t rows,
                      double spread) {
        const std::optional<GoldenTensor> logits = golden(name + ".logits");
        const std::optional<GoldenTensor> gaps = golden(name + ".top2_gap");
        const std::int64_t vocab = runner_->config().vocab_size;
        if (!logits || !gaps || logits->shape.size() != 2 || logits->width() != vocab ||
            gaps->shape.size() != 1 || gaps->rows() < logits->rows() || rows > logits->rows())
            return miss(label + ".logits", "golden logits or gaps are absent or of another shape");
        const std::vector<float> ours = outcome.rows(first, rows);
        const auto n = static_cast<std::size_t>(rows);
        const auto wanted = std::span(logits->values).first(n * static_cast<std::size_t>(vocab));
        if (ours.size() != wanted.size()) return miss(label + ".logits", "our rows are missing");
        const auto skipped = static_cast<std::size_t>(gaps->rows() - logits->rows());
        checks_.push_back(comparison_->compare(label + ".logits", kind, ours, wanted, vocab,
                                               std::span(gaps->values).subspan(skipped, n),
                                               spread));
    }

    Status token_map() {
        const std::string path = case_.dir + "/token_map.json";
        if (!std::filesystem::exists(path) || runner_->token_map().empty()) return {};
        FATHOM_ASSIGN(Json json, parse_json_file(path));
        const Json* map = json.find("map");
        if (map == nullptr || !map->is_array()) return invalid_argument("{}: no array `map`", path);
        std::int64_t wrong = map->items().size() == runner_->token_map().size() ? 0 : 1;
        for (std::size_t i = 0; wrong == 0 && i < map->items().size(); ++i)
            wrong += map->items()[i] == Json(runner_->token_map()[i]) ? 0 : 1;
        checks_.push_back({.what = "token_map",
                           .worst = static_cast<double>(wrong),
                           .pass = wrong == 0,
                           .note = fmt::format("{} ids", runner_->token_map().size())});
        return {};
    }

    Result<Outcome> exact_outcome(CaseRunner& runner, const GoldenSequence& s,
                                  std::int64_t prompt) {
        FATHOM_ASSIGN(EngineRequest request,
                      runner.request(s, std::span(s.ids).first(static_cast<std::size_t>(prompt))));
        use_exact(request);
        request.logits_begin = 0;
        return runner.run(std::move(request));
    }

    // One-shot exact prefill against golden; every length, chunk size and cache storage against it.
    Status exact(const GoldenSequence& s) {
        progress(s.name + ".exact");
        FATHOM_ASSIGN(Outcome whole, exact_outcome(*runner_, s, s.prompt));
        const double spread = deviation(s);
        compare(s.name + ".exact", "exact", whole, s.prompt, spread);
        for (const std::int64_t length : s.lengths) {
            FATHOM_ASSIGN(Outcome part, exact_outcome(*runner_, s, length));
            checks_.push_back(bits_check(
                fmt::format("{}: prefill of {} = first rows of {}", s.name, length, s.prompt),
                part.rows(0, length), whole.rows(0, length)));
            // Some cases keep the last rows only, which a shorter prompt does not have.
            const std::optional<GoldenTensor> logits = golden(s.name + ".exact.logits");
            if (logits && logits->rows() >= s.prompt)
                compare_rows(fmt::format("{}.exact{}", s.name, length), s.name + ".exact", "exact",
                             part, 0, length, spread);
        }
        for (const std::int64_t chunk : s.chunks) {
            RunnerOptions options = runner_options();
            options.chunk = chunk;
            FATHOM_ASSIGN(std::unique_ptr<CaseRunner> chunked, make_runner(options));
            FATHOM_ASSIGN(Outcome outcome, exact_outcome(*chunked, s, s.prompt));
            checks_.push_back(bits_check(fmt::format("{}: chunks of {} = one shot", s.name, chunk),
                                         outcome.rows(0, s.prompt), whole.rows(0, s.prompt)));
        }
        if (options_.mode != NumericMode::real) return {};
        RunnerOptions options = runner_options();
        options.storage = CacheStorage::bf16;
        FATHOM_ASSIGN(std::unique_ptr<CaseRunner> unpacked, make_runner(options));
        FATHOM_ASSIGN(Outcome outcome, exact_outcome(*unpacked, s, s.prompt));
        checks_.push_back(bits_check(s.name + ": bf16 caches = packed caches",
                                     outcome.rows(0, s.prompt), whole.rows(0, s.prompt)));
        return woa_fp8(s, spread);
    }

    // The deployed variant of the output projection (numerics.h, WoA::fp8).
    Status woa_fp8(const GoldenSequence& s, double spread) {
        if (!golden(s.name + ".exact_woa_fp8.logits")) return {};
        RunnerOptions options = runner_options();
        options.numerics.woa = WoA::fp8;
        FATHOM_ASSIGN(std::unique_ptr<CaseRunner> runner, make_runner(options));
        FATHOM_ASSIGN(Outcome outcome, exact_outcome(*runner, s, s.prompt));
        compare(s.name + ".exact_woa_fp8", "exact_woa_fp8", outcome, s.prompt, spread);
        return {};
    }

    Status one_run(const GoldenRun& run) {
        progress(run.name);
        const GoldenSequence& s = case_.sequences[run.sequence];
        if (run.kind == "decode") return decode(run, s);
        if (run.kind == "greedy") return greedy(run, s);
        if (run.kind == "tail") return tail(run, s);
        if (run.kind == "replay") return replay(run, s);
        if (run.kind == "snapshot") return snapshot(run, s);
        if (run.kind == "halo") return halo(run, s);
        checks_.push_back(
            {.what = run.name, .note = "no part computes drafts yet", .skipped = true});
        return {};
    }

    static std::int64_t prompt_of(const GoldenRun& run) {
        return static_cast<std::int64_t>(run.prompt_ids.size());
    }

    // Feeds run.tokens after the prompt; logits are observed from `logits_begin` on.
    Result<Outcome> forced(const GoldenRun& run, const GoldenSequence& s, std::int64_t logits_begin,
                           PrefillMode mode, std::int64_t tail_tokens,
                           std::vector<std::int64_t> replays = {}, bool use_cache = false) {
        FATHOM_ASSIGN(EngineRequest request, runner_->request(s, run.prompt_ids));
        use_tail(request, mode, tail_tokens);
        request.committed = run.tokens;
        request.max_tokens = static_cast<std::int64_t>(run.tokens.size()) + 1;
        request.logits_begin = logits_begin;
        request.replays = std::move(replays);
        request.use_cache = use_cache;
        return runner_->run(std::move(request), probe_);
    }

    Status decode(const GoldenRun& run, const GoldenSequence& s) {
        const std::int64_t prompt = prompt_of(run);
        FATHOM_ASSIGN(Outcome outcome, forced(run, s, prompt, PrefillMode::exact, 1));
        const auto steps = static_cast<std::int64_t>(run.tokens.size());
        compare(run.name, "decode", outcome, prompt + steps, deviation(s));
        // Teacher forcing may feed several rows a step; one row a step must give the same bits.
        RunnerOptions options = runner_options();
        options.chunk = 1;
        FATHOM_ASSIGN(std::unique_ptr<CaseRunner> stepwise, make_runner(options));
        runner_.swap(stepwise);
        Result<Outcome> single = forced(run, s, prompt, PrefillMode::exact, 1);
        runner_.swap(stepwise);
        FATHOM_RETURN_IF_ERROR(single.status());
        checks_.push_back(bits_check(run.name + ": step by step = at once",
                                     single->rows(prompt, steps), outcome.rows(prompt, steps)));
        return {};
    }

    Status greedy(const GoldenRun& run, const GoldenSequence& s) {
        FATHOM_ASSIGN(EngineRequest request, runner_->request(s, run.prompt_ids));
        use_exact(request);
        request.max_tokens = run.steps;
        request.logits_begin = prompt_of(run) - 1;
        FATHOM_ASSIGN(Outcome outcome, runner_->run(std::move(request)));
        const std::optional<GoldenTensor> wanted = golden(run.name + ".argmax");
        if (!wanted || wanted->shape.size() != 1) {
            miss(run.name + ".argmax", "not in the golden file");
            return {};
        }
        std::int64_t equal = 0;
        for (std::size_t i = 0; i < wanted->values.size() && i < outcome.tokens.size(); ++i)
            equal += outcome.tokens[i] == static_cast<TokenId>(wanted->values[i]) ? 1 : 0;
        // In a chaotic case one flipped code moves a near tie and all that follows; the comparison
        // along the golden tokens then judges every decisive step.
        const bool stable = options_.mode == NumericMode::fp32 ||
                            (sharpness_ == Sharpness::settled && case_.greedy_is_stable(run.name));
        const auto steps = static_cast<std::int64_t>(wanted->values.size());
        checks_.push_back({.what = run.name + ".tokens",
                           .worst = static_cast<double>(steps - equal),
                           .pass = equal == steps || !stable,
                           .note = fmt::format("{} of {} equal{}", equal, steps,
                                               stable ? "" : ", may differ by rounding")});
        // Logits are compared along the golden tokens, whatever was sampled.
        GoldenRun along = run;
        for (std::size_t i = 0; i + 1 < wanted->values.size(); ++i)
            along.tokens.push_back(static_cast<TokenId>(wanted->values[i]));
        FATHOM_ASSIGN(Outcome fed, forced(along, s, prompt_of(run) - 1, PrefillMode::exact, 1));
        compare(run.name, "greedy", fed, prompt_of(run) - 1 + steps, deviation(s));
        return {};
    }

    Status tail(const GoldenRun& run, const GoldenSequence& s) {
        const std::int64_t window = runner_->config().window;
        const std::int64_t prompt = prompt_of(run);
        const std::int64_t kept = std::min(window, prompt);
        const auto steps = static_cast<std::int64_t>(run.tokens.size());
        FATHOM_ASSIGN(Outcome outcome, forced(run, s, prompt - kept, PrefillMode::tail, window));
        compare(run.name, "tail", outcome, prompt, deviation(s));
        if (steps > 0)
            compare(run.name + ".decode", "tail.decode", outcome, prompt + steps, deviation(s));
        FATHOM_ASSIGN(Outcome masked, forced(run, s, prompt - kept, PrefillMode::masked, window));
        checks_.push_back(bits_check(run.name + ": masked = tail",
                                     masked.rows(prompt - kept, kept + steps),
                                     outcome.rows(prompt - kept, kept + steps)));
        if (prompt <= window) {
            FATHOM_ASSIGN(Outcome whole, forced(run, s, 0, PrefillMode::exact, 1));
            checks_.push_back(bits_check(run.name + ": no longer than the window = exact",
                                         outcome.rows(0, prompt + steps),
                                         whole.rows(0, prompt + steps)));
        }
        if (!run.activations) return {};
        return tail_activations(run, s, prompt, window);
    }

    Status tail_activations(const GoldenRun& run, const GoldenSequence& s, std::int64_t prompt,
                            std::int64_t window) {
        const std::string path =
            case_.dir + "/activations" + mode_suffix(options_.mode) + ".safetensors";
        if (!std::filesystem::exists(path)) return {};
        FATHOM_ASSIGN(std::unique_ptr<SafetensorsFile> file, SafetensorsFile::open(path));
        // Only the last rows are known, so blocks cannot be fed alone: in the fp32 mode the run is
        // watched as it is, in the real mode the round trips are.
        BlockProbe probe(*file, run.name + ".", runner_->config(), prompt, options_.mode,
                         options_.mode == NumericMode::fp32 ? BlockProbe::Teach::nothing
                                                            : BlockProbe::Teach::round_trips);
        GoldenRun plain = run;
        plain.tokens.clear();
        probe_ = &probe;
        Result<Outcome> outcome = forced(plain, s, prompt - 1, PrefillMode::tail, window);
        probe_ = nullptr;
        FATHOM_RETURN_IF_ERROR(outcome.status());
        for (Check& check : probe.checks())
            checks_.push_back(std::move(check));
        return {};
    }

    // Collects the stored rows of owners by group, to look at the last ones afterwards.
    class StoredRows : public Probe {
      public:
        void rows(int layer, std::string_view name, Rows x, std::int64_t /*per*/,
                  std::span<const std::int64_t> positions) override {
            if (name != "main_kv" && name != "index_k") return;
            for (std::size_t i = 0; i < positions.size(); ++i) {
                std::vector<float>& row =
                    values[fmt::format("layers.{}.{}", layer, name)][positions[i]];
                row.clear();
                for (std::int64_t j = 0; j < x.cols; ++j) {
                    const std::int64_t at = static_cast<std::int64_t>(i) * x.stride + j;
                    row.push_back(x.dtype == DType::f32
                                      ? static_cast<const float*>(x.data)[at]
                                      : bf16_to_float(static_cast<const Bf16*>(x.data)[at]));
                }
            }
        }
        void floats(int, std::string_view, std::span<float>, std::int64_t,
                    std::span<const std::int64_t>) override {}
        void ints(int, std::string_view, std::span<std::int32_t>, std::int64_t,
                  std::span<const std::int64_t>) override {}
        std::map<std::string, std::map<std::int64_t, std::vector<float>>> values;
    };

    Status replay(const GoldenRun& run, const GoldenSequence& s) {
        const std::int64_t window = runner_->config().window;
        const std::int64_t prompt = prompt_of(run);
        const auto steps = static_cast<std::int64_t>(run.tokens.size());
        StoredRows stored;
        GoldenRun plain = run;
        plain.tokens.clear();
        probe_ = &stored;
        const Result<Outcome> prefill =
            forced(plain, s, prompt - 1, PrefillMode::tail, window, {run.hit});
        probe_ = nullptr;
        FATHOM_RETURN_IF_ERROR(prefill.status());
        for (const auto& [key, groups] : stored.values)
            last_rows(run, key, groups, prompt);
        FATHOM_ASSIGN(Outcome outcome, forced(run, s, std::max<std::int64_t>(0, prompt - window),
                                              PrefillMode::tail, window, {run.hit}));
        compare(run.name, "replay", outcome, prompt, deviation(s));
        if (steps > 0)
            compare(run.name + ".decode", "replay.decode", outcome, prompt + steps, deviation(s));
        return {};
    }

    void last_rows(const GoldenRun& run, const std::string& key,
                   const std::map<std::int64_t, std::vector<float>>& groups, std::int64_t prompt) {
        const std::optional<GoldenTensor> wanted = golden(fmt::format("{}.{}_last", run.name, key));
        if (!wanted)
            return miss(fmt::format("{}.{}_last", run.name, key), "not in the golden file");
        const int layer = std::stoi(key.substr(key.find('.') + 1));
        const std::int64_t total =
            prompt / runner_->config().roles[static_cast<std::size_t>(layer)].ratio;
        std::vector<float> ours;
        for (std::int64_t group = total - wanted->rows(); group < total; ++group)
            if (const auto row = groups.find(group); row != groups.end())
                ours.insert(ours.end(), row->second.begin(), row->second.end());
        Check check{.what = fmt::format("{}.{}_last", run.name, key), .note = {}};
        check.worst = ours.size() == wanted->values.size()
                          ? relative_rms(ours, wanted->values)
                          : std::numeric_limits<double>::infinity();
        // End to end the real mode's codes flip; the sharp test of these rows is the fp32 mode's.
        check.tolerance = options_.mode == NumericMode::fp32 ? 1e-4 : 0.5;
        check.pass = check.worst <= check.tolerance;
        checks_.push_back(std::move(check));
    }

    Status snapshot(const GoldenRun& run, const GoldenSequence& s) {
        const std::int64_t window = runner_->config().window;
        const std::int64_t prompt = prompt_of(run);
        FATHOM_ASSIGN(Outcome first, forced(run, s, prompt - window, PrefillMode::tail, window));
        GoldenRun beginning = run;  // leaves the windows at its last full block
        beginning.prompt_ids.resize(static_cast<std::size_t>(run.hit) + 1);
        FATHOM_RETURN_IF_ERROR(
            forced(beginning, s, -1, PrefillMode::tail, window, {}, true).status());
        FATHOM_ASSIGN(Outcome hit,
                      forced(run, s, prompt - window, PrefillMode::tail, window, {}, true));
        checks_.push_back(bits_check(run.name + ": hit with snapshot = cold",
                                     hit.rows(prompt - window, window),
                                     first.rows(prompt - window, window)));
        if (std::string(hit.anchors.window_source) != "snapshot" ||
            hit.anchors.hit_tokens != run.hit)
            checks_.push_back({.what = run.name + ": window source",
                               .worst = 1,
                               .pass = false,
                               .note = hit.anchors.window_source});
        return {};
    }

    Status halo(const GoldenRun& run, const GoldenSequence& s) {
        const std::int64_t prompt = prompt_of(run);
        FATHOM_ASSIGN(Outcome halo,
                      forced(run, s, prompt - 1, PrefillMode::halo, runner_->config().window));
        FATHOM_ASSIGN(Outcome whole, forced(run, s, prompt - 1, PrefillMode::exact, 1));
        checks_.push_back(bits_check(run.name + ": last row = exact", halo.rows(prompt - 1, 1),
                                     whole.rows(prompt - 1, 1)));
        return {};
    }

    Status activations(const GoldenSequence& s) {
        const std::string path =
            case_.dir + "/activations" + mode_suffix(options_.mode) + ".safetensors";
        if (s.activations == 0 || !std::filesystem::exists(path)) return {};
        progress(s.name + ": blocks");
        FATHOM_ASSIGN(std::unique_ptr<SafetensorsFile> file, SafetensorsFile::open(path));
        BlockProbe probe(*file, fmt::format("{}.exact{}.", s.name, s.activations),
                         runner_->config(), s.activations, options_.mode,
                         BlockProbe::Teach::blocks);
        FATHOM_ASSIGN(
            EngineRequest request,
            runner_->request(s, std::span(s.ids).first(static_cast<std::size_t>(s.activations))));
        use_exact(request);
        request.logits_begin = 0;
        FATHOM_RETURN_IF_ERROR(runner_->run(std::move(request), &probe).status());
        for (Check& check : probe.checks())
            checks_.push_back(std::move(check));
        return {};
    }

    const GoldenCase& case_;
    const SuiteOptions& options_;
    std::unique_ptr<SafetensorsFile> expected_;
    std::unique_ptr<CaseRunner> runner_;
    Sharpness sharpness_ = Sharpness::fp32;
    std::optional<LogitsComparison> comparison_;
    Probe* probe_ = nullptr;
    std::vector<Check> checks_;
};

}  // namespace

Result<std::vector<Check>> run_suite(const GoldenCase& c, const SuiteOptions& options) {
    return Suite(c, options).run();
}

}  // namespace fathom::verify
