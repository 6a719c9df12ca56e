#include "sim/replay/cache_model.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace fathom {
namespace {

constexpr std::int64_t kForever = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kTtlMaxUs = std::int64_t{1} << 55;

}  // namespace

std::string_view expiry_name(Expiry expiry) {
    constexpr std::string_view kNames[] = {"unlimited", "refresh", "fixed", "renew"};
    return kNames[static_cast<std::size_t>(expiry)];
}

Status check_policy(const CachePolicy& policy) {
    if (policy.page_tokens < 1 || policy.page_tokens > 1 << 20)
        return invalid_argument("a page of {} tokens, expected 1 to {}", policy.page_tokens,
                                1 << 20);
    if (policy.token_bytes < 1 || policy.token_bytes > 1 << 20)
        return invalid_argument("{} bytes a token, expected 1 to {}", policy.token_bytes, 1 << 20);
    if (policy.expiry != Expiry::unlimited &&
        (policy.ttl_us < 1 || policy.ttl_us > kTtlMaxUs || policy.bucket_us < 0 ||
         policy.bucket_us > kTtlMaxUs))
        return invalid_argument(
            "a TTL of {} us and buckets of {} us, expected a TTL from 1 and "
            "both at most {}",
            policy.ttl_us, policy.bucket_us, kTtlMaxUs);
    if (!(policy.renew_share >= 0 && policy.renew_share <= 1))
        return invalid_argument("renewal at {} of the TTL, expected 0 to 1", policy.renew_share);
    if (policy.expiry == Expiry::refresh && policy.bucket_us > 0)
        return invalid_argument("refresh on access has no buckets: nothing is written");
    if (policy.eviction == Eviction::earliest && policy.expiry == Expiry::refresh)
        return invalid_argument(
            "eviction by earliest expiry has segments whose expiry is fixed; refresh does not go "
            "with it");
    if (policy.eviction != Eviction::none && policy.capacity_bytes < policy.page_bytes())
        return invalid_argument("a capacity of {} bytes, expected at least one page of {}",
                                policy.capacity_bytes, policy.page_bytes());
    return {};
}

CacheModel::CacheModel(const CachePolicy& policy) : policy_(policy), windows_(policy.window) {
    FATHOM_CHECK(check_policy(policy).ok());
    begin_scope();
}

void CacheModel::begin_scope() {
    now_us_ = 0;
    std::fill(marks_.begin(), marks_.end(), kNever);
    epochs_.clear();
    first_epoch_ = kFirstEpoch;
    live_pages_ = 0;
    evictor_ = Evictor::make(policy_.eviction, {.capacity_bytes = policy_.capacity_bytes,
                                                .page_bytes = policy_.page_bytes()});
    windows_.begin_scope();
}

void CacheModel::replay(const PagedRequest& request) {
    const std::size_t hits = look_up(request);
    windows_.replay(
        {.time_us = now_us_,
         .pages = request.pages,
         .hit_pages = hits,
         .whole_pages = static_cast<std::size_t>(request.input_tokens / policy_.page_tokens)});
    counts_.windows = windows_.counts();
    // Where a use leaves no trace, the leading hits need no second look.
    const bool marks_uses =
        evictor_ != nullptr || policy_.expiry == Expiry::refresh || policy_.expiry == Expiry::renew;
    keep_from(request, marks_uses ? 0 : hits);
}

std::size_t CacheModel::look_up(const PagedRequest& request) {
    advance(request.time_us);
    return count_input(request);
}

void CacheModel::keep(const PagedRequest& request) {
    advance(request.time_us);
    reach(request.pages_end);
    keep_from(request, 0);
}

void CacheModel::keep_from(const PagedRequest& request, std::size_t first) {
    open_epoch();
    for (const ReplayPage page : request.pages.subspan(first))
        store(page);
    if (policy_.persist_output) {
        for (const ReplayPage page : request.output_pages)
            store(page);
    }
    if (evictor_ != nullptr) evictor_->shrink(*this);
    counts_.live_pages_peak = std::max(counts_.live_pages_peak, live_pages_);
    const std::int64_t bytes =
        evictor_ != nullptr ? evictor_->space_bytes(*this) : live_pages_ * policy_.page_bytes();
    counts_.space_bytes_peak = std::max(counts_.space_bytes_peak, bytes);
}

