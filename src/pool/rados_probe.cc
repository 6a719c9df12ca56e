#include "pool/rados_probe.h"

#include <fmt/core.h>

#include "base/json.h"

namespace fathom {

namespace {

constexpr std::int64_t kIdleUs = 1'000'000;
constexpr std::int64_t kNoDevice = 2'147'483'647;  // CRUSH_ITEM_NONE: no device has this shard

std::string quoted(const std::string& text) {
    std::string out = "\"";
    append_json_escaped(out, text);
    return out + "\"";
}

}  // namespace

std::string stopped_placement_group(std::string_view osd_map_json, std::int64_t min_size) {
    const Result<Json> map = parse_json(osd_map_json);
    const Json* acting = map.ok() ? map->find("acting") : nullptr;
    const Json* group = map.ok() ? map->find("pgid") : nullptr;
    if (acting == nullptr || acting->kind() != Json::Kind::array) return {};
    std::int64_t devices = 0;
    for (const Json& device : acting->items())
        if (device.kind() == Json::Kind::integer && device.as_int64() != kNoDevice) ++devices;
    if (devices >= min_size) return {};
    return fmt::format(
        "placement group {} has {} of the {} devices that it needs (min_size), so the cluster does "
        "no I/O there; bring OSDs back, or lower the pool's min_size for a while",
        group != nullptr && group->kind() == Json::Kind::string ? group->as_string() : "?", devices,
        min_size);
}

RadosProbe::RadosProbe(const RadosCluster& cluster, RadosClusterOptions options, RadosPost post,
                       std::function<void(RadosFinding finding)> found)
    : cluster_(cluster),
      options_(std::move(options)),
      post_(std::move(post)),
      found_(std::move(found)),
      thread_([this] { run(); }) {}

RadosProbe::~RadosProbe() {
    questions_.close();
    thread_.join();
}

void RadosProbe::ask(RadosPool pool, std::string object) {
    questions_.try_push({pool, std::move(object)});
}

void RadosProbe::run() {
    while (!questions_.closed()) {
        const std::optional<Question> question = questions_.pop(kIdleUs);
        if (!question || questions_.closed()) continue;
        post_([this, finding = look(*question)] { found_(finding); });
    }
}

RadosFinding RadosProbe::look(const Question& question) const {
    const std::string& pool =
        question.pool == RadosPool::blocks ? options_.pool : options_.index_pool;
    const Result<std::string> map = cluster_.ask_monitor(
        fmt::format(R"({{"prefix":"osd map","pool":{},"object":{},"nspace":{},"format":"json"}})",
                    quoted(pool), quoted(question.object), quoted(options_.rados_namespace)));
    if (!map.ok()) return {.monitor = map.status(), .stopped = {}};
    const Result<std::int64_t> least = min_size(pool);
    if (!least.ok()) return {.monitor = least.status(), .stopped = {}};
    return {.monitor = {}, .stopped = stopped_placement_group(*map, *least)};
}

Result<std::int64_t> RadosProbe::min_size(const std::string& pool) const {
    FATHOM_ASSIGN(const std::string text,
                  cluster_.ask_monitor(fmt::format(
                      R"({{"prefix":"osd pool get","pool":{},"var":"min_size","format":"json"}})",
                      quoted(pool))));
    FATHOM_ASSIGN(const Json json, parse_json(text));
    return json_int(json, "min_size", "osd pool get");
}

}  // namespace fathom
