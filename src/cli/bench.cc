// `fathom bench`: a sweep over concurrency and lengths through the engine of this process, or
// against a server; the same figures for both.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <utility>

#include "base/machine_limits.h"
#include "base/output_file.h"
#include "cli/bench/engine_target.h"
#include "cli/bench/http_target.h"
#include "cli/bench/report.h"
#include "cli/commands.h"
#include "cli/interrupts.h"
#include "cli/progress.h"
#include "cli/settings.h"
#include "cli/stack.h"
#include "model/model_presets.h"

namespace fathom {
namespace {

const CommandSpec kSpec = {
    .usage = "fathom bench (--model DIR | --url http://HOST:PORT[/v1]) [options]",
    .summary =
        "Measures throughput and latency (TTFT, TPOT, ITL, E2E) for every combination of the given "
        "concurrencies and lengths.\nWith --model through an engine in this process, with --url as "
        "a client of any OpenAI-compatible server.\n--mixed N compares short requests alone with "
        "short requests beside a long prompt. docs/benchmarking.md explains the figures.",
    .tables = {"bench", "model", "engine", "sampling", "log"},
    .aliases = {},
    .positional_max = 0};

constexpr std::int64_t kSecondUs = 1'000'000;
constexpr std::size_t kListMax = 64;
constexpr std::int64_t kLengthMax = 16 << 20;

// The settings, read and checked.
struct Plan {
    std::vector<std::int64_t> concurrency, input_len, output_len;
    double request_rate = 0;  // 0: inf
    ServiceLevel level;
    bool is_random = true;
};

Result<std::vector<std::int64_t>> parse_list(const char* name, const std::string& text,
                                             std::int64_t high) {
    std::vector<std::int64_t> list;
    const char* at = text.data();
    const char* const end = at + text.size();
    while (true) {
        std::int64_t value = 0;
        const auto [stop, failed] = std::from_chars(at, end, value);
        if (failed != std::errc() || value < 1 || value > high || list.size() >= kListMax ||
            (stop != end && *stop != ','))
            return invalid_argument(
                "bench.{} \"{}\": expected up to {} numbers from 1 to {} with commas between", name,
                text, kListMax, high);
        list.push_back(value);
        if (stop == end) return list;
        at = stop + 1;
    }
}

Result<double> parse_rate(const std::string& text) {
    if (text == "inf") return 0.0;
    double rate = 0;
    const auto [stop, failed] = std::from_chars(text.data(), text.data() + text.size(), rate);
    if (failed != std::errc() || stop != text.data() + text.size() || !(rate > 0) || rate > 1e6)
        return invalid_argument(
            "bench.request_rate \"{}\": expected inf or a number above 0, at most 1000000", text);
    return rate;
}

Result<Plan> make_plan(const Settings& settings) {
    const Settings::Bench& bench = settings.bench;
    if (bench.url.empty() == settings.stack.model_dir.empty())
        return invalid_argument("needs --model DIR or --url URL, and not both");
    Plan plan;
    FATHOM_ASSIGN(plan.concurrency, parse_list("concurrency", bench.concurrency, 65'536));
    FATHOM_ASSIGN(plan.input_len, parse_list("input_len", bench.input_len, kLengthMax));
    FATHOM_ASSIGN(plan.output_len, parse_list("output_len", bench.output_len, kLengthMax));
    FATHOM_ASSIGN(plan.request_rate, parse_rate(bench.request_rate));
    FATHOM_ASSIGN(plan.level, parse_service_level(bench.goodput));
    plan.is_random = bench.dataset == "random";
    if (bench.mixed > 0 &&
        (plan.concurrency.size() > 1 || plan.input_len.size() > 1 || plan.output_len.size() > 1))
        return invalid_argument("--mixed measures one point: give no lists");
    if (!plan.is_random) plan.input_len = {0};
    for (const std::string* path : {&bench.csv, &bench.json, &bench.html})
        if (!path->empty()) FATHOM_RETURN_IF_ERROR(check_output_path(*path));
    FATHOM_RETURN_IF_ERROR(check_outputs_differ(std::array{bench.csv, bench.json, bench.html}));
    return plan;
}

std::string date_text() {
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
    gmtime_r(&now, &parts);
    char text[32];
    std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &parts);
    return text;
}

// One bench run: a target, and what is asked of it.
class BenchRun {
  public:
    BenchRun(const Settings& settings, const Plan& plan, Interrupts& interrupts)
        : settings_(settings), plan_(plan), interrupts_(interrupts) {
        report_.date = date_text();
        report_.dataset = settings.bench.dataset;
    }

    Status open_engine();
    Status open_server();
    Result<int> run();

  private:
    Result<BenchMachine> measure_machine() const;
    DatasetOptions dataset(std::int64_t count, std::int64_t input, std::int64_t output,
                           std::uint64_t purpose) const;
    Result<std::vector<LoadRequest>> requests(const DatasetOptions& options) const;
    Result<LoadResult> measure(std::int64_t concurrency, const DatasetOptions& options,
                               const LoadRequest* background);
    Status sweep();
    Status mixed();
    Status save() const;
    std::int64_t count_for(std::int64_t concurrency) const;

    const Settings& settings_;
    const Plan& plan_;
    Interrupts& interrupts_;
    std::optional<Stack> stack_;
    std::shared_ptr<const Tokenizer> tokenizer_;
    std::unique_ptr<LoadTarget> target_;
    BenchReport report_;
    std::uint64_t points_ = 0;
    bool interrupted_ = false;
};

Result<BenchMachine> BenchRun::measure_machine() const {
    BenchMachine machine;
    FATHOM_ASSIGN(const std::shared_ptr<ComputePool> pool, make_pool(settings_.stack));
    machine.cpu = cpu_name();
    machine.isa = isa_name();
    machine.threads = pool->threads();
    machine.read_bytes_per_s = read_bandwidth(*pool);
    machine.peak_name = "bf16";
    machine.peak_flops = peak_bf16_flops(*pool);
    if (machine.peak_flops > 0) return machine;
    machine.peak_name = "fp32";
    machine.peak_flops = peak_fp32_flops(*pool);
    return machine;
}

// Room for the largest point, unless the settings say otherwise.
StackOptions stack_options(const Settings& settings, const Plan& plan) {
    StackOptions options = settings.stack;
    const auto largest = [](const std::vector<std::int64_t>& list) {
        return *std::max_element(list.begin(), list.end());
    };
    const std::int64_t sequences = largest(plan.concurrency) + (settings.bench.mixed > 0 ? 1 : 0);
    options.engine.sequences_max = std::max(sequences, options.engine.sequences_max);
    options.engine.waiting_max = std::max(sequences, options.engine.waiting_max);
    if (!plan.is_random || options.kv_tokens > 0) return options;
    const auto spread = static_cast<double>(largest(plan.input_len) + largest(plan.output_len)) *
                        (1 + settings.bench.range_ratio);
    constexpr std::int64_t kPages = 2 * kPageTokens;  // rounding, and a page to grow into
    const std::int64_t tokens = static_cast<std::int64_t>(spread) + kPages;
    options.kv_tokens = largest(plan.concurrency) * tokens;
    if (settings.bench.mixed > 0)
        options.kv_tokens += settings.bench.mixed + largest(plan.output_len) + kPages;
    return options;
}

Status BenchRun::open_engine() {
    FATHOM_ASSIGN(BenchMachine machine, measure_machine());
    FATHOM_ASSIGN(Stack stack, build_stack(stack_options(settings_, plan_)));
    stack_ = std::move(stack);
    machine.active_weight_bytes = active_weight_bytes(stack_->checkpoint->config()).total;
    tokenizer_ = stack_->tokenizer;
    report_.machine = machine;
    report_.model_id = stack_->model_name;
    report_.target = settings_.stack.model_dir;
    EngineTargetOptions options;
    options.sampling.temperature = settings_.sampling.temperature;
    options.sampling.top_p = settings_.sampling.top_p;
    options.sampling.top_k = settings_.sampling.top_k;
    options.sampling.seed = static_cast<std::uint64_t>(settings_.sampling.seed);
    options.ignore_eos = !settings_.bench.stop_at_eos;
    options.timeout_us = settings_.bench.timeout_s * kSecondUs;
    target_ = std::make_unique<EngineTarget>(*stack_->engine, options);
    return {};
}

Status BenchRun::open_server() {
    const Settings::Bench& bench = settings_.bench;
    if (!bench.tokenizer.empty()) {
        FATHOM_ASSIGN(tokenizer_, Tokenizer::load(bench.tokenizer));
    }
    HttpTargetOptions options;
    FATHOM_ASSIGN(options.url, parse_http_url(bench.url));
    if (options.url.prefix.empty()) options.url.prefix = "/v1";
    options.api_key = bench.api_key;
    options.model = settings_.stack.model_name;
    options.use_chat = bench.endpoint == "chat" || (bench.endpoint == "auto" && !plan_.is_random);
    options.ignore_eos = !bench.stop_at_eos;
    options.sampling.temperature = settings_.sampling.temperature;
    options.sampling.top_p = settings_.sampling.top_p;
    options.sampling.seed = static_cast<std::uint64_t>(settings_.sampling.seed);
    options.timeout_us = bench.timeout_s * kSecondUs;
    options.connect_timeout_us = bench.connect_timeout_s * kSecondUs;
    FATHOM_ASSIGN(std::unique_ptr<HttpTarget> target, HttpTarget::connect(options));
    report_.model_id = target->model();
    report_.target = bench.url;
    target_ = std::move(target);
    return {};
}

std::int64_t BenchRun::count_for(std::int64_t concurrency) const {
    if (settings_.bench.num_prompts > 0) return settings_.bench.num_prompts;
    return plan_.is_random ? std::max<std::int64_t>(8, 3 * concurrency) : 0;
}

// `purpose` keeps the prompts of points and warm-ups apart, so that none finds another's prefix.
DatasetOptions BenchRun::dataset(std::int64_t count, std::int64_t input, std::int64_t output,
                                 std::uint64_t purpose) const {
    DatasetOptions options;
    options.dataset = settings_.bench.dataset;
    options.count = count;
    options.seed = static_cast<std::uint64_t>(settings_.sampling.seed) + 1000 * purpose;
    options.input_tokens = input;
    options.output_tokens = output;
    options.spread = settings_.bench.range_ratio;
    options.prompt_tokens_max = settings_.bench.prompt_tokens_max;
    options.total_tokens_max = settings_.bench.total_tokens_max;
    options.tokenizer = tokenizer_.get();
    return options;
}

Result<std::vector<LoadRequest>> BenchRun::requests(const DatasetOptions& options) const {
    FATHOM_ASSIGN(std::vector<LoadRequest> made, make_workload(options));
    if (stack_) FATHOM_RETURN_IF_ERROR(tokenize_workload(made, *tokenizer_));
    return made;
}

Result<LoadResult> BenchRun::measure(std::int64_t concurrency, const DatasetOptions& options,
                                     const LoadRequest* background) {
    if (settings_.bench.warmups > 0) {
        DatasetOptions warm = options;
        warm.count = settings_.bench.warmups;
        warm.seed += 1;
        FATHOM_ASSIGN(const std::vector<LoadRequest> warmups, requests(warm));
        const LoadResult warmed =
            run_load(*target_, warmups, {.concurrency = concurrency, .arrivals_us = {}},
                     interrupts_, [](std::int64_t) {});
        if (warmed.interrupted) return warmed;
    }
    FATHOM_ASSIGN(const std::vector<LoadRequest> load, requests(options));
    const auto count = static_cast<std::int64_t>(load.size());
    LoadPlan plan{.concurrency = concurrency, .arrivals_us = {}, .background = background};
    if (plan_.request_rate > 0)
        plan.arrivals_us =
            arrival_times_us(count, plan_.request_rate, settings_.bench.burstiness, options.seed);
    Progress progress(fmt::format("concurrency {}, {} in, {} out", concurrency,
                                  options.input_tokens, options.output_tokens),
                      count, real_clock());
    return run_load(*target_, load, plan, interrupts_,
                    [&](std::int64_t ended) { progress.update(ended); });
}

Status BenchRun::sweep() {
    for (const std::int64_t output : plan_.output_len) {
        for (const std::int64_t input : plan_.input_len) {
            for (const std::int64_t concurrency : plan_.concurrency) {
                const DatasetOptions options =
                    dataset(count_for(concurrency), input, output, ++points_);
                FATHOM_ASSIGN(const LoadResult result, measure(concurrency, options, nullptr));
                interrupted_ = result.interrupted;
                if (interrupted_) return {};
                BenchPoint point;
                point.concurrency = concurrency;
                point.num_prompts = static_cast<std::int64_t>(result.records.size());
                point.input_len = input;
                point.output_len = plan_.is_random ? output : 0;
                point.request_rate = plan_.request_rate;
                point.burstiness = settings_.bench.burstiness;
                point.summary = summarise(result.records, plan_.level);
                report_.points.push_back(std::move(point));
            }
        }
    }
    return {};
}

Status BenchRun::mixed() {
    const std::int64_t concurrency = plan_.concurrency[0];
    const std::int64_t count = std::max<std::int64_t>(count_for(concurrency), 20);
    DatasetOptions long_options = dataset(1, settings_.bench.mixed, 16, ++points_);
    long_options.dataset = "random";
    long_options.spread = 0;
    FATHOM_ASSIGN(const std::vector<LoadRequest> long_prompt, requests(long_options));
    MixedResult mixed;
    mixed.long_prompt_tokens = settings_.bench.mixed;
    for (const bool beside : {false, true}) {
        const DatasetOptions options =
            dataset(count, plan_.input_len[0], plan_.output_len[0], ++points_);
        FATHOM_ASSIGN(const LoadResult result,
                      measure(concurrency, options, beside ? long_prompt.data() : nullptr));
        interrupted_ = result.interrupted;
        if (interrupted_) return {};
        (beside ? mixed.beside : mixed.alone) = summarise(result.records, plan_.level);
        mixed.long_prompts_ended = static_cast<std::int64_t>(result.background.size());
        report_.mixed = mixed;
        for (const RequestRecord& record : result.background)
            if (!record.error.empty())
                return error(StatusCode::unavailable, "the long prompt failed: {}: {}",
                             record.error, record.detail);
    }
    return {};
}

Status BenchRun::save() const {
    const Settings::Bench& bench = settings_.bench;
    if (!bench.csv.empty())
        FATHOM_RETURN_IF_ERROR(write_output_file(bench.csv, report_csv(report_)));
    if (!bench.json.empty())
        FATHOM_RETURN_IF_ERROR(write_output_file(bench.json, report_json(report_)));
    if (!bench.html.empty())
        FATHOM_RETURN_IF_ERROR(write_output_file(bench.html, report_html(report_)));
    return {};
}

Result<int> BenchRun::run() {
    FATHOM_RETURN_IF_ERROR(settings_.bench.mixed > 0 ? mixed() : sweep());
    if (interrupted_)
        fmt::print(stderr, "fathom bench: interrupted after {} points\n", report_.points.size());
    if (report_.points.empty() && !report_.mixed) return kExitInterrupted;  // files stay
    fmt::print("{}", report_table(report_));
    FATHOM_RETURN_IF_ERROR(save());
    if (interrupted_) return kExitInterrupted;
    const auto has_failed = [](const LoadSummary& summary) { return summary.failed > 0; };
    bool failed =
        report_.mixed && (has_failed(report_.mixed->alone) || has_failed(report_.mixed->beside));
    for (const BenchPoint& point : report_.points)
        failed = failed || has_failed(point.summary);
    return failed ? kExitFailed : kExitOk;
}

}  // namespace

int run_bench(const std::vector<std::string>& args) {
    Settings settings;
    settings.log.level = "warning";
    if (const std::optional<int> stop = read_settings(args, kSpec, settings)) return *stop;
    const Result<Plan> plan = make_plan(settings);
    if (!plan.ok()) {
        fmt::print(stderr, "fathom bench: {}\n", plan.status().message());
        return kExitUsage;
    }
    Interrupts interrupts;
    BenchRun bench(settings, *plan, interrupts);
    const Status opened = settings.bench.url.empty() ? bench.open_engine() : bench.open_server();
    const Result<int> status = opened.ok() ? bench.run() : Result<int>(opened);
    if (!status.ok()) fmt::print(stderr, "fathom bench: {}\n", status.status().message());
    return status.ok() ? *status : kExitFailed;
}

}  // namespace fathom
