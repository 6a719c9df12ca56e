#include <liburing.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "base/check.h"
#include "pool/posix_files.h"

namespace fathom {

namespace {

// The ring is made by the thread that submits first: the kernel then need not lock it, and does
// the work of completions where they are waited for.
class UringFileLayer : public PosixFiles {
  public:
    explicit UringFileLayer(int depth) : depth_(depth), requests_(static_cast<std::size_t>(depth)) {
        for (int i = depth; i-- > 0;)
            free_.push_back(static_cast<std::uint32_t>(i));
        event_ = ::eventfd(0, EFD_CLOEXEC);
        FATHOM_CHECK(event_ >= 0, "no eventfd");
    }
    ~UringFileLayer() override {
        if (ready_) io_uring_queue_exit(&ring_);
        ::close(event_);
    }

    // Whether a ring can be made here at all: 0 or −errno.
    static int probe() {
        io_uring ring{};
        const int made = io_uring_queue_init(4, &ring, 0);
        if (made == 0) io_uring_queue_exit(&ring);
        return made;
    }

    void submit(IoRequest request) override {
        start();
        FATHOM_CHECK(!free_.empty(), "more requests in flight than the layer's depth");
        const std::uint32_t at = free_.back();
        free_.pop_back();
        requests_[at] = std::move(request);
        prepare(requests_[at], at);
    }
    int depth() const override { return depth_; }

    void wait(std::vector<IoDone>& done, std::int64_t timeout_us) override {
        start();
        if (!armed_) arm();
        __kernel_timespec time{.tv_sec = timeout_us / 1'000'000,
                               .tv_nsec = timeout_us % 1'000'000 * 1'000};
        io_uring_cqe* cqe = nullptr;
        (void)io_uring_submit_and_wait_timeout(&ring_, &cqe, timeout_us > 0 ? 1 : 0, &time,
                                               nullptr);
        if (timeout_us <= 0) (void)io_uring_get_events(&ring_);
        unsigned head = 0, seen = 0;
        io_uring_for_each_cqe(&ring_, head, cqe) {
            ++seen;
            take(*cqe, done);
        }
        io_uring_cq_advance(&ring_, seen);
    }

    void wake() override {
        if (waking_.exchange(true)) return;
        const std::uint64_t one = 1;
        (void)!::write(event_, &one, sizeof(one));
    }

  private:
    static constexpr std::uint64_t kWake = ~std::uint64_t{0};

    void start() {
        if (ready_) return;
        const auto entries = static_cast<unsigned>(depth_ + 1);
        int made = io_uring_queue_init(entries, &ring_,
                                       IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN);
        if (made != 0) made = io_uring_queue_init(entries, &ring_, 0);
        FATHOM_CHECK(made == 0, "a ring that could be made when the pool was opened cannot now");
        ready_ = true;
    }

    io_uring_sqe* entry() {
        io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
        if (sqe == nullptr) {
            (void)io_uring_submit(&ring_);
            sqe = io_uring_get_sqe(&ring_);
        }
        FATHOM_CHECK(sqe != nullptr, "the submission queue has room for every request");
        return sqe;
    }

    void arm() {
        io_uring_sqe* sqe = entry();
        io_uring_prep_read(sqe, event_, &event_value_, sizeof(event_value_), 0);
        sqe->user_data = kWake;
        armed_ = true;
    }

    void prepare(const IoRequest& request, std::uint32_t at) {
        io_uring_sqe* sqe = entry();
        const auto bytes = static_cast<unsigned>(request.bytes);
        const auto offset = static_cast<__u64>(request.offset);
        switch (request.kind) {
            case IoKind::read:
                io_uring_prep_read(sqe, request.file, request.data, bytes, offset);
                break;
            case IoKind::write:
                io_uring_prep_write(sqe, request.file, request.data, bytes, offset);
                break;
            case IoKind::sync:
                io_uring_prep_fsync(sqe, request.file, IORING_FSYNC_DATASYNC);
                break;
            case IoKind::allocate:
                io_uring_prep_fallocate(sqe, request.file, 0, request.offset, request.bytes);
                break;
            case IoKind::punch:
                io_uring_prep_fallocate(sqe, request.file, kPunch, request.offset, request.bytes);
                break;
            case IoKind::unlink:
                io_uring_prep_unlink(sqe, request.path.c_str(), 0);
                break;
        }
        sqe->user_data = at;
    }

    void take(const io_uring_cqe& cqe, std::vector<IoDone>& done) {
        if (cqe.user_data == kWake) {
            armed_ = false;
            waking_.store(false);
            return;
        }
        const auto at = static_cast<std::uint32_t>(cqe.user_data);
        IoRequest& request = requests_[at];
        std::int64_t result = cqe.res;
        // A file system without an operation, or a kernel without it in its ring.
        const bool missing = result == -EOPNOTSUPP || result == -EINVAL;
        if (missing && request.kind != IoKind::read && request.kind != IoKind::write)
            result = perform(request);
        done.push_back({request.tag, result});
        free_.push_back(at);
    }

    static constexpr int kPunch = 0x02 | 0x01;  // FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE

    const int depth_;
    io_uring ring_{};
    bool ready_ = false, armed_ = false;
    int event_ = -1;
    std::uint64_t event_value_ = 0;
    std::atomic<bool> waking_{false};
    std::vector<IoRequest> requests_;
    std::vector<std::uint32_t> free_;
};

}  // namespace

Result<std::unique_ptr<FileLayer>> make_file_layer(int depth) {
    if (depth < 1 || depth > 4096)
        return invalid_argument("I/O depth {}: 1 to 4096 are possible", depth);
    const int probed = UringFileLayer::probe();
    if (probed == 0) return std::unique_ptr<FileLayer>(std::make_unique<UringFileLayer>(depth));
    return make_thread_file_layer(depth);
}

}  // namespace fathom
