#include "policy/decision_log.h"

#include <bit>

#include "base/check.h"

namespace fathom {

std::string_view decision_kind_name(DecisionKind kind) {
    switch (kind) {
        case DecisionKind::none:
            return "none";
        case DecisionKind::prefill_admission:
            return "prefill_admission";
        case DecisionKind::prefill_grant:
            return "prefill_grant";
        case DecisionKind::prefill_division:
            return "prefill_division";
        case DecisionKind::prefill_step:
            return "prefill_step";
        case DecisionKind::prefill_return:
            return "prefill_return";
        case DecisionKind::decode_place:
            return "decode_place";
        case DecisionKind::decode_move:
            return "decode_move";
        case DecisionKind::decode_pressure:
            return "decode_pressure";
        case DecisionKind::expert_placement:
            return "expert_placement";
        case DecisionKind::expert_switch:
            return "expert_switch";
        case DecisionKind::fleet_plan:
            return "fleet_plan";
        case DecisionKind::fleet_drain:
            return "fleet_drain";
        case DecisionKind::verify_budget:
            return "verify_budget";
    }
    return "unknown";
}

namespace {

// The finaliser of SplitMix64: each bit of a word moves every bit.
std::uint64_t mixed(std::uint64_t word) {
    std::uint64_t x = word + 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

}  // namespace

Digest& Digest::add(std::uint64_t word) {
    state_ = mixed(state_ ^ word) + std::rotl(state_, 23);
    return *this;
}

Digest& Digest::add(double value) {
    FATHOM_CHECK(value == value);
    return add(std::bit_cast<std::uint64_t>(value == 0 ? 0.0 : value));
}

namespace {

std::array<std::uint64_t, 8> words_of(const DecisionRecord& record) {
    std::array<std::uint64_t, 8> words{};
    words[0] = static_cast<std::uint64_t>(record.kind) | std::uint64_t{record.reason} << 16 |
               std::uint64_t{record.actor} << 32;
    words[1] = static_cast<std::uint64_t>(record.now_us);
    words[2] = record.input_digest;
    for (std::size_t i = 0; i < record.fields.size(); ++i)
        words[3 + i] = static_cast<std::uint64_t>(record.fields[i]);
    return words;
}

}  // namespace

DecisionBytes encode_decision(const DecisionRecord& record) {
    DecisionBytes bytes{};
    const auto words = words_of(record);
    for (std::size_t i = 0; i < bytes.size(); ++i)
        bytes[i] = static_cast<std::uint8_t>(words[i / 8] >> (8 * (i % 8)));
    return bytes;
}

DecisionRecord decode_decision(std::span<const std::uint8_t, kDecisionBytes> bytes) {
    std::array<std::uint64_t, 8> words{};
    for (std::size_t i = 0; i < bytes.size(); ++i)
        words[i / 8] |= std::uint64_t{bytes[i]} << (8 * (i % 8));
    DecisionRecord record;
    record.kind = static_cast<DecisionKind>(words[0] & 0xffff);
    record.reason = static_cast<std::uint16_t>(words[0] >> 16);
    record.actor = static_cast<std::uint32_t>(words[0] >> 32);
    record.now_us = static_cast<std::int64_t>(words[1]);
    record.input_digest = words[2];
    for (std::size_t i = 0; i < record.fields.size(); ++i)
        record.fields[i] = static_cast<std::int64_t>(words[3 + i]);
    return record;
}

Result<std::vector<DecisionRecord>> decode_decisions(std::span<const std::uint8_t> bytes) {
    if (bytes.size() % kDecisionBytes != 0) {
        return error(StatusCode::data_loss, "decision log: {} bytes, expected a multiple of {}",
                     bytes.size(), kDecisionBytes);
    }
    std::vector<DecisionRecord> records;
    records.reserve(bytes.size() / kDecisionBytes);
    for (std::size_t at = 0; at < bytes.size(); at += kDecisionBytes)
        records.push_back(decode_decision(bytes.subspan(at).first<kDecisionBytes>()));
    return records;
}

std::string decision_text(const DecisionRecord& record) {
    return fmt::format("{} at {} us, actor {}, reason {}, input {:016x}: {} {} {} {} {}",
                       decision_kind_name(record.kind), record.now_us, record.actor, record.reason,
                       record.input_digest, record.fields[0], record.fields[1], record.fields[2],
                       record.fields[3], record.fields[4]);
}

DecisionLog::DecisionLog(std::size_t capacity) : capacity_(capacity) {
    ring_.reserve(capacity);
}

void DecisionLog::record(const DecisionRecord& record) {
    // The words of a record do not wait for each other: this is done for every decision.
    std::uint64_t sum = 0, place = 0;
    for (const std::uint64_t word : words_of(record))
        sum += mixed(word ^ (place += 0xd1342543de82ef95));
    hash_.add(sum);
    if (ring_.size() < capacity_) {
        ring_.push_back(record);
    } else if (capacity_ > 0) {
        ring_[next_] = record;
        next_ = (next_ + 1) % capacity_;
    }
    ++count_;
    if (visitor_) visitor_(record);
}

std::vector<DecisionRecord> DecisionLog::newest() const {
    std::vector<DecisionRecord> records;
    records.reserve(ring_.size());
    for (std::size_t i = 0; i < ring_.size(); ++i)
        records.push_back(ring_[(next_ + i) % ring_.size()]);
    return records;
}

void DecisionLog::resume(std::uint64_t hash, std::uint64_t count) {
    ring_.clear();
    hash_ = Digest(hash);
    next_ = 0;
    count_ = count;
}

void ReplayCheck::observe(const DecisionRecord& record) {
    if (!differs_at_ && (seen_ >= expected_.size() || !(expected_[seen_] == record))) {
        differs_at_ = seen_;
        got_ = record;
    }
    ++seen_;
}

Status ReplayCheck::finish() const {
    if (differs_at_) {
        const std::string expected = *differs_at_ < expected_.size()
                                         ? decision_text(expected_[*differs_at_])
                                         : "the end of the log";
        return error(StatusCode::data_loss, "decision {}: {}; expected {}", *differs_at_,
                     decision_text(got_), expected);
    }
    if (seen_ < expected_.size()) {
        return error(StatusCode::data_loss, "decisions end after {}; expected {}", seen_,
                     decision_text(expected_[seen_]));
    }
    return {};
}

}  // namespace fathom
