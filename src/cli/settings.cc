#include "cli/settings.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <map>
#include <string_view>

#include "base/log.h"
#include "cli/commands.h"

namespace fathom {
namespace {

constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kKvTokensMax = 1'000'000'000'000;  // 890 TB on the released model
constexpr std::int64_t kDayS = 86'400;
constexpr std::int64_t kQuotaBurstSeconds = 4;

void bind_stack(StackOptions& stack, ConfigSchema& schema) {
    schema.add("model.dir", &stack.model_dir, "checkpoint directory");
    schema.add("model.name", &stack.model_name, "name in the API; the directory's when empty");
    schema.add("model.packed_file", &stack.packed_file,
               "weights that `fathom pack` wrote; DIR/model.packed when empty and there");
    schema.add_choice("model.packed_memory", &stack.packed_memory, {"auto", "copy", "map"},
                      "the packed file: copied into huge pages (faster to read), mapped (starts at "
                      "once), or copied where it fits");
    schema.add_choice("model.numeric_mode", &stack.numeric_mode, {"real", "fp32"},
                      "arithmetic: the release's, or nothing quantised");
    schema.add_choice("model.cache_storage", &stack.cache_storage, {"packed", "bf16"},
                      "how KV is held; results are the same bits");
    schema.add("engine.backend", &stack.backend,
               "kernels: auto, x86, x86-avx2, x86-avx512, reference");
    schema.add("engine.threads", &stack.threads, 0, 4096,
               "compute threads; 0: one per physical core");
    schema.add("engine.pin_threads", &stack.pin_threads,
               "compute threads stay on their processors");
    schema.add("engine.cpus", &stack.cpus,
               "processors to place them on, memory nodes apart by |: \"0-3|4-7\"; empty: all");
    schema.add("engine.context_tokens", &stack.context_tokens, 0, kAny,
               "prompt and output of one request; 0: the model's positions");
    schema.add("engine.kv_tokens", &stack.kv_tokens, 0, kKvTokensMax,
               "KV cache in tokens; 0: what is useful and fits");
    schema.add("engine.memory_limit_mib", &stack.memory_limit_mib, 0, std::int64_t{1} << 40,
               "memory to plan with; 0: what the machine has");
    EngineConfig& engine = stack.engine;
    schema.add("engine.sequences_max", &engine.sequences_max, 1, 65'536, "sequences at a time");
    schema.add("engine.step_tokens_max", &engine.step_tokens_max, 1, 32'768, "rows in one step");
    schema.add("engine.prefill_chunk_max", &engine.prefill_chunk_max, 1, 32'768,
               "prompt rows of one request in a step");
    schema.add("engine.step_budget_ms", &stack.step_budget_ms, 1, 60'000,
               "how long a step with prompts should take, by the cost model");
    schema.add("engine.cost_model", &stack.cost_model,
               "file of `fathom calibrate`; empty: a probe at start; rows: no times, rows alone "
               "limit a step");
    schema.add("engine.waiting_max", &engine.waiting_max, 1, 1'000'000,
               "queued requests; more are refused");
    schema.add_choice("engine.prefill", &stack.prefill, {"exact", "tail", "halo"},
                      "which prompt rows run the decoder half");
    schema.add("engine.tail_tokens", &engine.tail_tokens, 1, kAny, "rows that `tail` runs");
    schema.add("engine.prefix_cache", &engine.prefix_cache,
               "keep computed pages for requests that begin alike");
    schema.add("engine.snapshot_mib", &stack.snapshot_mib, -1, std::int64_t{1} << 30,
               "window snapshots, for exact continuations; -1: four for each sequence");
    schema.add("engine.snapshot_life_s", &stack.snapshot_life_s, 1, kDayS,
               "a snapshot that is not used for so long is dropped");
}

void bind_pool(Settings& settings, ConfigSchema& schema) {
    StackOptions& stack = settings.stack;
    Settings::Pool& pool = settings.pool;
    schema.add_choice("pool.store", &stack.pool.store, {"shared", "embedded", "rados"},
                      "where the KV pool is: in pool.dir, for any number of processes or for this "
                      "one alone, or in a Ceph cluster (docs/kv_pool.md)");
    schema.add("pool.rados_conf", &stack.pool.rados.conf,
               "the cluster's ceph.conf; empty: where Ceph looks for it");
    schema.add("pool.rados_user", &stack.pool.rados.user,
               "name in the cluster, without \"client.\"");
    schema.add("pool.rados_keyring", &stack.pool.rados.keyring,
               "file with its key; empty: as the configuration says");
    schema.add("pool.rados_pool", &stack.pool.rados.pool, "pool of blocks; may be erasure-coded");
    schema.add("pool.rados_index_pool", &stack.pool.rados.index_pool,
               "pool of the lists of their names; replicated");
    schema.add("pool.rados_namespace", &stack.pool.rados.rados_namespace,
               "namespace in both, another for every model with blocks of another size");
    schema.add("pool.rados_timeout_s", &stack.pool.rados.timeout_s, 1, 600,
               "after which a request that the cluster does not answer has failed");
    schema.add("pool.dir", &stack.pool.directory,
               "directory of the KV pool: computed prompts and answers outlive the process there");
    schema.add("pool.dirs", &stack.pool.directories,
               "instead of it: directories on several disks, repeatable, with pool.ec; inside each "
               "disk's mount point, so that a disk that is not mounted is seen as missing");
    schema.add("pool.ec", &stack.pool.ec,
               "data+parity, as 4+2: as many of the disks of pool.dirs may be lost as there is "
               "parity");
    schema.add("pool.writer", &stack.pool.writer,
               "name of what this process writes to in a shared one, always the same; for mounts "
               "whose locks do not reach other hosts. Empty: the first that is free");
    schema.add(
        "pool.capacity_mib", &pool.capacity_mib, 0, std::int64_t{1} << 40,
        "files of the pool, of all processes together, in each of pool.dirs; 0: half of what "
        "is free or the pool's, at most 1 TiB");
    schema.add("pool.secret_file", &stack.pool.secret_file,
               "32 bytes that names of blocks depend on; empty: DIR/SECRET, made when absent");
    schema.add("pool.encrypt", &stack.pool.encrypt,
               "blocks on the disk are encrypted, with a key for each API key and model; plain "
               "ones of before are not used any more");
    schema.add("pool.key_dir", &stack.pool.key_directory,
               "directory of these keys; empty: DIR/keys. Elsewhere is better: who has both disks "
               "has the blocks");
    schema.add("pool.quota_mib_per_key", &pool.quota_mib_per_key, 0, std::int64_t{1} << 40,
               "what one API key may keep in the pool; 0: no limit");
    schema.add("pool.quota_put_mib_s_per_key", &pool.quota_put_mib_s_per_key, 0, 1 << 20,
               "what it may store a second, over four seconds; 0: no limit");
    schema.add(
        "pool.staging_mib", &pool.staging_mib, 1, 1 << 14,
        "memory for blocks that wait to be stored; what comes when it is full is not stored");
    schema.add("pool.windows_mib", &stack.pool_windows_mib, -1, 1 << 30,
               "encoder windows kept in memory for this and other servers of the pool on this "
               "machine; -1: as engine.snapshot_mib");
    schema.add(
        "pool.find_ms", &stack.pool_find_ms, 0, 600'000,
        "how long a request may wait to know what the pool has; 0: 20, with pool.store = embedded "
        "10");
    schema.add("pool.load_ms", &stack.pool_load_ms, 0, 600'000,
               "how long a request waits for its blocks, and beside it");
    schema.add("pool.load_ms_per_1k_tokens", &stack.pool_load_ms_per_1k_tokens, 0, 600'000,
               "for every 1000 tokens; never more than a quarter of what computing them takes");
    schema.add_choice("pool.share", &pool.share, {"account", "all"},
                      "who finds cached KV, here and in the pool: requests of one API key, or all");
    schema.add_choice("pool.traffic_class", &pool.traffic_class,
                      {"agent", "chatbot", "system", "ephemeral"},
                      "how long blocks live: 3 days, 7 days, 7 days while used, 1 hour; a request "
                      "may say otherwise (x-fathom-traffic-class)");
    schema.add("pool.key_classes", &pool.key_classes,
               "classes of the keys of server.api_keys, in their order and no more; repeatable");
}

void bind_server(Settings::Server& server, ConfigSchema& schema) {
    schema.add("server.host", &server.host, "address to listen on");
    schema.add("server.port", &server.port, 0, 65'535, "port; 0: any free one");
    schema.add("server.api_keys", &server.api_keys,
               "accepted bearer key, repeatable; needed for other addresses than loopback", true);
    schema.add("server.model_aliases", &server.model_aliases, "further model names, repeatable");
    schema.add_choice("server.profile", &server.profile, {"open", "reference"},
                      "open: requests may ask for more than the vendor's codec takes, and their "
                      "sampling values hold; reference: byte for byte as it behaves");
    schema.add_choice("server.messages_errors", &server.messages_errors,
                      {"auto", "anthropic", "openai"},
                      "shape of errors of /v1/messages; auto: anthropic in the profile open");
    schema.add("server.responses_max", &server.responses_max, 0, 10'000'000,
               "stored responses, for previous_response_id; the oldest go first");
    schema.add("server.responses_mib_max", &server.responses_mib_max, 0, std::int64_t{1} << 20,
               "memory for them");
    schema.add("server.responses_life_s", &server.responses_life_s, 1, 30 * kDayS,
               "how long a response is stored");
    schema.add("server.connections_max", &server.connections_max, 1, 1'000'000, "open connections");
    schema.add("server.requests_max", &server.requests_max, 1, 1'000'000, "live requests");
    schema.add("server.body_kib_max", &server.body_kib_max, 1, 1 << 20, "request body");
    schema.add("server.header_kib_max", &server.header_kib_max, 1, 1 << 10, "request header");
    schema.add("server.header_timeout_s", &server.header_timeout_s, 1, kDayS, "to read a header");
    schema.add("server.body_timeout_s", &server.body_timeout_s, 1, kDayS, "to read a body");
    schema.add("server.idle_timeout_s", &server.idle_timeout_s, 1, kDayS, "idle connection");
    schema.add("server.not_started_s", &server.not_started_s, 1, kDayS,
               "a request that waits longer for its first token is ended");
    schema.add("server.drain_s", &server.drain_s, 0, kDayS,
               "live requests may end for so long at shutdown");
}

void bind_codec(Settings::Codec& codec, ConfigSchema& schema) {
    schema.add_choice("codec.dialect", &codec.dialect, {"v41", "v4"},
                      "how prompts of the model are written");
    schema.add_choice("codec.effort_dialect", &codec.effort_dialect, {"v4_0731", "v4_original"},
                      "how V4 states the effort: as checkpoints since 31 July 2026 expect it, or "
                      "as earlier ones do");
    schema.add_choice("codec.history_reasoning", &codec.history_reasoning,
                      {"drop_without_tools", "keep", "official"},
                      "reasoning of earlier answers in the prompt: with tools only, always, or as "
                      "the published scripts do");
    schema.add_choice("codec.content_specials", &codec.content_specials, {"plain", "recognize"},
                      "special tokens spelled in messages: plain text, or special (to compare "
                      "with old logs; clients can then forge turns)");
    schema.add("codec.default_thinking", &codec.default_thinking,
               "whether a request that does not say is answered with thinking");
    schema.add_choice("codec.missing_reasoning", &codec.missing_reasoning, {"fill_empty", "reject"},
                      "thinking mode: calls in the history without their reasoning");
    schema.add_choice("codec.server_tools", &codec.server_tools, {"protocol", "drop", "reject"},
                      "tools that a server runs itself, such as web search; protocol: Responses "
                      "drops them, Messages rejects them");
    schema.add_choice("codec.dsml_recovery", &codec.dsml_recovery, {"off", "orphan_invoke"},
                      "a call of a declared tool that is whole but stands outside of a block, with "
                      "damaged tags: text, or a call (what may be one is held back, 64 KiB at "
                      "most)");
    schema.add_choice("codec.image_token_spelling", &codec.image_token_spelling,
                      {"<｜image｜>", "<｜deepseek_image｜>"},
                      "what the tokenizer calls the token that stands for an image");
}

void bind_requests(Settings& settings, ConfigSchema& schema) {
    Settings::Sampling& sampling = settings.sampling;
    schema.add("sampling.max_tokens", &sampling.max_tokens, 0, kAny,
               "output tokens; 0: 16 for a prompt, 8192 for a conversation");
    schema.add("sampling.temperature", &sampling.temperature, 0, 2, "0 is greedy");
    schema.add("sampling.top_p", &sampling.top_p, 1e-9, 1, "mass of the kept tokens");
    schema.add("sampling.top_k", &sampling.top_k, 0, kAny, "number of kept tokens; 0: all");
    schema.add("sampling.min_p", &sampling.min_p, 0, 1, "least share of the best probability");
    schema.add("sampling.seed", &sampling.seed, 0, kAny, "equal seeds give equal answers");
    schema.add("sampling.frequency_penalty", &sampling.frequency_penalty, -2, 2,
               "taken from a token's logit for each time it stands in the output");
    schema.add("sampling.presence_penalty", &sampling.presence_penalty, -2, 2,
               "taken from the logits of tokens that stand in the output");
    schema.add("sampling.repetition_penalty", &sampling.repetition_penalty, 0.01, 10,
               "divides the logits of tokens in prompt and output; 1: off");
    schema.add("sampling.logit_bias", &sampling.logit_bias,
               "ID=BIAS, added to the logit of a token, repeatable");
    schema.add("sampling.min_tokens", &sampling.min_tokens, 0, kAny,
               "output tokens before which nothing ends the answer");
    schema.add("sampling.stop", &sampling.stop, "text that ends the answer, repeatable");
    schema.add("generate.prompt", &settings.generate.prompt, "the prompt");
    schema.add("generate.chat", &settings.generate.chat,
               "render the prompt as one user turn instead of raw text");
    schema.add("generate.choices", &settings.generate.choices, 1, 16, "answers to each prompt");
    schema.add("generate.logprobs", &settings.generate.logprobs, -1, 20,
               "log probabilities of each token and of so many others; -1: none");
    schema.add_choice("generate.logprobs_mode", &settings.generate.logprobs_mode,
                      {"raw", "processed"},
                      "of the model's distribution, or of the one drawn from");
    schema.add("generate.input", &settings.generate.input, "JSONL file of requests");
    schema.add("generate.output", &settings.generate.output,
               "JSONL file of answers; continued when it exists");
    schema.add("chat.system", &settings.chat.system, "system message");
    schema.add("chat.thinking", &settings.chat.thinking, "let the model think first");
}

void bind_bench(Settings::Bench& bench, ConfigSchema& schema) {
    schema.add("bench.concurrency", &bench.concurrency,
               "requests under way at most; a list sweeps: 1,4,16");
    schema.add("bench.input_len", &bench.input_len, "random prompts: tokens; a list sweeps");
    schema.add("bench.output_len", &bench.output_len,
               "output tokens where the dataset does not say; a list sweeps");
    schema.add("bench.num_prompts", &bench.num_prompts, 0, 10'000'000,
               "requests a point; 0: 3 × concurrency, at least 8, or the dataset file's");
    schema.add("bench.warmups", &bench.warmups, 0, 10'000,
               "requests before each point that do not count");
    schema.add("bench.dataset", &bench.dataset, "random, sharegpt:FILE or jsonl:FILE");
    schema.add("bench.tokenizer", &bench.tokenizer,
               "with --url: tokenizer.json, for random prompts of exact length");
    schema.add("bench.range_ratio", &bench.range_ratio, 0, 1,
               "random lengths lie within this share around the given ones");
    schema.add("bench.prompt_tokens_max", &bench.prompt_tokens_max, 1, kAny,
               "sharegpt: longer prompts are left out");
    schema.add("bench.total_tokens_max", &bench.total_tokens_max, 1, kAny,
               "sharegpt: longer pairs are left out");
    schema.add("bench.url", &bench.url,
               "measure this server, e.g. http://127.0.0.1:8000/v1, instead of --model");
    schema.add("bench.api_key", &bench.api_key, "bearer key for --url", true);
    schema.add_choice("bench.endpoint", &bench.endpoint, {"auto", "chat", "completions"},
                      "where texts go; auto: dataset files to chat, random to completions");
    schema.add("bench.request_rate", &bench.request_rate,
               "requests a second; inf: as soon as concurrency allows");
    schema.add("bench.burstiness", &bench.burstiness, 1e-3, 1e6,
               "shape of the gaps between requests: 1 Poisson, less is burstier");
    schema.add("bench.stop_at_eos", &bench.stop_at_eos,
               "let answers end early; else they run to their length (ignore_eos)");
    schema.add("bench.goodput", &bench.goodput,
               "a bound that good requests keep, ttft:MS, tpot:MS or e2el:MS; repeatable");
    schema.add("bench.timeout_s", &bench.timeout_s, 1, kDayS, "for one request");
    schema.add("bench.connect_timeout_s", &bench.connect_timeout_s, 1, kDayS, "to reach --url");
    schema.add("bench.mixed", &bench.mixed, 0, kKvTokensMax,
               "measure alone and beside a prompt of so many tokens in progress; 0: off");
    schema.add("bench.csv", &bench.csv, "write the results to this file");
    schema.add("bench.json", &bench.json, "write the results to this file");
    schema.add("bench.html", &bench.html, "write a page with plots to this file");
}

LogStyle log_style(const std::string& word) {
    if (word == "auto") return isatty(STDERR_FILENO) == 1 ? LogStyle::text : LogStyle::json;
    return word == "json" ? LogStyle::json : LogStyle::text;
}

LogLevel log_level_of(const std::string& word) {
    if (word == "debug") return LogLevel::debug;
    if (word == "info") return LogLevel::info;
    if (word == "warning") return LogLevel::warning;
    return word == "error" ? LogLevel::error : LogLevel::off;
}

}  // namespace

void bind_settings(Settings& settings, ConfigSchema& schema) {
    bind_stack(settings.stack, schema);
    bind_server(settings.server, schema);
    bind_codec(settings.codec, schema);
    bind_pool(settings, schema);
    bind_requests(settings, schema);
    bind_bench(settings.bench, schema);
    schema.add_choice("log.level", &settings.log.level,
                      {"debug", "info", "warning", "error", "off"}, "least severe line shown");
    schema.add_choice("log.style", &settings.log.style, {"auto", "text", "json"},
                      "auto: text on a terminal, else JSON");
}

const std::vector<FlagAlias>& flag_aliases() {
    static const std::vector<FlagAlias> kAliases = {
        {"-m", "model.dir"},
        {"--model", "model.dir"},
        {"--served-model-name", "model.name"},
        {"--threads", "engine.threads"},
        {"--max-model-len", "engine.context_tokens"},
        {"--max-num-seqs", "engine.sequences_max"},
        {"--max-num-batched-tokens", "engine.step_tokens_max"},
        {"--host", "server.host"},
        {"--port", "server.port"},
        {"--api-key", "server.api_keys"},
        {"--pool", "pool.dir"},
        {"-n", "sampling.max_tokens"},
        {"--max-tokens", "sampling.max_tokens"},
        {"--temperature", "sampling.temperature"},
        {"--top-p", "sampling.top_p"},
        {"--top-k", "sampling.top_k"},
        {"--min-p", "sampling.min_p"},
        {"--seed", "sampling.seed"},
        {"--frequency-penalty", "sampling.frequency_penalty"},
        {"--presence-penalty", "sampling.presence_penalty"},
        {"--repetition-penalty", "sampling.repetition_penalty"},
        {"--logit-bias", "sampling.logit_bias"},
        {"--min-tokens", "sampling.min_tokens"},
        {"--logprobs", "generate.logprobs"},
        {"--choices", "generate.choices"},
        {"--stop", "sampling.stop"},
        {"-p", "generate.prompt"},
        {"--prompt", "generate.prompt"},
        {"--chat", "generate.chat"},
        {"-i", "generate.input"},
        {"--input", "generate.input"},
        {"-o", "generate.output"},
        {"--output", "generate.output"},
        {"--system", "chat.system"},
        {"--thinking", "chat.thinking"},
        {"--url", "bench.url"},
        {"--base-url", "bench.url"},
        {"--dataset", "bench.dataset"},
        {"--tokenizer", "bench.tokenizer"},
        {"--concurrency", "bench.concurrency"},
        {"--max-concurrency", "bench.concurrency"},
        {"--input-len", "bench.input_len"},
        {"--random-input-len", "bench.input_len"},
        {"--output-len", "bench.output_len"},
        {"--random-output-len", "bench.output_len"},
        {"--random-range-ratio", "bench.range_ratio"},
        {"--num-prompts", "bench.num_prompts"},
        {"--num-warmups", "bench.warmups"},
        {"--request-rate", "bench.request_rate"},
        {"--burstiness", "bench.burstiness"},
        {"--goodput", "bench.goodput"},
        {"--endpoint", "bench.endpoint"},
        {"--mixed", "bench.mixed"},
        {"--csv", "bench.csv"},
        {"--json", "bench.json"},
        {"--html", "bench.html"},
    };
    return kAliases;
}

std::optional<int> read_settings(const std::vector<std::string>& args, CommandSpec spec,
                                 Settings& settings) {
    ConfigSchema schema;
    bind_settings(settings, schema);
    spec.aliases = flag_aliases();
    const Result<CommandLine> line = parse_command_line(args, schema, spec);
    if (!line.ok()) {
        fmt::print(stderr, "fathom: {}\n", line.status().message());
        return kExitUsage;
    }
    if (line->help) {
        fmt::print("{}", help_text(schema, spec));
        return kExitOk;
    }
    init_logging(log_level_of(settings.log.level), log_style(settings.log.style));
    if (std::find(spec.tables.begin(), spec.tables.end(), "pool") != spec.tables.end()) {
        const std::string idle = idle_pool_settings(settings, schema);
        if (!idle.empty()) log_warning("{}", idle);
    }
    settings.stack.pool.capacity_bytes = settings.pool.capacity_mib << 20;
    settings.stack.pool.tier.staging_bytes = settings.pool.staging_mib << 20;
    settings.stack.pool.quota = {
        .bytes_max = settings.pool.quota_mib_per_key << 20,
        .put_bytes_per_s = settings.pool.quota_put_mib_s_per_key << 20,
        .put_burst_bytes = kQuotaBurstSeconds * (settings.pool.quota_put_mib_s_per_key << 20)};
    return std::nullopt;
}

namespace {

Result<KvSharingOptions> sharing_options(const Settings::Pool& from, const Stack& stack) {
    KvSharingOptions to;
    to.per_key = from.share == "account";
    if (stack.pool != nullptr) to.secret = stack.pool->secret();
    FATHOM_ASSIGN(to.traffic_class, parse_traffic_class(from.traffic_class));
    for (const std::string& name : from.key_classes) {
        const Result<TrafficClass> known = parse_traffic_class(name);
        if (!known.ok()) return known.status().with_context("pool.key_classes");
        to.key_classes.push_back(*known);
    }
    return to;
}

}  // namespace

std::string idle_pool_settings(const Settings& settings, const ConfigSchema& schema) {
    if (settings.stack.pool.named()) return {};
    std::string keys;
    for (const ConfigSchema::Origin& of : schema.effective()) {
        const bool given = of.key.starts_with("pool.") && of.origin != "default";
        if (!given || of.key == "pool.share" || of.key == "pool.dir") continue;
        keys += (keys.empty() ? "" : ", ") + of.key;
    }
    if (keys.empty()) return {};
    return fmt::format(
        "{}: without effect, since there is no KV pool; name one with --pool DIR (pool.dir)", keys);
}

Status check_key_classes(const Settings& settings) {
    const std::vector<std::string>& keys = settings.server.api_keys;
    const std::vector<std::string>& classes = settings.pool.key_classes;
    for (const std::string& name : classes) {
        const Result<TrafficClass> known = parse_traffic_class(name);
        if (!known.ok()) return known.status().with_context("pool.key_classes");
    }
    if (classes.size() > keys.size())
        return invalid_argument(
            "pool.key_classes has {} classes for {} keys of server.api_keys; the classes are those "
            "of the keys, in their order",
            classes.size(), keys.size());
    std::map<std::string_view, std::size_t> first;
    for (std::size_t i = 0; i < classes.size(); ++i) {
        const std::size_t before = first.emplace(keys[i], i).first->second;
        if (classes[before] != classes[i])
            return invalid_argument(
                "pool.key_classes: entries {} and {} of server.api_keys are one key, and its "
                "classes are {} and {}; give it one",
                before + 1, i + 1, classes[before], classes[i]);
    }
    return {};
}

Result<ServerOptions> server_options(const Settings& settings, const Stack& stack) {
    constexpr std::int64_t kSecondUs = 1'000'000;
    const Settings::Server& from = settings.server;
    ServerOptions to;
    to.host = from.host;
    to.port = static_cast<std::uint16_t>(from.port);
    to.api_keys = from.api_keys;
    to.model_aliases = from.model_aliases;
    to.api = api_options(settings);
    const bool reference = from.profile == "reference";
    if (reference) to.api.lower.profile = Profile::reference;
    const bool anthropic =
        from.messages_errors == "anthropic" || (from.messages_errors == "auto" && !reference);
    to.messages_errors = anthropic ? ErrorShape::anthropic : ErrorShape::openai;
    to.responses.entries_max = static_cast<std::size_t>(from.responses_max);
    to.responses.bytes_max = static_cast<std::size_t>(from.responses_mib_max) << 20;
    to.responses.life_us = from.responses_life_s * kSecondUs;
    to.connections_max = static_cast<std::size_t>(from.connections_max);
    to.body_bytes_max = static_cast<std::size_t>(from.body_kib_max) << 10;
    to.header_bytes_max = static_cast<std::size_t>(from.header_kib_max) << 10;
    to.header_timeout_us = from.header_timeout_s * kSecondUs;
    to.body_timeout_us = from.body_timeout_s * kSecondUs;
    to.idle_timeout_us = from.idle_timeout_s * kSecondUs;
    to.drain_us = from.drain_s * kSecondUs;
    to.owner = stack.owner_options();
    to.owner.in_flight_max = static_cast<std::size_t>(from.requests_max);
    to.owner.not_started_us = from.not_started_s * kSecondUs;
    FATHOM_ASSIGN(to.sharing, sharing_options(settings.pool, stack));
    if (stack.pool != nullptr)
        to.degraded = [pool = stack.pool.get()] {
            return pool->health().state != StoreHealth::State::ok;
        };
    to.handle_signals = true;
    return to;
}

ApiOptions api_options(const Settings& settings) {
    const Settings::Codec& from = settings.codec;
    ApiOptions to;
    to.render.dialect = from.dialect == "v4" ? Dialect::v4 : Dialect::v41;
    to.render.effort_dialect =
        from.effort_dialect == "v4_original" ? EffortDialect::v4_original : EffortDialect::v4_0731;
    if (from.history_reasoning == "keep") to.render.history_reasoning = HistoryReasoning::keep;
    if (from.history_reasoning == "official")
        to.render.history_reasoning = HistoryReasoning::official;
    if (from.content_specials == "recognize") to.specials = ContentSpecials::recognize;
    to.lower.default_thinking = from.default_thinking;
    if (from.missing_reasoning == "reject") to.lower.missing_reasoning = MissingReasoning::reject;
    to.render.tokens.image = from.image_token_spelling;
    if (from.dsml_recovery == "orphan_invoke") to.lower.dsml_recovery = DsmlRecovery::orphan_invoke;
    if (from.server_tools != "protocol") {
        const ServerTools tools =
            from.server_tools == "drop" ? ServerTools::drop : ServerTools::reject;
        to.lower.responses_web_search = to.lower.messages_web_search = tools;
    }
    return to;
}

}  // namespace fathom
