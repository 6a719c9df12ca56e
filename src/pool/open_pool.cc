#include "pool/open_pool.h"

#include <fcntl.h>
#include <openssl/rand.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "pool/embedded_store.h"

namespace fathom {

namespace {

constexpr std::int64_t kCapacityMax = std::int64_t{1} << 40;
constexpr std::int64_t kStoreStagedUs = 10'000'000;
constexpr std::int64_t kCloseUs = 10'000'000;

Status file_error(const std::string& path, const char* what, const char* remedy) {
    return error(StatusCode::unavailable, "{}: {}: {}; {}", path, what, std::strerror(errno),
                 remedy);
}

class File {
  public:
    File(const std::string& path, int flags) : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0600)) {}
    ~File() {
        if (fd_ >= 0) ::close(fd_);
    }
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    int fd() const { return fd_; }

  private:
    int fd_;
};

Result<std::string> read_secret(const std::string& path) {
    const File file(path, O_RDONLY);
    if (file.fd() < 0) return file_error(path, "opening the pool's secret", "check its rights");
    struct stat facts {};
    if (::fstat(file.fd(), &facts) != 0)
        return file_error(path, "reading the pool's secret", "check the disk");
    if ((facts.st_mode & 077) != 0)
        return invalid_argument(
            "{}: the pool's secret may be read by others (mode {:o}); make it 0600", path,
            facts.st_mode & 0777);
    if (facts.st_size != kPoolSecretBytes)
        return invalid_argument("{}: the pool's secret has {} bytes, expected {}", path,
                                static_cast<std::int64_t>(facts.st_size), kPoolSecretBytes);
    std::string secret(static_cast<std::size_t>(kPoolSecretBytes), '\0');
    if (::pread(file.fd(), secret.data(), secret.size(), 0) != kPoolSecretBytes)
        return file_error(path, "reading the pool's secret", "check the disk");
    return secret;
}

// Whole or not at all: another process may be making it at the same time.
Status make_secret(const std::string& path) {
    std::array<unsigned char, static_cast<std::size_t>(kPoolSecretBytes)> bytes{};
    if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1)
        return error(StatusCode::unavailable, "{}: no random numbers for the pool's secret", path);
    const std::string draft = path + "." + std::to_string(::getpid());
    {
        const File file(draft, O_WRONLY | O_CREAT | O_TRUNC);
        if (file.fd() < 0 || ::write(file.fd(), bytes.data(), bytes.size()) != kPoolSecretBytes ||
            ::fsync(file.fd()) != 0) {
            const Status status = file_error(draft, "writing the pool's secret",
                                             "check the directory's rights and free space");
            ::unlink(draft.c_str());
            return status;
        }
    }
    const bool made = ::link(draft.c_str(), path.c_str()) == 0 || errno == EEXIST;
    const Status status =
        made ? Status() : file_error(path, "making the pool's secret", "check its rights");
    ::unlink(draft.c_str());
    return status;
}

Result<std::int64_t> free_share(const std::string& directory) {
    std::error_code failed;
    const std::filesystem::space_info space = std::filesystem::space(directory, failed);
    if (failed)
        return error(StatusCode::unavailable, "{}: {}; give pool.capacity_mib", directory,
                     failed.message());
    return std::min(static_cast<std::int64_t>(std::min<std::uintmax_t>(
                        space.available / 2, static_cast<std::uintmax_t>(kCapacityMax))),
                    kCapacityMax);
}

}  // namespace

Result<std::string> read_or_make_secret(const std::string& path) {
    if (::access(path.c_str(), F_OK) != 0) FATHOM_RETURN_IF_ERROR(make_secret(path));
    return read_secret(path);
}

Result<std::unique_ptr<OpenPool>> OpenPool::open(const OpenPoolOptions& options, const Clock& clock,
                                                 MetricsRegistry& metrics) {
    std::error_code failed;
    std::filesystem::create_directories(options.directory, failed);
    if (failed)
        return invalid_argument("pool.dir \"{}\": {}; name a directory that can be written",
                                options.directory, failed.message());
    std::unique_ptr<OpenPool> pool(new OpenPool(clock));
    FATHOM_ASSIGN(pool->secret_,
                  read_or_make_secret(options.secret_file.empty() ? options.directory + "/SECRET"
                                                                  : options.secret_file));
    EmbeddedOptions embedded;
    embedded.directory = options.directory;
    embedded.payload_bytes = options.payload_bytes;
    embedded.capacity_bytes = options.capacity_bytes;
    if (embedded.capacity_bytes == 0) {
        FATHOM_ASSIGN(embedded.capacity_bytes, free_share(options.directory));
    }
    embedded.clock = &clock;
    embedded.metrics = &metrics;
    FATHOM_ASSIGN(pool->store_, EmbeddedStore::open(std::move(embedded)));
    pool->tier_ = std::make_unique<PoolTier>(*pool->store_, options.tier, clock, metrics);
    return pool;
}

OpenPool::~OpenPool() {
    if (tier_) tier_->close(Deadline{clock_.now_us() + kStoreStagedUs});
    if (store_) store_->close(Deadline{clock_.now_us() + kCloseUs});
}

}  // namespace fathom
