#include "cli/bench/report.h"

#include <fmt/format.h>

#include <utility>

#include "base/json.h"

namespace fathom {
namespace {

// A number under the name that files give it.
struct Field {
    std::string name;
    Json value;
};

void add_distribution(const char* name, const Distribution& d, std::vector<Field>& fields) {
    for (const auto& [part, value] :
         {std::pair{"mean", d.mean}, std::pair{"median", d.median}, std::pair{"std", d.stddev},
          std::pair{"p90", d.p90}, std::pair{"p95", d.p95}, std::pair{"p99", d.p99}})
        fields.push_back({fmt::format("{}_{}_ms", part, name), value});
}

void add_summary(const LoadSummary& summary, std::vector<Field>& fields) {
    fields.push_back({"duration", summary.duration_s});
    fields.push_back({"completed", summary.completed});
    fields.push_back({"failed", summary.failed});
    fields.push_back({"total_input_tokens", summary.input_tokens});
    fields.push_back({"total_cached_tokens", summary.cached_tokens});
    fields.push_back({"total_output_tokens", summary.output_tokens});
    fields.push_back({"request_throughput", summary.request_throughput});
    fields.push_back({"request_goodput", summary.goodput ? Json(*summary.goodput) : Json()});
    fields.push_back({"output_throughput", summary.output_throughput});
    fields.push_back({"total_token_throughput", summary.total_throughput});
    add_distribution("ttft", summary.ttft_ms, fields);
    add_distribution("tpot", summary.tpot_ms, fields);
    add_distribution("itl", summary.itl_ms, fields);
    add_distribution("e2el", summary.e2el_ms, fields);
}

std::vector<Field> fields_of(const BenchReport& report, const BenchPoint& point) {
    std::vector<Field> fields = {
        {"date", report.date},
        {"backend", report.machine ? "engine" : "openai"},
        {"model_id", report.model_id},
        {"dataset", report.dataset},
        {"num_prompts", point.num_prompts},
        {"request_rate", point.request_rate > 0 ? Json(point.request_rate) : Json("inf")},
        {"burstiness", point.burstiness},
        {"max_concurrency", point.concurrency},
        {"input_len", point.input_len},
        {"output_len", point.output_len}};
    add_summary(point.summary, fields);
    const std::optional<double> share = decode_bandwidth_share(report, point);
    fields.push_back({"decode_bandwidth_share", share ? Json(*share) : Json()});
    return fields;
}

Json object_of(std::vector<Field> fields) {
    Json::Object object;
    for (Field& field : fields)
        object.emplace_back(std::move(field.name), std::move(field.value));
    return Json::object(std::move(object));
}

Json errors_json(const LoadSummary& summary) {
    Json errors = Json::object();
    for (const auto& [kind, count] : summary.errors)
        errors.set(kind, count);
    return errors;
}

Json summary_json(const LoadSummary& summary) {
    std::vector<Field> fields;
    add_summary(summary, fields);
    Json object = object_of(std::move(fields));
    object.set("errors", errors_json(summary));
    return object;
}

Json machine_json(const BenchMachine& machine) {
    return Json::object({{"cpu", machine.cpu},
                         {"isa", machine.isa},
                         {"threads", machine.threads},
                         {"read_bytes_per_s", machine.read_bytes_per_s},
                         {"peak_flops", machine.peak_flops},
                         {"peak_name", machine.peak_name},
                         {"active_weight_bytes", machine.active_weight_bytes}});
}

// RFC 4180.
std::string csv_cell(const Json& value) {
    if (value.is_null()) return {};
    if (!value.is_string()) return value.dump();
    const std::string& text = value.as_string();
    if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
    std::string quoted = "\"";
    for (const char c : text) {
        if (c == '"') quoted += '"';
        quoted += c;
    }
    return quoted + "\"";
}

std::string length_text(std::int64_t length) {
    return length > 0 ? fmt::format("{}", length) : "data";
}

std::string mixed_table(const MixedResult& mixed) {
    const auto row = [](const char* what, const LoadSummary& s) {
        return fmt::format("  {:<22} {:>6} {:>9.1f} {:>9.1f} {:>9.1f} {:>9.2f} {:>9.2f}\n", what,
                           s.completed, s.ttft_ms.mean, s.ttft_ms.median, s.ttft_ms.p99,
                           s.tpot_ms.median, s.tpot_ms.p99);
    };
    std::string text = fmt::format(
        "\nshort requests alone, and beside a prompt of {} tokens in progress (times in ms)\n"
        "  {:<22} {:>6} {:>9} {:>9} {:>9} {:>9} {:>9}\n",
        mixed.long_prompt_tokens, "", "done", "TTFT mean", "p50", "p99", "TPOT p50", "p99");
    text += row("alone", mixed.alone);
    text += row("beside the long one", mixed.beside);
    text += fmt::format("  p99 TTFT ratio: {:.2f}   (long prompts ended meanwhile: {})\n",
                        mixed.ttft_p99_ratio(), mixed.long_prompts_ended);
    return text;
}

std::string errors_text(const LoadSummary& summary) {
    std::string text;
    for (const auto& [kind, count] : summary.errors)
        text += fmt::format("  {} failed: {}\n", count, kind);
    if (!summary.first_detail.empty())
        text += fmt::format("  the first: {}\n", summary.first_detail);
    return text;
}

}  // namespace

std::optional<double> decode_bandwidth_share(const BenchReport& report, const BenchPoint& point) {
    if (!report.machine || point.concurrency != 1 || point.summary.tpot_ms.median <= 0)
        return std::nullopt;
    const BenchMachine& machine = *report.machine;
    if (machine.active_weight_bytes == 0 || machine.read_bytes_per_s <= 0) return std::nullopt;
    return static_cast<double>(machine.active_weight_bytes) / (point.summary.tpot_ms.median / 1e3) /
           machine.read_bytes_per_s;
}

std::string report_table(const BenchReport& report) {
    std::string text = fmt::format("{}   {}   {}\n", report.model_id, report.target, report.date);
    if (report.machine) {
        const BenchMachine& m = *report.machine;
        text += fmt::format(
            "{}, {}, {} threads: reads {:.1f} GB/s, {} peak {:.0f} GFLOP/s, a token alone reads "
            "{:.2f} GB of weights\n",
            m.cpu, m.isa, m.threads, m.read_bytes_per_s / 1e9, m.peak_name, m.peak_flops / 1e9,
            static_cast<double>(m.active_weight_bytes) / 1e9);
    }
    if (!report.points.empty())
        text += fmt::format(
            "{:>5} {:>7} {:>6} {:>6} {:>8} {:>9} {:>9} | {:>9} {:>9} {:>9} | {:>8} {:>8} {:>8} | "
            "{:>8} | {:>9} | {:>7} {:>5}\n",
            "conc", "in", "out", "done", "req/s", "out tok/s", "tok/s", "TTFT mean", "p50", "p99",
            "TPOT", "p50", "p99", "ITL p99", "E2E p50", "goodput", "read");
    for (const BenchPoint& point : report.points) {
        const LoadSummary& s = point.summary;
        const std::optional<double> share = decode_bandwidth_share(report, point);
        text += fmt::format(
            "{:>5} {:>7} {:>6} {:>6} {:>8.3f} {:>9.2f} {:>9.2f} | {:>9.1f} {:>9.1f} {:>9.1f} | "
            "{:>8.2f} {:>8.2f} {:>8.2f} | {:>8.2f} | {:>9.1f} | {:>7} {:>5}\n",
            point.concurrency, length_text(point.input_len), length_text(point.output_len),
            s.completed, s.request_throughput, s.output_throughput, s.total_throughput,
            s.ttft_ms.mean, s.ttft_ms.median, s.ttft_ms.p99, s.tpot_ms.mean, s.tpot_ms.median,
            s.tpot_ms.p99, s.itl_ms.p99, s.e2el_ms.median,
            s.goodput ? fmt::format("{:.3f}", *s.goodput) : "-",
            share ? fmt::format("{:.2f}", *share) : "-");
        text += errors_text(s);
    }
    if (report.mixed) {
        text += mixed_table(*report.mixed);
        text += errors_text(report.mixed->alone) + errors_text(report.mixed->beside);
    }
    return text;
}

std::string report_csv(const BenchReport& report) {
    std::string text;
    for (const BenchPoint& point : report.points) {
        const std::vector<Field> fields = fields_of(report, point);
        std::string names, values;
        for (const Field& field : fields) {
            names += (names.empty() ? "" : ",") + field.name;
            values += (&field == &fields.front() ? "" : ",") + csv_cell(field.value);
        }
        if (text.empty()) text = names + "\n";
        text += values + "\n";
    }
    return text;
}

std::string report_json(const BenchReport& report) {
    Json results = Json::array();
    for (const BenchPoint& point : report.points) {
        Json result = object_of(fields_of(report, point));
        result.set("errors", errors_json(point.summary));
        results.push_back(std::move(result));
    }
    Json root = Json::object({{"tool", "fathom bench"},
                              {"date", report.date},
                              {"model_id", report.model_id},
                              {"target", report.target},
                              {"machine", report.machine ? machine_json(*report.machine) : Json()},
                              {"results", std::move(results)}});
    if (report.mixed)
        root.set("mixed", Json::object({{"long_prompt_tokens", report.mixed->long_prompt_tokens},
                                        {"long_prompts_ended", report.mixed->long_prompts_ended},
                                        {"ttft_p99_ratio", report.mixed->ttft_p99_ratio()},
                                        {"alone", summary_json(report.mixed->alone)},
                                        {"beside", summary_json(report.mixed->beside)}}));
    return root.dump() + "\n";
}

}  // namespace fathom
