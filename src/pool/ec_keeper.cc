#include "pool/ec_keeper.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <map>

#include "base/check.h"
#include "base/log.h"
#include "pool/pool_files.h"
#include "pool/slot_buffers.h"

namespace fathom {

namespace {

constexpr std::int64_t kChunkBytes = std::int64_t{1} << 20;
constexpr std::int64_t kLookUs = 2'000;

Status ended() {
    return Status(StatusCode::cancelled, "the work was ended");
}

Status failed(const std::string& path, const char* what, std::int64_t result) {
    return error(StatusCode::unavailable, "{}: cannot be {} ({}; bytes or -errno)", path, what,
                 result);
}

std::size_t as_size(std::int64_t bytes) {
    return static_cast<std::size_t>(bytes);
}

std::string draft_path(const std::string& directory) {
    return directory + "/par/rebuild";
}

std::string parent_of(const std::string& path) {
    return path.substr(0, path.rfind('/'));
}

}  // namespace

bool EcPace::go_on(std::int64_t bytes) {
    const auto ends = [this] { return held_ || stopped_; };
    if (bytes_per_s_ <= 0 || hurry_) return !ends();
    due_us_ = std::max(due_us_, clock_.now_us()) + bytes * 1'000'000 / bytes_per_s_;
    while (!ends() && !hurry_ && clock_.now_us() < due_us_)
        (void)never_.pop(kLookUs);
    return !ends();
}

Result<EcStripe> EcKeeper::read_head(const std::string& path, int& parity) {
    FileLayer& files = disk_.files();
    FATHOM_ASSIGN(const int file, files.open(path, OpenMode::reading));
    const auto read = [&](std::int64_t bytes) -> Result<std::shared_ptr<std::uint8_t>> {
        auto data = aligned_bytes(bytes);
        const std::int64_t got =
            disk_.io({.kind = IoKind::read, .file = file, .bytes = bytes, .data = data.get()});
        if (got < 0) return failed(path, "read", got);
        return data;  // behind what there is it is zero
    };
    const auto parse = [&]() -> Result<EcStripe> {
        FATHOM_ASSIGN(const auto page, read(kPoolPageBytes));
        FATHOM_ASSIGN(const std::int64_t bytes,
                      parity_head_bytes(std::span(page.get(), as_size(kPoolPageBytes))));
        FATHOM_ASSIGN(const auto head, read(bytes));
        return read_parity_head(std::span(head.get(), as_size(bytes)), disk_.geometry(), parity);
    };
    auto stripe = parse();
    files.close(file);
    return stripe;
}

// Whether a head is of this set and says where it lies.
bool EcKeeper::belongs(const EcStripe& stripe, int parity, std::size_t device,
                       const std::string& path, const PoolUuid& set) const {
    const auto known = [&](std::uint32_t of) { return of < disk_.directories().size(); };
    return stripe.set == set && stripe.shape == disk_.code().shape() &&
           parity_path(disk_.directories()[device], stripe.id, parity) == path &&
           stripe.parity_devices[as_size(parity)] == device &&
           std::all_of(stripe.members.begin(), stripe.members.end(),
                       [&](const EcMember& member) { return known(member.device); }) &&
           std::all_of(stripe.parity_devices.begin(), stripe.parity_devices.end(), known);
}

std::vector<EcKeeper::Found> EcKeeper::load(const PoolUuid& set) {
    std::map<std::uint64_t, Found> found;
    FileLayer& files = disk_.files();
    for (std::size_t device = 0; device < disk_.directories().size(); ++device) {
        const std::string& directory = disk_.directories()[device];
        if (directory.empty()) continue;
        const auto stripes = files.list(directory + "/par");
        if (!stripes.ok()) continue;
        for (const FileName& name : *stripes) {
            const std::string folder = directory + "/par/" + name.name;
            if (!name.directory) {
                (void)disk_.io({.kind = IoKind::unlink, .path = folder});
                continue;
            }
            const auto parts = files.list(folder);
            if (!parts.ok()) continue;
            bool kept = false;
            for (const FileName& part : *parts)
                kept = load_part(folder + "/" + part.name, device, set, found) || kept;
            if (!kept) (void)files.remove_directory(folder);
        }
    }
    std::vector<Found> stripes;
    for (auto& [id, of] : found)
        stripes.push_back(std::move(of));
    return stripes;
}

// False when the file was removed.
bool EcKeeper::load_part(const std::string& path, std::size_t device, const PoolUuid& set,
                         std::map<std::uint64_t, Found>& found) {
    int parity = 0;
    const auto stripe = read_head(path, parity);
    if (stripe.ok() && belongs(*stripe, parity, device, path, set)) {
        Found& of = found[stripe->id];
        if (of.stripe == nullptr) {
            of.stripe = std::make_shared<EcStripe>(*stripe);
            of.parity.assign(as_size(stripe->shape.m), false);
        }
        if (*of.stripe == *stripe) return of.parity[as_size(parity)] = true;
    }
    // What cannot be read, or is of a later format, is not this program's to remove.
    const StatusCode code = stripe.status().code();
    if (code == StatusCode::unavailable || code == StatusCode::unsupported) return true;
    log_info("pool: {}: {}; removed", path,
             stripe.ok() ? "is of another stripe" : stripe.status().message());
    (void)disk_.io({.kind = IoKind::unlink, .path = path});
    return false;
}

Result<int> EcKeeper::create_parity(const EcStripe& stripe, int parity) {
    FileLayer& files = disk_.files();
    const int shard = stripe.shape.k + parity;
    const std::string path = disk_.shard_path(stripe, shard);
    if (path.empty()) return error(StatusCode::unavailable, "a device of the stripe is not there");
    const std::string& directory = disk_.directories()[stripe.parity_devices[as_size(parity)]];
    FATHOM_RETURN_IF_ERROR(files.make_directory(directory + "/par"));
    FATHOM_RETURN_IF_ERROR(files.make_directory(stripe_directory(directory, stripe.id)));
    (void)disk_.io({.kind = IoKind::unlink, .path = path});
    FATHOM_ASSIGN(const int file, files.open(path, OpenMode::create));
    const std::int64_t bytes = disk_.shard_offset(stripe, shard, stripe.rows);
    const std::int64_t allocated =
        disk_.io({.kind = IoKind::allocate, .file = file, .bytes = bytes});
    if (allocated >= 0) return file;
    files.close(file);
    return failed(path, "allocated", allocated);
}

Status EcKeeper::write_row(int file, std::int64_t offset, std::int64_t bytes, std::uint8_t* data) {
    const std::int64_t written = disk_.io(
        {.kind = IoKind::write, .file = file, .offset = offset, .bytes = bytes, .data = data});
    return written == bytes ? Status() : failed("a row", "written", written);
}

// Reads back what was written; a disk that says it wrote may have meant something else.
Status EcKeeper::check_rows(const EcStripe& stripe, int shard, int file, std::int64_t head,
                            const std::vector<bool>* skip) {
    const SlotGeometry& geometry = disk_.geometry();
    const auto buffer = aligned_bytes(std::max(geometry.slots_offset, geometry.slot_bytes));
    for (std::uint32_t row = 0; row < stripe.rows_of(shard); ++row) {
        if (skip != nullptr && (*skip)[row]) continue;
        const std::int64_t bytes = row_bytes(geometry, row);
        const std::int64_t got = disk_.io({.kind = IoKind::read,
                                           .file = file,
                                           .offset = head + row_offset(geometry, row),
                                           .bytes = bytes,
                                           .data = buffer.get()});
        if (got != bytes || crc32c({buffer.get(), as_size(bytes)}) != stripe.crc(shard, row))
            return error(StatusCode::data_loss, "row {} of a stripe is not read as written", row);
        if (!pace_.go_on(bytes)) return ended();
    }
    return {};
}

// Rows are durable and right before the head says so.
Status EcKeeper::finish_parity(const EcStripe& stripe, int parity, int file) {
    const std::int64_t synced = disk_.io({.kind = IoKind::sync, .file = file});
    if (synced < 0) return failed("a parity file", "synced", synced);
    const std::int64_t bytes = parity_head_bytes(stripe);
    FATHOM_RETURN_IF_ERROR(check_rows(stripe, stripe.shape.k + parity, file, bytes, nullptr));
    const std::string& directory = disk_.directories()[stripe.parity_devices[as_size(parity)]];
    FATHOM_RETURN_IF_ERROR(disk_.sync_directory(directory));
    FATHOM_RETURN_IF_ERROR(disk_.sync_directory(directory + "/par"));
    FATHOM_RETURN_IF_ERROR(disk_.sync_directory(stripe_directory(directory, stripe.id)));
    const auto head = aligned_bytes(bytes);
    write_parity_head({head.get(), as_size(bytes)}, stripe, parity);
    FATHOM_RETURN_IF_ERROR(write_row(file, 0, bytes, head.get()));
    const std::int64_t sealed = disk_.io({.kind = IoKind::sync, .file = file});
    return sealed >= 0 ? Status() : failed("a parity file", "synced", sealed);
}

Status EcKeeper::build(EcStripe& stripe) {
    stripe.crcs.assign(stripe.crc_count(), 0);
    FileLayer& files = disk_.files();
    std::vector<int> members, parity;
    Status status;
    for (std::size_t i = 0; i < stripe.members.size() && status.ok(); ++i) {
        const auto file =
            files.open(disk_.shard_path(stripe, static_cast<int>(i)), OpenMode::reading);
        if (file.ok()) members.push_back(*file);
        status = file.status();
    }
    for (int j = 0; j < stripe.shape.m && status.ok(); ++j) {
        const auto file = create_parity(stripe, j);
        if (file.ok()) parity.push_back(*file);
        status = file.status();
    }
    if (status.ok()) status = encode_rows(stripe, members, parity);
    for (int j = 0; j < stripe.shape.m && status.ok(); ++j)
        status = finish_parity(stripe, j, parity[as_size(j)]);
    for (const int file : members)
        files.close(file);
    for (const int file : parity)
        files.close(file);
    if (!status.ok()) (void)remove(stripe);
    return status;
}

Status EcKeeper::encode_rows(EcStripe& stripe, const std::vector<int>& members,
                             const std::vector<int>& parity) {
    const SlotGeometry& geometry = disk_.geometry();
    const int k = stripe.shape.k, shards = stripe.shape.shards();
    const auto rows_of_chunk =
        static_cast<std::uint32_t>(std::max<std::int64_t>(1, kChunkBytes / geometry.slot_bytes));
    const std::int64_t piece_bytes =
        std::max(geometry.slots_offset, rows_of_chunk * geometry.slot_bytes);
    const auto memory = aligned_bytes(piece_bytes * shards);
    const auto piece = [&](int shard) { return memory.get() + shard * piece_bytes; };
    std::uint32_t end = 0;
    for (std::uint32_t row = 0; row < stripe.rows; row = end) {
        // What lies before the slots is alone: its size is another.
        end = row == 0 ? 1 : std::min(row + rows_of_chunk, stripe.rows);
        const std::int64_t bytes = row_bytes(geometry, row) * (end - row);
        const auto sum = [&](int shard, std::uint32_t from, std::uint32_t to) {
            for (std::uint32_t r = from; r < to; ++r) {
                const std::int64_t at = row_offset(geometry, r) - row_offset(geometry, row);
                stripe.crc(shard, r) = crc32c({piece(shard) + at, as_size(row_bytes(geometry, r))});
            }
        };
        std::vector<IoRequest> reads, writes;
        std::vector<const std::uint8_t*> data;
        std::vector<std::uint8_t*> coded;
        for (int shard = 0; shard < k; ++shard) {
            const std::uint32_t has = std::clamp(stripe.rows_of(shard), row, end) - row;
            const std::int64_t there = row_bytes(geometry, row) * has;
            std::memset(piece(shard) + there, 0, as_size(bytes - there));
            data.push_back(piece(shard));
            if (has == 0) continue;
            reads.push_back({.kind = IoKind::read,
                             .file = members[as_size(shard)],
                             .offset = row_offset(geometry, row),
                             .bytes = there,
                             .data = piece(shard)});
        }
        const std::vector<std::int64_t> got = disk_.io(reads);
        for (std::size_t i = 0; i < got.size(); ++i)
            if (got[i] != reads[i].bytes) return failed("a member of a stripe", "read", got[i]);
        for (int shard = k; shard < shards; ++shard) {
            coded.push_back(piece(shard));
            writes.push_back({.kind = IoKind::write,
                              .file = parity[as_size(shard - k)],
                              .offset = disk_.shard_offset(stripe, shard, row),
                              .bytes = bytes,
                              .data = piece(shard)});
        }
        disk_.code().encode(data, coded, bytes);
        for (int shard = 0; shard < shards; ++shard)
            sum(shard, row, std::min(end, std::max(row, stripe.rows_of(shard))));
        const std::vector<std::int64_t> written = disk_.io(writes);
        for (const std::int64_t result : written)
            if (result != bytes) return failed("parity", "written", result);
        if (!pace_.go_on(bytes * (static_cast<std::int64_t>(reads.size()) + stripe.shape.m)))
            return ended();
    }
    return {};
}

Status EcKeeper::remove(const EcStripe& stripe) {
    Status status;
    disk_.forget(stripe);
    for (int j = 0; j < stripe.shape.m; ++j) {
        const std::string& directory = disk_.directories()[stripe.parity_devices[as_size(j)]];
        if (directory.empty()) continue;  // such a device is not opened again as it is
        const std::string path = parity_path(directory, stripe.id, j);
        const std::string folder = stripe_directory(directory, stripe.id);
        const std::int64_t result = disk_.io({.kind = IoKind::unlink, .path = path});
        if (result == -ENOENT) {
            (void)disk_.files().remove_directory(folder);
            continue;
        }
        Status gone = result < 0 ? failed(path, "removed", result) : disk_.sync_directory(folder);
        (void)disk_.files().remove_directory(folder);
        if (gone.ok()) gone = disk_.sync_directory(directory + "/par");
        if (status.ok()) status = gone;
    }
    return status;
}

EcKeeper::Mended EcKeeper::mend(const EcStripe& stripe, int shard,
                                const std::vector<std::uint32_t>& rows) {
    Mended mended;
    const std::string path = disk_.shard_path(stripe, shard);
    const auto file = path.empty() ? Result<int>(error(StatusCode::unavailable, "no device"))
                                   : disk_.files().open(path, OpenMode::existing);
    if (!file.ok()) {
        mended.status = file.status();
        return mended;
    }
    const SlotGeometry& geometry = disk_.geometry();
    const auto buffer = aligned_bytes(std::max(geometry.slots_offset, geometry.slot_bytes));
    for (const std::uint32_t row : rows) {
        if (!pace_.go_on(row_bytes(geometry, row) * (stripe.shape.k + 1))) {
            mended.status = ended();
            break;
        }
        if (disk_.read_row(stripe, shard, row, buffer.get())) {
            mended.good.push_back(row);
            continue;
        }
        if (!disk_.rebuild_row(stripe, shard, row, buffer.get())) continue;
        mended.status = write_row(*file, disk_.shard_offset(stripe, shard, row),
                                  row_bytes(geometry, row), buffer.get());
        if (!mended.status.ok()) break;
        const std::int64_t synced = disk_.io({.kind = IoKind::sync, .file = *file});
        if (synced < 0 || !disk_.read_row(stripe, shard, row, buffer.get())) continue;
        mended.good.push_back(row);
        ++mended.rebuilt;
    }
    disk_.files().close(*file);
    return mended;
}

// Not where its store looks until it is whole; and never over a file that is there.
Result<int> EcKeeper::create_draft(const std::string& directory, const std::string& path) {
    FileLayer& files = disk_.files();
    if (const auto there = files.open(path, OpenMode::reading); there.ok()) {
        files.close(*there);
        return error(StatusCode::unavailable, "{}: is there; it is not replaced", path);
    }
    const std::string draft = draft_path(directory);
    FATHOM_RETURN_IF_ERROR(files.make_directory(directory + "/par"));
    FATHOM_RETURN_IF_ERROR(files.make_directory(parent_of(path)));
    (void)disk_.io({.kind = IoKind::unlink, .path = draft});
    FATHOM_ASSIGN(const int file, files.open(draft, OpenMode::create));
    const std::int64_t room =
        disk_.io({.kind = IoKind::allocate, .file = file, .bytes = kSegmentBytes});
    if (room >= 0) return file;
    files.close(file);
    return failed(draft, "allocated", room);
}

// From here on the store may have it.
Status EcKeeper::finish_segment(const EcStripe& stripe, int shard, int file,
                                const std::vector<bool>& missing) {
    const std::string path = disk_.shard_path(stripe, shard);
    const std::string draft =
        draft_path(disk_.directories()[stripe.members[as_size(shard)].device]);
    const std::int64_t used = row_offset(disk_.geometry(), stripe.rows_of(shard));
    if (used < kSegmentBytes) {
        (void)disk_.io(
            {.kind = IoKind::punch, .file = file, .offset = used, .bytes = kSegmentBytes - used});
    }
    const std::int64_t synced = disk_.io({.kind = IoKind::sync, .file = file});
    if (synced < 0) return failed(draft, "synced", synced);
    FATHOM_RETURN_IF_ERROR(check_rows(stripe, shard, file, 0, &missing));
    FATHOM_RETURN_IF_ERROR(disk_.files().rename(draft, path));
    FATHOM_RETURN_IF_ERROR(disk_.sync_directory(parent_of(parent_of(path))));
    return disk_.sync_directory(parent_of(path));
}

EcKeeper::Mended EcKeeper::rebuild(const EcStripe& stripe, int shard) {
    Mended mended;
    const int k = stripe.shape.k;
    const bool is_parity = shard >= k;
    const std::string path = disk_.shard_path(stripe, shard);
    disk_.forget(stripe);
    Result<int> file = error(StatusCode::unavailable, "a device is not there");
    std::string written_to = path;
    if (!path.empty() && is_parity) {
        file = create_parity(stripe, shard - k);
    } else if (!path.empty()) {
        const std::string& directory = disk_.directories()[stripe.members[as_size(shard)].device];
        file = create_draft(directory, path);
        written_to = draft_path(directory);
    }
    if (!file.ok()) {
        mended.status = file.status();
        return mended;
    }
    std::vector<bool> missing(stripe.rows_of(shard), false);
    mended.status = rebuild_rows(stripe, shard, *file, missing);
    if (mended.status.ok()) {
        mended.status = is_parity ? finish_parity(stripe, shard - k, *file)
                                  : finish_segment(stripe, shard, *file, missing);
    }
    disk_.files().close(*file);
    if (!mended.status.ok()) {
        (void)disk_.io({.kind = IoKind::unlink, .path = written_to});
        return mended;
    }
    mended.rebuilt = std::count(missing.begin(), missing.end(), false);
    return mended;
}

Status EcKeeper::rebuild_rows(const EcStripe& stripe, int shard, int file,
                              std::vector<bool>& missing) {
    const SlotGeometry& geometry = disk_.geometry();
    const auto buffer = aligned_bytes(std::max(geometry.slots_offset, geometry.slot_bytes));
    for (std::uint32_t row = 0; row < stripe.rows_of(shard); ++row) {
        const std::int64_t bytes = row_bytes(geometry, row);
        if (!pace_.go_on(bytes * (stripe.shape.k + 1))) return ended();
        missing[row] = !disk_.rebuild_row(stripe, shard, row, buffer.get());
        if (missing[row] && (row == 0 || shard >= stripe.shape.k)) {
            return error(StatusCode::data_loss,
                         "stripe {:016x}: too little is left to rebuild row {} of shard {}",
                         stripe.id, row, shard);
        }
        if (missing[row]) continue;
        FATHOM_RETURN_IF_ERROR(
            write_row(file, disk_.shard_offset(stripe, shard, row), bytes, buffer.get()));
    }
    return {};
}

std::vector<std::pair<int, std::uint32_t>> EcKeeper::scrub(const EcStripe& stripe) {
    std::vector<std::pair<int, std::uint32_t>> bad;
    const SlotGeometry& geometry = disk_.geometry();
    const auto buffer = aligned_bytes(std::max(geometry.slots_offset, geometry.slot_bytes));
    for (int shard = 0; shard < stripe.shape.shards(); ++shard) {
        // Slots of members are looked through by their own stores; what lies before them is not.
        const bool member = shard < stripe.shape.k;
        const std::uint32_t rows = member ? std::min(stripe.rows_of(shard), 1U) : stripe.rows;
        const std::string path = disk_.shard_path(stripe, shard);
        if (path.empty() || rows == 0 || !disk_.reading(path).ok()) continue;
        for (std::uint32_t row = 0; row < rows; ++row) {
            if (!disk_.read_row(stripe, shard, row, buffer.get())) bad.emplace_back(shard, row);
            bytes_scrubbed_ += row_bytes(geometry, row);
            if (!pace_.go_on(row_bytes(geometry, row))) return bad;
        }
    }
    return bad;
}

}  // namespace fathom
