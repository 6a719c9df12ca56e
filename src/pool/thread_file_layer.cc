#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/queue.h"
#include "pool/posix_files.h"

namespace fathom {

namespace {

constexpr int kThreadsMax = 8;
constexpr std::int64_t kIdleUs = 1'000'000;

// Requests go through one bounded queue to a few threads, completions and wake-ups through another
// back.
class ThreadFileLayer : public PosixFiles {
  public:
    explicit ThreadFileLayer(int depth)
        : depth_(depth),
          requests_(static_cast<std::size_t>(depth)),
          done_(static_cast<std::size_t>(depth) + 1) {
        add_limit("io_uring is not permitted here: threads read and write instead");
        for (int i = 0; i < std::min(depth, kThreadsMax); ++i)
            threads_.emplace_back([this] { work(); });
    }
    ~ThreadFileLayer() override {
        requests_.close();
        for (std::thread& thread : threads_)
            thread.join();
    }

    void submit(IoRequest request) override {
        const bool taken = requests_.try_push(std::move(request));
        FATHOM_CHECK(taken, "more requests in flight than the layer's depth");
    }
    int depth() const override { return depth_; }
    void wait(std::vector<IoDone>& done, std::int64_t timeout_us) override {
        auto next = done_.pop(timeout_us);
        for (; next; next = done_.try_pop()) {
            if (next->tag == kWake) {
                waking_.store(false);
            } else {
                done.push_back(*next);
            }
        }
    }
    void wake() override {
        if (!waking_.exchange(true)) (void)done_.try_push({kWake, 0});
    }

  private:
    static constexpr std::uint64_t kWake = ~std::uint64_t{0};

    void work() {
        while (true) {
            const auto request = requests_.pop(kIdleUs);
            if (!request && requests_.closed()) return;
            if (request) (void)done_.try_push({request->tag, perform(*request)});
        }
    }

    const int depth_;
    BoundedQueue<IoRequest> requests_;
    BoundedQueue<IoDone> done_;  // never full: at most depth and one wake-up
    std::atomic<bool> waking_{false};
    std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<FileLayer> make_thread_file_layer(int depth) {
    return std::make_unique<ThreadFileLayer>(depth);
}

}  // namespace fathom
