#include "policy/prefill_cost_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "policy/measured_on.h"

namespace fathom {

namespace {

constexpr const char* kFormat = "fathom-prefill-cost-1";
// Prompts go through a table in slices of its last column: not a million of them.
constexpr std::int64_t kLastColumnMin = 128;

constexpr std::array<std::string_view, 10> kFileFields = {
    "format", "model",      "kernels",   "ranks",   "card",
    "method", "mean_error", "p99_error", "samples", "classes"};
constexpr std::array<std::string_view, 8> kClassFields = {"k0_us", "k1_us", "k2_us",   "k3_us",
                                                          "k4_us", "k5_us", "sync_us", "table"};
constexpr std::array<std::string_view, 3> kTableFields = {"contexts", "tokens", "us"};

struct Field {
    const char* name;
    double PrefillCost::*value;
};
constexpr std::array<Field, 7> kFields = {{{"k0_us", &PrefillCost::k0_us},
                                           {"k1_us", &PrefillCost::k1_us},
                                           {"k2_us", &PrefillCost::k2_us},
                                           {"k3_us", &PrefillCost::k3_us},
                                           {"k4_us", &PrefillCost::k4_us},
                                           {"k5_us", &PrefillCost::k5_us},
                                           {"sync_us", &PrefillCost::sync_us}}};

Json numbers(const auto& values) {
    Json array = Json::array();
    for (const auto value : values)
        array.push_back(value);
    return array;
}

Json table_json(const PrefillTable& table) {
    Json json = Json::object();
    json.set("contexts", numbers(table.contexts()));
    json.set("tokens", numbers(table.tokens()));
    json.set("us", numbers(table.times_us()));
    return json;
}

Result<std::vector<std::int64_t>> read_axis(const Json& table, const char* name) {
    const Json* axis = table.find(name);
    if (axis == nullptr || !axis->is_array())
        return invalid_argument("table.{}: missing, expected an array", name);
    std::vector<std::int64_t> values;
    for (const Json& value : axis->items()) {
        if (value.kind() != Json::Kind::integer)
            return invalid_argument("table.{}: {}, expected integers", name, value.dump());
        values.push_back(value.as_int64());
    }
    return values;
}

Status check_method(const Json& file) {
    FATHOM_ASSIGN(const std::string method, json_string(file, "method", ""));
    std::vector<std::string_view> names;
    for (const PrefillFitMethod one :
         {PrefillFitMethod::pooled, PrefillFitMethod::by_class, PrefillFitMethod::table})
        names.push_back(prefill_fit_method_name(one));
    if (std::find(names.begin(), names.end(), method) != names.end()) return {};
    return invalid_argument("method: \"{}\", expected one of {}", method, fmt::join(names, ", "));
}

Result<PrefillTable> read_table(const Json& table) {
    FATHOM_ASSIGN(std::vector<std::int64_t> contexts, read_axis(table, "contexts"));
    FATHOM_ASSIGN(std::vector<std::int64_t> tokens, read_axis(table, "tokens"));
    const Json* times = table.find("us");
    if (times == nullptr || !times->is_array())
        return invalid_argument("table.us: missing, expected an array");
    if (tokens.empty() || tokens.back() < kLastColumnMin)
        return invalid_argument("table.tokens: up to {}, expected up to at least {}",
                                tokens.empty() ? 0 : tokens.back(), kLastColumnMin);
    std::vector<double> values;
    for (const Json& value : times->items()) {
        if (!value.is_number() || !(value.as_double() <= kPrefillCostUsMax))
            return invalid_argument("table.us: {}, expected numbers of at most {:g}", value.dump(),
                                    kPrefillCostUsMax);
        values.push_back(value.as_double());
    }
    const Status known = check_members(table, kTableFields);
    if (!known.ok()) return known.with_context("table");
    return PrefillTable::make(std::move(contexts), std::move(tokens), std::move(values));
}

Result<PrefillCost> read_class(const Json& json) {
    if (!json.is_object()) return invalid_argument("{}, expected an object", json.dump());
    PrefillCost cost;
    for (const Field& field : kFields) {
        const Json* value = json.find(field.name);
        const double us = value != nullptr && value->is_number() ? value->as_double() : -1;
        if (!(us >= 0 && us <= kPrefillCostUsMax))
            return invalid_argument("{}: {}, expected a number from 0 to {:g}", field.name,
                                    value == nullptr ? "missing" : value->dump(),
                                    kPrefillCostUsMax);
        cost.*field.value = us;
    }
    if (const Json* table = json.find("table")) {
        FATHOM_ASSIGN(PrefillTable read, read_table(*table));
        cost.table = std::make_shared<const PrefillTable>(std::move(read));
    }
    FATHOM_RETURN_IF_ERROR(check_members(json, kClassFields));
    return cost;
}

}  // namespace

std::string prefill_cost_file_text(const PrefillCostIdentity& identity,
                                   const PrefillCalibration& calibration) {
    Json file = Json::object();
    file.set("format", kFormat);
    file.set("model", identity.model);
    file.set("kernels", identity.kernels);
    file.set("ranks", identity.ranks);
    file.set("card", identity.card);
    file.set("method", prefill_fit_method_name(calibration.method));
    file.set("mean_error", calibration.gates.mean_error);
    file.set("p99_error", calibration.gates.p99_error);
    file.set("samples", static_cast<std::int64_t>(calibration.gates.used));
    Json classes = Json::array();
    for (const PrefillCost& cost : calibration.costs) {
        Json json = Json::object();
        for (const Field& field : kFields)
            json.set(field.name, cost.*field.value);
        if (cost.table) json.set("table", table_json(*cost.table));
        classes.push_back(std::move(json));
    }
    file.set("classes", std::move(classes));
    return file.dump() + "\n";
}

Result<PrefillCosts> read_prefill_cost_file(const Json& file, const PrefillCostIdentity& expected) {
    FATHOM_RETURN_IF_ERROR(check_cost_format(file, kFormat));
    FATHOM_RETURN_IF_ERROR(check_measured_on(file, "model", expected.model));
    FATHOM_RETURN_IF_ERROR(check_measured_on(file, "kernels", expected.kernels));
    FATHOM_RETURN_IF_ERROR(check_measured_on(file, "ranks", expected.ranks));
    FATHOM_RETURN_IF_ERROR(check_measured_on(file, "card", expected.card));
    const Json* classes = file.find("classes");
    if (classes == nullptr || !classes->is_array() || classes->items().size() != kPrefillClasses)
        return invalid_argument("classes: expected an array of {} objects", kPrefillClasses);
    PrefillCosts costs;
    for (std::size_t k = 0; k < kPrefillClasses; ++k) {
        auto cost = read_class(classes->items()[k]);
        if (!cost.ok()) return cost.status().with_context(fmt::format("classes[{}]", k));
        costs[k] = *std::move(cost);
        if (costs[k].table && costs[0].table && *costs[k].table == *costs[0].table)
            costs[k].table = costs[0].table;
    }
    FATHOM_RETURN_IF_ERROR(check_method(file));
    FATHOM_RETURN_IF_ERROR(check_fit_quality(file));
    FATHOM_RETURN_IF_ERROR(check_members(file, kFileFields));
    return costs;
}

}  // namespace fathom
