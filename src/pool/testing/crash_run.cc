#include "pool/testing/crash_run.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "base/random.h"
#include "pool/embedded_store.h"
#include "pool/slot.h"
#include "pool/testing/content_oracle.h"
#include "pool/testing/store_calls.h"
#include "pool/testing/wait.h"

namespace fathom::testing {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kPayload = 113'920;
constexpr std::int64_t kStartUs = 1'750'000'000'000'000;
constexpr std::uint32_t kNumbers = 60;  // blocks of a namespace
constexpr std::uint64_t kNamespaces = 3;
constexpr int kAnswerMs = 30'000;
constexpr std::int64_t kLivesPerPool = 25;

// What a child says, whole: shorter than what a pipe writes at once.
struct Said {
    enum class What : std::uint8_t {
        opened,
        put_begins,
        put_ended,
        drop_begins,
        dropped,
        clock,
        wrong
    };
    What what = What::opened;
    PutOutcome outcome = PutOutcome::stored;
    TrafficClass traffic_class = TrafficClass::agent;
    std::uint8_t ns = 0;
    std::uint32_t number = 0;
    std::uint64_t writer = 0;
    std::int64_t clock_us = 0;
};

// The real files, and an operation that is the last.
class KillingLayer : public FileLayer {
    // First, as its type follows from what is in it.
    template <typename Act>
    auto around(Act act) {
        struct Behind {
            KillingLayer& layer;
            ~Behind() {
                if (layer.operations_++ == layer.last_ && layer.behind_) die();
            }
        } behind{*this};
        if (operations_ == last_ && !behind_) die();
        return act();
    }
    static void die() {
        (void)::kill(::getpid(), SIGKILL);
        for (;;)
            (void)::pause();
    }

  public:
    KillingLayer(std::unique_ptr<FileLayer> files, std::int64_t last, bool behind)
        : files_(std::move(files)), last_(last), behind_(behind) {}

    std::int64_t operations() const { return operations_; }

    Result<int> open(const std::string& path, OpenMode mode) override {
        if (mode != OpenMode::create) return files_->open(path, mode);
        return around([&] { return files_->open(path, mode); });
    }
    void close(int file) override { files_->close(file); }
    Result<std::int64_t> allocated_bytes(int file) override {
        return files_->allocated_bytes(file);
    }
    Status make_directory(const std::string& path) override {
        return around([&] { return files_->make_directory(path); });
    }
    Status remove_directory(const std::string& path) override {
        return around([&] { return files_->remove_directory(path); });
    }
    Status rename(const std::string& from, const std::string& to) override {
        return around([&] { return files_->rename(from, to); });
    }
    Result<std::vector<FileName>> list(const std::string& path) override {
        return files_->list(path);
    }
    Status lock(const std::string& path) override { return files_->lock(path); }
    void submit(IoRequest request) override {
        if (request.kind == IoKind::read) return files_->submit(std::move(request));
        around([&] { files_->submit(std::move(request)); });
    }
    int depth() const override { return files_->depth(); }
    void wait(std::vector<IoDone>& done, std::int64_t timeout_us) override {
        files_->wait(done, timeout_us);
    }
    void wake() override { files_->wake(); }
    std::string limits() const override { return files_->limits(); }

  private:
    std::unique_ptr<FileLayer> files_;
    const std::int64_t last_;
    const bool behind_;
    std::int64_t operations_ = 0;
};

EmbeddedOptions options_of(const std::string& directory, const Clock& clock) {
    EmbeddedOptions options;
    options.directory = directory;
    options.payload_bytes = kPayload;
    options.capacity_bytes = 40 * kSegmentBytes;
    options.io_depth = 8;
    options.clock = &clock;
    return options;
}

// The child's side: a store, and what it is told goes into the pipe at once.
class Child {
  public:
    Child(std::string directory, int pipe, std::uint64_t seed, std::int64_t clock_us)
        : directory_(std::move(directory)),
          pipe_(pipe),
          seed_(seed),
          random_(seed),
          writers_(seed << 20) {
        clock_.advance_us(clock_us);
    }

