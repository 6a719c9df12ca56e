// fathom inspect DIR [--json]: what a checkpoint is, and whether every tensor is the one that its
// config implies.
#include <fmt/format.h>

#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "model/checkpoint.h"
#include "model/kv_cache.h"
#include "model/memory_plan.h"

namespace fathom {
namespace {

struct Parameters {
    std::int64_t backbone = 0, engram = 0, drafts = 0, vision = 0;
    std::int64_t total() const { return backbone + engram + drafts + vision; }
};

// Numbers that carry information: scales belong to the storage, a byte of packed FP4 holds two.
Parameters count_parameters(const ModelConfig& config) {
    Parameters parameters;
    for_each_expected_tensor(config, [&](const ExpectedTensor& tensor) {
        if (tensor.type == TensorType::f8_e8m0) return;
        std::int64_t count = tensor.type == TensorType::i8 ? 2 : 1;
        for (std::int64_t n : tensor.shape)
            count *= n;
        const std::string_view name = tensor.name;
        const bool vision = name.starts_with("vision.") || name.starts_with("aligner.") ||
                            name.starts_with("image_");
        std::int64_t& part = vision                                   ? parameters.vision
                             : name.starts_with("mtp.")               ? parameters.drafts
                             : name.ends_with(".engram.embed.weight") ? parameters.engram
                                                                      : parameters.backbone;
        part += count;
    });
    return parameters;
}

const char* attention_kind(const LayerRole& role) {
    if (role.ratio == 0) return "window";
    if (role.owns_kv) return "full";
    return role.runs_indexer ? "reindex" : "reuse";
}

// What main KV and index keys of a token cost over all owners.
double kv_bytes_per_token(const KvLayout& layout) {
    return static_cast<double>(layout.page_bytes) / static_cast<double>(kPageTokens);
}

// ------------------------------------------------------------------------------------------- JSON

Json roles_to_json(const ModelConfig& config) {
    Json layers = Json::array();
    for (const LayerRole& role : config.roles) {
        Json layer = Json::object();
        layer.set("attention", attention_kind(role));
        layer.set("ratio", role.ratio);
        layer.set("kv_owner", role.kv_owner);
        layer.set("index_source", role.index_source);
        layer.set("index_k_owner", role.index_k_owner);
        layer.set("owns_kv", role.owns_kv);
        layer.set("owns_index_k", role.owns_index_k);
        layer.set("runs_indexer", role.runs_indexer);
        layer.set("candidate_source", role.is_candidate_source);
        layer.set("uses_candidates", role.uses_candidates);
        layer.set("engram", role.engram);
        layers.push_back(std::move(layer));
    }
    return layers;
}

Json model_to_json(const ModelConfig& config) {
    Json model = Json::object();
    model.set("architecture", "deepseek_v41");
    model.set("layers", config.layers);
    model.set("encoder_layers", config.boundary());
    model.set("hidden", config.hidden);
    model.set("heads", config.heads);
    model.set("head_dim", config.head_dim);
    model.set("vocab_size", config.vocab_size);
    model.set("window", config.window);
    model.set("context_tokens", config.max_positions);
    model.set("experts", config.experts);
    model.set("experts_per_token", config.experts_per_token);
    model.set("streams", config.streams);
    model.set("quantised", config.quantised);
    model.set("draft_stages", config.draft_stages);
    model.set("draft_block", config.draft_stages > 0 ? config.draft_block : 0);
    model.set("vision", config.vision.has_value());
    return model;
}

Json engram_to_json(const ModelConfig& config) {
    Json tables = Json::array();
    for (std::size_t i = 0; i < config.engram_layers.size(); ++i) {
        Json table = Json::object();
        table.set("layer", config.engram_layers[i]);
        table.set("rows", config.engram_rows[i]);
        table.set("dim", config.engram_head_dim);
        tables.push_back(std::move(table));
    }
    return tables;
}

Json report_to_json(const Checkpoint& checkpoint) {
    const ModelConfig& config = checkpoint.config();
    const Checkpoint::Summary& summary = checkpoint.summary();
    const KvLayout layout = make_kv_layout(config, CacheStorage::packed);
    Json report = Json::object();
    report.set("ok", true);
    report.set("dir", checkpoint.dir());
    report.set("model", model_to_json(config));
    report.set("roles", roles_to_json(config));
    const Parameters count = count_parameters(config);
    Json parameters = Json::object();
    parameters.set("total", count.total());
    parameters.set("backbone", count.backbone);
    parameters.set("engram", count.engram);
    parameters.set("drafts", count.drafts);
    parameters.set("vision", count.vision);
    report.set("parameters", std::move(parameters));
    Json kv = Json::object();
    kv.set("bytes_per_token", kv_bytes_per_token(layout));
    kv.set("page_tokens", kPageTokens);
    kv.set("page_bytes", layout.page_bytes);
    kv.set("sequence_state_bytes", layout.state_bytes);
    report.set("kv", std::move(kv));
    report.set("engram_tables", engram_to_json(config));
    Json files = Json::object();
    files.set("shards", summary.shards);
    files.set("tensors", summary.tensors);
    files.set("bytes", summary.bytes);
    files.set("ignored_tensors", summary.ignored);
    files.set("copied_bytes", summary.copied_bytes);
    Json types = Json::object();
    for (const auto& [type, entry] : summary.by_type) {
        Json item = Json::object();
        item.set("tensors", entry.first);
        item.set("bytes", entry.second);
        types.set(type, std::move(item));
    }
    files.set("by_dtype", std::move(types));
    report.set("files", std::move(files));
    return report;
}

// ------------------------------------------------------------------------------------------- text

// "551.9 B", "14.2 M": parameters as they are spoken of.
std::string count_text(std::int64_t count) {
    const auto value = static_cast<double>(count);
    if (count >= 1'000'000'000) return fmt::format("{:.2f} B", value / 1e9);
    if (count >= 1'000'000) return fmt::format("{:.2f} M", value / 1e6);
    return fmt::format("{}", count);
}

void print_line(std::string_view what, const std::string& text) {
    fmt::print("  {:<16} {}\n", what, text);
}

void print_model(const Checkpoint& checkpoint) {
    const ModelConfig& c = checkpoint.config();
    fmt::print("{}\n", checkpoint.dir());
    print_line("architecture", fmt::format("deepseek_v41, {} layers ({} encoder + {} decoder)",
                                           c.layers, c.boundary(), c.layers - c.boundary()));
    print_line("sizes",
               fmt::format("hidden {}, {} streams, {} heads of {} ({} rotated), window {}",
                           c.hidden, c.streams, c.heads, c.head_dim, c.rope_dim, c.window));
    print_line("context", fmt::format("{} tokens, vocabulary {}", c.max_positions, c.vocab_size));
    print_line("experts", fmt::format("{} routed, {} a token, {} shared, width {}", c.experts,
                                      c.experts_per_token, c.shared_experts, c.expert_inter));
    print_line("weights", c.quantised ? "FP8 in 32×32 tiles, experts in FP4 with a scale for 32"
                                      : "BF16 without scales");
    const Parameters count = count_parameters(c);
    print_line("parameters", fmt::format("{}: backbone {}, Engram tables {}, drafts {}, vision {}",
                                         count_text(count.total()), count_text(count.backbone),
                                         count_text(count.engram), count_text(count.drafts),
                                         count_text(count.vision)));
    for (std::size_t i = 0; i < c.engram_layers.size(); ++i)
        print_line(i == 0 ? "Engram" : "",
                   fmt::format("layer {}: {} rows of {}, {} columns a token", c.engram_layers[i],
                               c.engram_rows[i], c.engram_head_dim, c.engram_columns()));
    print_line("drafts",
               c.draft_stages == 0
                   ? "none"
                   : fmt::format("{} stages, block of {}, {} experts ({} a token)", c.draft_stages,
                                 c.draft_block, c.draft_experts, c.draft_experts_per_token));
    print_line("vision",
               c.vision.has_value()
                   ? fmt::format("{} layers of width {}, at most {} tokens an image",
                                 c.vision->layers, c.vision->hidden, c.vision->max_image_tokens)
                   : "none");
}

void print_storage(const Checkpoint& checkpoint) {
    const KvLayout layout = make_kv_layout(checkpoint.config(), CacheStorage::packed);
    print_line("KV", fmt::format("{} bytes a token, {} a page of {} tokens, {} of state a sequence",
                                 kv_bytes_per_token(layout), layout.page_bytes, kPageTokens,
                                 layout.state_bytes));
    const Checkpoint::Summary& summary = checkpoint.summary();
    print_line("files",
               fmt::format("{} shards, {} tensors, {} bytes ({})", summary.shards, summary.tensors,
                           summary.bytes, bytes_text(static_cast<std::int64_t>(summary.bytes))));
    for (const auto& [type, entry] : summary.by_type)
        print_line(
            "", fmt::format("{:<8} {:>8} tensors {:>16} bytes", type, entry.first, entry.second));
    if (summary.copied_bytes > 0)
        print_line("", fmt::format("{} bytes lie misaligned in their files and are copied",
                                   summary.copied_bytes));
    if (summary.ignored > 0)
        print_line("", fmt::format("{} copies of embedding or head in mtp.* are ignored",
                                   summary.ignored));
}

void print_roles(const ModelConfig& config) {
    fmt::print("  {:>5}  {:<8} {:>5}  {:>8}  {:>9}  {:>10}\n", "layer", "kind", "ratio", "KV owner",
               "index K", "selection");
    const auto layer_text = [](int layer) {
        return layer < 0 ? std::string("-") : fmt::format("{}", layer);
    };
    for (std::size_t i = 0; i < config.roles.size(); ++i) {
        const LayerRole& role = config.roles[i];
        std::string notes;
        if (role.is_candidate_source) notes += "  candidate source";
        if (role.uses_candidates)
            notes += fmt::format("  candidates of {}", config.candidate_source);
        if (role.engram >= 0) notes += "  Engram";
        fmt::print("  {:>5}  {:<8} {:>5}  {:>8}  {:>9}  {:>10}{}\n", i, attention_kind(role),
                   role.ratio, layer_text(role.kv_owner), layer_text(role.index_k_owner),
                   layer_text(role.index_source), notes);
    }
}

// ---------------------------------------------------------------------------------------- outcome

int report_failure(const std::string& dir, const Status& status,
                   const std::vector<std::string>& problems, bool json) {
    if (json) {
        Json list = Json::array();
        for (const std::string& problem : problems)
            list.push_back(problem);
        Json report = Json::object();
        report.set("ok", false);
        report.set("dir", dir);
        report.set("code", status_code_name(status.code()));
        report.set("error", status.message());
        report.set("problems", std::move(list));
        fmt::print("{}\n", report.dump());
    }
    if (json || problems.size() <= 1) {
        fmt::print(stderr, "fathom inspect: {}\n", status.message());
    } else {
        fmt::print(stderr, "fathom inspect: {} is no valid checkpoint\n", dir);
        for (const std::string& problem : problems)
            fmt::print(stderr, "  {}\n", problem);
    }
    return kExitFailed;
}

int inspect(const std::string& dir, bool json) {
    std::vector<std::string> problems;
    CheckpointOptions options;
    options.problems = &problems;
    const auto checkpoint = Checkpoint::open(dir, options);
    if (!checkpoint.ok()) return report_failure(dir, checkpoint.status(), problems, json);
    if (json) {
        fmt::print("{}\n", report_to_json(**checkpoint).dump());
        return kExitOk;
    }
    print_model(**checkpoint);
    print_storage(**checkpoint);
    print_roles((*checkpoint)->config());
    fmt::print(
        "  check: ok, all {} tensors have the name, dtype and shape that the config "
        "implies\n",
        (*checkpoint)->summary().tensors);
    return kExitOk;
}

}  // namespace

int run_inspect(const std::vector<std::string>& args) {
    bool json = false;
    ConfigSchema schema;
    schema.add("inspect.json", &json, "print one JSON object instead of text");
    const CommandSpec spec{.usage = "fathom inspect DIR [options]",
                           .summary = "Says what a checkpoint is and checks every tensor of it.",
                           .tables = {"inspect"},
                           .aliases = {{"--json", "inspect.json"}},
                           .positional_max = 1};
    const Result<CommandLine> line = parse_command_line(args, schema, spec);
    if (!line.ok()) {
        fmt::print(stderr, "fathom inspect: {}\n", line.status().message());
        return kExitUsage;
    }
    if (line->help) {
        fmt::print("{}", help_text(schema, spec));
        return kExitOk;
    }
    if (line->positional.empty()) {
        fmt::print(stderr, "fathom inspect: name a checkpoint folder\n");
        return kExitUsage;
    }
    return inspect(line->positional.front(), json);
}

}  // namespace fathom
