#include "pool/quota_ledger.h"

#include <algorithm>
#include <utility>

#include "pool/segment.h"

namespace fathom {

namespace {

void expire(BytesByExpiry& bytes_by_expiry, std::int64_t& held_bytes, std::int64_t unix_ms) {
    while (!bytes_by_expiry.empty() && bytes_by_expiry.begin()->first <= unix_ms) {
        held_bytes -= bytes_by_expiry.begin()->second;
        bytes_by_expiry.erase(bytes_by_expiry.begin());
    }
}

}  // namespace

double QuotaLedger::burst_bytes() const {
    return static_cast<double>(std::max(limits_.put_burst_bytes, payload_bytes_));
}

double QuotaLedger::earned_bytes(std::int64_t us) const {
    return static_cast<double>(us) * static_cast<double>(limits_.put_bytes_per_s) / 1e6;
}

QuotaLedger::Account& QuotaLedger::account(const NamespaceId& ns, std::int64_t now_us,
                                           std::int64_t unix_ms) {
    if (accounts_.size() >= forget_at_) forget_idle(now_us, unix_ms);
    const auto [at, made] = accounts_.try_emplace(namespace_tag(ns));
    Account& account = at->second;
    if (made) {
        account.burst_left_bytes = burst_bytes();
        account.filled_at_us = now_us;
    }
    expire(account.bytes_by_expiry, account.held_bytes, unix_ms);
    account.burst_left_bytes = std::min(
        account.burst_left_bytes + earned_bytes(now_us - account.filled_at_us), burst_bytes());
    account.filled_at_us = now_us;
    return account;
}

bool QuotaLedger::reserve(const NamespaceId& ns, std::int64_t now_us, std::int64_t unix_ms) {
    Account& own = account(ns, now_us, unix_ms);
    const std::int64_t bytes = own.held_bytes + own.reserved_bytes + payload_bytes_;
    if (limits_.bytes_max > 0 && bytes > limits_.bytes_max) return false;
    if (limits_.put_bytes_per_s > 0) {
        if (own.burst_left_bytes < static_cast<double>(payload_bytes_)) return false;
        own.burst_left_bytes -= static_cast<double>(payload_bytes_);
    }
    own.reserved_bytes += payload_bytes_;
    return true;
}

void QuotaLedger::stored(const NamespaceId& ns, std::int64_t expiry_unix_ms) {
    Account& own = accounts_[namespace_tag(ns)];
    own.reserved_bytes -= payload_bytes_;
    own.held_bytes += payload_bytes_;
    own.bytes_by_expiry[expiry_unix_ms] += payload_bytes_;
}

void QuotaLedger::not_stored(const NamespaceId& ns) {
    Account& own = accounts_[namespace_tag(ns)];
    own.reserved_bytes -= payload_bytes_;
    if (limits_.put_bytes_per_s > 0) own.burst_left_bytes += static_cast<double>(payload_bytes_);
}

void QuotaLedger::dropped(const NamespaceId& ns) {
    const auto at = accounts_.find(namespace_tag(ns));
    if (at == accounts_.end()) return;
    at->second.bytes_by_expiry.clear();
    at->second.held_bytes = 0;
}

void QuotaLedger::set_usage(std::uint64_t ns_tag, BytesByExpiry usage) {
    const auto [at, made] = accounts_.try_emplace(ns_tag);
    if (made) at->second.burst_left_bytes = burst_bytes();
    at->second.held_bytes = 0;
    for (const auto& [expiry_ms, bytes] : usage)
        at->second.held_bytes += bytes;
    at->second.bytes_by_expiry = std::move(usage);
}

std::int64_t QuotaLedger::bytes(const NamespaceId& ns, std::int64_t unix_ms) {
    const auto at = accounts_.find(namespace_tag(ns));
    if (at == accounts_.end()) return 0;
    expire(at->second.bytes_by_expiry, at->second.held_bytes, unix_ms);
    return at->second.held_bytes;
}

// An account that holds nothing and may put a full burst again is as good as a new one.
void QuotaLedger::forget_idle(std::int64_t now_us, std::int64_t unix_ms) {
    for (auto at = accounts_.begin(); at != accounts_.end();) {
        Account& own = at->second;
        expire(own.bytes_by_expiry, own.held_bytes, unix_ms);
        const double earned = earned_bytes(now_us - own.filled_at_us);
        const bool full =
            limits_.put_bytes_per_s == 0 || own.burst_left_bytes + earned >= burst_bytes();
        const bool idle = own.held_bytes == 0 && own.reserved_bytes == 0 && full;
        at = idle ? accounts_.erase(at) : std::next(at);
    }
    forget_at_ = std::max<std::size_t>(1024, 2 * accounts_.size());
}

}  // namespace fathom