    // The same whenever it runs: files made, filled, renewed, sealed, dropped, expired, removed,
    // and a second opening. Returns the operations of the disk.
    std::int64_t script(std::int64_t last, bool behind) {
        for (int life = 0; life < 2; ++life) {
            open(last - operations_, behind);
            put(range(0, 6), TrafficClass::agent, 0, 0);
            put(range(10, 3), TrafficClass::ephemeral, 0, 0);
            put(range(0, 3), TrafficClass::agent, 1, 0);
            advance(7'200'000'000);
            put(range(20, 3), TrafficClass::agent, 0, 0);
            put(range(0, 2), TrafficClass::agent, 0, 86'400'000LL * 3);
            collect();
            drop(1);
            get(0);
            close();
        }
        return operations_;
    }

    void at_random() {
        open(-1, false);
        for (;;) {
            const auto ns = static_cast<std::uint8_t>(random_.next_below(kNamespaces));
            switch (random_.next_below(12)) {
                case 0:
                    drop(ns);
                    break;
                case 1:
                    collect();
                    break;
                case 2:
                    advance(static_cast<std::int64_t>(random_.next_below(1'800'000'000)));
                    break;
                case 3:
                    close();
                    open(-1, false);
                    break;
                case 4:
                case 5:
                    get(ns);
                    break;
                default: {
                    const auto first = static_cast<std::uint32_t>(random_.next_below(kNumbers - 8));
                    put(range(first, 1 + static_cast<std::uint32_t>(random_.next_below(8))),
                        random_.next_below(2) == 0 ? TrafficClass::agent : TrafficClass::ephemeral,
                        ns, random_.next_below(3) == 0 ? std::int64_t{3'600'000} : 0);
                }
            }
        }
    }

  private:
    static std::vector<std::uint32_t> range(std::uint32_t first, std::uint32_t n) {
        std::vector<std::uint32_t> numbers;
        for (std::uint32_t i = 0; i < n; ++i)
            numbers.push_back(first + i);
        return numbers;
    }

    void say(const Said& said) {
        if (::write(pipe_, &said, sizeof said) != static_cast<ssize_t>(sizeof said)) ::_exit(3);
    }

    void open(std::int64_t last, bool behind) {
        EmbeddedOptions options = options_of(directory_, clock_);
        options.sync_every_put = random_.next_below(2) == 0;
        auto files = make_file_layer(64);
        if (!files.ok()) {
            fmt::print(stderr, "{}\n", files.status().to_string());
            ::_exit(4);
        }
        auto layer = std::make_unique<KillingLayer>(std::move(*files), last, behind);
        layer_ = layer.get();
        options.files = std::move(layer);
        auto opened = EmbeddedStore::open(std::move(options));
        if (!opened.ok()) {
            fmt::print(stderr, "{}\n", opened.status().to_string());
            ::_exit(5);
        }
        store_ = std::move(*opened);
        say({.what = Said::What::opened});
    }
    void close() {
        store_->close(kNever);
        operations_ += layer_->operations();
        store_.reset();
    }

    void put(const std::vector<std::uint32_t>& numbers, TrafficClass traffic_class, std::uint8_t ns,
             std::int64_t renew_before_ms) {
        const std::uint64_t writer = ++writers_;
        Said said{.what = Said::What::put_begins,
                  .traffic_class = traffic_class,
                  .ns = ns,
                  .writer = writer,
                  .clock_us = clock_.now_us()};
        std::vector<std::vector<std::uint8_t>> pages;
        std::vector<PutRequest> requests;
        for (const std::uint32_t number : numbers) {
            const BlockName name = oracle_name(0, number, ns);
            pages.push_back(oracle_payload(name.key, writer, kPayload));
            requests.push_back({.name = name, .page = pages.back().data()});
            said.number = number;
            say(said);
        }
        std::promise<PutResult> done;
        std::promise<void> released;
        (void)store_->put(std::move(requests),
                          {.traffic_class = traffic_class, .renew_before_ms = renew_before_ms},
                          kNever,
                          {.done = [&](PutResult result) { done.set_value(std::move(result)); },
                           .released = [&] { released.set_value(); }});
        const PutResult result = await(done, "put", seed_);
        await(released, "release of a put", seed_);
        said.what = Said::What::put_ended;
        for (std::size_t i = 0; i < numbers.size(); ++i) {
            said.number = numbers[i];
            said.outcome = result.blocks[i];
            say(said);
        }
    }

    void get(std::uint8_t ns) {
        std::vector<BlockName> names;
        std::vector<std::unique_ptr<AlignedPage>> pages;
        std::vector<GetRequest> requests;
        for (std::uint32_t number = 0; number < 16; ++number) {
            names.push_back(
                oracle_name(0, static_cast<std::uint32_t>(random_.next_below(kNumbers)), ns));
            pages.push_back(std::make_unique<AlignedPage>(kPayload));
            requests.push_back({.name = names.back(), .destination = {pages.back()->data(), true}});
        }
        std::promise<GetResult> done;
        std::promise<void> released;
        (void)store_->get(std::move(requests), kNever,
                          {.done = [&](GetResult result) { done.set_value(std::move(result)); },
                           .released = [&] { released.set_value(); }});
        const GetResult result = await(done, "get", seed_);
        await(released, "release of a get", seed_);
        for (std::size_t i = 0; i < names.size(); ++i) {
            if (result.blocks[i] == GetStatus::hit &&
                !payload_writer(names[i].key, {pages[i]->data(), kPayload}))
                say({.what = Said::What::wrong, .ns = ns});
        }
    }

    void drop(std::uint8_t ns) {
        say({.what = Said::What::drop_begins, .ns = ns});
        std::promise<Status> done;
        (void)store_->drop_namespace(oracle_namespace(ns), kNever,
                                     [&](Status status) { done.set_value(std::move(status)); });
        if (await(done, "drop", seed_).ok()) say({.what = Said::What::dropped, .ns = ns});
    }
    void collect() {
        std::promise<Status> done;
        (void)store_->collect(kNever, [&](Status status) { done.set_value(std::move(status)); });
        (void)await(done, "collection", seed_);
    }
    void advance(std::int64_t us) {
        clock_.advance_us(us);
        say({.what = Said::What::clock, .clock_us = clock_.now_us()});
    }

    const std::string directory_;
    const int pipe_;
    const std::uint64_t seed_;
    RandomStream random_;
    std::uint64_t writers_;
    ManualClock clock_;
    KillingLayer* layer_ = nullptr;  // of store_
    std::int64_t operations_ = 0;    // of the lives that ended
    std::unique_ptr<EmbeddedStore> store_;
};

// The parent's side: one pool, and what must, may and must not be in it.
class Pool {
  public:
    Pool(std::string directory, CrashRunReport& report)
        : directory_(std::move(directory)), report_(report) {}
    ~Pool() {
        std::error_code ignored;
        fs::remove_all(directory_, ignored);
    }
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    std::int64_t clock_us() const { return clock_us_; }
    const std::string& directory() const { return directory_; }

    void hear(const Said& said) {
        const BlockName name = oracle_name(0, said.number, said.ns);
        switch (said.what) {
            case Said::What::opened:
                break;
            case Said::What::put_begins:
                oracle_.put(name, said.writer, PutOutcome::timeout);
                break;
            case Said::What::put_ended:
                oracle_.put(name, said.writer, said.outcome);
                if (said.outcome == PutOutcome::stored || said.outcome == PutOutcome::renewed)
                    stored_[{said.ns, said.number}] = {said.clock_us, said.traffic_class};
                break;
            case Said::What::drop_begins:
                for (const auto& [block, stored] : stored_)
                    if (block.first == said.ns)
                        oracle_.may_have_lost(oracle_name(0, block.second, block.first));
                break;
            case Said::What::dropped:
                oracle_.dropped(oracle_namespace(said.ns));
                break;
            case Said::What::clock:
                clock_us_ = said.clock_us;
                break;
            case Said::What::wrong:
                fault(0, "the child read bytes that nobody put");
                break;
        }
    }

    void check(std::uint64_t seed) {
        let_expire();
        ManualClock clock;
        clock.advance_us(clock_us_);
        const auto begin = std::chrono::steady_clock::now();
        auto opened = EmbeddedStore::open(options_of(directory_, clock));
        report_.recovery_ms.push_back(
            std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
                .count());
        if (!opened.ok()) return fault(seed, opened.status().to_string());
        EmbeddedStore& store = **opened;
        std::promise<PoolUsage> usage;
        (void)store.usage(kNever, [&](const PoolUsage& u, const Status&) { usage.set_value(u); });
        report_.blocks_max = std::max(report_.blocks_max, await(usage, "look", seed).blocks);
        for (std::uint8_t ns = 0; ns < kNamespaces; ++ns)
            compare(store, ns, seed);
        store.close(kNever);
    }

  private:
    void fault(std::uint64_t seed, const std::string& what) {
        ++report_.faults;
        if (report_.first.empty()) report_.first = fmt::format("seed {}: {}", seed, what);
    }

    // Past its TTL a block may go; a bucket and a minute later it must have.
    void let_expire() {
        for (const auto& [block, stored] : stored_) {
            const ClassLife& life = kClassLives[static_cast<std::size_t>(stored.second)];
            const BlockName name = oracle_name(0, block.second, block.first);
            const std::int64_t age_ms = (clock_us_ - stored.first) / 1'000;
            if (age_ms >= life.ttl_ms) oracle_.may_have_lost(name);
        }
    }

    void compare(BlockStore& store, std::uint8_t ns, std::uint64_t seed) {
        std::vector<BlockName> names;
        std::vector<std::unique_ptr<AlignedPage>> pages;
        std::vector<GetRequest> requests;
        for (std::uint32_t number = 0; number < kNumbers; ++number) {
            names.push_back(oracle_name(0, number, ns));
            pages.push_back(std::make_unique<AlignedPage>(kPayload));
            requests.push_back({.name = names.back(), .destination = {pages.back()->data(), true}});
        }
        std::promise<GetResult> done;
        std::promise<void> released;
        (void)store.get(std::move(requests), kNever,
                        {.done = [&](GetResult result) { done.set_value(std::move(result)); },
                         .released = [&] { released.set_value(); }});
        const GetResult result = await(done, "get", seed);
        await(released, "release of a get", seed);
        for (std::size_t i = 0; i < names.size(); ++i) {
            ++report_.checked;
            report_.hits += result.blocks[i] == GetStatus::hit ? 1 : 0;
            const std::string wrong =
                oracle_.check(names[i], result.blocks[i], {pages[i]->data(), kPayload});
            if (!wrong.empty()) fault(seed, fmt::format("block {} of {}: {}", i, ns, wrong));
        }
    }

    const std::string directory_;
    CrashRunReport& report_;
    std::int64_t clock_us_ = kStartUs;
    ContentOracle oracle_;
    std::map<std::pair<std::uint8_t, std::uint32_t>, std::pair<std::int64_t, TrafficClass>> stored_;
};

// A child that runs `act` with the writing end of a pipe.
struct Forked {
    pid_t pid = -1;
    int pipe = -1;
};
Result<Forked> fork_child(const std::function<void(int pipe)>& act) {
    std::array<int, 2> ends{};
    if (::pipe(ends.data()) != 0)
        return error(StatusCode::resource_exhausted, "no pipe: errno {}", errno);
    const pid_t pid = ::fork();
    if (pid < 0) return error(StatusCode::resource_exhausted, "no child process: errno {}", errno);
    if (pid == 0) {
        ::close(ends[0]);
        act(ends[1]);
        ::_exit(0);
    }
    ::close(ends[1]);
    return Forked{pid, ends[0]};
}

// Hears the child to its end; kills it `kill_after_us` from now, if it is to be killed.
void hear_out(const Forked& child, Pool& pool, std::optional<std::int64_t> kill_after_us,
              CrashRunReport& report) {
    const auto now = [] {
        return std::chrono::duration_cast<std::chrono::microseconds>(
                   std::chrono::steady_clock::now().time_since_epoch())
            .count();
    };
    const std::int64_t kill_at = now() + kill_after_us.value_or(0);
    bool killed = !kill_after_us;
    for (;;) {
        const std::int64_t left_ms = killed ? kAnswerMs : (kill_at - now() + 999) / 1'000;
        pollfd readable{.fd = child.pipe, .events = POLLIN, .revents = 0};
        const int ready = left_ms > 0 ? ::poll(&readable, 1, static_cast<int>(left_ms)) : 0;
        if (!killed && now() >= kill_at) {
            (void)::kill(child.pid, SIGKILL);
            killed = true;
            continue;
        }
        if (ready == 0 && killed) {
            ++report.hangs;
            (void)::kill(child.pid, SIGKILL);
            break;
        }
        if (ready <= 0) continue;
        Said said;
        if (::read(child.pipe, &said, sizeof said) != static_cast<ssize_t>(sizeof said)) break;
        pool.hear(said);
    }
    ::close(child.pipe);
    int status = 0;
    (void)::waitpid(child.pid, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) != 0) {
        ++report.faults;
        if (report.first.empty())
            report.first = fmt::format("a child ended with {}", WEXITSTATUS(status));
    }
}

// The operations of the script, from a child that is not killed.
Result<std::int64_t> count_steps(const CrashRunOptions& options, CrashRunReport& report) {
    Pool pool(options.directory + "/steps", report);
    FATHOM_ASSIGN(
        const Forked child, fork_child([&](int pipe) {
            const std::int64_t steps =
                Child(pool.directory(), pipe, options.seed, pool.clock_us()).script(-1, false);
            const Said said{.clock_us = steps};
            (void)!::write(pipe, &said, sizeof said);
        }));
    Said said, last;
    while (::read(child.pipe, &said, sizeof said) == static_cast<ssize_t>(sizeof said))
        last = said;
    ::close(child.pipe);
    (void)::waitpid(child.pid, nullptr, 0);
    return last.clock_us;
}

}  // namespace

Result<CrashRunReport> run_kills(const CrashRunOptions& options) {
    CrashRunReport report;
    FATHOM_ASSIGN(report.script_steps, count_steps(options, report));
    if (report.script_steps < 80)
        return error(StatusCode::internal, "{}: the script made only {} operations",
                     options.directory, report.script_steps);
    const std::int64_t all = 2 * report.script_steps / options.step_stride + options.random_kills;
    const auto show = [&] {
        const std::int64_t done = report.step_kills + report.random_kills;
        if (options.progress)
            options.progress(static_cast<double>(done) / static_cast<double>(all));
    };
    for (std::int64_t step = 0; step < report.script_steps; step += options.step_stride) {
        for (const bool behind : {false, true}) {
            const std::uint64_t seed = options.seed + static_cast<std::uint64_t>(step);
            Pool pool(fmt::format("{}/step{}", options.directory, step), report);
            FATHOM_ASSIGN(
                const Forked child, fork_child([&](int pipe) {
                    (void)Child(pool.directory(), pipe, seed, pool.clock_us()).script(step, behind);
                }));
            hear_out(child, pool, std::nullopt, report);
            pool.check(seed);
            ++report.step_kills;
            show();
        }
    }
    RandomStream random(options.seed);
    std::unique_ptr<Pool> pool;
    for (std::int64_t life = 0; life < options.random_kills; ++life) {
        const std::uint64_t seed = options.seed + 1'000'000 + static_cast<std::uint64_t>(life);
        if (life % kLivesPerPool == 0)
            pool =
                std::make_unique<Pool>(fmt::format("{}/life{}", options.directory, life), report);
        FATHOM_ASSIGN(const Forked child, fork_child([&](int pipe) {
                          Child(pool->directory(), pipe, seed, pool->clock_us()).at_random();
                      }));
        hear_out(child, *pool, static_cast<std::int64_t>(random.next_below(120'000)), report);
        pool->check(seed);
        ++report.random_kills;
        show();
    }
    return report;
}

}  // namespace fathom::testing
