#include "cli/pool/replay_studies.h"

#include <fmt/core.h>

#include <cmath>
#include <vector>

#include "cli/pool/replay_plan.h"
#include "model/memory_plan.h"
#include "sim/replay/trace_figures.h"

namespace fathom {
namespace {

constexpr std::int64_t kSecondUs = 1'000'000, kHourUs = 3600 * kSecondUs, kDayUs = 24 * kHourUs;
constexpr std::int64_t kGiB = std::int64_t{1} << 30;
constexpr const char* kChat = "mooncake_conversation";
constexpr const char* kAgents = "agentic_coding_kvct";

Result<std::string> need_trace(const std::string& folder, const std::string& name) {
    std::string path = find_trace(folder, name);
    if (!path.empty()) return path;
    return error(StatusCode::not_found, "{}/{}.jsonl.zst: the study needs this trace", folder,
                 name);
}

Result<StudyResult> trace_figures_study(const std::string& folder, const ReplayOptions& options) {
    FATHOM_ASSIGN(const std::vector<TraceFigureRow> rows,
                  run_trace_figures(folder, trace_figures(), options));
    StudyResult study;
    Json list = Json::array();
    study.text = fmt::format("{:<24}{:<32}{:>10}{:>10}{:>12}\n", "trace", "setting", "published",
                             "here", "difference");
    double largest = 0;
    for (const TraceFigureRow& row : rows) {
        largest = std::max(largest, std::abs(row.difference()));
        study.text +=
            fmt::format("{:<24}{:<32}{:>10.4f}{:>10.4f}{:>+12.4f}\n", row.figure.trace,
                        row.figure.setting, row.figure.published, row.measured, row.difference());
        list.push_back(Json::object({{"trace", row.figure.trace},
                                     {"setting", row.figure.setting},
                                     {"published", row.figure.published},
                                     {"measured", row.measured},
                                     {"difference", row.difference()}}));
    }
    study.passed = largest <= kTraceFigureTolerance;
    study.text += fmt::format("largest difference {:.4f}, allowed {:.4f}: {}\n", largest,
                              kTraceFigureTolerance, study.passed ? "all reproduced" : "NOT all");
    study.json = Json::object({{"rows", std::move(list)},
                               {"largest_difference", largest},
                               {"tolerance", kTraceFigureTolerance}});
    return study;
}

CachePolicy expiring(Expiry expiry, std::int64_t ttl_us) {
    CachePolicy policy;
    policy.expiry = expiry;
    policy.ttl_us = ttl_us;
    return policy;
}

Result<StudyResult> renewal_study(const std::string& folder, const ReplayOptions& options) {
    FATHOM_ASSIGN(const std::string path, need_trace(folder, kAgents));
    const std::vector<std::int64_t> ttls = {180 * kSecondUs, kHourUs,    5 * kHourUs,
                                            kDayUs,          3 * kDayUs, 7 * kDayUs};
    constexpr std::size_t kColumns = 6;
    std::vector<CachePolicy> policies;
    for (const std::int64_t ttl_us : ttls) {
        policies.push_back(expiring(Expiry::refresh, ttl_us));
        policies.push_back(expiring(Expiry::fixed, ttl_us));
        policies.back().rewrite = Rewrite::never;
        policies.push_back(expiring(Expiry::fixed, ttl_us));
        for (const double share : {0.25, 0.5}) {
            policies.push_back(expiring(Expiry::renew, ttl_us));
            policies.back().renew_share = share;
        }
        policies.push_back(expiring(Expiry::renew, ttl_us));
        policies.back().bucket_us = ttl_us / 72;  // as the class agent: 1 h of 3 d
    }
    FATHOM_ASSIGN(const ReplayResult result, replay_trace(path, policies, options));
    StudyResult study;
    study.text = fmt::format(
        "Measured on {}, each conversation for itself. Token hit in percent; in brackets the "
        "bytes\n"
        "renewed as a share of all bytes written.\n\n{:<6}{:>9}{:>9}{:>9}{:>20}{:>20}{:>20}\n",
        kAgents, "TTL", "refresh", "never", "miss", "renew at 25 %", "renew at 50 %",
        "25 %, buckets");
    Json list = Json::array();
    for (std::size_t i = 0; i < ttls.size(); ++i) {
        const ReplayRow* const rows = &result.rows[i * kColumns];
        const auto hit = [&](std::size_t column) { return rows[column].counts.hit_share(); };
        const auto renewed = [&](std::size_t column) {
            const CacheCounts& counts = rows[column].counts;
            return static_cast<double>(counts.renewed_pages) /
                   static_cast<double>(
                       std::max<std::int64_t>(1, counts.renewed_pages + counts.written_pages));
        };
        study.text += fmt::format("{:<6}{:>9.2f}{:>9.2f}{:>9.2f}", duration_text(ttls[i]),
                                  100 * hit(0), 100 * hit(1), 100 * hit(2));
        for (std::size_t column = 3; column < kColumns; ++column)
            study.text +=
                fmt::format("{:>11.2f} ({:>5.2f} %)", 100 * hit(column), 100 * renewed(column));
        study.text += "\n";
        list.push_back(Json::object({{"ttl_s", ttls[i] / kSecondUs},
                                     {"refresh", hit(0)},
                                     {"fixed_never", hit(1)},
                                     {"fixed_miss", hit(2)},
                                     {"renew_25", hit(3)},
                                     {"renew_25_renewed_share", renewed(3)},
                                     {"renew_50", hit(4)},
                                     {"renew_50_renewed_share", renewed(4)},
                                     {"renew_25_buckets", hit(5)},
                                     {"renew_25_buckets_renewed_share", renewed(5)}}));
    }
    study.text +=
        "\nfixed expiry, never: what has expired is not written again; miss: the request that "
        "lacks\nit writes it. buckets: expiry at the end of a 72nd of the TTL, plus the TTL.\n";
    study.json = Json::object({{"rows", std::move(list)}});
    return study;
}

struct CapacityPart {
    const char* trace;
    const char* what;
    std::vector<std::int64_t> gib;
    std::int64_t spread_us;
};

Result<StudyResult> capacity_study(const std::string& folder, const ReplayOptions& options) {
    const std::vector<CapacityPart> parts = {
        {kChat, "as recorded", {4, 8, 12, 21, 42}, 0},
        {kAgents, "conversations beginning within 24 h", {8, 16, 32, 64, 128}, kDayUs}};
    StudyResult study;
    Json list = Json::array();
    for (const CapacityPart& part : parts) {
        FATHOM_ASSIGN(const std::string path, need_trace(folder, part.trace));
        ReplayOptions mine = options;
        mine.trace.spread_us = part.spread_us;
        std::vector<CachePolicy> policies = {{}};
        const std::vector<Eviction> evictions = {Eviction::lru, Eviction::s3_fifo,
                                                 Eviction::earliest};
        for (const std::int64_t gib : part.gib) {
            for (const Eviction eviction : evictions) {
                CachePolicy policy;
                policy.eviction = eviction;
                policy.capacity_bytes = gib * kGiB;
                policies.push_back(policy);
            }
            CachePolicy renewed = expiring(Expiry::renew, 3 * kDayUs);
            renewed.bucket_us = kHourUs;
            renewed.eviction = Eviction::earliest;
            renewed.capacity_bytes = gib * kGiB;
            policies.push_back(renewed);
        }
        FATHOM_ASSIGN(const ReplayResult result, replay_trace(path, policies, mine));
        const CacheCounts& all = result.rows[0].counts;
        study.text += fmt::format(
            "{}Measured on {}, {}. Unlimited: {:.2f} % of tokens found, {} written.\n"
            "{:<10}{:>10}{:>10}{:>12}{:>22}\n",
            study.text.empty() ? "" : "\n", part.trace, part.what, 100 * all.hit_share(),
            bytes_text(all.written_pages * result.rows[0].policy.page_bytes()), "capacity", "LRU",
            "S3-FIFO", "earliest", "earliest, class agent");
        for (std::size_t i = 0; i < part.gib.size(); ++i) {
            const ReplayRow* const rows = &result.rows[1 + i * 4];
            const auto hit = [&](std::size_t column) { return rows[column].counts.hit_share(); };
            study.text += fmt::format("{:<10}{:>10.2f}{:>10.2f}{:>12.2f}{:>22.2f}\n",
                                      bytes_text(part.gib[i] * kGiB), 100 * hit(0), 100 * hit(1),
                                      100 * hit(2), 100 * hit(3));
            list.push_back(Json::object({{"trace", part.trace},
                                         {"capacity_gib", part.gib[i]},
                                         {"lru", hit(0)},
                                         {"s3_fifo", hit(1)},
                                         {"earliest", hit(2)},
                                         {"earliest_agent", hit(3)}}));
        }
    }
    study.text +=
        "\nearliest: segments of 64 MiB go whole, oldest first, from 90 % full down to 85 %; its "
        "space\nis what is allocated. class agent: TTL 3 d in buckets of 1 h, renewed at 25 %.\n";
    study.json = Json::object({{"rows", std::move(list)}});
    return study;
}

// How gaps go on beyond what the chat trace saw.
struct Tail {
    const char* name;
    double exponent;
};

double beyond(const GapSurvival& gaps, double from_s, double seconds, double exponent) {
    return gaps.survival(from_s) * std::pow(seconds / from_s, -exponent);
}

std::string measured_gaps(const char* what, const GapSurvival& gaps,
                          const std::vector<double>& seconds, Json& list) {
    std::string text = fmt::format("  {:<22}", what);
    for (const double at : seconds) {
        text += fmt::format("  {}: {:.2f}", duration_text(static_cast<std::int64_t>(at * 1e6)),
                            100 * (1 - gaps.survival(at)));
        list.push_back(
            Json::object({{"trace", what}, {"ttl_s", at}, {"found", 1 - gaps.survival(at)}}));
    }
    return text + "\n";
}

Result<StudyResult> chat_ttl_study(const std::string& folder, const ReplayOptions& options) {
    constexpr double kFromS = 300, kToS = 1800, kEndS = 3000, kDayS = 86'400;
    constexpr double kUsableBytes = 83.3 * 1125899906842624.0;  // 100 PiB raw at 10+2
    FATHOM_ASSIGN(const std::string chat_path, need_trace(folder, kChat));
    FATHOM_ASSIGN(const std::string agents_path, need_trace(folder, kAgents));
    GapSurvival chat, agents;
    ReplayOptions mine = options;
    mine.gaps = &chat;
    const std::vector<CachePolicy> policies = {expiring(Expiry::refresh, 600 * kSecondUs)};
    FATHOM_ASSIGN(const ReplayResult replayed, replay_trace(chat_path, policies, mine));
    chat.end();
    mine.gaps = &agents;
    FATHOM_RETURN_IF_ERROR(replay_trace(agents_path, policies, mine).status());
    agents.end();

    StudyResult study;
    Json measured = Json::array(), assumed = Json::array();
    study.text =
        "Measured: share of block uses that come within a time of the use before, in "
        "percent, by a life\ntable that takes the end of the trace as unknown, not as "
        "never.\n";
    study.text += measured_gaps(kChat, chat, {60, 180, 600, 1800, 3000}, measured);
    study.text +=
        measured_gaps(kAgents, agents, {60, 600, 3600, 6 * 3600, kDayS, 2 * kDayS}, measured);
    study.text += fmt::format(
        "  for comparison, {} replayed with refresh 10m: {:.2f} (it sees the first use as a miss)\n"
        "  the chat trace spans an hour: it says nothing of its own about days.\n\n",
        kChat, 100 * replayed.rows[0].counts.hit_share());
    const double early = chat.exponent(kFromS, kToS), late = chat.exponent(kToS, kEndS);
    const double agents_exponent = agents.exponent(3600, kDayS);
    const std::vector<Tail> tails = {{"nothing comes back later", 0},
                                     {"as chat from 30 to 50 min", late},
                                     {"as chat from 5 to 30 min", early},
                                     {"as agents from 1 h to 1 d", agents_exponent}};
    study.text += fmt::format(
        "Assumed: from 30 min on, S(t) ~ t^-a. Tokens found by TTL, in percent:\n"
        "  {:<28}{:>8}{:>8}{:>8}{:>8}{:>8}{:>12}\n",
        "tail", "a", "1 h", "1 d", "3 d", "7 d", "7 d - 3 d");
    for (const Tail& tail : tails) {
        const auto found = [&](double seconds) {
            return 100 * (1 - beyond(chat, kToS, seconds, tail.exponent));
        };
        const double gain = found(7 * kDayS) - found(3 * kDayS);
        study.text += fmt::format("  {:<28}{:>8.4f}{:>8.2f}{:>8.2f}{:>8.2f}{:>8.2f}{:>12.2f}\n",
                                  tail.name, tail.exponent, found(3600), found(kDayS),
                                  found(3 * kDayS), found(7 * kDayS), gain);
        assumed.push_back(Json::object({{"tail", tail.name},
                                        {"exponent", tail.exponent},
                                        {"found_3d", found(3 * kDayS) / 100},
                                        {"found_7d", found(7 * kDayS) / 100},
                                        {"gain", gain / 100}}));
    }
    const auto rate = [&](double days) { return kUsableBytes / (days * kDayS) / double(kGiB); };
    study.text += fmt::format(
        "\nCost, by arithmetic: space is write rate times TTL. 83.3 PiB hold {:.0f} GiB/s of "
        "writes "
        "for 3 d\nand {:.0f} GiB/s for 7 d: the same traffic takes 2.33 times the space. Where "
        "space is short anyway,\ncapacity evicts before either TTL ends and the longer one gains "
        "nothing.\nNot in these figures: blocks of a chain that are found behind one that is not; "
        "templates that drop\nreasoning, which make old output unreachable whatever its TTL.\n",
        rate(3), rate(7));
    study.json = Json::object({{"measured", std::move(measured)},
                               {"assumed", std::move(assumed)},
                               {"write_gib_per_s_3d", rate(3)},
                               {"write_gib_per_s_7d", rate(7)}});
    return study;
}

}  // namespace

Result<StudyResult> run_study(const std::string& study, const std::string& folder,
                              const ReplayOptions& options) {
    if (study == "trace-figures") return trace_figures_study(folder, options);
    if (study == "renewal") return renewal_study(folder, options);
    if (study == "capacity") return capacity_study(folder, options);
    return chat_ttl_study(folder, options);
}

}  // namespace fathom
