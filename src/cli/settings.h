// All settings of the program in one struct and one schema. Commands share them, so one TOML file
// serves every command, and `fathom config dump` shows them all. Units stand in the names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/config.h"
#include "cli/options.h"
#include "cli/stack.h"
#include "gateway/server.h"

namespace fathom {

struct Settings {
    StackOptions stack;

    struct Server {
        std::string host = "127.0.0.1";
        std::int64_t port = 8000;
        std::vector<std::string> api_keys, model_aliases;
        std::string profile = "open", messages_errors = "auto";
        std::int64_t responses_max = 1000, responses_mib_max = 64, responses_life_s = 3600;
        std::int64_t connections_max = 1024, requests_max = 1024;
        std::int64_t body_kib_max = 16 << 10, header_kib_max = 16;
        std::int64_t header_timeout_s = 10, body_timeout_s = 60, idle_timeout_s = 75;
        std::int64_t not_started_s = 600, drain_s = 60;
    } server;

    struct Pool {  // beside what is in `stack`
        std::int64_t capacity_mib = 0, staging_mib = 64;
        std::int64_t quota_mib_per_key = 0, quota_put_mib_s_per_key = 0;
        std::string share = "account", traffic_class = "agent";
        std::vector<std::string> key_classes;
    } pool;

    struct Codec {  // recipe.md 0.3
        std::string dialect = "v41", effort_dialect = "v4_0731";
        std::string history_reasoning = "drop_without_tools";
        std::string content_specials = "plain", missing_reasoning = "fill_empty";
        std::string server_tools = "protocol", dsml_recovery = "off";
        std::string image_token_spelling = "<｜image｜>";
        bool default_thinking = true;
    } codec;

    struct Sampling {
        std::int64_t max_tokens = 0;  // 0: the protocol's default (gateway/generation.h)
        double temperature = 1, top_p = 1, min_p = 0;
        std::int64_t top_k = 0, seed = 0;
        double frequency_penalty = 0, presence_penalty = 0, repetition_penalty = 1;
        std::vector<std::string> logit_bias;  // ID=BIAS
        std::int64_t min_tokens = 0;
        std::vector<std::string> stop;
    } sampling;

    struct Generate {
        std::string prompt, input, output;
        bool chat = false;
        std::int64_t choices = 1;
        std::int64_t logprobs = -1;  // −1: none
        std::string logprobs_mode = "raw";
    } generate;

    struct Chat {
        std::string system;
        bool thinking = false;
    } chat;

    struct Bench {
        std::string concurrency = "1", input_len = "512", output_len = "128";
        std::int64_t num_prompts = 0;  // 0: three times the concurrency, at least 8
        std::int64_t warmups = 1;
        std::string dataset = "random", tokenizer;
        double range_ratio = 0;
        std::int64_t prompt_tokens_max = 1024, total_tokens_max = 2048;
        std::string url, api_key, endpoint = "auto", request_rate = "inf";
        double burstiness = 1;
        bool stop_at_eos = false;
        std::vector<std::string> goodput;
        std::int64_t timeout_s = 600, connect_timeout_s = 10, mixed = 0;
        std::string csv, json, html;
    } bench;

    struct Log {
        std::string level = "info", style = "auto";
    } log;
};

// Binds every member to its key. `settings` must outlive `schema`.
void bind_settings(Settings& settings, ConfigSchema& schema);

// The short and familiar flags.
const std::vector<FlagAlias>& flag_aliases();

// Reads args into settings and starts logging. A value means: stop with this exit status (help was
// printed, or the error was).
std::optional<int> read_settings(const std::vector<std::string>& args, CommandSpec spec,
                                 Settings& settings);

// The pool's settings that were given although no pool is, by what the schema says of them: a line
// for the log, or nothing. Of settings that mean something without a pool it says nothing.
std::string idle_pool_settings(const Settings& settings, const ConfigSchema& schema);

// Whether server.api_keys and pool.key_classes belong together: no more classes than keys, and one
// class for a key that is there twice.
Status check_key_classes(const Settings& settings);

Result<ServerOptions> server_options(const Settings& settings, const Stack& stack);

// How requests are read and rendered, in the profile `open`; names and bounds of models are left
// out.
ApiOptions api_options(const Settings& settings);

}  // namespace fathom
