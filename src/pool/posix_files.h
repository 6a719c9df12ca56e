// Names and file descriptors, for the layers over a real file system.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "pool/file_layer.h"

namespace fathom {

class PosixFiles : public FileLayer {
  public:
    PosixFiles() = default;
    ~PosixFiles() override;
    PosixFiles(const PosixFiles&) = delete;
    PosixFiles& operator=(const PosixFiles&) = delete;

    Result<int> open(const std::string& path, OpenMode mode) override;
    void close(int file) override;
    Result<std::int64_t> allocated_bytes(int file) override;
    Status make_directory(const std::string& path) override;
    Status remove_directory(const std::string& path) override;
    Status rename(const std::string& from, const std::string& to) override;
    Result<std::vector<FileName>> list(const std::string& path) override;
    Status lock(const std::string& path) override;
    std::string limits() const override { return limits_; }

  protected:
    void add_limit(const std::string& sentence);
    // Does a request of any kind, at once. Bytes done or −errno.
    static std::int64_t perform(const IoRequest& request);
    // What to do where a file system cannot allocate: the file gets its size, and no more.
    static std::int64_t extend(const IoRequest& request);

  private:
    std::string limits_;
    bool direct_ = true;                // until a file system refuses
    std::map<std::string, int> locks_;  // by path
};

}  // namespace fathom
