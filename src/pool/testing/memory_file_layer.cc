#include "pool/testing/memory_file_layer.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/random.h"
#include "pool/slot.h"

namespace fathom::testing {

namespace {

constexpr std::int64_t kPage = kPoolPageBytes;

std::string parent_of(const std::string& path) {
    return path.substr(0, path.rfind('/'));
}

// Without ".." and double slashes.
std::string plain(const std::string& path) {
    const auto up = path.find("/..");
    return up == std::string::npos ? path : parent_of(path.substr(0, up));
}

}  // namespace

// One process's view: its open files and what it has in flight.
class MemoryLayer : public FileLayer {
  public:
    MemoryLayer(MemoryDisk& disk, int depth) : disk_(disk), depth_(depth) {}
    ~MemoryLayer() override {
        std::lock_guard lock(disk_.mutex_);
        for (const std::string& path : locked_)
            disk_.locks_.erase(path);
    }

    Result<int> open(const std::string& path, OpenMode mode) override {
        std::lock_guard lock(disk_.mutex_);
        if (disk_.is_lost(path)) return dead();
        if (mode == OpenMode::directory) {
            if (!disk_.directories_.contains(plain(path))) return absent(path);
            return add({nullptr, plain(path), {}});
        }
        const auto at = disk_.files_.find(path);
        if (mode == OpenMode::existing || mode == OpenMode::reading) {
            if (at == disk_.files_.end()) return absent(path);
            return add({at->second, {}, path});
        }
        if (!disk_.begin_operation()) return dead();
        if (at != disk_.files_.end() || !disk_.directories_.contains(parent_of(path)))
            return error(StatusCode::unavailable, "{}: cannot be created", path);
        const auto file = std::make_shared<MemoryDisk::File>();
        disk_.files_[path] = file;
        return add({file, {}, path});
    }
    void close(int file) override {
        std::lock_guard lock(disk_.mutex_);
        open_.erase(file);
    }
    Result<std::int64_t> allocated_bytes(int file) override {
        std::lock_guard lock(disk_.mutex_);
        return open_.at(file).file->allocated;
    }
    Status make_directory(const std::string& path) override {
        std::lock_guard lock(disk_.mutex_);
        if (disk_.is_lost(path)) return dead();
        if (disk_.directories_.contains(path)) return {};
        if (!disk_.begin_operation()) return dead();
        disk_.directories_.insert(path);
        return {};
    }
    Status remove_directory(const std::string& path) override {
        std::lock_guard lock(disk_.mutex_);
        const auto below = disk_.files_.lower_bound(path + "/");
        if (below != disk_.files_.end() && below->first.starts_with(path + "/"))
            return error(StatusCode::unavailable, "{}: is not empty", path);
        if (disk_.is_lost(path) || !disk_.begin_operation()) return dead();
        disk_.directories_.erase(path);
        return {};
    }
    Status rename(const std::string& from, const std::string& to) override {
        std::lock_guard lock(disk_.mutex_);
        if (disk_.is_lost(from) || !disk_.begin_operation()) return dead();
        const auto at = disk_.files_.find(from);
        if (at == disk_.files_.end()) return absent(from);
        disk_.files_[to] = at->second;
        disk_.files_.erase(from);
        disk_.durable_files_.erase(from);
        disk_.durable_files_[to] = disk_.files_[to];
        return {};
    }
    Result<std::vector<FileName>> list(const std::string& path) override {
        std::lock_guard lock(disk_.mutex_);
        if (disk_.is_lost(path)) return dead();
        std::vector<FileName> names;
        const auto add_child = [&](const std::string& child, bool directory) {
            if (!child.empty() && parent_of(child) == path)
                names.push_back({child.substr(path.size() + 1), directory});
        };
        for (const std::string& directory : disk_.directories_)
            add_child(directory, true);
        for (const auto& [name, file] : disk_.files_)
            add_child(name, false);
        return names;
    }
    Status lock(const std::string& path) override {
        std::lock_guard lock(disk_.mutex_);
        if (std::find(locked_.begin(), locked_.end(), path) != locked_.end()) return {};
        if (disk_.is_lost(path)) return dead();
        if (!disk_.locks_.insert(path).second)
            return error(StatusCode::unavailable, "{}: in use by another process", path);
        locked_.push_back(path);
        return {};
    }

