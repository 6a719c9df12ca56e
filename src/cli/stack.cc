#include "cli/stack.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>

#include "base/compute_pool.h"
#include "base/json_keys.h"
#include "base/log.h"
#include "base/sha256.h"
#include "engine/block_key.h"
#include "engine/calibration.h"
#include "engine/fork.h"
#include "engine/kv_identity.h"
#include "engine/model_shape.h"
#include "gateway/kv_sharing.h"
#include "kernels/ops.h"
#include "model/model.h"
#include "model/packed_file.h"
#include "model/weights.h"
#include "pool/pool_survey.h"
#include "pool/segment.h"
#include "recipe/engram_token_map.h"

namespace fathom {
namespace {

constexpr std::int64_t kTickUs = 100'000;
constexpr std::int64_t kEndUs = 30'000'000;  // for cancelled requests to end
// Left free when the KV size is chosen here: allocator slack, connections, prompts in flight.
constexpr double kMemoryShare = 0.9;
constexpr std::int64_t kThreadsPerProcessorMax = 4;
constexpr std::int64_t kProbeUs = 5'000'000;
// The end of a prompt, the end of its answer, and as many of conversations that may go on.
constexpr std::int64_t kSnapshotsPerSequence = 4;

std::string directory_name(const std::string& dir) {
    std::error_code ignored;
    const std::filesystem::path full = std::filesystem::canonical(dir, ignored);
    return full.filename().empty() ? dir : full.filename().string();
}

ModelOptions model_options(const StackOptions& options) {
    ModelOptions model;
    model.numerics.mode = options.numeric_mode == "fp32" ? NumericMode::fp32 : NumericMode::real;
    model.storage = options.cache_storage == "bf16" ? CacheStorage::bf16 : CacheStorage::packed;
    if (model.numerics.mode == NumericMode::fp32) model.storage = CacheStorage::f32;
    model.rows_max = options.engine.step_tokens_max;
    return model;
}

std::int64_t snapshot_budget(const StackOptions& options, const KvLayout& layout) {
    if (!options.engine.prefix_cache) return 0;
    if (options.snapshot_mib >= 0) return options.snapshot_mib << 20;
    return options.engine.sequences_max * kSnapshotsPerSequence * window_snapshot_bytes(layout);
}

// Of the node's window cache.
std::int64_t windows_budget(const StackOptions& options, const KvLayout& layout) {
    const std::int64_t snapshots = snapshot_budget(options, layout);
    if (options.pool.directory.empty() || snapshots < window_snapshot_bytes(layout)) return 0;
    return options.pool_windows_mib < 0 ? snapshots : options.pool_windows_mib << 20;
}

Result<std::int64_t> context_length(const StackOptions& options, const ModelConfig& config) {
    if (options.context_tokens > config.max_positions)
        return invalid_argument("engine.context_tokens: {} is more than the model's {} positions",
                                options.context_tokens, config.max_positions);
    return options.context_tokens > 0 ? options.context_tokens : config.max_positions;
}

// Null without one: weights are then packed at load.
Result<std::shared_ptr<PackedFile>> open_packed_file(const StackOptions& options,
                                                     const Checkpoint& checkpoint,
                                                     const Backend& backend) {
    std::string path = options.packed_file;
    if (path.empty()) {
        std::error_code ignored;
        path = default_packed_file(options.model_dir);
        if (backend.image_layout().empty() || !std::filesystem::exists(path, ignored))
            return std::shared_ptr<PackedFile>();
    }
    return PackedFile::open(path, checkpoint, backend);
}

// Whether the weights of a packed file are to be copied: as told, or where they leave room for what
// else is planned with the fewest pages.
bool copies_packed_file(const StackOptions& options, const Checkpoint& checkpoint,
                        MemoryRequest memory, std::int64_t bytes) {
    if (options.packed_memory != "auto") return options.packed_memory == "copy";
    memory.packed_bytes = bytes;
    memory.pages = std::max(memory.pages, options.engine.sequences_max);
    const MemoryPlan plan = plan_memory(checkpoint, memory);
    return static_cast<double>(plan.anonymous_bytes) <=
           static_cast<double>(plan.limit_bytes) * kMemoryShare;
}

}  // namespace

Result<std::shared_ptr<ComputePool>> make_pool(const StackOptions& options) {
    ComputePoolOptions pool;
    pool.topology = CpuTopology::detect();
    if (!options.cpus.empty()) {
        FATHOM_ASSIGN(CpuTopology wanted, CpuTopology::parse(options.cpus));
        for (const int cpu : wanted.cpus) {
            if (std::find(pool.topology.cpus.begin(), pool.topology.cpus.end(), cpu) ==
                pool.topology.cpus.end())
                return invalid_argument(
                    "engine.cpus \"{}\": processor {} is not one of the {} "
                    "that this process may use",
                    options.cpus, cpu, pool.topology.cpus.size());
        }
        pool.topology = std::move(wanted);
    }
    // More threads than that only take turns: a step of thousands never ends.
    const auto threads_max = std::max<std::int64_t>(
        16, kThreadsPerProcessorMax * static_cast<std::int64_t>(pool.topology.cpus.size()));
    if (options.threads > threads_max)
        return invalid_argument("engine.threads is {}; with {} processors at most {} make sense",
                                options.threads, pool.topology.cpus.size(), threads_max);
    pool.pin = options.pin_threads;
    pool.threads =
        std::max(1, options.threads > 0 ? static_cast<int>(options.threads) : pool.topology.cores);
    return std::make_shared<ComputePool>(pool);
}

std::string default_packed_file(const std::string& model_dir) {
    return model_dir + "/model.packed";
}

std::int64_t choose_pages(const StackOptions& options, std::int64_t context_tokens,
                          std::int64_t page_bytes, const MemoryPlan& planned) {
    const auto pages_for = [](std::int64_t tokens) {
        return (tokens + kPageTokens - 1) / kPageTokens;
    };
    const std::int64_t least = options.engine.sequences_max;
    if (options.kv_tokens > 0) return std::max(least, pages_for(options.kv_tokens));
    const std::int64_t useful = options.engine.sequences_max * pages_for(context_tokens);
    const auto limit =
        static_cast<std::int64_t>(static_cast<double>(planned.limit_bytes) * kMemoryShare);
    const std::int64_t room = std::max<std::int64_t>(0, limit - planned.anonymous_bytes);
    return std::clamp(page_bytes > 0 ? room / page_bytes : useful, least, std::max(least, useful));
}

Result<LoadedModel> load_model(const StackOptions& options, std::int64_t pages) {
    if (options.model_dir.empty())
        return invalid_argument("model.dir: a checkpoint directory is needed (--model DIR)");
    LoadedModel loaded;
    FATHOM_ASSIGN(loaded.checkpoint, Checkpoint::open(options.model_dir));
    const ModelConfig& config = loaded.checkpoint->config();
    FATHOM_ASSIGN(loaded.tokenizer, Tokenizer::load(options.model_dir + "/tokenizer.json"));
    FATHOM_ASSIGN(loaded.context_tokens, context_length(options, config));

    std::vector<std::int32_t> token_map;
    if (!config.engram_layers.empty())
        token_map = make_engram_token_map(*loaded.tokenizer, config.vocab_size).map;

    FATHOM_ASSIGN(std::shared_ptr<ComputePool> pool, make_pool(options));
    loaded.identity.threads = pool->threads();
    // The checking mode runs on the oracle anyway, which needs no packed weights.
    const bool checking = options.numeric_mode == "fp32" && options.backend == "auto";
    FATHOM_ASSIGN(std::unique_ptr<Backend> backend,
                  make_backend(checking ? "reference" : options.backend, std::move(pool)));
    loaded.identity.kernels = fmt::format("{}/{}", backend->name(), FATHOM_VERSION);
    loaded.identity.model = shape_digest(make_model_shape(config));

    FATHOM_ASSIGN(const std::shared_ptr<PackedFile> packed,
                  open_packed_file(options, *loaded.checkpoint, *backend));
    MemoryRequest memory{
        .model = model_options(options),
        .pages = pages,
        // Prompt ends that wait for their choices are states too.
        .sequences = options.engine.sequences_max + kept_forks_max(options.engine.sequences_max),
        .limit_bytes = options.memory_limit_mib << 20};
    const KvLayout layout = make_kv_layout(config, memory.model.storage);
    memory.snapshot_bytes = snapshot_budget(options, layout) + windows_budget(options, layout);
    const std::int64_t weights_bytes =
        packed != nullptr ? packed->bytes() : packed_weight_bytes(*loaded.checkpoint, *backend);
    const bool maps = packed != nullptr &&
                      !copies_packed_file(options, *loaded.checkpoint, memory, weights_bytes);
    (maps ? memory.packed_file_bytes : memory.packed_bytes) = weights_bytes;
    if (pages == 0)
        memory.pages = choose_pages(options, loaded.context_tokens, layout.page_bytes,
                                    plan_memory(*loaded.checkpoint, memory));
    loaded.pages = memory.pages;
    const MemoryPlan plan = plan_memory(*loaded.checkpoint, memory);
    fmt::print(stderr, "{}", plan.to_text());
    FATHOM_RETURN_IF_ERROR(check_memory_plan(plan));
    if (packed != nullptr && !maps) FATHOM_RETURN_IF_ERROR(packed->copy_to_memory(backend->pool()));

    FATHOM_ASSIGN(loaded.model, Model::load(loaded.checkpoint, std::move(token_map),
                                            std::move(backend), memory.model, packed));
    return loaded;
}

namespace {

Result<CostModel> cost_model(const StackOptions& options, LoadedModel& loaded) {
    if (options.cost_model == "rows") return CostModel{};
    if (options.cost_model.empty()) return probe_cost_model(*loaded.model, real_clock(), kProbeUs);
    FATHOM_ASSIGN(const Json file, parse_json_file_of_single_keys(options.cost_model));
    Result<CostModel> cost = read_cost_file(file, loaded.identity);
    if (!cost.ok()) return cost.status().with_context(options.cost_model);
    return cost;
}

}  // namespace

namespace {

// What tells this model's blocks from those of any other, whatever it is served as.
Result<std::vector<NamespaceField>> identity_fields(const StackOptions& options,
                                                    const Checkpoint& checkpoint) {
    FATHOM_RETURN_IF_ERROR(check_block_names());
    ModelIdentity identity;
    identity.model_id = shape_digest(make_model_shape(checkpoint.config()));
    FATHOM_ASSIGN(identity.weights_digest, checkpoint_digest(checkpoint));
    FATHOM_ASSIGN(const Sha256Digest tokenizer, file_sha256(options.model_dir + "/tokenizer.json"));
    identity.tokenizer_digest = hex_text(tokenizer);
    return kv_identity(identity, checkpoint.config());
}

}  // namespace

Result<NamespaceId> tenant_namespace_of(const StackOptions& options, std::string_view share_group,
                                        std::string_view share_secret) {
    FATHOM_ASSIGN(const auto checkpoint, Checkpoint::open(options.model_dir));
    const ModelOptions model = model_options(options);
    std::vector<NamespaceField> fields =
        kv_namespace(make_kv_layout(checkpoint->config(), model.storage), model);
    FATHOM_ASSIGN(const std::vector<NamespaceField> identity,
                  identity_fields(options, *checkpoint));
    fields.insert(fields.end(), identity.begin(), identity.end());
    return tenant_namespace(std::move(fields), share_group, {}, share_secret);
}

namespace {

// Servers that should find each other's blocks show the same `ns`: that of requests without an API
// key, as `fathom pool stat` prints it.
Status show_namespace(const Stack& stack, const Model& model,
                      const std::vector<NamespaceField>& identity) {
    std::vector<NamespaceField> fields = kv_namespace(model.kv_layout(), model.options());
    fields.insert(fields.end(), identity.begin(), identity.end());
    KvSharingOptions sharing;
    sharing.secret = stack.pool->secret();
    FATHOM_ASSIGN(const KvSharing nobody, kv_sharing(sharing, {}, std::nullopt, {}));
    const NamespaceId ns = tenant_namespace(std::move(fields), {}, {}, nobody.secret);
    stack.metrics
        ->gauge(
            "kvpool_namespace_info",
            "The namespace of requests without an API key, and what it is made of.",
            {{"ns", namespace_tag_text(namespace_tag(ns))}, {"desc", describe_namespace(identity)}})
        .set(1);
    return {};
}

}  // namespace

namespace {

// Windows in memory of the node, shared with whoever else uses the pool there. Without them windows
// are replayed, so what stands in their way is only said.
std::unique_ptr<WindowShare> open_windows(const StackOptions& options, const KvLayout& layout,
                                          MetricsRegistry& metrics) {
    const std::int64_t budget = windows_budget(options, layout);
    const std::int64_t entry = window_snapshot_bytes(layout);
    if (budget == 0) return nullptr;
    WindowShareOptions with;
    with.directory = options.pool.directory + "/windows";
    with.layout = fmt::format("encoder windows of {} bytes", entry);
    with.entry_bytes = entry;
    with.budget_bytes = budget;
    with.life_us = options.snapshot_life_s * 1'000'000;
    auto opened = WindowShare::open(with, real_clock(), metrics);
    if (opened.ok()) return std::move(*opened);
    log_warning("pool: {}", opened.status().message());
    return nullptr;
}

}  // namespace

// A shared pool asks two threads, its own store's and the one that knows the others; a cluster is
// behind a network.
std::int64_t pool_find_us(const StackOptions& options) {
    if (options.pool_find_ms > 0) return options.pool_find_ms * 1000;
    return options.pool.store == "embedded" ? 10'000 : 20'000;
}

Result<Stack> build_stack(const StackOptions& options) {
    FATHOM_ASSIGN(LoadedModel loaded, load_model(options));
    Stack stack;
    stack.metrics = std::make_unique<MetricsRegistry>();
    stack.checkpoint = loaded.checkpoint;
    stack.tokenizer = loaded.tokenizer;
    stack.context_tokens = loaded.context_tokens;
    stack.model_name =
        options.model_name.empty() ? directory_name(options.model_dir) : options.model_name;
    EngineConfig engine = options.engine;
    engine.pages = loaded.pages;
    engine.step_budget_us = options.step_budget_ms * 1000;
    engine.snapshot_bytes_max = snapshot_budget(options, loaded.model->kv_layout());
    engine.snapshot_life_us = options.snapshot_life_s * 1'000'000;
    FATHOM_ASSIGN(engine.prefill, parse_prefill_mode(options.prefill));
    FATHOM_ASSIGN(engine.cost, cost_model(options, loaded));
    if (options.pool.named()) {
        OpenPoolOptions pool = options.pool;
        pool.payload_bytes = loaded.model->kv_layout().page_bytes;
        FATHOM_ASSIGN(stack.pool, OpenPool::open(pool, real_clock(), *stack.metrics));
        FATHOM_ASSIGN(engine.kv_identity, identity_fields(options, *stack.checkpoint));
        log_info("KV namespace: {}", describe_namespace(engine.kv_identity));
        FATHOM_RETURN_IF_ERROR(show_namespace(stack, *loaded.model, engine.kv_identity));
        engine.tier = &stack.pool->tier();
        stack.windows = open_windows(options, loaded.model->kv_layout(), *stack.metrics);
        engine.windows = stack.windows.get();
        engine.tier_budget.find_us = pool_find_us(options);
        engine.tier_budget.load_us = options.pool_load_ms * 1000;
        engine.tier_budget.load_us_per_1k_tokens = options.pool_load_ms_per_1k_tokens * 1000;
    }
    FATHOM_ASSIGN(
        std::unique_ptr<EngineCore> core,
        EngineCore::create(std::move(loaded.model), engine, real_clock(), stack.metrics.get()));
    stack.engine = std::make_unique<Engine>(std::move(core));
    return stack;
}

OwnerOptions Stack::owner_options() const {
    OwnerOptions options;
    options.model_name = model_name;
    options.context_tokens = context_tokens;
    return options;
}

LocalOwners::LocalOwners(Stack& stack, const OwnerOptions& options)
    : registry_(*stack.engine, stack.tokenizer, executor_, real_clock(), *stack.metrics, options) {
    executor_.set_tick(kTickUs, [this] { registry_.tick(); });
}

LocalOwners::~LocalOwners() {
    registry_.cancel_all();
    // Each owner ends by the engine's answer or, at the latest, when its tick gives up on it.
    const std::int64_t give_up_us = real_clock().now_us() + kEndUs;
    while (registry_.live() > 0 && real_clock().now_us() < give_up_us)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (registry_.live() > 0) log_warning("{} requests did not end in time", registry_.live());
    executor_.set_tick(kTickUs, {});
}

}  // namespace fathom
