#include "sim/replay/window_model.h"

#include <algorithm>

#include "base/random.h"

namespace fathom {

void WindowModel::begin_scope() {
    random_.clear();
    affinity_.clear();
}

bool WindowModel::is_live(Windows::const_iterator window, std::int64_t time_us) const {
    return time_us - window->second <= options_.ttl_us;
}

bool WindowModel::find(Windows& windows, Key key, std::int64_t time_us) {
    const auto window = windows.find(key);
    return window != windows.end() && is_live(window, time_us);
}

std::int64_t WindowModel::node_with(const Windows& windows, ReplayPage boundary,
                                    std::int64_t time_us, std::int64_t otherwise) const {
    for (auto window = windows.lower_bound({boundary, 0});
         window != windows.end() && window->first.first == boundary; ++window)
        if (is_live(window, time_us)) return window->first.second;
    return otherwise;
}

void WindowModel::replay(const Request& request) {
    if (options_.nodes == 0) return;
    const double draw = random_uniform(
        {.seed = options_.seed, .purpose = RandomPurpose::test_data, .index = requests_++});
    const auto drawn = std::min(
        static_cast<std::int64_t>(draw * static_cast<double>(options_.nodes)), options_.nodes - 1);
    const std::size_t whole = std::min(request.pages.size(), request.whole_pages);
    const std::size_t hit = std::min(request.hit_pages, whole);
    std::int64_t near = drawn;
    if (hit > 0) {
        const ReplayPage boundary = request.pages[hit - 1];
        near = node_with(affinity_, boundary, request.time_us, drawn);
        ++counts_.wanted;
        counts_.hits_random += find(random_, {boundary, drawn}, request.time_us) ? 1 : 0;
        counts_.hits_affinity += find(affinity_, {boundary, near}, request.time_us) ? 1 : 0;
        random_[{boundary, drawn}] = request.time_us;
        affinity_[{boundary, near}] = request.time_us;
    }
    if (whole == 0) return;
    random_[{request.pages[whole - 1], drawn}] = request.time_us;
    affinity_[{request.pages[whole - 1], near}] = request.time_us;
}

}  // namespace fathom
