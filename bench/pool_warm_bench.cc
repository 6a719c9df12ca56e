// A long prompt before and after a restart, through a server's own stack and a pool on a disk.
//
//   pool_warm_bench [--json] [--model DIR] [--dir DIR] [--tokens N] [--backend NAME]
//
// Three processes, one after the other, each of which loads the model anew: `cold` computes a
// prompt and leaves its blocks in a pool in DIR (default: the temporary folder), `warm` finds them
// there, and `repeat` has no pool and computes everything, told only where `warm` rebuilt its
// windows (Anchors::replays). `./dev bench pool_warm` runs it on the `mid` model of `fathom
// make-model`.
//
//   cold.ttft, warm.ttft     from the request to its first token
//   warm.speedup             of the two; the limit counts rows: all of them over those not found
//   warm.cached              prompt tokens found; the limit is the prompt
//   warm.tokens_as_repeated  output tokens that equal those of `repeat`, position by position: all,
//                            or the exit status is 1
//   warm.tokens_as_cold      the same against `cold`, whose windows were not rebuilt: not promised
#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "bench/report.h"
#include "cli/stack.h"

namespace fathom {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kOutputTokens = 32;

struct Options {
    std::string model = "models/tiny";
    std::string dir = fs::temp_directory_path().string();
    std::string backend = "auto";
    std::int64_t tokens = 16'384;
    bool json = false;
};

Result<Options> parse_options(int argc, char** argv) {
    Options options;
    for (int i = 1; i < argc; ++i) {
        const std::string_view word = argv[i];
        const bool valued = i + 1 < argc;
        if (word == "--json") {
            options.json = true;
        } else if (word == "--model" && valued) {
            options.model = argv[++i];
        } else if (word == "--dir" && valued) {
            options.dir = argv[++i];
        } else if (word == "--backend" && valued) {
            options.backend = argv[++i];
        } else if (word == "--tokens" && valued) {
            options.tokens = std::atoll(argv[++i]);
        } else {
            return invalid_argument(
                "\"{}\" is not known: pool_warm_bench [--json] [--model DIR] [--dir DIR] "
                "[--tokens N] [--backend NAME]",
                word);
        }
    }
    if (options.tokens < 256) return invalid_argument("--tokens: at least 256");
    return options;
}

struct Outcome {
    double ttft_s = 0;
    std::int64_t cached_tokens = 0;
    std::vector<std::int64_t> replays;
    std::vector<std::int64_t> tokens;
};

class Sink : public EventSink {
  public:
    void on_event(EngineEvent event) override {
        std::lock_guard lock(mutex_);
        if (!event.tokens.empty() && !first_us_) first_us_ = real_clock().now_us();
        for (const TokenId token : event.tokens)
            outcome_.tokens.push_back(token);
        if (event.finish == FinishReason::none) return;
        outcome_.cached_tokens = event.cached_tokens;
        outcome_.replays = event.anchors.replays;
        status_ = event.status;
        ended_ = true;
        changed_.notify_all();
    }
    Result<Outcome> wait(std::int64_t begin_us) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return ended_; });
        if (!status_.ok()) return status_;
        outcome_.ttft_s = 1e-6 * static_cast<double>(first_us_.value_or(begin_us) - begin_us);
        return outcome_;
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    Outcome outcome_;
    std::optional<std::int64_t> first_us_;
    Status status_;
    bool ended_ = false;
};

