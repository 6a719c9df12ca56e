#include "pool/bench/raw_disk.h"

#include <fcntl.h>
#include <liburing.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/random.h"

namespace fathom {

namespace {

class UringDisk : public RawDisk {
  public:
    UringDisk(int file, std::int64_t blocks, std::int64_t block_bytes, int depth)
        : file_(file), blocks_(blocks), block_bytes_(block_bytes) {
        for (int i = 0; i < depth; ++i) {
            buffers_.push_back(static_cast<std::uint8_t*>(
                std::aligned_alloc(4096, static_cast<std::size_t>(block_bytes))));
            RandomStream random(static_cast<std::uint64_t>(i));
            for (std::int64_t at = 0; at < block_bytes; ++at)
                buffers_.back()[at] = static_cast<std::uint8_t>(at * (i + 3) + (at >> 8));
        }
    }
    ~UringDisk() override {
        if (ready_) io_uring_queue_exit(&ring_);
        ::close(file_);
        for (std::uint8_t* buffer : buffers_)
            std::free(buffer);
    }

    Status start() {
        const auto entries = static_cast<unsigned>(buffers_.size());
        int made = io_uring_queue_init(entries, &ring_,
                                       IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN);
        if (made != 0) made = io_uring_queue_init(entries, &ring_, 0);
        if (made != 0) return error(StatusCode::unsupported, "no io_uring (errno {})", -made);
        ready_ = true;
        for (std::int64_t at = 0; at < blocks_; ++at) {
            if (::pwrite(file_, buffers_[0], static_cast<std::size_t>(block_bytes_),
                         at * block_bytes_) != block_bytes_)
                return error(StatusCode::unavailable, "the file of the raw disk cannot be written");
        }
        return {};
    }

    Result<double> run(bool write, std::int64_t n, int depth, std::uint64_t seed) override {
        RandomStream random(seed);
        const auto begin = std::chrono::steady_clock::now();
        std::int64_t started = 0, ended = 0;
        const auto start_one = [&](std::size_t buffer) {
            io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
            const std::uint64_t offset = random.next_below(static_cast<std::uint64_t>(blocks_)) *
                                         static_cast<std::uint64_t>(block_bytes_);
            const auto bytes = static_cast<unsigned>(block_bytes_);
            if (write) {
                io_uring_prep_write(sqe, file_, buffers_[buffer], bytes, offset);
            } else {
                io_uring_prep_read(sqe, file_, buffers_[buffer], bytes, offset);
            }
            sqe->user_data = buffer;
            ++started;
        };
        for (int i = 0; i < depth && started < n; ++i)
            start_one(static_cast<std::size_t>(i));
        while (ended < n) {
            (void)io_uring_submit_and_wait(&ring_, 1);
            io_uring_cqe* cqe = nullptr;
            while (io_uring_peek_cqe(&ring_, &cqe) == 0) {
                const auto buffer = static_cast<std::size_t>(cqe->user_data);
                const bool whole = cqe->res == block_bytes_;
                io_uring_cqe_seen(&ring_, cqe);
                if (!whole) return error(StatusCode::unavailable, "the raw disk failed");
                ++ended;
                if (started < n) start_one(buffer);
            }
        }
        if (write && ::fdatasync(file_) != 0)
            return error(StatusCode::unavailable, "the raw disk cannot be synced");
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    }

  private:
    const int file_;
    const std::int64_t blocks_, block_bytes_;
    io_uring ring_{};
    bool ready_ = false;
    std::vector<std::uint8_t*> buffers_;
};

}  // namespace

Result<std::unique_ptr<RawDisk>> RawDisk::create(const std::string& path, std::int64_t blocks,
                                                 std::int64_t block_bytes, int depth) {
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0640);
    if (file < 0)
        return invalid_argument("{}: cannot be opened for direct I/O: {}; choose another directory",
                                path, std::strerror(errno));
    auto disk = std::make_unique<UringDisk>(file, blocks, block_bytes, depth);
    FATHOM_RETURN_IF_ERROR(disk->start());
    return std::unique_ptr<RawDisk>(std::move(disk));
}

}  // namespace fathom
