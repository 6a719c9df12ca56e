#include "pool/peer_looks.h"

#include <algorithm>
#include <future>
#include <limits>
#include <random>
#include <utility>

#include "base/log.h"

namespace fathom {

namespace {

constexpr std::size_t kJobsMax = 4096;
constexpr std::int64_t kFirstLookUs = 10'000'000;
// A look may take a tenth of the time at most, a full one a twentieth.
constexpr std::int64_t kRest = 10, kFullRest = 20, kLooksToFull = 8;
constexpr std::int64_t kTendUs = 10'000'000, kTendDropsUs = 1'000'000;
constexpr std::int64_t kTendingUs = 30'000'000;
constexpr std::int64_t kOverdueMs = 60'000, kOthersRemoveMs = 60'000, kMarkSlackMs = 3'600'000;
constexpr Deadline kNever{std::numeric_limits<std::int64_t>::max()};

// An answer that a thread of a store gives; that thread runs as long as this one.
template <typename Start>
Status wait_for(const Start& start) {
    const auto answer = std::make_shared<std::promise<Status>>();
    std::future<Status> future = answer->get_future();
    start([answer](Status status) { answer->set_value(std::move(status)); });
    return future.get();
}

std::uint64_t random_number() {
    std::random_device random;
    return static_cast<std::uint64_t>(random()) << 32 | random();
}

}  // namespace

PeerLooks::PeerLooks(const SharedParts& options, const SlotGeometry& geometry,
                     std::string own_directory, EmbeddedStore& own, Mailbox& mailbox,
                     SharedMetrics& metrics, PoolReader reader)
    : options_(options),
      geometry_(geometry),
      own_directory_(std::move(own_directory)),
      clock_(options.embedded.clock != nullptr ? *options.embedded.clock : real_clock()),
      own_(own),
      mailbox_(mailbox),
      metrics_(metrics),
      reader_(std::move(reader)),
      pools_(
          reader_, geometry, options.embedded.encrypt,
          [this](PeerPools::Message message) { tell(std::move(message)); }, metrics, stop_),
      jobs_(kJobsMax) {}

Status PeerLooks::start() {
    const auto obeyed = std::make_shared<std::promise<Status>>();
    const auto looked = std::make_shared<std::promise<void>>();
    std::future<Status> clean = obeyed->get_future();
    std::future<void> first = looked->get_future();
    (void)jobs_.try_push([this, obeyed, looked] {
        const auto marks = list_drop_marks(reader_.files(), options_.embedded.directory);
        if (marks.ok()) obey(*marks);
        obeyed->set_value(marks.ok() ? Status() : marks.status());
        look(true, false);
        tell([looked](SharedCore&) { looked->set_value(); });
    });
    thread_ = std::thread([this] { run(); });
    FATHOM_RETURN_IF_ERROR(clean.get());
    if (first.wait_for(std::chrono::microseconds(kFirstLookUs)) != std::future_status::ready) {
        log_info("pool: {}: the other processes' blocks are still being looked for",
                 options_.embedded.directory);
    }
    return {};
}

void PeerLooks::stop() {
    stop_.store(true);
    jobs_.close();
    if (thread_.joinable()) thread_.join();
}

void PeerLooks::run() {
    std::int64_t next_us = 0;
    while (!stop_.load()) {
        const std::int64_t wait_us = next_us - real_clock().now_us();
        if (const auto job = jobs_.pop(std::max<std::int64_t>(wait_us, 0))) {
            (*job)();
            continue;
        }
        if (stop_.load()) return;
        const std::int64_t begun_us = real_clock().now_us();
        if (begun_us < next_us) continue;
        const bool full = begun_us >= next_full_us_;
        look(full, false);
        const std::int64_t now_us = real_clock().now_us(), took_us = now_us - begun_us;
        next_us = now_us + std::max(options_.look_us, kRest * took_us);
        if (full)
            next_full_us_ = now_us + std::max(kLooksToFull * options_.look_us, kFullRest * took_us);
    }
}

void PeerLooks::refresh(std::function<void()> done) {
    (void)jobs_.try_push([this, done = std::move(done)] {
        look(true, true);
        tell([done](SharedCore&) { done(); });
    });
}

void PeerLooks::drop(std::shared_ptr<SharedDrop> call, const NamespaceId& ns) {
    if (jobs_.try_push([this, call, ns] { begin_drop(call, ns); })) return;
    Status refused = stop_.load()
                         ? Status(StatusCode::unavailable, "the pool is being closed")
                         : Status(StatusCode::resource_exhausted,
                                  "too many namespaces are being dropped; try again later");
    tell([call, refused = std::move(refused)](SharedCore& core) { core.end_drop(*call, refused); });
}

void PeerLooks::degrade(const Status& status) {
    metrics_.io_errors.add();
    health_.set({.state = StoreHealth::State::degraded, .reason = status.message()});
}

// Somebody may remove the directory under this process, unmount its disk, or put another pool in
// its place. Files that are open go on working, so nothing else would tell.
bool PeerLooks::own_is_there() {
    const auto pool = reader_.pool(own_directory_);
    std::string gone;
    if (pool.status().code() == StatusCode::not_found) {
        gone = fmt::format(
            "{}/POOL is not there any more; was the directory removed, or its disk "
            "unmounted?",
            own_directory_);
    } else if (pool.ok() && own_uuid_.value_or(pool->uuid) != pool->uuid) {
        gone = fmt::format("{} is another pool than the one that was opened", own_directory_);
    } else if (pool.ok()) {
        own_uuid_ = pool->uuid;
    } else {
        return gone_.empty();  // that it cannot be read just now says neither
    }
    if (gone != gone_) {
        if (gone.empty()) log_info("pool: {} is there again", own_directory_);
        if (!gone.empty())
            log_warning(
                "pool: {} Requests are served as ever, but what is stored from now on is lost: put "
                "the directory back, or start the server again",
                gone.back() == '?' ? gone : gone + ".");
    }
    gone_ = std::move(gone);
    if (!gone_.empty()) health_.set({.state = StoreHealth::State::degraded, .reason = gone_});
    return gone_.empty();
}

void PeerLooks::look(bool full, bool tend_all) {
    const std::int64_t begun_us = real_clock().now_us();
    // What is there instead is nothing to tidy up, and its pools are not this one's peers.
    if (!own_is_there())
        return pools_.look({}, full, [](const auto&) { return std::set<std::uint64_t>{}; });
    const auto marks = list_drop_marks(reader_.files(), options_.embedded.directory);
    // Without them it is not known what must not be found.
    if (!marks.ok()) return degrade(marks.status());
    obey(*marks);
    auto listed = pool_directories(reader_.files(), options_.embedded.directory);
    if (!listed.ok()) return degrade(listed.status());
    std::erase(*listed, own_directory_);
    const std::vector<std::string>& directories = *listed;
    metrics_.drops.set(static_cast<double>(marks->size()));
    pools_.look(directories, full, [&](const std::string& directory) {
        std::set<std::uint64_t> tags;
        for (const DropMark& mark : *marks)
            if (!mark.rid.contains(name_of(directory))) tags.insert(namespace_tag(mark.ns));
        return tags;
    });
    StoreHealth health;
    if (!pools_.trouble().empty()) {
        health = {.state = StoreHealth::State::degraded,
                  .reason = pools_.trouble() + "; blocks of other processes may not be found"};
    }
    health_.set(std::move(health));
    if (full || !drops_.empty()) {
        const std::vector<PeerUsage> usage = pools_.usage();
        if (full) share_capacity(usage);
        tend(*marks, usage, tend_all);
    }
    if (!marks->empty() || !drops_.empty()) {
        const auto after = list_drop_marks(reader_.files(), options_.embedded.directory);
        if (after.ok()) end_drops(*after, directories);
    }
    metrics_.look_seconds.observe(static_cast<double>(real_clock().now_us() - begun_us) * 1e-6);
}

void PeerLooks::forget(const NamespaceId& ns) {
    (void)wait_for([&](const std::function<void(Status)>& done) {
        tell([tag = namespace_tag(ns), done](SharedCore& core) {
            core.forget_namespace(tag);
            done({});
        });
    });
}

// What others, or an earlier life, said is to be dropped.
void PeerLooks::obey(const std::vector<DropMark>& marks) {
    const std::string name = name_of(own_directory_);
    std::set<std::string> there;
    for (const DropMark& mark : marks) {
        there.insert(mark.name);
        const bool rid = mark.rid.contains(name);
        if (obeyed_.contains(mark.name) && rid) continue;
        if (!obeyed_.contains(mark.name)) {
            forget(mark.ns);
            const Status dropped = rid ? Status() : drop_and_wait(own_, mark.ns);
            if (!dropped.ok()) {
                log_warning("pool: {}: a dropped namespace: {}", own_directory_, dropped.message());
                continue;
            }
            obeyed_.insert(mark.name);
            pools_.expect_wiped_slots();
        }
        const Status said =
            acknowledge_drop(reader_.files(), options_.embedded.directory, mark.name, name);
        if (!said.ok() && said.code() != StatusCode::not_found) {
            metrics_.io_errors.add();
            log_warning("pool: {}", said.message());
        }
    }
    if (std::erase_if(obeyed_, [&](const std::string& mark) { return !there.contains(mark); }) > 0)
        pools_.expect_wiped_slots();
}

void PeerLooks::begin_drop(const std::shared_ptr<SharedDrop>& call, const NamespaceId& ns) {
    // With nobody else there is nothing to agree on. Who comes later begins with what is there.
    const auto directories = pool_directories(reader_.files(), options_.embedded.directory);
    const bool alone =
        directories.ok() && std::all_of(directories->begin(), directories->end(),
                                        [&](const std::string& d) { return d == own_directory_; });
    if (alone) {
        Status status = drop_and_wait(own_, ns);
        return tell([call, status](SharedCore& core) { core.end_drop(*call, status); });
    }
    const auto mark = make_drop_mark(reader_, options_.embedded.directory, ns,
                                     clock_.wall_unix_ms(), random_number());
    if (!mark.ok()) {
        return tell(
            [call, status = mark.status()](SharedCore& core) { core.end_drop(*call, status); });
    }
    drops_.push_back({call, *mark});
    look(false, true);
}

// A mark goes when every pool is rid of its namespace, or when all that was put before it has
// expired.
void PeerLooks::end_drops(const std::vector<DropMark>& marks,
                          const std::vector<std::string>& directories) {
    std::int64_t life_ms = kMarkSlackMs;
    for (const ClassLife& life : options_.embedded.lives)
        life_ms = std::max(life_ms, life.ttl_ms + life.bucket_ms + kMarkSlackMs);
    std::map<std::string, std::string> waiting;  // by mark: pools that are not rid of it
    for (const DropMark& mark : marks) {
        std::string rest;
        const auto check = [&](const std::string& directory) {
            if (mark.rid.contains(name_of(directory))) return;
            rest += (rest.empty() ? "" : ", ") + directory;
        };
        check(own_directory_);
        for (const std::string& directory : directories)
            check(directory);
        const std::int64_t age_ms = clock_.wall_unix_ms() - mark.since_unix_ms;
        const bool mine = std::any_of(drops_.begin(), drops_.end(),
                                      [&](const Drop& drop) { return drop.mark == mark.name; });
        const bool over = rest.empty() && (mine || age_ms > kOthersRemoveMs);
        if (over || age_ms > life_ms) {
            (void)remove_drop_mark(reader_, options_.embedded.directory, mark);
        } else if (!rest.empty()) {
            waiting.emplace(mark.name, rest);
        }
    }
    std::erase_if(drops_, [&](const Drop& drop) {
        const auto at = waiting.find(drop.mark);
        const bool ended = at == waiting.end();
        tell([call = drop.call, ended, rest = ended ? "" : at->second](SharedCore& core) {
            ended ? core.end_drop(*call, {}) : core.drop_waits(*call, rest);
        });
        return ended;
    });
}

// What the own store may take, and whether it is its turn to give something up: of all pools, the
// one that has what expires first.
void PeerLooks::share_capacity(const std::vector<PeerUsage>& usage) {
    (void)wait_for([&](const std::function<void(Status)>& done) {
        (void)own_.usage(kNever, [this, done](const PoolUsage& own, Status status) {
            own_bytes_ = own.allocated_bytes;
            own_earliest_ms_ = own.earliest_expiry_unix_ms;
            done(std::move(status));
        });
    });
    OthersUsage others;
    for (const PeerUsage& peer : usage) {
        others.allocated_bytes += peer.allocated_bytes;
        if (peer.earliest_expiry_unix_ms == 0) continue;
        const std::int64_t before =
            peer.earliest_expiry_unix_ms + (own_directory_ < peer.directory ? 1 : 0);
        others.evict_before_unix_ms = std::min(others.evict_before_unix_ms, before);
    }
    own_.set_others(others);
}

// Pools whose process has ended: their lock is free.
void PeerLooks::tend(const std::vector<DropMark>& marks, const std::vector<PeerUsage>& usage,
                     bool all) {
    if (!options_.writer.empty()) return;
    std::int64_t taken = own_bytes_, earliest_ms = own_earliest_ms_;
    for (const PeerUsage& peer : usage) {
        taken += peer.allocated_bytes;
        const std::int64_t expiry_ms = peer.earliest_expiry_unix_ms;
        if (expiry_ms != 0 && (earliest_ms == 0 || expiry_ms < earliest_ms))
            earliest_ms = expiry_ms;
    }
    const bool crowded =
        static_cast<double>(taken) >
        options_.embedded.high_watermark * static_cast<double>(options_.embedded.capacity_bytes);
    const std::int64_t now_us = real_clock().now_us(), wall_ms = clock_.wall_unix_ms();
    for (std::size_t i = 0; i < usage.size() && !stop_.load(); ++i) {
        const PeerUsage& peer = usage[i];
        const bool drops = std::any_of(marks.begin(), marks.end(), [&](const DropMark& mark) {
            return !mark.rid.contains(name_of(peer.directory));
        });
        const std::int64_t expiry_ms = peer.earliest_expiry_unix_ms;
        const bool overdue = expiry_ms != 0 && expiry_ms + kOverdueMs < wall_ms;
        const bool first = crowded && expiry_ms == earliest_ms && expiry_ms != 0;
        if (!drops && !overdue && !first && peer.unsealed == 0) continue;
        std::int64_t& after_us = tend_after_us_[peer.directory];
        if (!all && now_us < after_us) continue;
        after_us = now_us + (drops ? kTendDropsUs : kTendUs);
        if (tend_one(usage, i)) metrics_.tended.add();
    }
}

// False when somebody has it.
bool PeerLooks::tend_one(const std::vector<PeerUsage>& usage, std::size_t at) {
    const std::string& directory = usage[at].directory;
    auto files = options_.make_files(embedded_ring_depth(options_.embedded.io_depth));
    if (!files.ok() || !(*files)->lock(directory + "/LOCK").ok()) return false;
    auto options = options_.make_embedded();
    if (!options.ok()) return false;
    options->directory = directory;
    options->scrub_bytes_per_s = 0;
    options->metrics = nullptr;
    options->files = std::move(*files);
    auto opened = open_rid_of_drops(std::move(*options), reader_.files());
    if (!opened.ok()) {
        metrics_.io_errors.add();
        log_warning("pool: nobody looks after {}: {}", directory, opened.status().message());
        return false;
    }
    EmbeddedStore& pool = **opened;
    OthersUsage others{.allocated_bytes = own_bytes_};
    if (own_earliest_ms_ != 0) others.evict_before_unix_ms = own_earliest_ms_ + 1;
    for (std::size_t i = 0; i < usage.size(); ++i) {
        if (i == at) continue;
        others.allocated_bytes += usage[i].allocated_bytes;
        if (usage[i].earliest_expiry_unix_ms == 0) continue;
        others.evict_before_unix_ms =
            std::min(others.evict_before_unix_ms, usage[i].earliest_expiry_unix_ms + 1);
    }
    pool.set_others(others);
    const Deadline until{clock_.now_us() + kTendingUs};
    (void)wait_for(
        [&](const std::function<void(Status)>& done) { (void)pool.collect(until, done); });
    pool.close(until);
    log_info("pool: looked after {}, whose process has ended", directory);
    return true;
}

}  // namespace fathom
