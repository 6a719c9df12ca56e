#include "pool/window_cache.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "pool/block_store.h"

namespace fathom {

namespace {

constexpr std::size_t kMemoryPage = 4096;
constexpr std::size_t kCellsMax = std::size_t{1} << 24;
constexpr std::uint64_t kCellBytesMax = std::uint64_t{1} << 33;
constexpr std::string_view kSlabMagic = "fathom windows 1";

// Version changes bracket what is written between them, for readers in other processes.
void begin_writing(WindowCell& cell) {
    std::atomic_ref<std::uint64_t>(cell.version).fetch_add(1, std::memory_order_acq_rel);
}
void end_writing(WindowCell& cell) {
    std::atomic_ref<std::uint64_t>(cell.version).fetch_add(1, std::memory_order_release);
}

// Never 0, which is a free cell.
std::uint64_t directory_tag(const BlockKey& key) {
    std::uint64_t tag = 0;
    std::memcpy(&tag, key.bytes.data(), sizeof tag);
    return tag == 0 ? 1 : tag;
}

struct SlabHeader {
    std::array<char, 16> magic{};
    std::uint64_t cell_bytes = 0, cells = 0, entry_bytes = 0;
};

std::size_t cells_offset(std::size_t cells) {
    const std::size_t directory = cells * sizeof(std::uint64_t);
    return kMemoryPage + (directory + kMemoryPage - 1) / kMemoryPage * kMemoryPage;
}

}  // namespace

BlockKey window_key(const BlockKey& boundary, std::string_view window_layout) {
    Sha256 hash;
    hash.update("kvpool/swa/1");
    hash.update(boundary.bytes);
    hash.update(window_layout);
    return {hash.finish()};
}

Result<std::unique_ptr<WindowCache>> WindowCache::create(const WindowCacheOptions& options,
                                                         const Clock& clock) {
    constexpr std::int64_t kEntryMax = std::int64_t{1} << 32;
    if (options.entry_bytes < 1 || options.entry_bytes > kEntryMax)
        return invalid_argument("window cache: entries of {} bytes, expected 1 to {}",
                                options.entry_bytes, kEntryMax);
    std::unique_ptr<WindowCache> cache(new WindowCache(options, clock));
    const std::size_t used = sizeof(WindowCell) + static_cast<std::size_t>(options.entry_bytes);
    cache->cell_bytes_ = (used + kMemoryPage - 1) / kMemoryPage * kMemoryPage;
    const auto least = static_cast<std::int64_t>(cells_offset(1) + cache->cell_bytes_);
    if (options.budget_bytes < least)
        return invalid_argument(
            "window cache: a budget of {} bytes holds no entry of {} bytes, expected at least {}",
            options.budget_bytes, options.entry_bytes, least);
    // The directory may round up to a page more than its share.
    const std::size_t cells = std::max<std::size_t>(
        1, (static_cast<std::size_t>(options.budget_bytes) - 2 * kMemoryPage) /
               (cache->cell_bytes_ + sizeof(std::uint64_t)));
    if (cells > kCellsMax)
        return invalid_argument(
            "window cache: a budget of {} bytes is {} entries of {} bytes, expected at most {}",
            options.budget_bytes, cells, options.entry_bytes, kCellsMax);
    cache->cells_offset_ = cells_offset(cells);
    cache->memory_bytes_ = cache->cells_offset_ + cells * cache->cell_bytes_;
    cache->slots_.resize(cells);
    for (std::size_t index = cells; index > 0; --index)
        cache->free_.push_back(index - 1);
    FATHOM_RETURN_IF_ERROR(cache->map_memory());
    return cache;
}

Status WindowCache::map_memory() {
    const auto failed = [&](std::string_view what) {
        return error(StatusCode::resource_exhausted,
                     "window cache of {} bytes: {} failed: {}; windows are replayed instead, or "
                     "give it a smaller budget",
                     memory_bytes_, what, std::strerror(errno));
    };
    fd_ = ::memfd_create(kWindowMemoryName.data(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd_ < 0) return failed("memfd_create");
    if (::ftruncate(fd_, static_cast<off_t>(memory_bytes_)) != 0) return failed("ftruncate");
    // Readers must not be killed by a file that shrinks under them.
    if (::fcntl(fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) return failed("sealing");
    void* mapped =
        ::mmap(nullptr, memory_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd_, 0);
    if (mapped == MAP_FAILED) return failed("mmap");
    memory_ = static_cast<std::uint8_t*>(mapped);
    (void)::madvise(memory_, memory_bytes_, MADV_HUGEPAGE);  // only a wish
    (void)::madvise(memory_, memory_bytes_, MADV_DONTDUMP);
    locked_ = ::mlock2(memory_, memory_bytes_, MLOCK_ONFAULT) == 0;
    SlabHeader header{.cell_bytes = cell_bytes_,
                      .cells = slots_.size(),
                      .entry_bytes = static_cast<std::uint64_t>(options_.entry_bytes)};
    std::copy(kSlabMagic.begin(), kSlabMagic.end(), header.magic.begin());
    std::memcpy(memory_, &header, sizeof header);
    return {};
}

WindowCache::~WindowCache() {
    if (memory_ != nullptr) {
        clear();
        ::munmap(memory_, memory_bytes_);
    }
    if (fd_ >= 0) ::close(fd_);
}

WindowCell& WindowCache::cell(std::size_t index) const {
    return *reinterpret_cast<WindowCell*>(memory_ + cells_offset_ + index * cell_bytes_);
}

std::uint64_t& WindowCache::directory(std::size_t index) const {
    return reinterpret_cast<std::uint64_t*>(memory_ + kMemoryPage)[index];
}

std::span<std::uint8_t> WindowCache::entry_of(std::size_t index) const {
    return {memory_ + cells_offset_ + index * cell_bytes_ + sizeof(WindowCell),
            static_cast<std::size_t>(options_.entry_bytes)};
}

bool WindowCache::dead(std::size_t index) const {
    return clock_.now_us() - cell(index).used_at_us >= options_.life_us;
}

void WindowCache::put(const BlockKey& key, std::span<const std::uint8_t> entry) {
    FATHOM_CHECK(static_cast<std::int64_t>(entry.size()) == options_.entry_bytes);
    if (const auto at = cell_of_.find(key); at != cell_of_.end()) {
        if (!dead(at->second)) return;
        counters_.expired.add();
        release(at->second);
    }
    const std::size_t index = free_cell();
    WindowCell& taken = cell(index);
    begin_writing(taken);
    std::memcpy(entry_of(index).data(), entry.data(), entry.size());
    taken.bytes = entry.size();
    taken.key = key.bytes;
    taken.digest = payload_digest(entry.data(), options_.entry_bytes);
    taken.used_at_us = clock_.now_us();
    end_writing(taken);
    std::atomic_ref(directory(index)).store(directory_tag(key), std::memory_order_release);
    slots_[index] = {.key = key, .taken = true, .referenced = false};
    cell_of_[key] = index;
    counters_.stored.add();
}

bool WindowCache::get(const BlockKey& key, std::span<std::uint8_t> entry) {
    FATHOM_CHECK(static_cast<std::int64_t>(entry.size()) == options_.entry_bytes);
    const auto at = cell_of_.find(key);
    if (at == cell_of_.end() || dead(at->second)) {
        counters_.misses.add();
        return false;
    }
    const std::size_t index = at->second;
    WindowCell& found = cell(index);
    std::memcpy(entry.data(), entry_of(index).data(), entry.size());
    if (found.key != key.bytes ||
        payload_digest(entry.data(), options_.entry_bytes) != found.digest) {
        counters_.corrupt.add();
        counters_.misses.add();
        release(index);
        return false;
    }
    found.used_at_us = clock_.now_us();
    slots_[index].referenced = true;
    counters_.hits.add();
    return true;
}

// CLOCK: the hand takes the first cell whose entry was not used since it last came by.
std::size_t WindowCache::free_cell() {
    while (free_.empty()) {
        Slot& slot = slots_[hand_];
        if (dead(hand_)) {
            counters_.expired.add();
            release(hand_);
        } else if (!std::exchange(slot.referenced, false)) {
            counters_.evicted.add();
            release(hand_);
        }
        hand_ = (hand_ + 1) % slots_.size();
    }
    const std::size_t index = free_.back();
    free_.pop_back();
    return index;
}

// Zeroes the cell, apart from its version, and gives its memory back to the machine.
void WindowCache::release(std::size_t index) {
    WindowCell& released = cell(index);
    std::atomic_ref(directory(index)).store(0, std::memory_order_relaxed);
    begin_writing(released);
    std::memset(entry_of(index).data(), 0, static_cast<std::size_t>(options_.entry_bytes));
    const std::uint64_t version = released.version;
    released = WindowCell{.version = version};
    end_writing(released);
    if (cell_bytes_ > kMemoryPage) {
        std::uint8_t* behind_header = memory_ + cells_offset_ + index * cell_bytes_ + kMemoryPage;
        (void)::madvise(behind_header, cell_bytes_ - kMemoryPage, MADV_REMOVE);
    }
    cell_of_.erase(slots_[index].key);
    slots_[index] = {};
    free_.push_back(index);
}

void WindowCache::expire() {
    for (std::size_t index = 0; index < slots_.size(); ++index) {
        if (!slots_[index].taken || !dead(index)) continue;
        counters_.expired.add();
        release(index);
    }
}

void WindowCache::clear() {
    for (std::size_t index = 0; index < slots_.size(); ++index) {
        if (slots_[index].taken) release(index);
    }
}

Result<std::unique_ptr<WindowReader>> WindowReader::open(const std::string& path,
                                                         std::int64_t entry_bytes,
                                                         const Clock& clock) {
    struct Closer {
        int fd;
        ~Closer() {
            if (fd >= 0) ::close(fd);
        }
    } const file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
    struct stat about {};
    // A file that may shrink under a mapping would kill who reads there.
    const int seals = file.fd < 0 ? -1 : ::fcntl(file.fd, F_GET_SEALS);
    if (file.fd < 0 || ::fstat(file.fd, &about) != 0 || seals < 0 || (seals & F_SEAL_SHRINK) == 0)
        return error(StatusCode::not_found, "{}: no window memory", path);
    SlabHeader header;
    const bool whole =
        ::pread(file.fd, &header, sizeof header, 0) == static_cast<ssize_t>(sizeof header);
    const auto bytes = static_cast<std::uint64_t>(about.st_size);
    if (!whole || !std::equal(kSlabMagic.begin(), kSlabMagic.end(), header.magic.begin()))
        return error(StatusCode::not_found, "{}: no window memory", path);
    if (header.entry_bytes != static_cast<std::uint64_t>(entry_bytes) || header.cells > kCellsMax ||
        header.cell_bytes > kCellBytesMax ||
        header.cell_bytes < sizeof(WindowCell) + header.entry_bytes ||
        header.cell_bytes % kMemoryPage != 0 ||
        cells_offset(header.cells) + header.cells * header.cell_bytes != bytes)
        return invalid_argument("{}: windows of {} bytes, expected {}", path, header.entry_bytes,
                                entry_bytes);
    void* mapped = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, file.fd, 0);
    if (mapped == MAP_FAILED)
        return error(StatusCode::resource_exhausted, "{}: mmap failed: {}", path,
                     std::strerror(errno));
    std::unique_ptr<WindowReader> reader(new WindowReader(clock));
    reader->memory_ = static_cast<const std::uint8_t*>(mapped);
    reader->memory_bytes_ = bytes;
    reader->cell_bytes_ = header.cell_bytes;
    reader->cells_ = header.cells;
    reader->cells_offset_ = cells_offset(header.cells);
    return reader;
}

WindowReader::~WindowReader() {
    if (memory_ != nullptr) ::munmap(const_cast<std::uint8_t*>(memory_), memory_bytes_);
}

bool WindowReader::get(const BlockKey& key, std::span<std::uint8_t> entry,
                       std::int64_t life_us) const {
    const std::uint64_t tag = directory_tag(key);
    const auto* tags = reinterpret_cast<const std::uint64_t*>(memory_ + kMemoryPage);
    for (std::size_t index = 0; index < cells_; ++index) {
        // Only reads: a page that the owner never wrote is not made by them.
        auto& known = const_cast<std::uint64_t&>(tags[index]);
        if (std::atomic_ref(known).load(std::memory_order_acquire) != tag) continue;
        if (read_cell(index, key, entry, life_us)) return true;
    }
    return false;
}

bool WindowReader::read_cell(std::size_t index, const BlockKey& key, std::span<std::uint8_t> entry,
                             std::int64_t life_us) const {
    const std::uint8_t* at = memory_ + cells_offset_ + index * cell_bytes_;
    const auto& shown = *reinterpret_cast<const WindowCell*>(at);
    const std::atomic_ref version(const_cast<std::uint64_t&>(shown.version));
    const std::uint64_t before = version.load(std::memory_order_acquire);
    WindowCell cell;
    std::memcpy(&cell, &shown, sizeof cell);
    if (before % 2 != 0 || cell.key != key.bytes || cell.bytes != entry.size() ||
        clock_.now_us() - cell.used_at_us >= life_us)
        return false;
    std::memcpy(entry.data(), at + sizeof(WindowCell), entry.size());
    std::atomic_thread_fence(std::memory_order_acquire);
    return version.load(std::memory_order_relaxed) == before &&
           payload_digest(entry.data(), static_cast<std::int64_t>(entry.size())) == cell.digest;
}

}  // namespace fathom
