#include "sim/replay/trace_figures.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

namespace fathom {
namespace {

constexpr std::int64_t kSecondUs = 1'000'000, kHourS = 3600, kDayS = 86'400;
constexpr std::int64_t kMooncakeBlockBytes = 512 * 890;

class FigureList {
  public:
    void begin(std::string trace) { trace_ = std::move(trace); }
    void unlimited(double published) { add("unlimited", {}, published); }
    void page(std::int64_t tokens, double published) {
        CachePolicy policy;
        policy.page_tokens = tokens;
        add(fmt::format("unlimited, page {}", tokens), policy, published);
    }
    void refresh(std::int64_t ttl_s, double published) {
        expiring(Expiry::refresh, Rewrite::miss, fmt::format("refresh {} s", ttl_s), ttl_s,
                 published);
    }
    void fixed(std::int64_t ttl_s, Rewrite rewrite, double published) {
        expiring(Expiry::fixed, rewrite,
                 fmt::format("fixed {} s, rewrite {}", ttl_s,
                             rewrite == Rewrite::miss ? "miss" : "never"),
                 ttl_s, published);
    }
    void lru(std::int64_t blocks, double published) {
        CachePolicy policy;
        policy.eviction = Eviction::lru;
        policy.capacity_bytes = blocks * kMooncakeBlockBytes;
        add(fmt::format("LRU, {} blocks", blocks), policy, published);
    }
    std::vector<TraceFigure> take() { return std::move(figures_); }

  private:
    void expiring(Expiry expiry, Rewrite rewrite, std::string setting, std::int64_t ttl_s,
                  double published) {
        CachePolicy policy;
        policy.expiry = expiry;
        policy.rewrite = rewrite;
        policy.ttl_us = ttl_s * kSecondUs;
        add(std::move(setting), policy, published);
    }
    void add(std::string setting, const CachePolicy& policy, double published) {
        figures_.push_back({trace_, std::move(setting), policy, published});
    }
    std::string trace_;
    std::vector<TraceFigure> figures_;
};

}  // namespace

std::vector<TraceFigure> trace_figures() {
    FigureList list;
    list.begin("mooncake_conversation");
    list.unlimited(0.374);
    list.refresh(60, 0.105);
    list.refresh(180, 0.241);
    list.refresh(300, 0.293);
    list.refresh(600, 0.350);
    list.refresh(1800, 0.371);
    list.fixed(60, Rewrite::miss, 0.095);
    list.fixed(180, Rewrite::miss, 0.203);
    list.fixed(600, Rewrite::miss, 0.310);
    list.lru(10'000, 0.216);
    list.lru(30'000, 0.332);
    list.lru(50'000, 0.362);
    list.lru(100'000, 0.371);
    list.begin("mooncake_synthetic");
    list.unlimited(0.651);
    list.refresh(60, 0.328);
    list.refresh(180, 0.515);
    list.refresh(600, 0.646);
    list.begin("agentic_coding_kvct");
    list.unlimited(0.9626);
    list.refresh(60, 0.788);
    list.refresh(180, 0.894);
    list.refresh(300, 0.916);
    list.refresh(3600, 0.959);
    list.fixed(kHourS, Rewrite::never, 0.492);
    list.fixed(5 * kHourS, Rewrite::never, 0.785);
    list.fixed(kDayS, Rewrite::never, 0.936);
    list.fixed(3 * kDayS, Rewrite::never, 0.9625);
    list.page(128, 0.9623);
    list.page(256, 0.9618);
    list.page(512, 0.9608);
    return list.take();
}

std::string find_trace(const std::string& folder, const std::string& name) {
    for (const char* ending : {".jsonl.zst", ".jsonl"}) {
        std::string path = fmt::format("{}/{}{}", folder, name, ending);
        std::error_code failed;
        if (std::filesystem::is_regular_file(path, failed)) return path;
    }
    return {};
}

Result<std::vector<TraceFigureRow>> run_trace_figures(const std::string& folder,
                                                      const std::vector<TraceFigure>& figures,
                                                      const ReplayOptions& options) {
    std::vector<TraceFigureRow> rows;
    for (auto begin = figures.begin(); begin != figures.end();) {
        const auto end = std::find_if(begin, figures.end(), [&](const TraceFigure& figure) {
            return figure.trace != begin->trace;
        });
        if (const std::string path = find_trace(folder, begin->trace); !path.empty()) {
            std::vector<CachePolicy> policies;
            for (auto figure = begin; figure != end; ++figure)
                policies.push_back(figure->policy);
            FATHOM_ASSIGN(const ReplayResult result, replay_trace(path, policies, options));
            for (std::size_t i = 0; i < policies.size(); ++i)
                rows.push_back(
                    {begin[static_cast<std::ptrdiff_t>(i)], result.rows[i].counts.hit_share()});
        }
        begin = end;
    }
    if (rows.empty())
        return error(StatusCode::not_found, "{}: none of the traces that the figures are of",
                     folder);
    return rows;
}

}  // namespace fathom
