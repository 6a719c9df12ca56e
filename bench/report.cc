#include "bench/report.h"

#include <fmt/core.h>

#include <utility>

#include "base/json.h"

namespace fathom::bench {

void Report::add(std::string what, double value, std::string unit, std::optional<double> limit) {
    rows_.push_back({std::move(what), value, std::move(unit), limit});
}

std::string Report::json() const {
    std::string text;
    JsonWriter out(text);
    out.begin_object();
    out.key("bench").value(bench_);
    out.key("cpu").value(cpu_name());
    out.key("isa").value(isa_name());
    out.key("rows").begin_array();
    for (const Row& row : rows_) {
        const bool limited = row.limit.has_value() && *row.limit != 0;
        out.begin_object();
        out.key("what").value(row.what);
        out.key("value").value(row.value);
        out.key("unit").value(row.unit);
        out.key("limit");
        row.limit.has_value() ? out.value(*row.limit) : out.null();
        out.key("ratio");
        limited ? out.value(row.value / *row.limit) : out.null();
        out.end_object();
    }
    out.end_array();
    out.end_object();
    return text;
}

std::string Report::table() const {
    std::string text = fmt::format("{} on {} ({})\n", bench_, cpu_name(), isa_name());
    for (const Row& row : rows_) {
        text += fmt::format("{:<72} {:>12.4g} {:<8}", row.what, row.value, row.unit);
        if (row.limit.has_value() && *row.limit != 0) {
            text += fmt::format("  {:>5.1f} % of {:.4g}", 100 * row.value / *row.limit, *row.limit);
        }
        text += '\n';
    }
    return text;
}

}  // namespace fathom::bench
