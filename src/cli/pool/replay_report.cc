#include "cli/pool/replay_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "cli/pool/replay_plan.h"
#include "model/memory_plan.h"

namespace fathom {
namespace {

// One row as fields in the order of the CSV: names, and values as JSON.
std::vector<std::pair<const char*, Json>> fields_of(const TraceReport& report,
                                                    const ReplayRow& row) {
    const CachePolicy& policy = row.policy;
    const CacheCounts& counts = row.counts;
    const std::int64_t page_bytes = policy.page_bytes();
    const bool expires = policy.expiry != Expiry::unlimited;
    const auto seconds = [](std::int64_t us) { return static_cast<double>(us) / 1e6; };
    return {
        {"trace", report.trace},
        {"format", trace_format_name(report.result.format)},
        {"policy", expiry_name(policy.expiry)},
        {"ttl_s", expires ? Json(seconds(policy.ttl_us)) : Json()},
        {"bucket_s", expires ? Json(seconds(policy.bucket_us)) : Json()},
        {"renew_at", policy.expiry == Expiry::renew ? Json(policy.renew_share) : Json()},
        {"rewrite", policy.rewrite == Rewrite::miss ? "miss" : "never"},
        {"eviction", eviction_name(policy.eviction)},
        {"capacity_bytes",
         policy.eviction != Eviction::none ? Json(policy.capacity_bytes) : Json()},
        {"page_tokens", policy.page_tokens},
        {"output", policy.persist_output ? "persist" : "drop"},
        {"requests", counts.requests},
        {"input_tokens", counts.input_tokens},
        {"hit_tokens", counts.hit_tokens},
        {"hit_rate", counts.hit_share()},
        {"absent_tokens", counts.absent_tokens},
        {"expired_tokens", counts.expired_tokens},
        {"evicted_tokens", counts.evicted_tokens},
        {"tail_tokens", counts.tail_tokens},
        {"read_bytes", counts.read_pages * page_bytes},
        {"written_bytes", counts.written_pages * page_bytes},
        {"renewed_bytes", counts.renewed_pages * page_bytes},
        {"live_pages_peak", counts.live_pages_peak},
        {"live_bytes_peak", counts.live_pages_peak * page_bytes},
        {"space_bytes_peak", counts.space_bytes_peak},
        {"nodes", policy.window.nodes},
        {"window_wanted", counts.windows.wanted},
        {"window_hits_random", counts.windows.hits_random},
        {"window_hits_affinity", counts.windows.hits_affinity},
    };
}

std::string csv_field(const Json& value) {
    if (value.is_null()) return "";
    if (!value.is_string()) return value.dump();
    std::string text = value.as_string();
    if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
    std::string quoted = "\"";
    for (const char c : text)
        quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
    return quoted + "\"";
}

std::string percent(std::int64_t part, std::int64_t whole) {
    return whole > 0 ? fmt::format("{:.2f}",
                                   100.0 * static_cast<double>(part) / static_cast<double>(whole))
                     : "-";
}

}  // namespace

std::string replay_table(const std::vector<TraceReport>& reports) {
    std::string text;
    for (const TraceReport& report : reports) {
        const auto& rows = report.result.rows;
        const CacheCounts& first = rows.front().counts;
        text += fmt::format("{}{}: {} trace, {} requests, {} input tokens, blocks of {} tokens\n",
                            text.empty() ? "" : "\n", report.trace,
                            trace_format_name(report.result.format), first.requests,
                            first.input_tokens, report.result.block_tokens);
        const bool has_windows = rows.front().policy.window.nodes > 0;
        text += fmt::format(
            "{:<10}{:>6}{:>6}  {:<9}{:>10}{:>8}{:>8}{:>8}{:>8}{:>7}{:>11}{:>11}"
            "{:>11}{:>11}{}\n",
            "policy", "ttl", "page", "eviction", "capacity", "hit%", "absent", "expired", "evicted",
            "tail", "read", "written", "renewed", "peak live",
            has_windows ? "  window% random/affinity" : "");
        for (const auto& [policy, counts] : rows) {
            const std::int64_t page_bytes = policy.page_bytes();
            const bool limited = policy.eviction != Eviction::none;
            text += fmt::format(
                "{:<10}{:>6}{:>6}  {:<9}{:>10}{:>8}{:>8}{:>8}{:>8}{:>7}{:>11}{:>11}{:>11}{:>11}",
                expiry_name(policy.expiry),
                policy.expiry == Expiry::unlimited ? "-" : duration_text(policy.ttl_us),
                policy.page_tokens, eviction_name(policy.eviction),
                limited ? bytes_text(policy.capacity_bytes) : "-",
                percent(counts.hit_tokens, counts.input_tokens),
                percent(counts.absent_tokens, counts.input_tokens),
                percent(counts.expired_tokens, counts.input_tokens),
                percent(counts.evicted_tokens, counts.input_tokens),
                percent(counts.tail_tokens, counts.input_tokens),
                bytes_text(counts.read_pages * page_bytes),
                bytes_text(counts.written_pages * page_bytes),
                bytes_text(counts.renewed_pages * page_bytes),
                bytes_text(counts.live_pages_peak * page_bytes));
            if (has_windows)
                text += fmt::format("  {} / {} ({} nodes)",
                                    percent(counts.windows.hits_random, counts.windows.wanted),
                                    percent(counts.windows.hits_affinity, counts.windows.wanted),
                                    policy.window.nodes);
            text += "\n";
        }
    }
    return text;
}

std::string replay_csv(const std::vector<TraceReport>& reports) {
    std::string text;
    for (const TraceReport& report : reports) {
        for (const ReplayRow& row : report.result.rows) {
            std::string names, values;
            for (const auto& [name, value] : fields_of(report, row)) {
                names += fmt::format("{}{}", names.empty() ? "" : ",", name);
                values += fmt::format("{}{}", values.empty() ? "" : ",", csv_field(value));
            }
            if (text.empty()) text += names + "\n";
            text += values + "\n";
        }
    }
    return text;
}

std::string replay_json(const std::vector<TraceReport>& reports) {
    Json rows = Json::array();
    for (const TraceReport& report : reports) {
        for (const ReplayRow& row : report.result.rows) {
            Json::Object object;
            for (auto& [name, value] : fields_of(report, row))
                object.emplace_back(name, std::move(value));
            rows.push_back(Json::object(std::move(object)));
        }
    }
    Json report = Json::object();
    report.set("rows", std::move(rows));
    return report.dump() + "\n";
}

}  // namespace fathom
