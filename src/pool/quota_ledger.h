// What each namespace holds and how fast it puts: the arithmetic of QuotaStore. One thread.
#pragma once

#include <cstdint>
#include <map>

#include "pool/quota_store.h"

namespace fathom {

class QuotaLedger {
  public:
    QuotaLedger(const QuotaLimits& limits, std::int64_t payload_bytes)
        : limits_(limits), payload_bytes_(payload_bytes) {}

    // Takes the room of one more block, from both limits, and whether there was any.
    bool reserve(const NamespaceId& ns, std::int64_t now_us, std::int64_t unix_ms);
    // What became of it: a block that expires then, or nothing.
    void stored(const NamespaceId& ns, std::int64_t expiry_unix_ms);
    void not_stored(const NamespaceId& ns);

    void dropped(const NamespaceId& ns);
    void set_usage(std::uint64_t ns_tag, BytesByExpiry usage);
    std::int64_t bytes(const NamespaceId& ns, std::int64_t unix_ms);
    std::size_t namespaces() const { return accounts_.size(); }

  private:
    struct Account {
        BytesByExpiry bytes_by_expiry;
        std::int64_t held_bytes = 0;      // their sum
        std::int64_t reserved_bytes = 0;  // of puts in flight
        double burst_left_bytes = 0;
        std::int64_t filled_at_us = 0;
    };

    Account& account(const NamespaceId& ns, std::int64_t now_us, std::int64_t unix_ms);
    void forget_idle(std::int64_t now_us, std::int64_t unix_ms);
    double burst_bytes() const;
    double earned_bytes(std::int64_t us) const;

    const QuotaLimits limits_;
    const std::int64_t payload_bytes_;
    std::map<std::uint64_t, Account> accounts_;  // by namespace_tag
    std::size_t forget_at_ = 1024;               // accounts, after which idle ones are looked for
};

}  // namespace fathom
