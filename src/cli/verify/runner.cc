#include "cli/verify/runner.h"

#include <algorithm>

#include "base/clock.h"
#include "base/compute_pool.h"
#include "model/model.h"
#include "recipe/engram_token_map.h"
#include "recipe/tokenizer.h"

namespace fathom::verify {

namespace {

class Collector : public EventSink {
  public:
    void on_event(EngineEvent event) override {
        outcome.tokens.insert(outcome.tokens.end(), event.tokens.begin(), event.tokens.end());
        if (event.finish != FinishReason::none) {
            finish = event.finish;
            status = event.status;
            outcome.anchors = event.anchors;
        }
    }
    void on_logits(std::uint64_t /*id*/, std::int64_t position,
                   std::span<const float> logits) override {
        outcome.logits[position].assign(logits.begin(), logits.end());
    }

    Outcome outcome;
    FinishReason finish = FinishReason::none;
    Status status;
};

std::int64_t longest_sequence(const GoldenCase& c) {
    std::int64_t longest = 1;
    for (const GoldenSequence& s : c.sequences)
        longest = std::max(longest, static_cast<std::int64_t>(s.ids.size()));
    for (const GoldenRun& run : c.runs)
        longest =
            std::max(longest, static_cast<std::int64_t>(run.prompt_ids.size() + run.tokens.size()) +
                                  run.steps);
    return longest;
}

}  // namespace

std::vector<float> Outcome::rows(std::int64_t first, std::int64_t count) const {
    std::vector<float> matrix;
    for (std::int64_t position = first; position < first + count; ++position) {
        const auto row = logits.find(position);
        if (row == logits.end()) return {};
        matrix.insert(matrix.end(), row->second.begin(), row->second.end());
    }
    return matrix;
}

Result<std::unique_ptr<CaseRunner>> CaseRunner::create(const GoldenCase& c,
                                                       const RunnerOptions& options) {
    std::unique_ptr<CaseRunner> runner(new CaseRunner(c));
    runner->mode_ = options.numerics.mode;
    FATHOM_ASSIGN(runner->checkpoint_,
                  Checkpoint::open(c.checkpoint_dir,
                                   {.config_overrides = c.overrides ? &*c.overrides : nullptr}));
    const ModelConfig& config = runner->checkpoint_->config();
    if (!config.engram_layers.empty()) {
        FATHOM_ASSIGN(std::shared_ptr<const Tokenizer> tokenizer,
                      Tokenizer::load(c.checkpoint_dir + "/tokenizer.json"));
        runner->token_map_ = make_engram_token_map(*tokenizer, config.vocab_size).map;
    }
    FATHOM_ASSIGN(std::unique_ptr<Backend> backend,
                  make_backend(options.backend, std::make_shared<ComputePool>(options.threads)));
    const std::int64_t rows = std::clamp<std::int64_t>(options.chunk, 1, 32768);
    FATHOM_ASSIGN(
        std::unique_ptr<Model> model,
        Model::load(runner->checkpoint_, runner->token_map_, std::move(backend),
                    {.numerics = options.numerics, .storage = options.storage, .rows_max = rows}));
    EngineConfig engine;
    // Room for a run beside the pages that another left.
    engine.pages = 4 * (longest_sequence(c) / kPageTokens + 2);
    engine.sequences_max = 2;
    engine.step_tokens_max = rows;
    engine.prefill_chunk_max = rows;
    engine.tail_tokens = std::max(engine.tail_tokens, config.window + kDraftTokensMax + 1);
    FATHOM_ASSIGN(runner->core_,
                  EngineCore::create(std::move(model), engine, real_clock(), nullptr));
    return runner;
}

// Image rows come from the golden aligner output, the delimiters from the checkpoint: the text
// backbone sees what the vision tower would give it.
Status CaseRunner::attach_images(const GoldenSequence& sequence, EngineRequest& request) {
    if (sequence.images.empty()) return {};
    const auto prompt = request.prompt.size();
    request.in_image.assign(prompt, 0);
    for (std::size_t i = 0; i < prompt && i < sequence.token_types.size(); ++i)
        request.in_image[i] = sequence.token_types[i] >= 0 ? 1 : 0;
    FATHOM_ASSIGN(
        std::unique_ptr<SafetensorsFile> expected,
        SafetensorsFile::open(case_.dir + "/expected" + mode_suffix(mode_) + ".safetensors"));
    const auto hidden = static_cast<std::size_t>(checkpoint_->config().hidden);
    const Bf16* delimiters[] = {checkpoint_->bf16("image_start"), nullptr,
                                checkpoint_->bf16("image_newline"), checkpoint_->bf16("image_end")};
    for (std::size_t number = 0; number < sequence.images.size(); ++number) {
        const GoldenSequence::Image& image = sequence.images[number];
        const std::string name = fmt::format("{}.image{}.features", sequence.name, number);
        const std::optional<GoldenTensor> features = read_tensor(*expected, name);
        if (!features)
            return error(StatusCode::not_found, "{}: no tensor {}", expected->path(), name);
        auto rows = std::make_unique<std::vector<float>>();
        std::size_t next_feature = 0;
        for (const std::int32_t type : image.types) {
            if (type < 0 || type > 3) return invalid_argument("{}: image type {}", name, type);
            for (std::size_t d = 0; d < hidden; ++d) {
                const std::size_t at = next_feature * hidden + d;
                if (type == 1 && at >= features->values.size())
                    return invalid_argument("{}: fewer rows than image tokens", name);
                rows->push_back(type == 1 ? features->values[at]
                                          : bf16_to_float(delimiters[type][d]));
            }
            if (type == 1) ++next_feature;
        }
        request.embeddings.push_back({.start = image.start,
                                      .count = static_cast<std::int64_t>(image.types.size()),
                                      .rows = rows->data()});
        embeddings_.push_back(std::move(rows));
    }
    return {};
}

Result<EngineRequest> CaseRunner::request(const GoldenSequence& sequence,
                                          std::span<const TokenId> prompt) {
    EngineRequest request;
    request.id = next_id_++;
    request.prompt.assign(prompt.begin(), prompt.end());
    request.sampling.temperature = 0;
    request.max_tokens = 1;
    request.use_cache = false;  // a run stands for itself
    FATHOM_RETURN_IF_ERROR(attach_images(sequence, request));
    return request;
}

Result<Outcome> CaseRunner::run(EngineRequest request, Probe* probe) {
    auto collector = std::make_shared<Collector>();
    core_->set_probe(probe);
    const Status added = core_->add(std::move(request), collector);
    if (added.ok())
        while (collector->finish == FinishReason::none && core_->step()) {
        }
    core_->set_probe(nullptr);
    FATHOM_RETURN_IF_ERROR(added);
    if (collector->finish == FinishReason::error) return collector->status;
    if (collector->finish == FinishReason::none)
        return Status(StatusCode::internal, "the engine stopped before the run had finished");
    return std::move(collector->outcome);
}

void use_exact(EngineRequest& request) {
    request.override_prefill = true;
    request.prefill = PrefillMode::exact;
    request.tail_tokens = 1;
}

void use_tail(EngineRequest& request, PrefillMode mode, std::int64_t tail) {
    request.override_prefill = true;
    request.prefill = mode;
    request.tail_tokens = tail;
}

}  // namespace fathom::verify
