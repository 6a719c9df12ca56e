#include "pool/posix_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace fathom {

namespace {

StatusCode code_of(int number) {
    switch (number) {
        case ENOENT:
        case ESTALE:  // gone, says a network file system
            return StatusCode::not_found;
        case ENOSPC:
        case EDQUOT:
        case EMFILE:
        case ENFILE:
        case ENOMEM:
            return StatusCode::resource_exhausted;
        case EACCES:
        case EPERM:
        case EROFS:
            return StatusCode::permission_denied;
        default:
            return StatusCode::unavailable;
    }
}

Status failed(const char* what, const std::string& path, int number) {
    return error(code_of(number), "{}: cannot be {}: {} (errno {})", path, what,
                 std::strerror(number), number);
}

int open_flags(OpenMode mode) {
    switch (mode) {
        case OpenMode::existing:
            return O_RDWR;
        case OpenMode::reading:
            return O_RDONLY;
        case OpenMode::create:
            return O_RDWR | O_CREAT | O_EXCL;
        case OpenMode::directory:
            return O_RDONLY | O_DIRECTORY;
    }
    return O_RDONLY;
}

}  // namespace

PosixFiles::~PosixFiles() {
    for (const auto& [path, file] : locks_)
        ::close(file);
}

void PosixFiles::add_limit(const std::string& sentence) {
    if (limits_.find(sentence) != std::string::npos) return;
    limits_ += limits_.empty() ? sentence : "; " + sentence;
}

Result<int> PosixFiles::open(const std::string& path, OpenMode mode) {
    const int flags = open_flags(mode) | O_CLOEXEC;
    const bool direct = direct_ && mode != OpenMode::directory;
    int file = ::open(path.c_str(), direct ? flags | O_DIRECT : flags, 0640);
    if (file < 0 && errno == EINVAL && direct) {
        direct_ = false;
        add_limit("the file system refuses direct I/O: blocks go through its cache");
        // A refused open may have made the file.
        file = ::open(path.c_str(), flags & ~O_EXCL, 0640);
    }
    if (file < 0) return failed(mode == OpenMode::create ? "created" : "opened", path, errno);
    return file;
}

void PosixFiles::close(int file) {
    ::close(file);
}

Result<std::int64_t> PosixFiles::allocated_bytes(int file) {
    struct stat info {};
    if (::fstat(file, &info) != 0) return failed("measured", "a file of the pool", errno);
    return static_cast<std::int64_t>(info.st_blocks) * 512;
}

Status PosixFiles::make_directory(const std::string& path) {
    if (::mkdir(path.c_str(), 0750) == 0 || errno == EEXIST) return {};
    return failed("made", path, errno);
}

Status PosixFiles::remove_directory(const std::string& path) {
    if (::rmdir(path.c_str()) == 0) return {};
    return failed("removed", path, errno);
}

Status PosixFiles::rename(const std::string& from, const std::string& to) {
    if (std::rename(from.c_str(), to.c_str()) == 0) return {};
    return failed("renamed", from, errno);
}

Result<std::vector<FileName>> PosixFiles::list(const std::string& path) {
    DIR* directory = ::opendir(path.c_str());
    if (directory == nullptr) return failed("listed", path, errno);
    std::vector<FileName> names;
    while (const dirent* entry = ::readdir(directory)) {
        const std::string name = entry->d_name;
        if (name == "." || name == "..") continue;
        bool is_directory = entry->d_type == DT_DIR;
        struct stat info {};
        if (entry->d_type == DT_UNKNOWN && ::lstat((path + "/" + name).c_str(), &info) == 0)
            is_directory = S_ISDIR(info.st_mode);
        names.push_back({name, is_directory});
    }
    ::closedir(directory);
    std::sort(names.begin(), names.end(),
              [](const FileName& a, const FileName& b) { return a.name < b.name; });
    return names;
}

Status PosixFiles::lock(const std::string& path) {
    if (locks_.contains(path)) return {};
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0640);
    if (file < 0) return failed("opened", path, errno);
    if (::flock(file, LOCK_EX | LOCK_NB) != 0) {
        char owner[32] = {};
        const ssize_t length = ::pread(file, owner, sizeof(owner) - 1, 0);
        const int number = errno;
        ::close(file);
        if (length >= 0 || number == EWOULDBLOCK) {
            return error(StatusCode::unavailable,
                         "{}: the pool is in use by another process ({}); end that one, or give "
                         "this one another directory",
                         path, owner[0] == '\0' ? "unknown" : owner);
        }
        return failed("locked", path, number);
    }
    const std::string note = fmt::format("process {}", ::getpid());
    if (::ftruncate(file, 0) != 0 || ::pwrite(file, note.data(), note.size(), 0) < 0)
        add_limit("the lock does not say whose it is");
    locks_[path] = file;
    return {};
}

std::int64_t PosixFiles::extend(const IoRequest& request) {
    struct stat info {};
    if (::fstat(request.file, &info) != 0) return -errno;
    const std::int64_t end = request.offset + request.bytes;
    if (info.st_size >= end) return 0;
    return ::ftruncate(request.file, end) == 0 ? 0 : -errno;
}

std::int64_t PosixFiles::perform(const IoRequest& request) {
    std::int64_t result = 0;
    const auto bytes = static_cast<std::size_t>(request.bytes);
    switch (request.kind) {
        case IoKind::read:
            result = ::pread(request.file, request.data, bytes, request.offset);
            break;
        case IoKind::write:
            result = ::pwrite(request.file, request.data, bytes, request.offset);
            break;
        case IoKind::sync:
            result = ::fdatasync(request.file);
            break;
        case IoKind::allocate:
            result = ::fallocate(request.file, 0, request.offset, request.bytes);
            break;
        case IoKind::punch:
            result = ::fallocate(request.file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                 request.offset, request.bytes);
            break;
        case IoKind::unlink:
            result = ::unlink(request.path.c_str());
            break;
    }
    if (result >= 0) return result;
    if (request.kind == IoKind::allocate && errno == EOPNOTSUPP) return extend(request);
    return -errno;
}

}  // namespace fathom
