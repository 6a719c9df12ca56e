#include "engine/mailbox.h"

#include <chrono>

namespace fathom {

Mailbox::Push Mailbox::submit(Submission&& submission) {
    {
        std::lock_guard lock(mutex_);
        if (closed_) return Push::closed;
        if (submissions_ >= submissions_max_) return Push::full;
        ++submissions_;
        cancelled_.erase(submission.request.id);
        for (const Branch& branch : submission.request.branches)
            cancelled_.erase(branch.id);
        push({.submission = std::move(submission), .cancelled_id = 0});
    }
    ready_.notify_one();
    return Push::taken;
}

void Mailbox::cancel(std::uint64_t id) {
    {
        std::lock_guard lock(mutex_);
        if (closed_ || !cancelled_.insert(id).second) return;  // closing cancels everything
        push({.submission = std::nullopt, .cancelled_id = id});
    }
    ready_.notify_one();
}

void Mailbox::push(MailboxMessage&& message) {
    if (messages_.empty()) oldest_us_ = clock_.now_us();
    messages_.push_back(std::move(message));
}

void Mailbox::close() {
    {
        std::lock_guard lock(mutex_);
        closed_ = true;
    }
    ready_.notify_all();
}

void Mailbox::wake() {
    {
        std::lock_guard lock(mutex_);
        woken_ = true;
    }
    ready_.notify_one();
}

std::vector<MailboxMessage> Mailbox::take(std::int64_t timeout_us) {
    std::unique_lock lock(mutex_);
    if (timeout_us > 0)
        ready_.wait_for(lock, std::chrono::microseconds(timeout_us),
                        [this] { return closed_ || woken_ || !messages_.empty(); });
    woken_ = false;
    submissions_ = 0;
    cancelled_.clear();
    return std::exchange(messages_, {});
}

bool Mailbox::closed() const {
    std::lock_guard lock(mutex_);
    return closed_;
}

std::int64_t Mailbox::waiting_us() const {
    std::lock_guard lock(mutex_);
    return messages_.empty() ? 0 : clock_.now_us() - oldest_us_;
}

}  // namespace fathom
