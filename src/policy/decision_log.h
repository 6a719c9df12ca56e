// What a policy decided, so that it can be repeated: every decision is one record of 64 bytes, and
// a running hash of all records is the decision hash. A live service and a simulator that are given
// the same inputs must end with the same hash; where they differ, the records name the first
// decision that does.
//
//   a balancer ──record──▶ DecisionLog ──▶ hash (of everything since the start or a load)
//                               ├────────▶ the newest `capacity` records
//                               └────────▶ a visitor: a file, or a ReplayCheck against one
//
// A log belongs to the thread of its balancer. Recording allocates nothing.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace fathom {

// Values are part of the format of logs: append only, at most 65,535.
enum class DecisionKind : std::uint16_t {
    none = 0,
    prefill_admission = 1,
    prefill_grant = 2,
    prefill_division = 3,
    prefill_step = 4,
    prefill_return = 5,
    decode_place = 16,
    decode_move = 17,
    decode_pressure = 18,
    expert_placement = 32,
    expert_switch = 33,
    fleet_plan = 48,
    fleet_drain = 49,
    verify_budget = 64,
};
std::string_view decision_kind_name(DecisionKind kind);  // "unknown" for other values

// A digest of what a decision was based on, in integer arithmetic that is the same everywhere.
// Doubles count by their bits, with one zero.
class Digest {
  public:
    Digest() = default;
    explicit Digest(std::uint64_t state) : state_(state) {}
    Digest& add(std::uint64_t word);
    Digest& add(std::int64_t value) { return add(static_cast<std::uint64_t>(value)); }
    Digest& add(std::int32_t value) { return add(static_cast<std::int64_t>(value)); }
    Digest& add(bool value) { return add(std::uint64_t{value ? 1U : 0U}); }
    Digest& add(double value);
    std::uint64_t value() const { return state_; }

  private:
    std::uint64_t state_ = 0x9e3779b97f4a7c15;
};

struct DecisionRecord {
    DecisionKind kind = DecisionKind::none;
    std::uint16_t reason = 0;  // an enumerator of the kind's own reasons
    std::uint32_t actor = 0;   // engine, group or layer that it is about
    std::int64_t now_us = 0;
    std::uint64_t input_digest = 0;
    std::array<std::int64_t, 5> fields{};  // what was decided; their meaning is the kind's

    friend bool operator==(const DecisionRecord&, const DecisionRecord&) = default;
};
inline constexpr std::size_t kDecisionBytes = 64;
using DecisionBytes = std::array<std::uint8_t, kDecisionBytes>;
// Little-endian, in the order of the members, without padding. Every 64 bytes are some record.
DecisionBytes encode_decision(const DecisionRecord& record);
DecisionRecord decode_decision(std::span<const std::uint8_t, kDecisionBytes> bytes);
// A whole log; data_loss when its size is no multiple of 64.
Result<std::vector<DecisionRecord>> decode_decisions(std::span<const std::uint8_t> bytes);
std::string decision_text(const DecisionRecord& record);  // one line for people

class DecisionLog {
  public:
    using Visitor = std::function<void(const DecisionRecord&)>;
    // Keeps the newest `capacity` records; 0 keeps only the hash.
    explicit DecisionLog(std::size_t capacity = 0);

    void record(const DecisionRecord& record);
    // The same; `reason` is an enumerator of the kind's own.
    template <typename Reason>
    void note(DecisionKind kind, Reason reason, std::size_t actor, std::int64_t now_us,
              std::uint64_t digest, const std::array<std::int64_t, 5>& fields) {
        record({.kind = kind,
                .reason = static_cast<std::uint16_t>(reason),
                .actor = static_cast<std::uint32_t>(actor),
                .now_us = now_us,
                .input_digest = digest,
                .fields = fields});
    }
    void set_visitor(Visitor visitor) { visitor_ = std::move(visitor); }

    std::uint64_t hash() const { return hash_.value(); }
    std::uint64_t count() const { return count_; }  // ever recorded
    std::vector<DecisionRecord> newest() const;     // the kept ones, oldest first
    // Goes on from another log's hash and count, for a standby; drops what was kept.
    void resume(std::uint64_t hash, std::uint64_t count);

  private:
    std::vector<DecisionRecord> ring_;
    std::size_t capacity_;
    std::size_t next_ = 0;  // place in a full ring
    Digest hash_;
    std::uint64_t count_ = 0;
    Visitor visitor_;
};

// Compares decisions with recorded ones as they are made. As a visitor:
//   log.set_visitor([&](const DecisionRecord& r) { check.observe(r); });
class ReplayCheck {
  public:
    // `expected` must outlive the check.
    explicit ReplayCheck(std::span<const DecisionRecord> expected) : expected_(expected) {}
    void observe(const DecisionRecord& record);
    // Ok when everything expected was seen and nothing else; otherwise the first difference.
    Status finish() const;

  private:
    std::span<const DecisionRecord> expected_;
    std::uint64_t seen_ = 0;
    std::optional<std::uint64_t> differs_at_;
    DecisionRecord got_;
};

}  // namespace fathom
