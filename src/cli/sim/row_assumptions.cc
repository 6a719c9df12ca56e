#include "cli/sim/row_assumptions.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <tuple>

#include "cli/sim/figures.h"

namespace fathom {
namespace {

constexpr std::size_t kValuesShown = 8, kRowsShown = 4;

std::string rows_text(const std::vector<std::size_t>& rows, std::span<const std::string> names) {
    std::vector<std::string> shown;
    for (std::size_t i = 0; i < std::min(rows.size(), kRowsShown); ++i)
        shown.push_back(names[rows[i]]);
    std::string text = fmt::format("{}", fmt::join(shown, "; "));
    if (rows.size() > kRowsShown) text += fmt::format("; {} more", rows.size() - kRowsShown);
    return text;
}

}  // namespace

std::vector<RowAssumption> row_assumptions(std::span<const FleetConfig> rows) {
    using Said = std::tuple<std::string, std::string, bool>;  // value, source, measured
    struct Thing {
        std::vector<RowAssumption> variants;
        std::map<Said, std::size_t> places;
    };
    std::vector<Thing> things;
    std::map<std::string, std::size_t> places;
    for (std::size_t r = 0; r < rows.size(); ++r) {
        for (const Assumption& one : fleet_assumptions(rows[r])) {
            const std::size_t at = places.try_emplace(one.what, things.size()).first->second;
            if (at == things.size()) things.emplace_back();
            Thing& thing = things[at];
            const auto [place, is_new] = thing.places.try_emplace(
                Said(one.value, one.source, one.is_measured), thing.variants.size());
            if (is_new) thing.variants.push_back({one, {}});
            thing.variants[place->second].rows.push_back(r);
        }
    }
    std::vector<RowAssumption> all;
    for (Thing& thing : things)
        std::move(thing.variants.begin(), thing.variants.end(), std::back_inserter(all));
    return all;
}

std::string row_assumptions_text(std::span<const FleetConfig> rows,
                                 std::span<const std::string> names) {
    std::string text;
    std::size_t same = 0;  // of the thing of the line before
    const std::vector<RowAssumption> all = row_assumptions(rows);
    for (std::size_t i = 0; i < all.size(); ++i) {
        const Assumption& one = all[i].assumption;
        same = i > 0 && all[i - 1].assumption.what == one.what ? same + 1 : 0;
        const bool is_last = i + 1 == all.size() || all[i + 1].assumption.what != one.what;
        if (same < kValuesShown) {
            text += fmt::format("{:<9} {}: {} ({})", one.is_measured ? "measured" : "assumed",
                                one.what, one.value, one.source);
            if (all[i].rows.size() < rows.size())
                text += fmt::format(", only of {}", rows_text(all[i].rows, names));
            text += "\n";
        } else if (is_last) {
            text += fmt::format("          {}: {} more values; --json has them all\n", one.what,
                                same + 1 - kValuesShown);
        }
    }
    return text;
}

Json row_assumptions_json(std::span<const FleetConfig> rows) {
    Json list = Json::array();
    for (const RowAssumption& one : row_assumptions(rows)) {
        Json json = assumption_json(one.assumption);
        if (one.rows.size() < rows.size()) {
            Json places = Json::array();
            for (const std::size_t row : one.rows)
                places.push_back(static_cast<std::int64_t>(row));
            json.set("rows", std::move(places));
        }
        list.push_back(std::move(json));
    }
    return list;
}

}  // namespace fathom
