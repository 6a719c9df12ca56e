// From a directory to a running engine, in the one order that all commands share:
//
//   Checkpoint ─ Tokenizer ─ Engram token map ─ Backend ─ memory plan ─ Model ─ cost model ─ Engine
//
// The memory plan is printed to stderr before the model is loaded, and a machine with too little is
// refused with the numbers. Any error names the file or option at fault.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/compute_pool.h"
#include "base/metrics.h"
#include "base/result.h"
#include "engine/engine.h"
#include "gateway/owner.h"
#include "gateway/thread_executor.h"
#include "model/checkpoint.h"
#include "model/memory_plan.h"
#include "model/model.h"
#include "policy/cost_file.h"
#include "pool/open_pool.h"
#include "pool/window_share.h"
#include "recipe/tokenizer.h"

namespace fathom {

struct StackOptions {
    std::string model_dir;
    std::string model_name;                // empty: the directory's name
    std::string packed_file;               // empty: default_packed_file() where it exists
    std::string packed_memory = "auto";    // auto | copy | map
    std::string numeric_mode = "real";     // real | fp32 (kernels/numerics.h)
    std::string cache_storage = "packed";  // packed | bf16
    std::string backend = "auto";
    std::int64_t threads = 0;           // 0: one per physical core this process may use
    bool pin_threads = true;            // compute threads stay on their processors
    std::string cpus;                   // "0-3|4-7": nodes to place them on; empty: the machine's
    std::int64_t context_tokens = 0;    // prompt and output together; 0: the model's positions
    std::int64_t kv_tokens = 0;         // in all sequences; 0: as many as are useful and fit
    std::int64_t memory_limit_mib = 0;  // 0: what the machine has available
    std::string prefill = "tail";       // exact | tail | halo
    std::int64_t snapshot_mib = -1;     // of window snapshots; -1: four for each sequence
    std::int64_t snapshot_life_s = 180;
    // Times of steps: a file of `fathom calibrate`; empty: a probe of some seconds at start;
    // "rows": none, steps are limited by rows alone.
    std::string cost_model;
    std::int64_t step_budget_ms = 250;
    // Blocks that outlive the process, where a pool is named.
    OpenPoolOptions pool;
    std::int64_t pool_windows_mib = -1;  // of the node's window cache; -1: as snapshot_mib
    std::int64_t pool_find_ms = 0;       // 0: by the kind of pool
    std::int64_t pool_load_ms = 20, pool_load_ms_per_1k_tokens = 20;
    // build_stack sets pages, prefill, budget, cost and what concerns snapshots.
    EngineConfig engine;
};

struct Stack {
    std::string model_name;
    std::int64_t context_tokens = 0;
    std::unique_ptr<MetricsRegistry> metrics;  // outlives the engine, which counts into it
    std::shared_ptr<const Checkpoint> checkpoint;
    std::shared_ptr<const Tokenizer> tokenizer;
    std::unique_ptr<OpenPool> pool;        // null without one; outlives the engine, which uses it
    std::unique_ptr<WindowShare> windows;  // null without a pool; likewise
    std::unique_ptr<Engine> engine;

    OwnerOptions owner_options() const;
};

// How long a lookup in the pool may take: what the options say, else what its kind needs.
std::int64_t pool_find_us(const StackOptions& options);

Result<Stack> build_stack(const StackOptions& options);

// The namespace in which a server of these options keeps the KV of a share group in its pool, for
// requests without a salt. Opens the checkpoint, loads nothing.
Result<NamespaceId> tenant_namespace_of(const StackOptions& options, std::string_view share_group,
                                        std::string_view share_secret);

// The lower half, for commands that run the model without an engine. Prints and checks the memory
// plan for `pages`; 0 means as many as an engine would take.
struct LoadedModel {
    std::shared_ptr<const Checkpoint> checkpoint;
    std::shared_ptr<const Tokenizer> tokenizer;
    std::unique_ptr<Model> model;
    std::int64_t context_tokens = 0, pages = 0;
    CostIdentity identity;  // what a cost file must have been measured with
};
Result<LoadedModel> load_model(const StackOptions& options, std::int64_t pages = 0);

// The compute threads that build_stack makes, for measuring what they can do.
Result<std::shared_ptr<ComputePool>> make_pool(const StackOptions& options);

// Where `fathom pack` puts the packed weights of a checkpoint, and where they are looked for.
std::string default_packed_file(const std::string& model_dir);

// The pages that build_stack takes, apart so that it can be tested: what kv_tokens says, else one
// full context for every sequence, lowered to what fits beside `planned` (a plan without pages) in
// its limit, but never below one page a sequence.
std::int64_t choose_pages(const StackOptions& options, std::int64_t context_tokens,
                          std::int64_t page_bytes, const MemoryPlan& planned);

// Request owners for a program without a server: they run on a thread of their own. Destroying it
// cancels what is live and waits for the answers.
class LocalOwners {
  public:
    LocalOwners(Stack& stack, const OwnerOptions& options);
    ~LocalOwners();
    LocalOwners(const LocalOwners&) = delete;
    LocalOwners& operator=(const LocalOwners&) = delete;

    OwnerRegistry& registry() { return registry_; }

  private:
    ThreadExecutor executor_;
    OwnerRegistry registry_;
};

}  // namespace fathom