    void submit(IoRequest request) override {
        std::lock_guard lock(disk_.mutex_);
        FATHOM_CHECK(in_flight_ < depth_);
        ++in_flight_;
        const auto at = open_.find(request.file);
        std::int64_t result = -EIO;
        const bool lost = at == open_.end() ? disk_.is_lost(request.path)
                                            : disk_.is_lost(at->second.directory + at->second.path);
        if (lost || !disk_.begin_operation()) {
            result = -EIO;
        } else if (request.kind == IoKind::unlink) {
            result = disk_.unlink(request.path);
        } else if (at != open_.end() && at->second.file == nullptr) {
            result = sync_names(at->second.directory);
        } else if (at != open_.end()) {
            result = disk_.perform(request, at->second.file.get());
        }
        done_.push_back({{request.tag, result}, request.kind == IoKind::read});
        if (request.kind == IoKind::read && disk_.hold_reads_) ++disk_.held_reads_;
    }
    int depth() const override { return depth_; }

    void wait(std::vector<IoDone>& done, std::int64_t timeout_us) override {
        std::unique_lock lock(disk_.mutex_);
        const auto ready = [&] {
            return awake_ || std::any_of(done_.begin(), done_.end(), [&](const auto& item) {
                       return !item.second || !disk_.hold_reads_;
                   });
        };
        disk_.changed_.wait_for(lock, std::chrono::microseconds(timeout_us), ready);
        awake_ = false;
        std::vector<std::pair<IoDone, bool>> kept;
        // The last one first: completions come in any order.
        while (!done_.empty()) {
            if (done_.back().second && disk_.hold_reads_) {
                kept.push_back(done_.back());
            } else {
                done.push_back(done_.back().first);
                --in_flight_;
            }
            done_.pop_back();
        }
        std::reverse(kept.begin(), kept.end());
        done_ = std::move(kept);
    }
    void wake() override {
        std::lock_guard lock(disk_.mutex_);
        awake_ = true;
        disk_.changed_.notify_all();
    }
    std::string limits() const override { return {}; }

  private:
    struct Open {
        MemoryDisk::FilePtr file;
        std::string directory, path;
    };
    static Status absent(const std::string& path) {
        return error(StatusCode::not_found, "{}: is not there", path);
    }
    static Status dead() { return error(StatusCode::unavailable, "the disk is gone"); }
    int add(Open open) {
        open_[++last_] = std::move(open);
        return last_;
    }
    std::int64_t sync_names(const std::string& directory) {
        const auto is_child = [&](const auto& item) { return parent_of(item.first) == directory; };
        std::erase_if(disk_.durable_files_, is_child);
        for (const auto& item : disk_.files_)
            if (is_child(item)) disk_.durable_files_.insert(item);
        return 0;
    }

