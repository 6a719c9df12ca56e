#include "engine/engine.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "base/check.h"
#include "engine/compute_driver.h"
#include "engine/mailbox.h"

namespace fathom {

namespace {

// A message ends any wait; the time-outs only bound what messages do not announce: deadlines, and
// pages that a prefix gives back on another thread.
constexpr std::int64_t kIdleWaitUs = 1'000'000;
constexpr std::int64_t kBlockedWaitUs = 5'000;
constexpr std::int64_t kStepWaitUs = 100'000;  // the driver wakes the mailbox at the end of a step

}  // namespace

struct Engine::Impl {
    explicit Impl(std::unique_ptr<EngineCore> engine_core)
        : core(std::move(engine_core)),
          clock(core->clock()),
          mailbox(static_cast<std::size_t>(core->config().waiting_max), clock),
          driver([this] { mailbox.wake(); }) {
        core->set_waker([this] { mailbox.wake(); });
        publish();
        thread = std::thread([this] { run(); });
    }

    // While a step computes, the events of the one before go out, messages are taken in and the
    // next one is planned; when it has ended, little is left to do before the next can start.
    void run() {
        while (!mailbox.closed()) {
            if (driver.busy()) {
                deliver();
                core->plan_ahead();
                take_messages(kStepWaitUs);
            } else if (computing) {
                retire();
                launch();
            } else {
                deliver();
                take_messages(core->idle() ? kIdleWaitUs : kBlockedWaitUs);
                if (!mailbox.closed()) launch();
            }
        }
        driver.wait();
        if (computing) retire();
        take_messages(0);
        core->cancel_all();
        working.store(false, std::memory_order_release);
        deliver();
    }

    // Who has seen a request end finds its pages free in the report.
    void deliver() {
        publish();
        core->deliver();
    }

    void launch() {
        if (!working.load(std::memory_order_relaxed))  // a stall is counted from here
            step_end_us.store(clock.now_us(), std::memory_order_relaxed);
        computing = core->launch();
        if (computing) driver.start([this] { core->compute(); });
        working.store(!core->idle(), std::memory_order_release);
    }

    void retire() {
        computing = false;
        core->retire();
        step_end_us.store(clock.now_us(), std::memory_order_relaxed);
    }

    void take_messages(std::int64_t timeout_us) {
        for (MailboxMessage& message : mailbox.take(timeout_us))
            handle(std::move(message));
    }

    void handle(MailboxMessage&& message) {
        if (!message.submission.has_value()) return core->cancel(message.cancelled_id);
        Submission& submission = *message.submission;
        EngineEvent event;
        event.id = submission.request.id;
        event.attempt = submission.request.attempt;
        event.first_index = static_cast<std::int64_t>(submission.request.committed.size());
        const std::vector<Branch> branches = submission.request.branches;
        event.status = core->add(std::move(submission.request), submission.sink);
        if (event.status.ok()) return;
        event.finish = FinishReason::error;
        submission.sink->on_event(event);
        for (const Branch& branch : branches) {
            event.id = branch.id;
            submission.sink->on_event(event);
        }
    }

    void publish() {
        const EngineStats now = core->stats();
        constexpr auto kRelaxed = std::memory_order_relaxed;
        running.store(now.running, kRelaxed);
        waiting.store(now.waiting, kRelaxed);
        pages_used.store(now.pages_used, kRelaxed);
        steps.store(now.steps, kRelaxed);
        prompt_tokens.store(now.prompt_tokens, kRelaxed);
        output_tokens.store(now.output_tokens, kRelaxed);
        preemptions.store(now.preemptions, kRelaxed);
        step_us.store(now.step_us, kRelaxed);
        step_gap_us.store(now.step_gap_us, kRelaxed);
    }

    std::unique_ptr<EngineCore> core;  // the thread's own, but for what never changes
    const Clock& clock;
    Mailbox mailbox;
    // The thread's report. Each value is right by itself; together they may be of two steps.
    std::atomic<std::int64_t> running{0}, waiting{0}, pages_used{0};
    std::atomic<std::uint64_t> steps{0}, prompt_tokens{0}, output_tokens{0}, preemptions{0};
    std::atomic<std::uint64_t> step_us{0}, step_gap_us{0};
    std::atomic<bool> working{false};  // requests are live
    std::atomic<std::int64_t> step_end_us{0};
    bool computing = false;  // a step is launched and not retired; the thread's own
    ComputeDriver driver;
    std::thread thread;
};

Engine::Engine(std::unique_ptr<EngineCore> core) : impl_(std::make_unique<Impl>(std::move(core))) {}

Engine::~Engine() {
    impl_->mailbox.close();
    impl_->thread.join();
    impl_->core.reset();  // a tier may call the mailbox until here
}

Status Engine::submit(EngineRequest request, std::shared_ptr<EventSink> sink) {
    FATHOM_CHECK(sink != nullptr);
    switch (impl_->mailbox.submit({std::move(request), std::move(sink)})) {
        case Mailbox::Push::taken:
            break;
        case Mailbox::Push::full:
            return error(StatusCode::resource_exhausted,
                         "{} requests were submitted since the engine's last step, which is the "
                         "limit; try again later",
                         impl_->core->config().waiting_max);
        case Mailbox::Push::closed:
            return error(StatusCode::unavailable, "the engine is shutting down");
    }
    return {};
}

void Engine::cancel(std::uint64_t id) {
    impl_->mailbox.cancel(id);
}

EngineStats Engine::stats() const {
    constexpr auto kRelaxed = std::memory_order_relaxed;
    return {.running = impl_->running.load(kRelaxed),
            .waiting = impl_->waiting.load(kRelaxed),
            .pages_total = impl_->core->config().pages,
            .pages_used = impl_->pages_used.load(kRelaxed),
            .steps = impl_->steps.load(kRelaxed),
            .prompt_tokens = impl_->prompt_tokens.load(kRelaxed),
            .output_tokens = impl_->output_tokens.load(kRelaxed),
            .preemptions = impl_->preemptions.load(kRelaxed),
            .step_us = impl_->step_us.load(kRelaxed),
            .step_gap_us = impl_->step_gap_us.load(kRelaxed)};
}

const ModelConfig& Engine::model_config() const {
    return impl_->core->model().config();
}

const EngineConfig& Engine::config() const {
    return impl_->core->config();
}

std::int64_t Engine::stalled_us() const {
    const std::int64_t mail_us = impl_->mailbox.waiting_us();
    if (!impl_->working.load(std::memory_order_acquire)) return mail_us;
    return std::max(mail_us,
                    impl_->clock.now_us() - impl_->step_end_us.load(std::memory_order_relaxed));
}

}  // namespace fathom
