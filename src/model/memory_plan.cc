#include "model/memory_plan.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <sstream>

#include "model/inventory.h"
#include "model/workspace.h"

namespace fathom {
namespace {

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

// ---------------------------------------------------------------------------- what the machine has

std::optional<std::string> read_small_file(const std::string& path) {
    std::ifstream file(path);
    if (!file) return std::nullopt;
    return std::string(std::istreambuf_iterator<char>(file), {});
}

// The number that a file holds; "max" and absent files give nothing.
std::optional<std::int64_t> read_number(const std::string& path) {
    const auto text = read_small_file(path);
    std::int64_t value = 0;
    if (!text.has_value() ||
        std::from_chars(text->data(), text->data() + text->size(), value).ec != std::errc())
        return std::nullopt;
    return value;
}

// The number after "key " or "key:" at the start of a line.
std::optional<std::int64_t> find_number(const std::string& text, std::string_view key) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        if (!line.starts_with(key)) continue;
        const std::size_t digit = line.find_first_of("0123456789", key.size());
        if (digit == std::string::npos || line.find_first_not_of(": \t", key.size()) != digit)
            continue;
        std::int64_t value = 0;
        if (std::from_chars(line.data() + digit, line.data() + line.size(), value).ec ==
            std::errc())
            return value;
    }
    return std::nullopt;
}

struct CgroupFiles {
    const char* limit;
    const char* usage;
    std::array<const char*, 2> cache;  // keys of memory.stat: file pages, which can be dropped
};
constexpr CgroupFiles kVersion2 = {
    "memory.max", "memory.current", {"inactive_file", "active_file"}};
constexpr CgroupFiles kVersion1 = {
    "memory.limit_in_bytes", "memory.usage_in_bytes", {"total_inactive_file", "total_active_file"}};

// What one group leaves: its limit less what it uses beyond page cache.
std::int64_t left_in_group(const std::string& dir, const CgroupFiles& files) {
    const auto limit = read_number(dir + "/" + files.limit);
    if (!limit.has_value()) return kUnlimited;
    std::int64_t used = read_number(dir + "/" + files.usage).value_or(0);
    if (const auto stat = read_small_file(dir + "/memory.stat")) {
        for (const char* key : files.cache)
            used -= find_number(*stat, key).value_or(0);
    }
    return std::max<std::int64_t>(0, *limit - std::max<std::int64_t>(0, used));
}

// The least that a group and its ancestors leave. In a container the path may name levels that are
// not mounted; their files are absent and the ones above count.
std::int64_t left_in_groups(const std::string& mount, std::string path, const CgroupFiles& files) {
    std::int64_t left = kUnlimited;
    while (true) {
        left = std::min(left, left_in_group(mount + path, files));
        const std::size_t slash = path.rfind('/');
        if (slash == std::string::npos || path == "/") return left;
        path.resize(slash);
    }
}

// Lines of /proc/self/cgroup: "0::/path" is version 2, "N:…memory…:/path" version 1.
std::int64_t left_in_cgroups(const std::string& root) {
    std::int64_t left = kUnlimited;
    const auto groups = read_small_file(root + "/proc/self/cgroup");
    if (!groups.has_value()) return left;
    std::istringstream lines(*groups);
    for (std::string line; std::getline(lines, line);) {
        const std::size_t first = line.find(':');
        const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
        if (second == std::string::npos) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1);
        const std::string path = line.substr(second + 1);
        const std::string mount = root + "/sys/fs/cgroup";
        if (controllers.empty()) {
            left = std::min(left, left_in_groups(mount, path, kVersion2));
        } else if (("," + controllers + ",").find(",memory,") != std::string::npos) {
            left = std::min(left, left_in_groups(mount + "/memory", path, kVersion1));
        }
    }
    return left;
}

// ------------------------------------------------------------------------------------- the items

// Vectors that the model copies out of the mapping when it loads: norms, biases, sinks,
// hyper-connections.
std::int64_t copied_vector_bytes(const ModelConfig& config) {
    std::int64_t bytes = 0;
    for_each_expected_tensor(config, [&](const ExpectedTensor& tensor) {
        const bool vector = tensor.type == TensorType::f32 || tensor.shape.size() == 1 ||
                            tensor.name.ends_with("engram.q_weight") ||
                            tensor.name.ends_with("engram.k_weight");
        if (!vector || tensor.name.starts_with("mtp.") || tensor.name.starts_with("vision."))
            return;
        std::int64_t size = tensor_type_bytes(tensor.type);
        for (std::int64_t n : tensor.shape)
            size *= n;
        bytes += size;
    });
    return bytes;
}

// Matrices of one step, the key and selection lists of its rows, and scores.
std::int64_t workspace_bytes(const ModelConfig& config, const ModelOptions& options) {
    const std::int64_t lists =
        options.rows_max * (config.window * static_cast<std::int64_t>(sizeof(ConstKvRow)) +
                            static_cast<std::int64_t>(sizeof(std::int32_t)) *
                                (config.index_topk + config.candidate_blocks));
    const std::int64_t scores = config.index_sources.empty()
                                    ? 0
                                    : static_cast<std::int64_t>(sizeof(float)) *
                                          std::max(kIndexScoresHeld, config.max_positions);
    return Workspace(config, options).bytes() + lists + scores;
}

std::int64_t engram_bytes(const Checkpoint& checkpoint) {
    std::int64_t bytes = 0;
    for (int layer : checkpoint.config().engram_layers) {
        const EngramTable table = checkpoint.engram_table(layer);
        const bool fp8 = table.scales != nullptr;
        bytes += table.rows * (fp8 ? table.dim + table.dim / 32 : 2 * table.dim);
    }
    return bytes;
}

}  // namespace

