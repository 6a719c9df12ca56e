#include <algorithm>
#include <random>

#include "base/check.h"
#include "base/log.h"
#include "pool/ec_core.h"
#include "pool/ec_watcher.h"
#include "pool/pool_files.h"
#include "pool/slot_buffers.h"

namespace fathom {

namespace {

constexpr int kWorkerDepth = 64;
constexpr std::int64_t kSegmentsMin = 8;  // of an embedded store
constexpr std::int64_t kLookUs = 50'000;

PoolUuid new_uuid() {
    std::random_device random;
    PoolUuid uuid{};
    for (std::uint8_t& byte : uuid)
        byte = static_cast<std::uint8_t>(random());
    return uuid;
}

std::int64_t io_now(FileLayer& files, const IoRequest& request) {
    files.submit(request);
    std::vector<IoDone> done;
    while (done.empty())
        files.wait(done, kLookUs);
    return done.front().result;
}

Status sync_now(FileLayer& files, const std::string& directory) {
    FATHOM_ASSIGN(const int file, files.open(directory, OpenMode::directory));
    const std::int64_t result = io_now(files, {.kind = IoKind::sync, .file = file});
    files.close(file);
    if (result >= 0) return {};
    return error(StatusCode::unavailable, "{}: cannot be synced (errno {})", directory, -result);
}

// Pages in their order, each durable before the next; the file is made when it is not there.
Status write_pages(FileLayer& files, const std::string& directory, const char* name,
                   std::int64_t offset, std::uint8_t* data, std::int64_t bytes) {
    const std::string path = directory + "/" + name;
    auto file = files.open(path, OpenMode::existing);
    const bool absent = !file.ok() && file.status().code() == StatusCode::not_found;
    if (absent) file = files.open(path, OpenMode::create);
    if (!file.ok()) return file.status();
    Status status;
    for (std::int64_t at = 0; at < bytes && status.ok(); at += kPoolPageBytes) {
        const std::int64_t written = io_now(files, {.kind = IoKind::write,
                                                    .file = *file,
                                                    .offset = offset + at,
                                                    .bytes = kPoolPageBytes,
                                                    .data = data + at});
        const std::int64_t synced = io_now(files, {.kind = IoKind::sync, .file = *file});
        if (written != kPoolPageBytes || synced < 0) {
            status = error(StatusCode::unavailable,
                           "{}: cannot be written ({}, sync {}; or -errno)", path, written, synced);
        }
    }
    files.close(*file);
    return status.ok() && absent ? sync_now(files, directory) : status;
}

Result<std::shared_ptr<std::uint8_t>> read_pages(FileLayer& files, const std::string& path,
                                                 std::int64_t bytes) {
    FATHOM_ASSIGN(const int file, files.open(path, OpenMode::reading));
    auto data = aligned_bytes(bytes);
    const std::int64_t got =
        io_now(files, {.kind = IoKind::read, .file = file, .bytes = bytes, .data = data.get()});
    files.close(file);
    if (got < 0) return error(StatusCode::unavailable, "{}: cannot be read (errno {})", path, -got);
    return data;
}

}  // namespace

struct EcCore::SeenDevice {
    std::string directory;
    std::optional<EcSetFile> set;
    bool missing = false, empty = false, locked = false;
    std::string trouble;
    int position = -1;
};

Result<std::unique_ptr<FileLayer>> EcCore::make_files(int depth) const {
    return options_.files ? options_.files(depth) : make_file_layer(depth);
}

Status EcCore::open() {
    FATHOM_ASSIGN(locks_, make_files(kWorkerDepth));
    std::vector<SeenDevice> seen;
    FATHOM_RETURN_IF_ERROR(look_at(*locks_, seen));
    FATHOM_RETURN_IF_ERROR(arrange(*locks_, seen));
    const std::int64_t longest_ms =
        std::max_element(lives_.begin(), lives_.end(), [](const auto& a, const auto& b) {
            return a.ttl_ms + a.bucket_ms < b.ttl_ms + b.bucket_ms;
        })->ttl_ms;
    // A device that does not come along keeps its blocks; new ones go elsewhere meanwhile.
    for (;;) {
        FATHOM_RETURN_IF_ERROR(write_sets(*locks_, false));
        FATHOM_RETURN_IF_ERROR(open_devices(*locks_));
        const int open = open_devices_count();
        if (open < static_cast<int>(devices_.size())) {
            set_.scattered_until_unix_ms = clock_.wall_unix_ms() + 2 * longest_ms;
        }
        FATHOM_RETURN_IF_ERROR(write_sets(*locks_, true));
        if (open_devices_count() == open) break;
        ++set_.attempt;
    }
    scattered_ = set_.scattered_until_unix_ms > clock_.wall_unix_ms();
    std::vector<std::string> directories;
    for (const Device& device : devices_)
        directories.push_back(device.store != nullptr ? device.directory : "");
    FATHOM_ASSIGN(auto for_reader, make_files(kWorkerDepth));
    FATHOM_ASSIGN(auto for_keeper, make_files(kWorkerDepth));
    if (options_.keys) {
        FATHOM_ASSIGN(reader_keys_, options_.keys());
    }
    reader_disk_ = std::make_unique<EcDisk>(std::move(for_reader), directories, geometry_, code_);
    keeper_disk_ = std::make_unique<EcDisk>(std::move(for_keeper), directories, geometry_, code_);
    keeper_ = std::make_unique<EcKeeper>(*keeper_disk_, pace_);
    thread_.drain();  // what devices said of their segments
    // A file layer is of the thread that uses it first.
    worker_.post([this] { adopt_stripes(); });
    worker_.drain();
    thread_.drain();
    for (const Device& device : devices_)
        if (!device.trouble.empty()) log_warning("pool: {}", device.trouble);
    thread_.post([this] { work(); });
    return {};
}

Status EcCore::look_at(FileLayer& files, std::vector<SeenDevice>& seen) {
    for (const std::string& directory : options_.directories) {
        SeenDevice device;
        device.directory = directory;
        const auto names = files.list(directory);
        const auto has = [&](const char* name) {
            return std::any_of(names->begin(), names->end(),
                               [&](const FileName& file) { return file.name == name; });
        };
        const bool holds = names.ok() && (has("POOL") || has("seg") || has("par"));
        if (!names.ok()) {
            device.missing = names.status().code() == StatusCode::not_found;
            device.trouble = names.status().message();
        } else if (!has("SET") && holds) {
            device.trouble =
                fmt::format("{}: holds something else, not a device of this set", directory);
        } else if (has("SET")) {
            FATHOM_RETURN_IF_ERROR(files.lock(directory + "/SET.LOCK"));
            device.locked = true;
            const auto bytes = read_pages(files, directory + "/SET", kSetFileBytes);
            const auto set = bytes.ok() ? read_set_file({bytes->get(), kSetFileBytes})
                                        : Result<EcSetFile>(bytes.status());
            if (set.ok()) {
                device.set = *set;
            } else if (set.status().code() == StatusCode::unsupported) {
                return set.status().with_context(directory + "/SET");
            } else if (set.status().code() == StatusCode::data_loss && !holds) {
                device.empty = true;  // whoever began to make it ended before it said anything
            } else {
                device.trouble = set.status().with_context(directory + "/SET").message();
            }
        } else {
            device.empty = true;
        }
        seen.push_back(std::move(device));
    }
    return {};
}

Status EcCore::arrange(FileLayer& files, std::vector<SeenDevice>& seen) {
    const bool fresh =
        std::none_of(seen.begin(), seen.end(), [](const SeenDevice& device) { return device.set; });
    FATHOM_RETURN_IF_ERROR(fresh ? begin_set(seen) : recognize(seen));
    ++set_.attempt;
    return assign_places(files, seen);
}

Status EcCore::begin_set(std::vector<SeenDevice>& seen) {
    for (SeenDevice& device : seen) {
        if (!device.missing && !device.empty) {
            return invalid_argument("{}; a new set of devices needs empty directories",
                                    device.trouble);
        }
        device.empty = true;
        device.trouble.clear();
    }
    set_.set = new_uuid();
    set_.shape = options_.shape;
    set_.payload_bytes = static_cast<std::uint32_t>(geometry_.payload_bytes);
    for (std::size_t i = 0; i < seen.size(); ++i)
        set_.devices.push_back({.pool = new_uuid()});
    return {};
}

// Devices that are out of date, or of another set, get no place.
Status EcCore::recognize(std::vector<SeenDevice>& seen) {
    std::map<PoolUuid, int> sets;
    for (const SeenDevice& device : seen)
        if (device.set) ++sets[device.set->set];
    const auto ours = std::max_element(
        sets.begin(), sets.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    std::uint64_t begun = 0, attempt = 0;
    for (SeenDevice& device : seen) {
        if (!device.set) continue;
        if (device.set->set != ours->first) {
            device.trouble = fmt::format("{}: is a device of another set", device.directory);
            device.set.reset();
            continue;
        }
        begun = std::max(begun, device.set->begun);
        attempt = std::max(attempt, device.set->attempt);
    }
    for (SeenDevice& device : seen) {
        if (!device.set) continue;
        if (device.set->begun == begun) set_ = *device.set;
        if (device.set->begun == begun || device.set->attempt == begun) {
            device.position = static_cast<int>(device.set->position);
            continue;
        }
        device.trouble = fmt::format(
            "{}: was away while the pool was used (its life {}, now {}), so that it may hold "
            "what was dropped",
            device.directory, device.set->begun, begun);
    }
    set_.begun = begun;
    set_.attempt = attempt;
    if (set_.shape == options_.shape && set_.devices.size() == seen.size() &&
        set_.payload_bytes == geometry_.payload_bytes)
        return {};
    return invalid_argument(
        "{}: the set has {} devices, ec {}+{} and blocks of {} bytes, not {}, {}+{} and {}; give "
        "it what it has, or other directories",
        options_.directories.front(), set_.devices.size(), set_.shape.k, set_.shape.m,
        set_.payload_bytes, seen.size(), options_.shape.k, options_.shape.m,
        geometry_.payload_bytes);
}

// An empty directory takes the place at which it stands in the list, unless that is taken.
Status EcCore::assign_places(FileLayer& files, std::vector<SeenDevice>& seen) {
    std::vector<int> holder(seen.size(), -1);
    for (std::size_t i = 0; i < seen.size(); ++i) {
        if (seen[i].position < 0) continue;
        int& of = holder[static_cast<std::size_t>(seen[i].position)];
        if (of >= 0) {
            return invalid_argument("{} and {}: both are device {} of the set; leave one out",
                                    seen[static_cast<std::size_t>(of)].directory, seen[i].directory,
                                    seen[i].position);
        }
        of = static_cast<int>(i);
    }
    const auto place = [&](std::size_t i, std::size_t to) {
        holder[to] = static_cast<int>(i);
        seen[i].position = static_cast<int>(to);
    };
    for (std::size_t i = 0; i < seen.size(); ++i)
        if (seen[i].empty && seen[i].position < 0 && holder[i] < 0) place(i, i);
    for (const bool empty : {true, false}) {
        for (std::size_t i = 0; i < seen.size(); ++i) {
            if (seen[i].position >= 0 || seen[i].empty != empty) continue;
            place(i, static_cast<std::size_t>(std::find(holder.begin(), holder.end(), -1) -
                                              holder.begin()));
        }
    }
    devices_.resize(seen.size());
    for (std::size_t to = 0; to < seen.size(); ++to) {
        const SeenDevice& from = seen[static_cast<std::size_t>(holder[to])];
        devices_[to].directory = from.directory;
        if (!from.trouble.empty()) {
            devices_[to].trouble =
                from.trouble +
                "; put its disk back, or an empty directory in its place to have "
                "its blocks rebuilt";
        } else if (from.empty) {
            FATHOM_RETURN_IF_ERROR(files.make_directory(from.directory));
            if (!from.locked) FATHOM_RETURN_IF_ERROR(files.lock(from.directory + "/SET.LOCK"));
        }
    }
    return {};
}

// In two rounds: that a life is to begin, and, when all have heard of that, that it has begun. A
// device that fails meanwhile is not of it, and those that are get another number, so that it is
// out of date when it comes back.
Status EcCore::write_sets(FileLayer& files, bool begun) {
    for (bool again = true; again;) {
        again = false;
        for (const bool second : {false, true}) {
            if (second && !begun) break;
            for (std::size_t i = 0; i < devices_.size() && !again; ++i) {
                Device& device = devices_[i];
                if (!device.trouble.empty()) continue;
                EcSetFile file = set_;
                file.position = static_cast<std::uint32_t>(i);
                if (second) file.begun = file.attempt;
                const auto page = aligned_bytes(kPoolPageBytes);
                write_set_page({page.get(), static_cast<std::size_t>(kPoolPageBytes)}, file);
                const Status written =
                    write_pages(files, device.directory, "SET", second ? kPoolPageBytes : 0,
                                page.get(), kPoolPageBytes);
                if (written.ok()) continue;
                device.trouble = written.message() + "; look at the disk";
                device.store.reset();
                ++set_.attempt;
                again = true;
            }
        }
    }
    if (begun) set_.begun = set_.attempt;
    if (std::any_of(devices_.begin(), devices_.end(),
                    [](const Device& device) { return device.trouble.empty(); }))
        return {};
    std::string all;
    for (const Device& device : devices_)
        all += (all.empty() ? "" : "; ") + device.trouble;
    return error(StatusCode::unavailable, "no device of the pool can be opened: {}", all);
}

Status EcCore::open_devices(FileLayer& files) {
    const EcShape& shape = options_.shape;
    const std::int64_t capacity_bytes =
        std::max(options_.capacity_bytes / shape.shards() * shape.k, kSegmentsMin * kSegmentBytes);
    bool failed = false;
    for (std::size_t i = 0; i < devices_.size(); ++i) {
        Device& device = devices_[i];
        if (!device.trouble.empty() || device.store != nullptr) continue;
        Status status = make_pool_file(files, i);
        if (status.ok()) status = open_one(i, capacity_bytes);
        if (status.ok()) continue;
        device.trouble = status.message();
        device.store.reset();
        failed = true;
    }
    if (!failed) return {};
    ++set_.attempt;
    return write_sets(files, false);
}

Status EcCore::make_pool_file(FileLayer& files, std::size_t position) {
    const std::string& directory = devices_[position].directory;
    const EcSetFile::Device& known = set_.devices[position];
    const auto bytes = read_pages(files, directory + "/POOL", kPoolFileBytes);
    if (!bytes.ok() && bytes.status().code() != StatusCode::not_found) return bytes.status();
    if (bytes.ok()) {
        const auto pool = read_pool_file({bytes->get(), static_cast<std::size_t>(kPoolFileBytes)});
        if (pool.ok() && pool->uuid == known.pool) return {};
        if (pool.ok() || pool.status().code() != StatusCode::data_loss) {
            return pool.ok() ? invalid_argument("{}/POOL: is of another pool", directory)
                             : pool.status().with_context(directory + "/POOL");
        }
    }
    const auto page = aligned_bytes(kPoolFileBytes);
    write_pool_file({page.get(), static_cast<std::size_t>(kPoolFileBytes)},
                    {.uuid = known.pool,
                     .payload_bytes = static_cast<std::uint32_t>(geometry_.payload_bytes),
                     .slot_bytes = static_cast<std::uint32_t>(geometry_.slot_bytes),
                     .epoch = known.pool_epoch,
                     .created_unix_ms = clock_.wall_unix_ms()});
    return write_pages(files, directory, "POOL", 0, page.get(), kPoolFileBytes);
}

Status EcCore::open_one(std::size_t position, std::int64_t capacity_bytes) {
    Device& device = devices_[position];
    EmbeddedOptions with = options_.device ? options_.device() : EmbeddedOptions{};
    with.directory = device.directory;
    with.payload_bytes = geometry_.payload_bytes;
    with.capacity_bytes = capacity_bytes;
    with.lives = lives_;
    with.clock = &clock_;
    with.metrics = options_.metrics;
    with.backend = fmt::format("ec{}", position);
    device.watcher = std::make_unique<Watcher>(thread_, *this, static_cast<int>(position));
    with.watcher = device.watcher.get();
    with.encrypt = options_.encrypt;
    if (options_.keys) {
        FATHOM_ASSIGN(with.keys, options_.keys());
    }
    FATHOM_ASSIGN(device.store, EmbeddedStore::open(std::move(with)));
    FATHOM_ASSIGN(const auto bytes,
                  read_pages(*locks_, device.directory + "/POOL", kPoolFileBytes));
    FATHOM_ASSIGN(const PoolFile pool,
                  read_pool_file({bytes.get(), static_cast<std::size_t>(kPoolFileBytes)}));
    set_.devices[position].pool_epoch = pool.epoch;
    return {};
}

// Stripes that are there, and what can be said of their members that are not. On the worker.
void EcCore::adopt_stripes() {
    const std::vector<EcKeeper::Found> found = keeper_->load(set_.set);
    const auto head = aligned_bytes(geometry_.slots_offset);
    for (const EcKeeper::Found& each : found) {
        const EcStripe& stripe = *each.stripe;
        std::map<int, std::vector<FooterEntry>> lost;
        for (std::size_t i = 0; i < stripe.members.size(); ++i) {
            const EcMember& member = stripe.members[i];
            if (is_open(static_cast<int>(member.device)) &&
                devices_[member.device].segments.contains(member.segment))
                continue;
            const int shard = static_cast<int>(i);
            std::vector<FooterEntry>& entries = lost[shard];
            if (!keeper_disk_->rebuild_row(stripe, shard, 0, head.get())) continue;
            const std::span<const std::uint8_t> bytes(
                head.get(), static_cast<std::size_t>(geometry_.slots_offset));
            auto footer =
                read_footer(bytes.subspan(static_cast<std::size_t>(kPoolPageBytes)), geometry_,
                            {pool_low_bytes(set_.devices[member.device].pool), member.segment, 0});
            if (footer.ok()) entries = std::move(*footer);
        }
        thread_.post(
            [this, &each, lost = std::move(lost)] { install(each.stripe, each.parity, lost); });
    }
    thread_.drain();
}

}  // namespace fathom
