#include "pool/secret_file.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <span>

#include "base/sha256.h"

namespace fathom {

namespace {

Status file_error(const std::string& path, std::string_view doing, std::string_view what,
                  std::string_view remedy) {
    return error(errno == ENOENT ? StatusCode::not_found : StatusCode::unavailable,
                 "{}: {} {}: {}; {}", path, doing, what, std::strerror(errno), remedy);
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

// Whole or not at all, and never over what is there.
Status write_secret(const std::string& path, std::span<const unsigned char> bytes,
                    std::string_view what) {
    std::array<unsigned char, 8> mark{};
    if (RAND_bytes(mark.data(), static_cast<int>(mark.size())) != 1)
        return error(StatusCode::unavailable, "{}: no random numbers for {}", path, what);
    const std::string draft = path + "." + hex_text(mark);
    {
        const File file(draft, O_WRONLY | O_CREAT | O_EXCL);
        const bool written =
            file.fd() >= 0 &&
            ::write(file.fd(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()) &&
            ::fsync(file.fd()) == 0;
        if (!written) {
            const Status status =
                file_error(draft, "writing", what, "check the directory's rights and free space");
            ::unlink(draft.c_str());
            return status;
        }
    }
    const bool made = ::link(draft.c_str(), path.c_str()) == 0 || errno == EEXIST;
    const Status status = made ? Status() : file_error(path, "making", what, "check its rights");
    ::unlink(draft.c_str());
    return status;
}

}  // namespace

Result<std::string> read_secret_file(const std::string& path, std::string_view what) {
    const File file(path, O_RDONLY);
    if (file.fd() < 0) return file_error(path, "opening", what, "check its rights");
    struct stat facts {};
    if (::fstat(file.fd(), &facts) != 0) return file_error(path, "reading", what, "check the disk");
    if ((facts.st_mode & 077) != 0)
        return invalid_argument("{}: {} may be read by others (mode {:o}); make it 0600", path,
                                what, facts.st_mode & 0777);
    if (facts.st_size != kSecretBytes)
        return invalid_argument("{}: {} has {} bytes, expected {}", path, what,
                                static_cast<std::int64_t>(facts.st_size), kSecretBytes);
    std::string secret(static_cast<std::size_t>(kSecretBytes), '\0');
    if (::pread(file.fd(), secret.data(), secret.size(), 0) != kSecretBytes)
        return file_error(path, "reading", what, "check the disk");
    return secret;
}

Status make_secret_file(const std::string& path, std::string_view what) {
    std::array<unsigned char, static_cast<std::size_t>(kSecretBytes)> bytes{};
    if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1)
        return error(StatusCode::unavailable, "{}: no random numbers for {}", path, what);
    Status status = write_secret(path, bytes, what);
    OPENSSL_cleanse(bytes.data(), bytes.size());
    return status;
}

Status copy_secret_file(const std::string& from, const std::string& to, std::string_view what) {
    FATHOM_ASSIGN(std::string secret, read_secret_file(from, what));
    const auto* bytes = reinterpret_cast<const unsigned char*>(secret.data());
    Status status = write_secret(to, {bytes, secret.size()}, what);
    OPENSSL_cleanse(secret.data(), secret.size());
    return status;
}

}  // namespace fathom
