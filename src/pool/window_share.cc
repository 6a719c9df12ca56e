#include "pool/window_share.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <optional>
#include <utility>

#include "base/log.h"

namespace fathom {

namespace {

// The beginning of what names this life of this machine.
std::string boot_name() {
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::string id;
    std::getline(file, id);
    return id.substr(0, 8);
}

struct Named {
    std::string boot;
    long pid = 0, fd = 0;
};
std::optional<Named> parse_name(const std::string& name) {
    const std::size_t first = name.find('-');
    const std::size_t second = first == std::string::npos ? first : name.find('-', first + 1);
    if (second == std::string::npos) return std::nullopt;
    Named named{.boot = name.substr(0, first)};
    const auto number = [&](std::size_t begin, std::size_t end, long& value) {
        const auto [at, failed] = std::from_chars(name.data() + begin, name.data() + end, value);
        return failed == std::errc{} && at == name.data() + end && value >= 0;
    };
    if (!number(first + 1, second, named.pid) || !number(second + 1, name.size(), named.fd))
        return std::nullopt;
    return named;
}

std::string path_of(const Named& named) {
    return fmt::format("/proc/{}/fd/{}", named.pid, named.fd);
}

std::vector<std::string> names_in(const std::string& directory) {
    std::vector<std::string> names;
    DIR* opened = ::opendir(directory.c_str());
    if (opened == nullptr) return names;
    while (const dirent* entry = ::readdir(opened))
        names.emplace_back(entry->d_name);
    ::closedir(opened);
    return names;
}

}  // namespace

struct WindowShare::Metrics {
    explicit Metrics(MetricsRegistry& registry)
        : hits(registry.counter("kvpool_swa_hit_total",
                                "Windows found, by whose memory they were in.", {{"from", "own"}})),
          others(registry.counter("kvpool_swa_hit_total",
                                  "Windows found, by whose memory they were in.",
                                  {{"from", "other"}})),
          misses(registry.counter("kvpool_swa_miss_total", "Windows looked for and not found.")),
          entries(registry.gauge("kvpool_swa_entries", "Windows kept in memory of the node.")),
          readable(registry.gauge("kvpool_swa_processes",
                                  "Other processes whose windows can be read.")) {}
    Counter &hits, &others, &misses;
    Gauge &entries, &readable;
};

WindowShare::WindowShare(const WindowShareOptions& options, const Clock& clock,
                         MetricsRegistry& metrics)
    : options_(options), clock_(clock), metrics_(std::make_unique<Metrics>(metrics)) {}

Result<std::unique_ptr<WindowShare>> WindowShare::open(const WindowShareOptions& options,
                                                       const Clock& clock,
                                                       MetricsRegistry& metrics) {
    std::unique_ptr<WindowShare> share(new WindowShare(options, clock, metrics));
    FATHOM_ASSIGN(share->own_, WindowCache::create({.entry_bytes = options.entry_bytes,
                                                    .budget_bytes = options.budget_bytes,
                                                    .life_us = options.life_us},
                                                   clock));
    if (!share->own_->locked())
        log_info("windows: their memory cannot be kept from swap space (RLIMIT_MEMLOCK)");
    if (options.directory.empty()) return share;
    share->boot_ = boot_name();
    share->own_name_ =
        fmt::format("{}-{}-{}", share->boot_, static_cast<long>(::getpid()), share->own_->fd());
    (void)::mkdir(options.directory.c_str(), 0700);  // publish() says what became of it
    FATHOM_RETURN_IF_ERROR(share->publish());
    share->look();
    return share;
}

WindowShare::~WindowShare() {
    if (!own_name_.empty()) (void)::unlink((options_.directory + "/" + own_name_).c_str());
}

Status WindowShare::publish() {
    const std::string path = options_.directory + "/" + own_name_;
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0) {
        ::close(fd);
        return {};
    }
    return error(StatusCode::unavailable,
                 "{}: cannot be made: {}; windows are not shared, check the rights of the pool's "
                 "directory",
                 path, std::strerror(errno));
}

void WindowShare::look() {
    look_after_us_ = clock_.now_us() + options_.look_us;
    std::map<std::string, std::unique_ptr<WindowReader>> known = std::exchange(others_, {});
    bool published = false;
    double readable = 0;
    for (const std::string& name : names_in(options_.directory)) {
        if (name == own_name_) {
            published = true;
            continue;
        }
        const std::optional<Named> named = parse_name(name);
        if (!named || named->boot != boot_) continue;
        const bool alive = ::access(path_of(*named).c_str(), F_OK) == 0;
        if (!alive && errno == ENOENT) {
            (void)::unlink((options_.directory + "/" + name).c_str());
            continue;
        }
        std::unique_ptr<WindowReader>& reader = others_[name];
        if (const auto at = known.find(name); at != known.end()) {
            reader = std::move(at->second);
        } else if (auto opened = WindowReader::open(path_of(*named), options_.entry_bytes, clock_);
                   opened.ok()) {
            reader = std::move(*opened);
        }
        readable += reader != nullptr ? 1 : 0;
    }
    metrics_->readable.set(readable);
    // Somebody in another namespace of processes may have taken ours for gone. Where the directory
    // is gone too, what stands in its place is left alone.
    if (!published) (void)publish();
}

void WindowShare::keep(const BlockKey& block, std::span<const std::uint8_t> rows) {
    if (static_cast<std::int64_t>(rows.size()) != options_.entry_bytes) return;
    own_->put(window_key(block, options_.layout), rows);
    metrics_->entries.set(static_cast<double>(own_->entries()));
}

bool WindowShare::recall(const BlockKey& block, std::vector<std::uint8_t>& rows) {
    const BlockKey key = window_key(block, options_.layout);
    std::vector<std::uint8_t> found(static_cast<std::size_t>(options_.entry_bytes));
    if (own_->get(key, found)) {
        metrics_->hits.add();
    } else if (recall_from_others(key, found)) {
        metrics_->others.add();
    } else {
        metrics_->misses.add();
        return false;
    }
    rows = std::move(found);
    return true;
}

bool WindowShare::recall_from_others(const BlockKey& key, std::span<std::uint8_t> rows) const {
    for (const auto& [name, reader] : others_)
        if (reader != nullptr && reader->get(key, rows, options_.life_us)) return true;
    return false;
}

void WindowShare::expire() {
    own_->expire();
    metrics_->entries.set(static_cast<double>(own_->entries()));
    if (!own_name_.empty() && clock_.now_us() >= look_after_us_) look();
}

}  // namespace fathom
