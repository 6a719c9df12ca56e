#include "policy/verify_case.h"

#include <algorithm>
#include <cmath>
#include <string_view>

namespace fathom {
namespace {

Result<const Json::Array*> array_of(const Json& object, std::string_view key,
                                    std::size_t size_max) {
    const Json* value = object.find(key);
    if (value == nullptr || !value->is_array())
        return invalid_argument("{}: expected an array", key);
    if (value->items().size() > size_max)
        return invalid_argument("{}: {} elements, at most {}", key, value->items().size(),
                                size_max);
    return &value->items();
}

Result<bool> flag_of(const Json& object, std::string_view key) {
    const Json* value = object.find(key);
    if (value == nullptr || !value->is_bool()) return invalid_argument("{}: expected a flag", key);
    return value->as_bool();
}

// Rows of exactly `columns` numbers, the first `integers` of them whole.
Status expect_row(const Json& row, std::string_view key, std::size_t columns,
                  std::size_t integers) {
    bool good = row.is_array() && row.items().size() == columns;
    for (std::size_t i = 0; good && i < columns; ++i) {
        const Json& cell = row.items()[i];
        good = cell.is_number() && (i >= integers || cell.kind() == Json::Kind::integer);
    }
    if (good) return {};
    return invalid_argument("{}: expected rows of {} numbers, the first {} whole", key, columns,
                            integers);
}

Result<std::vector<float>> rates_of(const Json& sequence, std::string_view key,
                                    std::int64_t drafts) {
    FATHOM_ASSIGN(const Json::Array* items,
                  array_of(sequence, key, static_cast<std::size_t>(drafts)));
    if (!items->empty() && static_cast<std::int64_t>(items->size()) != drafts)
        return invalid_argument("{}: {} rates, expected {} or none", key, items->size(), drafts);
    std::vector<float> rates;
    for (const Json& item : *items) {
        if (!item.is_number() || !(item.as_double() >= 0 && item.as_double() <= 1))
            return invalid_argument("{}: expected numbers from 0 to 1", key);
        rates.push_back(static_cast<float>(item.as_double()));
    }
    return rates;
}

Result<VerifySequence> sequence_of(const Json& json, std::int64_t drafts) {
    VerifySequence sequence;
    FATHOM_ASSIGN(sequence.paired, flag_of(json, "paired"));
    FATHOM_ASSIGN(sequence.drafted, flag_of(json, "drafted"));
    FATHOM_ASSIGN(sequence.rates, rates_of(json, "rates", drafts));
    FATHOM_ASSIGN(sequence.prev, rates_of(json, "prev", drafts));
    return sequence;
}

void append_row(std::vector<float>& out, const std::vector<float>& rates, bool drafted,
                std::int64_t drafts) {
    if (rates.empty()) {
        out.insert(out.end(), static_cast<std::size_t>(drafts), drafted ? 1.0f : 0.0f);
    } else {
        out.insert(out.end(), rates.begin(), rates.end());
    }
}

}  // namespace

Result<VerifyCase> read_verify_case(const Json& json) {
    VerifyCase result;
    FATHOM_ASSIGN(result.id, json_string(json, "id", ""));
    FATHOM_ASSIGN(result.drafts, json_int(json, "drafts", ""));
    if (result.drafts < 0 || result.drafts > kDraftsMax)
        return invalid_argument("drafts: {}, expected 0 to {}", result.drafts, kDraftsMax);
    FATHOM_ASSIGN(const Json::Array* curve,
                  array_of(json, "curve", static_cast<std::size_t>(kVerifyRowsMax)));
    std::vector<CurvePoint> points;
    for (const Json& row : *curve) {
        FATHOM_RETURN_IF_ERROR(expect_row(row, "curve", 2, 1));
        points.push_back({row.items()[0].as_int64(), row.items()[1].as_double()});
    }
    FATHOM_ASSIGN(result.curve, VerifyCurve::make(points, CurveRules::deployed()));
    FATHOM_ASSIGN(const Json::Array* updates, array_of(json, "updates", std::size_t{1} << 20));
    for (const Json& row : *updates) {
        FATHOM_RETURN_IF_ERROR(expect_row(row, "updates", 4, 2));
        const Json::Array& cells = row.items();
        result.updates.push_back(
            {cells[0].as_int64(), cells[1].as_int64(), cells[2].as_double(), cells[3].as_double()});
    }
    FATHOM_ASSIGN(const Json::Array* sequences,
                  array_of(json, "sequences", static_cast<std::size_t>(kCaseSequencesMax)));
    for (const Json& item : *sequences) {
        FATHOM_ASSIGN(VerifySequence sequence, sequence_of(item, result.drafts));
        result.sequences.push_back(std::move(sequence));
    }
    FATHOM_ASSIGN(const Json::Array* lengths,
                  array_of(json, "lengths", static_cast<std::size_t>(kCaseSequencesMax)));
    for (const Json& item : *lengths) {
        if (item.kind() != Json::Kind::integer || item.as_int64() < 1 ||
            item.as_int64() > 1 + result.drafts)
            return invalid_argument("lengths: expected numbers from 1 to {}", 1 + result.drafts);
        result.lengths.push_back(static_cast<std::int32_t>(item.as_int64()));
    }
    return result;
}

std::vector<std::int32_t> deployed_lengths(const VerifyCase& verify_case) {
    VerifyCost cost(verify_case.curve);
    for (const VerifyUpdate& update : verify_case.updates)
        cost.observe(update.requests, update.run, update.forward_ms, update.sampler_ms);
    std::vector<float> stale, newest;
    for (const VerifySequence& sequence : verify_case.sequences) {
        append_row(stale, sequence.paired ? sequence.prev : sequence.rates, sequence.drafted,
                   verify_case.drafts);
        append_row(newest, sequence.rates, sequence.drafted, verify_case.drafts);
    }
    VerifyBatch batch{.requests = static_cast<std::int64_t>(verify_case.sequences.size()),
                      .drafts = verify_case.drafts,
                      .survivals = stale};
    BudgetSolver solver;
    const BudgetChoice choice = solver.choose(batch, cost);
    batch.survivals = newest;
    std::vector<std::int32_t> lengths(verify_case.sequences.size());
    solver.allocate(batch, choice.drafts, lengths);
    return lengths;
}

}  // namespace fathom
