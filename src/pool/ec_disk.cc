#include "pool/ec_disk.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "pool/pool_files.h"
#include "pool/slot_buffers.h"

namespace fathom {

namespace {

constexpr int kAttempts = 3;
constexpr std::size_t kOpenFilesMax = 128;
constexpr std::int64_t kLookUs = 50'000;

bool may_pass(const IoRequest& request, std::int64_t result) {
    const bool bytes = request.kind == IoKind::read || request.kind == IoKind::write;
    return result == -EAGAIN || result == -EINTR || result == -ENOMEM ||
           (bytes && result >= 0 && result != request.bytes);
}

}  // namespace

EcDisk::EcDisk(std::unique_ptr<FileLayer> files, std::vector<std::string> directories,
               const SlotGeometry& geometry, const EcCode& code)
    : files_(std::move(files)),
      directories_(std::move(directories)),
      geometry_(geometry),
      code_(code),
      piece_bytes_(std::max(geometry.slots_offset, geometry.slot_bytes)) {
    pieces_ = aligned_bytes(piece_bytes_ * code.shape().shards());
}

EcDisk::~EcDisk() {
    for (const auto& [path, file] : open_)
        files_->close(file);
}

std::int64_t EcDisk::io(const IoRequest& request) {
    return io(std::span(&request, 1)).front();
}

std::vector<std::int64_t> EcDisk::io(std::span<const IoRequest> requests) {
    std::vector<std::int64_t> results(requests.size(), -EIO);
    std::vector<std::size_t> todo(requests.size());
    for (std::size_t i = 0; i < todo.size(); ++i)
        todo[i] = i;
    const auto depth = static_cast<std::size_t>(std::max(1, files_->depth()));
    for (int attempt = 0; attempt < kAttempts && !todo.empty(); ++attempt) {
        std::size_t sent = 0, ended = 0;
        while (ended < todo.size()) {
            for (; sent < todo.size() && sent - ended < depth; ++sent) {
                IoRequest request = requests[todo[sent]];
                request.tag = todo[sent];
                files_->submit(std::move(request));
            }
            done_.clear();
            files_->wait(done_, kLookUs);
            for (const IoDone& done : done_)
                results[done.tag] = done.result;
            ended += done_.size();
        }
        std::erase_if(todo, [&](std::size_t i) { return !may_pass(requests[i], results[i]); });
    }
    return results;
}

Status EcDisk::sync_directory(const std::string& path) {
    FATHOM_ASSIGN(const int file, files_->open(path, OpenMode::directory));
    const std::int64_t result = io({.kind = IoKind::sync, .file = file});
    files_->close(file);
    if (result >= 0) return {};
    return error(StatusCode::unavailable, "{}: cannot be synced (errno {})", path, -result);
}

std::string EcDisk::shard_path(const EcStripe& stripe, int shard) const {
    const int k = stripe.shape.k;
    if (shard >= k) {
        const std::string& directory =
            directories_[stripe.parity_devices[static_cast<std::size_t>(shard - k)]];
        return directory.empty() ? "" : parity_path(directory, stripe.id, shard - k);
    }
    const auto at = static_cast<std::size_t>(shard);
    if (at >= stripe.members.size() || directories_[stripe.members[at].device].empty()) return "";
    return segment_path(directories_[stripe.members[at].device], stripe.traffic_class,
                        stripe.bucket_start_unix_ms, stripe.members[at].segment);
}

std::int64_t EcDisk::shard_offset(const EcStripe& stripe, int shard, std::uint32_t row) const {
    const std::int64_t head = shard < stripe.shape.k ? 0 : parity_head_bytes(stripe);
    return head + row_offset(geometry_, row);
}

Result<int> EcDisk::reading(const std::string& path) {
    const auto at = std::find_if(open_.begin(), open_.end(),
                                 [&](const auto& item) { return item.first == path; });
    if (at != open_.end()) {
        open_.splice(open_.begin(), open_, at);
        return at->second;
    }
    FATHOM_ASSIGN(const int file, files_->open(path, OpenMode::reading));
    open_.emplace_front(path, file);
    if (open_.size() > kOpenFilesMax) {
        files_->close(open_.back().second);
        open_.pop_back();
    }
    return file;
}

void EcDisk::forget(const EcStripe& stripe) {
    for (int shard = 0; shard < stripe.shape.shards(); ++shard) {
        const std::string path = shard_path(stripe, shard);
        const auto at = std::find_if(open_.begin(), open_.end(),
                                     [&](const auto& item) { return item.first == path; });
        if (at == open_.end()) continue;
        files_->close(at->second);
        open_.erase(at);
    }
}

std::uint8_t* EcDisk::piece(int shard) const {
    return pieces_.get() + shard * piece_bytes_;
}

std::vector<bool> EcDisk::read_rows(const EcStripe& stripe, std::span<const int> shards,
                                    std::uint32_t row) {
    const std::int64_t bytes = row_bytes(geometry_, row);
    std::vector<bool> good(shards.size(), false);
    std::vector<IoRequest> requests;
    std::vector<std::size_t> of;
    for (std::size_t i = 0; i < shards.size(); ++i) {
        const int shard = shards[i];
        if (row >= stripe.rows_of(shard)) {  // nothing lies there
            std::memset(piece(shard), 0, static_cast<std::size_t>(bytes));
            good[i] = true;
            continue;
        }
        const std::string path = shard_path(stripe, shard);
        if (path.empty()) continue;
        const auto file = reading(path);
        if (!file.ok()) continue;
        requests.push_back({.kind = IoKind::read,
                            .file = *file,
                            .offset = shard_offset(stripe, shard, row),
                            .bytes = bytes,
                            .data = piece(shard)});
        of.push_back(i);
    }
    const std::vector<std::int64_t> results = io(requests);
    for (std::size_t r = 0; r < results.size(); ++r) {
        const int shard = shards[of[r]];
        good[of[r]] =
            results[r] == bytes &&
            crc32c({piece(shard), static_cast<std::size_t>(bytes)}) == stripe.crc(shard, row);
    }
    return good;
}

bool EcDisk::read_row(const EcStripe& stripe, int shard, std::uint32_t row, std::uint8_t* out) {
    const bool good = read_rows(stripe, std::span(&shard, 1), row).front();
    if (good) std::memcpy(out, piece(shard), static_cast<std::size_t>(row_bytes(geometry_, row)));
    return good;
}

bool EcDisk::rebuild_row(const EcStripe& stripe, int shard, std::uint32_t row, std::uint8_t* out) {
    const auto k = static_cast<std::size_t>(stripe.shape.k);
    // Cheap ones first: those that are zero, then members, then parity.
    std::vector<int> candidates;
    for (const bool zero : {true, false}) {
        for (int other = 0; other < stripe.shape.shards(); ++other) {
            if (other != shard && (row >= stripe.rows_of(other)) == zero)
                candidates.push_back(other);
        }
    }
    std::vector<int> sources;
    std::size_t next = 0;
    while (sources.size() < k) {
        const std::size_t wanted = std::min(k - sources.size(), candidates.size() - next);
        if (wanted == 0) return false;
        const std::span<const int> some(candidates.data() + next, wanted);
        const std::vector<bool> good = read_rows(stripe, some, row);
        for (std::size_t i = 0; i < wanted; ++i)
            if (good[i]) sources.push_back(some[i]);
        next += wanted;
    }
    std::vector<const std::uint8_t*> from;
    for (const int source : sources)
        from.push_back(piece(source));
    const std::int64_t bytes = row_bytes(geometry_, row);
    code_.rebuild(shard, sources, from, out, bytes);
    return crc32c({out, static_cast<std::size_t>(bytes)}) == stripe.crc(shard, row);
}

}  // namespace fathom
