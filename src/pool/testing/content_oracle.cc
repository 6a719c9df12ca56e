#include "pool/testing/content_oracle.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/random.h"

namespace fathom::testing {

namespace {

Sha256Digest digest_of(std::string_view what, std::uint64_t a, std::uint64_t b, std::uint64_t c) {
    thread_local Sha256 hash;
    hash.update(fmt::format("{} {} {} {}", what, a, b, c));
    return hash.finish();
}

// The payload behind its first 8 bytes, which name the writer.
void fill_from_seed(const BlockKey& key, std::uint64_t writer, std::span<std::uint8_t> bytes) {
    std::uint64_t seed = 0;
    std::memcpy(&seed, key.bytes.data(), sizeof seed);
    seed ^= writer * 0x9e3779b97f4a7c15u;
    for (std::size_t at = 0; at < bytes.size(); at += 16) {
        const std::array<std::uint32_t, 4> bits =
            random_bits({.seed = seed, .purpose = RandomPurpose::test_data, .index = at / 16});
        std::memcpy(bytes.data() + at, bits.data(), std::min<std::size_t>(16, bytes.size() - at));
    }
}

}  // namespace

std::vector<std::uint8_t> oracle_payload(const BlockKey& key, std::uint64_t writer,
                                         std::int64_t payload_bytes) {
    FATHOM_CHECK(payload_bytes >= 8);
    std::vector<std::uint8_t> payload(static_cast<std::size_t>(payload_bytes));
    std::memcpy(payload.data(), &writer, sizeof writer);
    fill_from_seed(key, writer, std::span(payload).subspan(sizeof writer));
    return payload;
}

std::optional<std::uint64_t> payload_writer(const BlockKey& key,
                                            std::span<const std::uint8_t> payload) {
    std::uint64_t writer = 0;
    std::memcpy(&writer, payload.data(), sizeof writer);
    std::vector<std::uint8_t> expected(payload.size() - sizeof writer);
    fill_from_seed(key, writer, expected);
    if (std::memcmp(expected.data(), payload.data() + sizeof writer, expected.size()) != 0)
        return std::nullopt;
    return writer;
}

NamespaceId oracle_namespace(std::uint64_t ns) {
    return {digest_of("namespace", ns, 0, 0)};
}

BlockName oracle_name(std::uint64_t chain, std::uint32_t number, std::uint64_t ns) {
    BlockName name{.key = {digest_of("block", ns, chain, number)},
                   .parent = {digest_of("block", ns, chain, number - 1)},
                   .ns = oracle_namespace(ns),
                   .token_mac = {},
                   .ordinal = number};
    const Sha256Digest mac = digest_of("tokens", ns, chain, number);
    std::copy_n(mac.begin(), name.token_mac.size(), name.token_mac.begin());
    return name;
}

void ContentOracle::put(const BlockName& name, std::uint64_t writer, PutOutcome outcome) {
    Known& known = known_[name.key.bytes];
    known.ns = name.ns;
    const auto may_be = [&] {
        if (std::find(known.writers.begin(), known.writers.end(), writer) == known.writers.end())
            known.writers.push_back(writer);
        known.must_not = false;
    };
    switch (outcome) {
        case PutOutcome::stored:
            // With the first writer's bytes still there nobody may store others.
            if (!known.must) known.writers.clear();
            [[fallthrough]];
        case PutOutcome::renewed:
            may_be();
            known.must = true;
            break;
        case PutOutcome::timeout:
        case PutOutcome::cancelled:
            may_be();
            break;  // it may have got there
        default:
            break;
    }
}

void ContentOracle::dropped(const NamespaceId& ns) {
    for (auto& [key, known] : known_) {
        if (known.ns == ns) known = {.ns = ns, .writers = {}, .must = false, .must_not = true};
    }
}

void ContentOracle::expired(const BlockName& name) {
    known_[name.key.bytes] = {.ns = name.ns, .writers = {}, .must = false, .must_not = true};
}

void ContentOracle::may_have_lost() {
    for (auto& [key, known] : known_)
        known.must = false;
}

void ContentOracle::may_have_lost(const BlockName& name) {
    known_[name.key.bytes].must = false;
}

std::string ContentOracle::check(const BlockName& name, GetStatus status,
                                 std::span<const std::uint8_t> payload) const {
    const auto at = known_.find(name.key.bytes);
    const std::string block = fmt::format("block {}…, {}: ", hex_text(name.key.bytes).substr(0, 8),
                                          get_status_name(status));
    if (status != GetStatus::hit) {
        const bool must = at != known_.end() && at->second.must;
        return must ? block + "it was stored and must be there" : "";
    }
    if (at == known_.end()) return block + "nobody put it";
    if (at->second.must_not) return block + "it was dropped or has expired";
    const std::optional<std::uint64_t> writer = payload_writer(name.key, payload);
    if (!writer) return block + "its bytes are nobody's";
    const auto& writers = at->second.writers;
    if (std::find(writers.begin(), writers.end(), *writer) != writers.end()) return "";
    return block + fmt::format("its bytes are writer {}'s, who stored nothing", *writer);
}

}  // namespace fathom::testing