// One life of a server's stack, with one request.
Result<Outcome> live(const Options& options, const std::string& pool,
                     const std::optional<std::vector<std::int64_t>>& replays) {
    StackOptions with;
    with.model_dir = options.model;
    with.backend = options.backend;
    with.context_tokens = options.tokens + 2 * kOutputTokens;
    with.kv_tokens = with.context_tokens;
    with.pool.directory = pool;
    with.pool.capacity_bytes = std::int64_t{4} << 30;
    FATHOM_ASSIGN(Stack stack, build_stack(with));
    const std::int64_t vocab = stack.checkpoint->config().vocab_size;
    const auto request_of = [&](std::uint64_t id, std::int64_t tokens, std::int64_t step) {
        EngineRequest request;
        request.id = id;
        request.sampling.temperature = 0;
        for (std::int64_t i = 0; i < tokens; ++i)
            request.prompt.push_back(static_cast<TokenId>((i * step + i / 7 * 104'729) % vocab));
        return request;
    };
    // What a first request pays once (pages of the weights, buffers) is nobody's here.
    auto warm_up = std::make_shared<Sink>();
    EngineRequest other = request_of(1, 300, 31);
    other.use_cache = false;
    other.max_tokens = 2;
    FATHOM_RETURN_IF_ERROR(stack.engine->submit(std::move(other), warm_up));
    FATHOM_RETURN_IF_ERROR(warm_up->wait(0).status());

    auto sink = std::make_shared<Sink>();
    EngineRequest request = request_of(2, options.tokens, 7919);
    request.max_tokens = kOutputTokens;
    request.replays = replays;
    const std::int64_t begin_us = real_clock().now_us();
    FATHOM_RETURN_IF_ERROR(stack.engine->submit(std::move(request), sink));
    return sink->wait(begin_us);
}

Json list_of(const std::vector<std::int64_t>& numbers) {
    Json list = Json::array();
    for (const std::int64_t number : numbers)
        list.push_back(Json(number));
    return list;
}

// In a process of its own, as after a restart.
Result<Outcome> live_apart(const Options& options, const std::string& pool,
                           const std::optional<std::vector<std::int64_t>>& replays = {}) {
    std::array<int, 2> ends{};
    if (::pipe(ends.data()) != 0) return error(StatusCode::resource_exhausted, "no pipe");
    const pid_t pid = ::fork();
    if (pid < 0) return error(StatusCode::resource_exhausted, "no child process");
    if (pid == 0) {
        ::close(ends[0]);
        int code = 0;
        {
            const Result<Outcome> outcome = live(options, pool, replays);
            Json said = Json::object();
            if (outcome.ok()) {
                said.set("ttft_s", Json(outcome->ttft_s));
                said.set("cached_tokens", Json(outcome->cached_tokens));
                said.set("replays", list_of(outcome->replays));
                said.set("tokens", list_of(outcome->tokens));
            } else {
                fmt::print(stderr, "pool_warm_bench: {}\n", outcome.status().message());
                code = 1;
            }
            const std::string text = said.dump();
            if (::write(ends[1], text.data(), text.size()) < 0) code = 1;
        }
        ::_exit(code);
    }
    ::close(ends[1]);
    std::string text;
    std::array<char, 4096> piece{};
    for (ssize_t n = 0; (n = ::read(ends[0], piece.data(), piece.size())) > 0;)
        text.append(piece.data(), static_cast<std::size_t>(n));
    ::close(ends[0]);
    int status = 0;
    (void)::waitpid(pid, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return error(StatusCode::internal, "a process of the bench failed");
    FATHOM_ASSIGN(const Json said, parse_json(text));
    Outcome outcome;
    outcome.ttft_s = said.find("ttft_s")->as_double();
    outcome.cached_tokens = said.find("cached_tokens")->as_int64();
    for (const Json& at : said.find("replays")->items())
        outcome.replays.push_back(at.as_int64());
    for (const Json& token : said.find("tokens")->items())
        outcome.tokens.push_back(token.as_int64());
    return outcome;
}

double equal_tokens(const Outcome& a, const Outcome& b) {
    double equal = 0;
    for (std::size_t i = 0; i < a.tokens.size() && i < b.tokens.size(); ++i)
        equal += a.tokens[i] == b.tokens[i] ? 1 : 0;
    return equal;
}

Result<bool> run(const Options& options) {
    std::string folder = options.dir + "/fathom_pool_warm_XXXXXX";
    if (::mkdtemp(folder.data()) == nullptr)
        return invalid_argument("--dir {}: nothing can be made there", options.dir);
    struct Cleaner {
        std::string path;
        ~Cleaner() {
            std::error_code ignored;
            fs::remove_all(path, ignored);
        }
    } cleaner{folder};
    bench::Report report("pool_warm");
    FATHOM_ASSIGN(const Outcome cold, live_apart(options, folder + "/pool"));
    FATHOM_ASSIGN(const Outcome warm, live_apart(options, folder + "/pool"));
    FATHOM_ASSIGN(const Outcome repeat, live_apart(options, "", warm.replays));
    const auto tokens = static_cast<double>(options.tokens);
    const auto cached = static_cast<double>(warm.cached_tokens);
    report.add("prompt", tokens, "tokens");
    report.add("cold.ttft", cold.ttft_s, "s");
    report.add("warm.ttft", warm.ttft_s, "s");
    report.add("repeat.ttft", repeat.ttft_s, "s");
    report.add("warm.speedup", cold.ttft_s / warm.ttft_s, "x", tokens / (tokens - cached));
    report.add("warm.cached", cached, "tokens", tokens);
    report.add("warm.tokens_as_repeated", equal_tokens(warm, repeat), "tokens", kOutputTokens);
    report.add("warm.tokens_as_cold", equal_tokens(warm, cold), "tokens", kOutputTokens);
    fmt::print("{}", report.table());
    if (options.json) fmt::print("{}\n", report.json());
    return warm.tokens == repeat.tokens && warm.replays == repeat.replays &&
           warm.cached_tokens > 0 && cold.cached_tokens == 0;
}

}  // namespace
}  // namespace fathom

int main(int argc, char** argv) {
    const auto options = fathom::parse_options(argc, argv);
    const auto good = options.ok() ? fathom::run(*options) : fathom::Result<bool>(options.status());
    if (good.ok()) {
        if (!*good) fmt::print(stderr, "pool_warm_bench: the runs do not agree\n");
        return *good ? 0 : 1;
    }
    fmt::print(stderr, "pool_warm_bench: {}\n", good.status().message());
    return 2;
}
