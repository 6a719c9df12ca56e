#include "cli/pool/replay_plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace fathom {
namespace {

constexpr std::size_t kListMax = 64, kPoliciesMax = 512;
constexpr std::int64_t kSecondUs = 1'000'000;
constexpr double kValueMax = 9e15;  // of microseconds and of bytes: exact in a double

struct Unit {
    std::string_view name;
    std::int64_t size;
};
constexpr Unit kTimeUnits[] = {
    {"d", 86'400 * kSecondUs}, {"h", 3600 * kSecondUs}, {"m", 60 * kSecondUs}, {"s", kSecondUs}};
constexpr Unit kByteUnits[] = {{"TiB", std::int64_t{1} << 40},
                               {"GiB", std::int64_t{1} << 30},
                               {"MiB", std::int64_t{1} << 20},
                               {"KiB", std::int64_t{1} << 10},
                               {"", 1}};

template <std::size_t N>
Result<std::int64_t> parse_quantity(std::string_view name, std::string_view text,
                                    const Unit (&units)[N], std::string_view expectation) {
    double value = 0;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
    const std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
    for (const Unit& known : units) {
        const double product = value * static_cast<double>(known.size);
        if (failed == std::errc() && unit == known.name && product >= 0 && product <= kValueMax)
            return static_cast<std::int64_t>(std::llround(product));
    }
    return invalid_argument("replay.{} \"{}\": expected {}", name, text, expectation);
}

Result<std::vector<std::string_view>> split_list(std::string_view name, std::string_view text) {
    std::vector<std::string_view> words;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find(','), text.size());
        words.push_back(text.substr(0, end));
        if (words.back().empty() || end + 1 == text.size() || words.size() > kListMax)
            return invalid_argument("replay.{}: expected up to {} words with commas between", name,
                                    kListMax);
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return words;
}

// A word of a list as one of the values that `name_of` names.
template <typename Value, typename NameOf>
Result<Value> named(std::string_view setting, std::string_view word,
                    std::initializer_list<Value> values, NameOf name_of) {
    std::string names;
    for (const Value value : values) {
        if (word == name_of(value)) return value;
        names += fmt::format("{}{}", names.empty() ? "" : ", ", name_of(value));
    }
    return invalid_argument("replay.{} \"{}\": expected of {}", setting, word, names);
}

struct Lists {
    std::vector<std::int64_t> pages, ttls, capacities;
    std::vector<Expiry> expiries;
    std::vector<Eviction> evictions;
};

Result<Lists> parse_lists(const ReplaySettings& settings) {
    Lists lists;
    FATHOM_ASSIGN(const auto pages, split_list("page", settings.page));
    for (const std::string_view word : pages) {
        std::int64_t tokens = 0;
        const auto [end, failed] = std::from_chars(word.data(), word.data() + word.size(), tokens);
        if (failed != std::errc() || end != word.data() + word.size() || tokens < 1)
            return invalid_argument("replay.page \"{}\": expected tokens", word);
        lists.pages.push_back(tokens);
    }
    if (lists.pages.empty()) lists.pages.push_back(0);
    FATHOM_ASSIGN(const auto ttls, split_list("ttl", settings.ttl));
    for (const std::string_view word : ttls) {
        FATHOM_ASSIGN(const std::int64_t ttl_us, parse_duration_us("ttl", word));
        lists.ttls.push_back(ttl_us);
    }
    FATHOM_ASSIGN(const auto capacities, split_list("capacity", settings.capacity));
    for (const std::string_view word : capacities) {
        FATHOM_ASSIGN(const std::int64_t bytes, parse_bytes("capacity", word));
        lists.capacities.push_back(bytes);
    }
    FATHOM_ASSIGN(const auto expiries, split_list("policy", settings.policy));
    for (const std::string_view word : expiries) {
        FATHOM_ASSIGN(
            const Expiry expiry,
            named("policy", word,
                  {Expiry::unlimited, Expiry::refresh, Expiry::fixed, Expiry::renew}, expiry_name));
        lists.expiries.push_back(expiry);
    }
    FATHOM_ASSIGN(const auto evictions, split_list("eviction", settings.eviction));
    for (const std::string_view word : evictions) {
        FATHOM_ASSIGN(const Eviction eviction,
                      named("eviction", word,
                            {Eviction::lru, Eviction::s3_fifo, Eviction::earliest}, eviction_name));
        lists.evictions.push_back(eviction);
    }
    return lists;
}

// What all rows have in common.
Result<CachePolicy> common_policy(const ReplaySettings& settings) {
    CachePolicy policy;
    FATHOM_ASSIGN(policy.bucket_us, parse_duration_us("bucket", settings.bucket));
    FATHOM_ASSIGN(policy.window.ttl_us, parse_duration_us("window_ttl", settings.window_ttl));
    policy.renew_share = settings.renew_at;
    policy.rewrite = settings.rewrite == "miss" ? Rewrite::miss : Rewrite::never;
    policy.token_bytes = settings.token_bytes;
    policy.persist_output = settings.output == "persist";
    policy.window.nodes = settings.nodes;
    policy.window.seed = static_cast<std::uint64_t>(settings.seed);
    return policy;
}

// `base` under every limit of space.
Status add_with_limits(const CachePolicy& base, const Lists& lists, ReplayPlan& plan) {
    if (lists.capacities.empty()) plan.policies.push_back(base);
    for (const std::int64_t capacity : lists.capacities) {
        for (const Eviction eviction : lists.evictions) {
            if (base.expiry == Expiry::refresh && eviction == Eviction::earliest) {
                ++plan.left_out;
                continue;
            }
            CachePolicy policy = base;
            policy.eviction = eviction;
            policy.capacity_bytes = capacity;
            plan.policies.push_back(policy);
        }
    }
    if (plan.policies.size() <= kPoliciesMax) return {};
    return invalid_argument("more than {} combinations; give shorter lists", kPoliciesMax);
}

}  // namespace

Result<std::int64_t> parse_duration_us(std::string_view name, std::string_view text) {
    return parse_quantity(name, text, kTimeUnits, "a time such as 90s, 15m, 1h or 3d");
}

Result<std::int64_t> parse_bytes(std::string_view name, std::string_view text) {
    return parse_quantity(name, text, kByteUnits, "a size such as 512MiB, 4GiB or 1.5TiB");
}

std::string duration_text(std::int64_t us) {
    for (const Unit& unit : kTimeUnits)
        if (us >= unit.size && us % unit.size == 0)
            return fmt::format("{}{}", us / unit.size, unit.name);
    return fmt::format("{}s", static_cast<double>(us) / static_cast<double>(kSecondUs));
}

Result<ReplayPlan> make_replay_plan(const ReplaySettings& settings) {
    ReplayPlan plan;
    FATHOM_ASSIGN(const Lists lists, parse_lists(settings));
    FATHOM_ASSIGN(const CachePolicy common, common_policy(settings));
    FATHOM_ASSIGN(plan.options.trace.spread_us, parse_duration_us("spread", settings.spread));
    plan.options.trace.seed = static_cast<std::uint64_t>(settings.seed);
    plan.options.keep_tail = settings.tail == "keep";
    for (const std::int64_t page : lists.pages) {
        for (const Expiry expiry : lists.expiries) {
            CachePolicy policy = common;
            policy.page_tokens = page;
            policy.expiry = expiry;
            const bool expires = expiry != Expiry::unlimited;
            if (expiry == Expiry::refresh || !expires) policy.bucket_us = 0;
            for (const std::int64_t ttl_us : expires ? lists.ttls : std::vector<std::int64_t>{0}) {
                policy.ttl_us = ttl_us;
                FATHOM_RETURN_IF_ERROR(add_with_limits(policy, lists, plan));
            }
        }
    }
    if (plan.policies.empty())
        return invalid_argument("replay.policy, replay.ttl or replay.eviction is empty");
    return plan;
}

}  // namespace fathom