void CacheModel::reach(ReplayPage pages_end) {
    if (pages_end > marks_.size())
        marks_.resize(std::max<std::size_t>(pages_end, marks_.size() * 3 / 2), kNever);
}

void CacheModel::advance(std::int64_t time_us) {
    now_us_ = std::max(now_us_, time_us);
    while (!epochs_.empty() && epochs_.front().expiry_us < now_us_) {
        live_pages_ -= epochs_.front().pages;
        epochs_.pop_front();
        ++first_epoch_;
    }
    if (evictor_ != nullptr) evictor_->expire(now_us_);
}

// The epoch of what is written now is the last one.
void CacheModel::open_epoch() {
    std::int64_t expiry_us = kForever;
    if (policy_.expiry != Expiry::unlimited) {
        expiry_us = now_us_ + policy_.ttl_us;
        if (policy_.bucket_us > 0)
            expiry_us = (now_us_ / policy_.bucket_us + 1) * policy_.bucket_us + policy_.ttl_us;
    }
    if (epochs_.empty() || epochs_.back().expiry_us != expiry_us) epochs_.push_back({expiry_us, 0});
}

std::size_t CacheModel::count_input(const PagedRequest& request) {
    reach(request.pages_end);
    const std::size_t count = request.pages.size();
    std::size_t hits = 0;
    while (hits < count && is_live(request.pages[hits]))
        ++hits;
    const auto tokens_before = [&](std::size_t pages) {
        return std::min(static_cast<std::int64_t>(pages) * policy_.page_tokens,
                        request.input_tokens);
    };
    std::int64_t* cause = nullptr;  // the counter of the last page that is not there
    for (std::size_t i = hits; i < count; ++i) {
        if (!is_live(request.pages[i])) cause = &missed_tokens(request.pages[i]);
        *cause += tokens_before(i + 1) - tokens_before(i);
    }
    ++counts_.requests;
    counts_.input_tokens += request.input_tokens;
    counts_.hit_tokens += tokens_before(hits);
    counts_.tail_tokens += request.input_tokens - tokens_before(count);
    counts_.read_pages += static_cast<std::int64_t>(hits);
    return hits;
}

std::int64_t& CacheModel::missed_tokens(ReplayPage page) {
    if (marks_[page] == kNever) return counts_.absent_tokens;
    return marks_[page] == kEvicted ? counts_.evicted_tokens : counts_.expired_tokens;
}

void CacheModel::store(ReplayPage page) {
    if (!is_live(page)) {
        const bool had_expired = marks_[page] >= kFirstEpoch;
        if (had_expired && policy_.rewrite == Rewrite::never) return;
        ++counts_.written_pages;
        ++live_pages_;
        marks_[page] = kNever;
        write(page);
        return;
    }
    if (policy_.expiry == Expiry::renew) {
        const std::int64_t expiry_us = epochs_[marks_[page] - first_epoch_].expiry_us;
        const double left_us = static_cast<double>(expiry_us - now_us_);
        const bool is_newest = epochs_.back().expiry_us == expiry_us;
        if (!is_newest && left_us < policy_.renew_share * static_cast<double>(policy_.ttl_us)) {
            ++counts_.renewed_pages;
            write(page);
            return;
        }
    }
    if (policy_.expiry == Expiry::refresh) move_to_newest(page);
    if (evictor_ != nullptr) evictor_->used(page);
}

void CacheModel::write(ReplayPage page) {
    move_to_newest(page);
    if (evictor_ != nullptr) evictor_->wrote(page, epochs_.back().expiry_us);
}

void CacheModel::move_to_newest(ReplayPage page) {
    Mark& mark = marks_[page];
    if (mark >= first_epoch_) --epochs_[mark - first_epoch_].pages;
    mark = static_cast<Mark>(first_epoch_ + epochs_.size() - 1);
    ++epochs_.back().pages;
}

void CacheModel::evict(ReplayPage page) {
    --epochs_[marks_[page] - first_epoch_].pages;
    marks_[page] = kEvicted;
    --live_pages_;
}

}  // namespace fathom
