#include "cli/bench/load.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/queue.h"

namespace fathom {
namespace {

constexpr std::int64_t kBackgroundIndex = -1;
constexpr std::int64_t kPollUs = 50'000;
constexpr std::size_t kBackgroundCopiesMax = 10'000;

class LoadRun {
  public:
    LoadRun(LoadTarget& target, std::span<const LoadRequest> requests, const LoadPlan& plan,
            Interrupts& interrupts, const std::function<void(std::int64_t)>& on_progress)
        : target_(target),
          requests_(requests),
          plan_(plan),
          interrupts_(interrupts),
          on_progress_(on_progress),
          // One record a request, and one of the background at a time: it is never full.
          ended_(std::make_shared<Queue>(requests.size() + kBackgroundCopiesMax)) {
        FATHOM_CHECK(plan.arrivals_us.empty() || plan.arrivals_us.size() == requests.size());
    }

    LoadResult run() {
        begin_us_ = real_clock().now_us();
        if (plan_.background != nullptr) start_background();
        while (result_.records.size() < requests_.size() &&
               !(result_.interrupted && under_way_ == 0)) {
            if (interrupts_.take() > 0) {
                result_.interrupted = true;
                target_.cancel_all();
            }
            start_due();
            take_ended(wait_us());
        }
        if (background_under_way_) {
            is_over_ = true;
            target_.cancel_all();
            while (background_under_way_)
                take_ended(kPollUs);
        }
        return std::move(result_);
    }

  private:
    using Queue = BoundedQueue<RequestRecord>;

    void start(std::int64_t index, const LoadRequest& request) {
        target_.start(index, request, [queue = ended_](RequestRecord record) {
            const bool pushed = queue->try_push(std::move(record));
            FATHOM_CHECK(pushed);
        });
    }
    void start_background() {
        background_under_way_ = true;
        start(kBackgroundIndex, background_copy());
    }
    // Tokens turned round by one a copy; a text begins with the copy's number.
    LoadRequest background_copy() const {
        LoadRequest copy = *plan_.background;
        const std::size_t number = result_.background.size();
        if (!copy.ids.empty())
            std::rotate(copy.ids.begin(),
                        copy.ids.begin() + static_cast<std::ptrdiff_t>(number % copy.ids.size()),
                        copy.ids.end());
        if (!copy.text.empty()) copy.text = std::to_string(number) + copy.text;
        return copy;
    }

    std::int64_t due_us() const {  // of the next request
        return plan_.arrivals_us.empty() ? begin_us_ : begin_us_ + plan_.arrivals_us[next_];
    }
    bool may_start() const {
        return !result_.interrupted && next_ < requests_.size() && under_way_ < plan_.concurrency;
    }
    void start_due() {
        while (may_start() && due_us() <= real_clock().now_us()) {
            ++under_way_;
            start(static_cast<std::int64_t>(next_), requests_[next_]);
            ++next_;
        }
    }
    std::int64_t wait_us() const {
        if (!may_start()) return kPollUs;
        return std::clamp<std::int64_t>(due_us() - real_clock().now_us(), 0, kPollUs);
    }

    void take_ended(std::int64_t timeout_us) {
        std::optional<RequestRecord> record = ended_->pop(timeout_us);
        if (!record) return;
        if (record->index == kBackgroundIndex) {
            background_under_way_ = false;
            if (is_over_ || result_.interrupted) return;
            result_.background.push_back(std::move(*record));
            // One that fails would fail again: then the others go on alone, and the record says so.
            if (result_.background.back().error.empty() &&
                result_.background.size() < kBackgroundCopiesMax)
                start_background();
            return;
        }
        --under_way_;
        result_.records.push_back(std::move(*record));
        on_progress_(static_cast<std::int64_t>(result_.records.size()));
    }

    LoadTarget& target_;
    std::span<const LoadRequest> requests_;
    const LoadPlan& plan_;
    Interrupts& interrupts_;
    const std::function<void(std::int64_t)>& on_progress_;
    std::shared_ptr<Queue> ended_;
    LoadResult result_;
    std::int64_t begin_us_ = 0, under_way_ = 0;
    std::size_t next_ = 0;
    bool background_under_way_ = false, is_over_ = false;
};

}  // namespace

LoadResult run_load(LoadTarget& target, std::span<const LoadRequest> requests, const LoadPlan& plan,
                    Interrupts& interrupts, const std::function<void(std::int64_t)>& on_progress) {
    return LoadRun(target, requests, plan, interrupts, on_progress).run();
}

}  // namespace fathom
