#include "pool/key_ring.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "base/log.h"
#include "pool/secret_file.h"

namespace fathom {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kLookUs = 1'000'000;
constexpr std::size_t kKnownMax = 4096;
constexpr std::ptrdiff_t kTagBytes = 8;
constexpr std::string_view kWhat = "the key of a namespace";

Status key_error(const Status& cause) {
    return Status(StatusCode::permission_denied, cause.message());
}

struct FileFacts {
    std::uint64_t number = 0;  // 0: there is none
    bool others_may_read = false;
};

FileFacts facts_of(const std::string& path) {
    struct stat facts {};
    if (::stat(path.c_str(), &facts) != 0) return {};
    return {static_cast<std::uint64_t>(facts.st_ino), (facts.st_mode & 077) != 0};
}

// As well as a file system lets one: journals and flash may keep older bytes.
bool overwrite(const std::string& path) {
    const int file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (file < 0) return false;
    const std::array<char, static_cast<std::size_t>(kSecretBytes)> zeros{};
    const bool done =
        ::pwrite(file, zeros.data(), zeros.size(), 0) == kSecretBytes && ::fsync(file) == 0;
    ::close(file);
    return done;
}

bool sync_names(const std::string& directory) {
    const int file = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (file < 0) return false;
    const bool done = ::fsync(file) == 0;
    ::close(file);
    return done;
}

}  // namespace

Result<std::unique_ptr<KeyRing>> KeyRing::open(const std::string& directory, const Clock& clock) {
    if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST)
        return error(StatusCode::unavailable,
                     "{}: making the directory of keys: {}; check the rights of the one above it, "
                     "or name another (pool.key_dir)",
                     directory, std::strerror(errno));
    struct stat facts {};
    if (::stat(directory.c_str(), &facts) != 0 || !S_ISDIR(facts.st_mode))
        return invalid_argument("{}: is not a directory, and keys are kept in one (pool.key_dir)",
                                directory);
    if ((facts.st_mode & 077) != 0)
        return invalid_argument(
            "{}: the directory of keys may be entered by others (mode {:o}); make it 0700",
            directory, facts.st_mode & 0777);
    if (::access(directory.c_str(), R_OK | W_OK | X_OK) != 0)
        return error(StatusCode::unavailable, "{}: the directory of keys: {}; check its rights",
                     directory, std::strerror(errno));
    std::unique_ptr<KeyRing> ring(new KeyRing(directory, clock));
    ring->report_unreadable();
    return ring;
}

void KeyRing::report_unreadable() const {
    std::error_code failed;
    for (const fs::directory_entry& entry : fs::directory_iterator(directory_, failed)) {
        if (entry.path().extension() != ".key") continue;
        const Result<std::string> key = read_secret_file(entry.path().string(), kWhat);
        if (!key.ok()) log_warning("pool: {}; its blocks are misses", key.status().message());
    }
}

std::string KeyRing::path_of(const NamespaceId& ns) const {
    return directory_ + "/" + hex_text(ns.bytes) + ".key";
}

Result<BlockCipher*> KeyRing::find(const NamespaceId& ns) {
    const std::int64_t now_us = clock_.now_us();
    const auto at = known_.find(ns.bytes);
    if (at != known_.end()) {
        Known& known = at->second;
        if (now_us - known.seen_us < kLookUs) return known.cipher.get();
        const FileFacts now = facts_of(path_of(ns));
        if (now.number == known.file && !now.others_may_read) {
            known.seen_us = now_us;
            return known.cipher.get();
        }
        // Read anew it is refused like any such file.
        if (now.others_may_read)
            log_warning(
                "pool: {}: may be read by others since a short while; its blocks are misses and "
                "none are stored until it is 0600 again. Was it copied meanwhile?",
                path_of(ns));
        known_.erase(at);
    }
    const std::string path = path_of(ns);
    const std::uint64_t file = facts_of(path).number;
    Result<std::string> key = read_secret_file(path, kWhat);
    if (!key.ok()) return key_error(key.status());
    if (known_.size() >= kKnownMax) known_.clear();
    Known& known = known_[ns.bytes];
    known = {std::make_unique<BlockCipher>(std::move(*key)), file, now_us};
    return known.cipher.get();
}

Result<BlockCipher*> KeyRing::find_or_make(const NamespaceId& ns) {
    Result<BlockCipher*> found = find(ns);
    const std::string path = path_of(ns);
    if (found.ok() || ::access(path.c_str(), F_OK) == 0) return found;
    const Status made = make_secret_file(path, kWhat);
    if (!made.ok()) return key_error(made);
    if (!sync_names(directory_))
        return error(StatusCode::permission_denied,
                     "{}: the new key cannot be made durable: {}; check the disk", path,
                     std::strerror(errno));
    return find(ns);
}

Status KeyRing::destroy(const NamespaceId& ns) {
    std::erase_if(known_, [&](const auto& known) {
        return std::equal(ns.bytes.begin(), ns.bytes.begin() + kTagBytes, known.first.begin());
    });
    const std::string name = hex_text(std::span(ns.bytes).first(kTagBytes));
    std::error_code failed;
    std::vector<std::string> paths;
    for (const fs::directory_entry& entry : fs::directory_iterator(directory_, failed)) {
        if (entry.path().filename().string().starts_with(name))
            paths.push_back(entry.path().string());
    }
    if (failed)
        return error(StatusCode::unavailable, "{}: listing keys: {}; the key of {} stays",
                     directory_, failed.message(), hex_text(ns.bytes));
    for (const std::string& path : paths) {
        // Away from its name first: nobody may find zeros under it.
        const std::string dying = path + ".erased";
        if (::rename(path.c_str(), dying.c_str()) != 0 || !overwrite(dying) ||
            ::unlink(dying.c_str()) != 0)
            return error(StatusCode::unavailable,
                         "{}: erasing the key: {}; remove what begins with {} in {} by hand", path,
                         std::strerror(errno), name, directory_);
    }
    if (!paths.empty() && !sync_names(directory_))
        return error(StatusCode::unavailable, "{}: making the removal of a key durable: {}",
                     directory_, std::strerror(errno));
    return {};
}

}  // namespace fathom