std::string bytes_text(std::int64_t bytes) {
    constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
    if (bytes < 1024) return fmt::format("{} B", bytes);
    double value = static_cast<double>(bytes);
    std::size_t unit = 0;
    for (; value >= 1023.5 && unit + 1 < kUnits.size(); ++unit)
        value /= 1024;
    return fmt::format("{:.{}f} {}", value, value < 10 ? 2 : value < 100 ? 1 : 0, kUnits[unit]);
}

std::int64_t available_memory_bytes(const std::string& root) {
    std::int64_t available = kUnlimited;
    if (const auto info = read_small_file(root + "/proc/meminfo")) {
        if (const auto kib = find_number(*info, "MemAvailable"))
            available = *kib > kUnlimited / 1024 ? kUnlimited : *kib * 1024;
    }
    if (available == kUnlimited)
        available = static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) *
                    static_cast<std::int64_t>(::sysconf(_SC_PAGESIZE));
    return std::min(available, left_in_cgroups(root));
}

MemoryPlan plan_memory(const Checkpoint& checkpoint, const MemoryRequest& request) {
    const ModelConfig& config = checkpoint.config();
    ModelOptions options = request.model;
    if (options.numerics.mode == NumericMode::fp32) options.storage = CacheStorage::f32;
    const KvLayout layout = make_kv_layout(config, options.storage);
    const auto total = static_cast<std::int64_t>(checkpoint.summary().bytes);
    const std::int64_t tables = engram_bytes(checkpoint);
    // Names, shapes and offsets of every tensor, in the shards' headers and the checkpoint's map.
    constexpr std::int64_t kBytesPerName = 400;

    MemoryPlan plan;
    const auto add = [&](std::string what, std::int64_t bytes, bool mapped, std::string lower) {
        if (bytes == 0) return;
        (mapped ? plan.mapped_bytes : plan.anonymous_bytes) += bytes;
        plan.items.push_back({std::move(what), bytes, mapped, std::move(lower)});
    };
    // Weights in a back end's own layout are not read from the checkpoint again.
    if (request.packed_bytes == 0 && request.packed_file_bytes == 0)
        add("weights", total - tables, true, "");
    else
        add("embedding", config.vocab_size * config.hidden * 2, true, "");
    add("packed weights of the packed file", request.packed_file_bytes, true, "");
    add("Engram tables", tables, true, "");
    add("tensor names", kBytesPerName * static_cast<std::int64_t>(checkpoint.summary().tensors),
        false, "");
    add("aligned copies", static_cast<std::int64_t>(checkpoint.summary().copied_bytes), false, "");
    add("norms and hyper-connections", copied_vector_bytes(config), false, "");
    add("packed weights", request.packed_bytes, false, "");
    add(fmt::format("KV, {} pages of {}", request.pages, bytes_text(layout.page_bytes)),
        request.pages * layout.page_bytes, false, "the number of KV pages");
    add(fmt::format("state of {} sequences", request.sequences),
        request.sequences * layout.state_bytes, false, "the number of sequences");
    add("window snapshots", request.snapshot_bytes, false, "the budget of window snapshots");
    add(fmt::format("workspace of {} rows", options.rows_max), workspace_bytes(config, options),
        false, "the rows of a step");
    // What the kernels keep between calls: inner rows of every expert slot, partial outputs.
    constexpr std::int64_t kPartialBytes = std::int64_t{32} << 20;
    add("scratch of the kernels",
        options.rows_max * (config.experts_per_token + config.shared_experts) *
                config.expert_inter * static_cast<std::int64_t>(sizeof(float)) +
            kPartialBytes,
        false, "the rows of a step");
    // At most one row a sequence is sampled in a step.
    const std::int64_t sampled = std::min(request.sequences, options.rows_max);
    add(fmt::format("logits of {} rows", sampled),
        sampled * config.vocab_size * static_cast<std::int64_t>(sizeof(float)), false,
        "the number of sequences");
    plan.limit_bytes = request.limit_bytes > 0 ? request.limit_bytes : available_memory_bytes();
    return plan;
}

std::string MemoryPlan::to_text() const {
    std::string text = "memory plan\n";
    const auto line = [&](std::string_view what, std::int64_t bytes, std::string_view note) {
        text += fmt::format("  {:<36} {:>10}{}{}\n", what, bytes_text(bytes),
                            note.empty() ? "" : "  ", note);
    };
    for (const Item& item : items)
        line(item.what, item.bytes, item.mapped ? "mapped from the files" : "");
    line("to allocate", anonymous_bytes, "");
    line("available", limit_bytes,
         mapped_bytes > limit_bytes - anonymous_bytes
             ? "less than allocations and mapped files: weights will be read again from disk"
             : "");
    return text;
}

Status check_memory_plan(const MemoryPlan& plan) {
    if (plan.anonymous_bytes <= plan.limit_bytes) return {};
    const MemoryPlan::Item* largest = nullptr;
    std::string parts;
    for (const MemoryPlan::Item& item : plan.items) {
        if (item.mapped) continue;
        parts +=
            fmt::format("{}{} {}", parts.empty() ? "" : ", ", item.what, bytes_text(item.bytes));
        if (!item.lower.empty() && (largest == nullptr || item.bytes > largest->bytes))
            largest = &item;
    }
    return error(StatusCode::resource_exhausted,
                 "memory: {} ({} bytes) are needed and {} ({} bytes) are available: {}{}{}",
                 bytes_text(plan.anonymous_bytes), plan.anonymous_bytes,
                 bytes_text(plan.limit_bytes), plan.limit_bytes, parts,
                 largest == nullptr ? "" : "; lower ", largest == nullptr ? "" : largest->lower);
}

}  // namespace fathom