    MemoryDisk& disk_;
    const int depth_;
    int last_ = 2, in_flight_ = 0;
    bool awake_ = false;
    std::map<int, Open> open_;
    std::vector<std::string> locked_;
    std::vector<std::pair<IoDone, bool>> done_;  // and whether it is a read
};

std::unique_ptr<FileLayer> MemoryDisk::layer(int depth) {
    return std::make_unique<MemoryLayer>(*this, depth);
}

bool MemoryDisk::is_lost(const std::string& path) const {
    return std::any_of(lost_.begin(), lost_.end(), [&](const std::string& directory) {
        return path == directory || path.starts_with(directory + "/");
    });
}

void MemoryDisk::lose(const std::string& directory) {
    std::lock_guard lock(mutex_);
    lost_.insert(directory);
}

void MemoryDisk::bring_back(const std::string& directory) {
    std::lock_guard lock(mutex_);
    lost_.erase(directory);
}

void MemoryDisk::clear(const std::string& directory) {
    std::lock_guard lock(mutex_);
    const auto below = [&](const auto& item) { return item.first.starts_with(directory + "/"); };
    std::erase_if(files_, below);
    std::erase_if(durable_files_, below);
    std::erase_if(directories_,
                  [&](const std::string& of) { return of.starts_with(directory + "/"); });
}

void MemoryDisk::copy_all(const std::string& from, const std::string& to) {
    std::lock_guard lock(mutex_);
    const auto moved = [&](const std::string& path) { return to + path.substr(from.size()); };
    for (const auto& [path, file] : std::map(files_)) {
        if (!path.starts_with(from + "/")) continue;
        files_[moved(path)] = std::make_shared<File>(*file);
        durable_files_[moved(path)] = files_[moved(path)];
    }
    for (const std::string& directory : std::set(directories_))
        if (directory == from || directory.starts_with(from + "/"))
            directories_.insert(moved(directory));
}

double MemoryDisk::draw() {
    return random_uniform({.seed = seed_, .purpose = RandomPurpose::test_data, .index = draws_++});
}

bool MemoryDisk::begin_operation() {
    if (crash_at_ >= 0 && operations_ >= crash_at_) return false;
    ++operations_;
    return true;
}

bool MemoryDisk::fault(double share) {
    if (share <= 0 || draw() >= share) return false;
    ++faults_done_;
    return true;
}

std::int64_t MemoryDisk::perform(const IoRequest& request, File* file) {
    switch (request.kind) {
        case IoKind::read:
            return read(request, *file);
        case IoKind::write:
            return write(request, *file);
        case IoKind::sync:
            if (fault(faults_.sync_error)) return -EIO;
            file->durable = file->pages;
            return 0;
        case IoKind::allocate:
            if (fault(faults_.no_space)) return -ENOSPC;
            if (allocated_ + request.bytes > capacity_) return -ENOSPC;
            file->bytes = std::max(file->bytes, request.offset + request.bytes);
            file->allocated += request.bytes;
            allocated_ += request.bytes;
            return 0;
        case IoKind::punch:
            file->pages.erase(file->pages.lower_bound(request.offset / kPage),
                              file->pages.lower_bound((request.offset + request.bytes) / kPage));
            file->allocated -= request.bytes;
            allocated_ -= request.bytes;
            return 0;
        case IoKind::unlink:
            break;
    }
    return -EINVAL;
}

std::int64_t MemoryDisk::unlink(const std::string& path) {
    const auto at = files_.find(path);
    if (at == files_.end()) return -ENOENT;
    allocated_ -= at->second->allocated;
    files_.erase(at);
    return 0;
}

void MemoryDisk::read_pages(const Pages& pages, std::int64_t offset, std::int64_t bytes,
                            std::uint8_t* out) {
    for (std::int64_t at = 0; at < bytes; at += kPage) {
        const auto page = pages.find((offset + at) / kPage);
        if (page == pages.end()) {
            std::memset(out + at, 0, kPage);
        } else {
            std::memcpy(out + at, page->second->data(), kPage);
        }
    }
}

void MemoryDisk::write_pages(File& file, std::int64_t offset, std::int64_t bytes,
                             const std::uint8_t* data) {
    for (std::int64_t at = 0; at < bytes; at += kPage)
        file.pages[(offset + at) / kPage] = std::make_shared<Bytes>(data + at, data + at + kPage);
    file.bytes = std::max(file.bytes, offset + bytes);
}

std::int64_t MemoryDisk::read(const IoRequest& request, File& file) {
    if (fault(faults_.read_error)) return -EIO;
    if (fault(faults_.again)) return -EAGAIN;
    std::int64_t offset = request.offset;
    if (fault(faults_.read_misdirected))
        offset += offset >= request.bytes ? -request.bytes : request.bytes;
    const std::int64_t bytes = std::clamp<std::int64_t>(file.bytes - offset, 0, request.bytes);
    read_pages(fault(faults_.read_stale) ? file.durable : file.pages, offset, bytes / kPage * kPage,
               request.data);
    if (bytes > 0 && fault(faults_.read_flip)) {
        const auto bit = static_cast<std::int64_t>(draw() * static_cast<double>(bytes * 8));
        request.data[bit / 8] ^= static_cast<std::uint8_t>(1U << bit % 8);
    }
    if (fault(faults_.read_short)) return bytes / 2 / kPage * kPage;
    return bytes / kPage * kPage;
}

std::int64_t MemoryDisk::write(const IoRequest& request, File& file) {
    const std::int64_t pages = request.bytes / kPage;
    const auto some = [&] {
        return static_cast<std::int64_t>(draw() * static_cast<double>(pages)) * kPage;
    };
    if (fault(faults_.again)) return -EAGAIN;
    if (fault(faults_.no_space)) return -ENOSPC;
    if (fault(faults_.write_error)) {
        // Some of it may be there all the same, or all.
        write_pages(file, request.offset, draw() < 0.5 ? request.bytes : some(), request.data);
        return -EIO;
    }
    if (fault(faults_.write_short)) {
        const std::int64_t bytes = some();
        write_pages(file, request.offset, bytes, request.data);
        return bytes;
    }
    if (fault(faults_.write_lost)) return request.bytes;
    if (fault(faults_.write_torn)) {
        const std::int64_t bytes = some();
        const bool front = draw() < 0.5;
        write_pages(file, front ? request.offset : request.offset + bytes,
                    front ? bytes : request.bytes - bytes,
                    front ? request.data : request.data + bytes);
        return request.bytes;
    }
    if (fault(faults_.write_misdirected)) {
        write_pages(file, request.offset + request.bytes, request.bytes, request.data);
        return request.bytes;
    }
    write_pages(file, request.offset, request.bytes, request.data);
    if (fault(faults_.write_flip)) {
        const auto bit = static_cast<std::int64_t>(draw() * static_cast<double>(request.bytes * 8));
        flip_bit(file, request.offset * 8 + bit);
    }
    return request.bytes;
}

void MemoryDisk::flip_bit(File& file, std::int64_t bit) {
    std::shared_ptr<const Bytes>& page = file.pages[bit / 8 / kPage];
    Bytes bytes = page != nullptr ? *page : Bytes(kPage);
    bytes[static_cast<std::size_t>(bit / 8 % kPage)] ^= static_cast<std::uint8_t>(1U << bit % 8);
    page = std::make_shared<Bytes>(std::move(bytes));
}

void MemoryDisk::set_faults(const DiskFaults& faults) {
    std::lock_guard lock(mutex_);
    faults_ = faults;
}

void MemoryDisk::crash_after(std::int64_t operations) {
    std::lock_guard lock(mutex_);
    crash_at_ = operations < 0 ? -1 : operations_ + operations;
}

bool MemoryDisk::crashed() const {
    std::lock_guard lock(mutex_);
    return crash_at_ >= 0 && operations_ >= crash_at_;
}

std::int64_t MemoryDisk::operations() const {
    std::lock_guard lock(mutex_);
    return operations_;
}

std::int64_t MemoryDisk::faults_done() const {
    std::lock_guard lock(mutex_);
    return faults_done_;
}

void MemoryDisk::lose_power() {
    std::lock_guard lock(mutex_);
    crash_at_ = -1;
    for (const auto& [path, file] : std::map(files_)) {
        if (!durable_files_.contains(path) && draw() < 0.5) files_.erase(path);
    }
    for (const auto& [path, file] : durable_files_) {  // removed, but not for good
        if (!files_.contains(path) && draw() < 0.5) files_[path] = file;
    }
    allocated_ = 0;
    for (auto& [path, file] : files_) {
        for (const auto& [number, page] : Pages(file->pages)) {
            const auto old = file->durable.find(number);
            if (old != file->durable.end() && old->second == page) continue;
            if (draw() < 0.5) continue;
            if (old == file->durable.end()) {
                file->pages.erase(number);
            } else {
                file->pages[number] = old->second;
            }
        }
        file->durable = file->pages;
        allocated_ += file->allocated;
    }
    durable_files_ = files_;
    locks_.clear();
}

void MemoryDisk::hold_reads(bool held) {
    std::lock_guard lock(mutex_);
    hold_reads_ = held;
    if (!held) held_reads_ = 0;
    changed_.notify_all();
}

std::int64_t MemoryDisk::held_reads() const {
    std::lock_guard lock(mutex_);
    return held_reads_;
}

void MemoryDisk::set_capacity(std::int64_t bytes) {
    std::lock_guard lock(mutex_);
    capacity_ = bytes;
}

std::vector<std::string> MemoryDisk::files() const {
    std::lock_guard lock(mutex_);
    std::vector<std::string> paths;
    for (const auto& [path, file] : files_)
        paths.push_back(path);
    return paths;
}

void MemoryDisk::flip(const std::string& path, std::int64_t bit) {
    std::lock_guard lock(mutex_);
    flip_bit(*files_.at(path), bit);
}

void MemoryDisk::remove(const std::string& path) {
    std::lock_guard lock(mutex_);
    (void)unlink(path);
}

void MemoryDisk::truncate(const std::string& path, std::int64_t bytes) {
    std::lock_guard lock(mutex_);
    File& file = *files_.at(path);
    file.bytes = bytes;
    file.pages.erase(file.pages.lower_bound((bytes + kPage - 1) / kPage), file.pages.end());
}

void MemoryDisk::copy(const std::string& from, const std::string& to) {
    std::lock_guard lock(mutex_);
    files_[to] = std::make_shared<File>(*files_.at(from));
}

}  // namespace fathom::testing
