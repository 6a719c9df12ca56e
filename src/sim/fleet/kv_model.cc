#include "sim/fleet/kv_model.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fathom {
namespace {

constexpr std::int64_t kBlock = 128;
constexpr double kGib = 1024.0 * 1024 * 1024;

std::int64_t usable(std::int64_t hit_tokens, std::int64_t input_tokens) {
    return std::max<std::int64_t>(0, std::min(hit_tokens, input_tokens - 1) / kBlock * kBlock);
}

}  // namespace

KvModel::KvModel(const FleetConfig& config, double written_bytes_s)
    : config_(config),
      retention_us_(config.pool.capacity_gib > 0 && written_bytes_s > 0
                        ? config.pool.capacity_gib * kGib / written_bytes_s * 1e6
                        : std::numeric_limits<double>::infinity()),
      store_link_(config.pool.read_gib_s_per_card * kGib * static_cast<double>(config.cards())) {}

PoolHit KvModel::look_up(const Arrival& arrival) {
    PoolHit hit;
    if (!config_.pool.keeps(arrival.traffic)) return hit;
    const auto gap_us = static_cast<double>(arrival.gap_us);
    if (arrival.block_tokens == 0) {
        const double ttl_us = std::min(
            config_.pool.ttl_s[static_cast<std::size_t>(arrival.traffic)] * 1e6, retention_us_);
        const std::int64_t kept = arrival.reusable_tokens -
                                  (config_.pool.is_output_persisted ? 0 : arrival.answer_tokens);
        hit.tokens = gap_us <= ttl_us ? kept : arrival.shared_tokens;
        hit.tokens = usable(hit.tokens, arrival.input_tokens);
        hit.is_window_found = hit.tokens > 0 && gap_us <= config_.pool.window_ttl_s * 1e6;
        return hit;
    }
    if (!cache_) {
        CachePolicy policy;
        policy.expiry = Expiry::refresh;
        policy.ttl_us =
            std::llround(config_.pool.ttl_s[static_cast<std::size_t>(arrival.traffic)] * 1e6);
        policy.page_tokens = arrival.block_tokens;
        policy.token_bytes = config_.network.token_bytes;
        policy.persist_output = config_.pool.is_output_persisted;
        if (config_.pool.capacity_gib > 0) {
            policy.eviction = Eviction::lru;
            policy.capacity_bytes = std::max(
                policy.page_bytes(), static_cast<std::int64_t>(config_.pool.capacity_gib * kGib));
        }
        cache_.emplace(policy);
    }
    TraceBlock end = 0;
    for (const TraceBlock block : arrival.blocks->input)
        end = std::max(end, block + 1);
    const std::size_t blocks = cache_->look_up({.time_us = arrival.time_ns / 1000,
                                                .input_tokens = arrival.input_tokens,
                                                .pages = arrival.blocks->input,
                                                .output_pages = {},
                                                .pages_end = end});
    hit.tokens =
        usable(static_cast<std::int64_t>(blocks) * arrival.block_tokens, arrival.input_tokens);
    hit.is_window_found = hit.tokens > 0 && has_window(arrival, static_cast<std::int64_t>(blocks));
    return hit;
}

bool KvModel::has_window(const Arrival& arrival, std::int64_t hit_blocks) {
    const TraceBlock boundary = arrival.blocks->input[static_cast<std::size_t>(hit_blocks - 1)];
    if (boundary >= window_us_.size() || window_us_[boundary] < 0) return false;
    const std::int64_t age_us = arrival.time_ns / 1000 - window_us_[boundary];
    return static_cast<double>(age_us) <= config_.pool.window_ttl_s * 1e6;
}

std::int64_t KvModel::store(const Arrival& arrival, SimTime now_ns, std::int64_t hit_tokens) {
    if (!config_.pool.keeps(arrival.traffic)) return 0;
    if (arrival.block_tokens == 0) {
        const std::int64_t end =
            arrival.input_tokens +
            (config_.pool.is_output_persisted ? arrival.output_tokens : std::int64_t{0});
        return kv_bytes(std::max<std::int64_t>(0, end / kBlock * kBlock - hit_tokens));
    }
    TraceBlock end = 0;
    for (const TraceBlock block : arrival.blocks->input)
        end = std::max(end, block + 1);
    for (const TraceBlock block : arrival.blocks->output)
        end = std::max(end, block + 1);
    const std::int64_t before = cache_->counts().written_pages;
    cache_->keep({.time_us = now_ns / 1000,
                  .input_tokens = arrival.input_tokens,
                  .pages = arrival.blocks->input,
                  .output_pages = arrival.blocks->output,
                  .pages_end = end});
    // A window is left where the prompt ends and where the next one will go on.
    if (end > window_us_.size()) window_us_.resize(end + end / 2, -1);
    if (!arrival.blocks->input.empty()) window_us_[arrival.blocks->input.back()] = now_ns / 1000;
    if (!arrival.blocks->output.empty()) window_us_[arrival.blocks->output.back()] = now_ns / 1000;
    return (cache_->counts().written_pages - before) * cache_->policy().page_bytes();
}

SimTime KvModel::read(SimTime now_ns, std::int64_t tokens, Link& port) {
    if (tokens == 0) return now_ns;
    const std::int64_t bytes = kv_bytes(tokens);
    const auto first = now_ns + static_cast<SimTime>(config_.pool.read_us * 1000);
    return std::max(store_link_.pass(first, bytes), port.pass(first, bytes));
}

Link KvModel::make_port(std::int64_t cards) const {
    return Link(config_.network.link_gbit_s * 1e9 / 8 * static_cast<double>(cards));
}

SimTime KvModel::latency_ns() const {
    return static_cast<SimTime>(config_.network.latency_us * 1000);
}

}  // namespace fathom
