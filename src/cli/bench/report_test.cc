#include "cli/bench/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/json.h"

namespace fathom {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

BenchReport two_points() {
    BenchReport report;
    report.date = "2026-01-01 00:00:00 UTC";
    report.model_id = "a<b>,\"c\"";
    report.target = "dir";
    report.dataset = "random";
    report.machine = BenchMachine{.cpu = "cpu",
                                  .isa = "avx2",
                                  .threads = 2,
                                  .read_bytes_per_s = 10e9,
                                  .peak_flops = 100e9,
                                  .peak_name = "fp32",
                                  .active_weight_bytes = 1'000'000'000};
    for (const std::int64_t concurrency : {1, 8}) {
        BenchPoint point;
        point.concurrency = concurrency;
        point.num_prompts = 3;
        point.input_len = 128;
        point.output_len = 16;
        point.summary.completed = 3;
        point.summary.output_throughput = 5.0 * static_cast<double>(concurrency);
        point.summary.ttft_ms = {
            .mean = 100, .median = 90, .stddev = 1, .p90 = 1, .p95 = 1, .p99 = 120};
        point.summary.tpot_ms = {
            .mean = 200, .median = 200, .stddev = 1, .p90 = 1, .p95 = 1, .p99 = 220};
        point.summary.e2el_ms.mean = 500;
        report.points.push_back(point);
    }
    return report;
}

TEST(BenchReport, JsonHasTheFieldsOfTheUsualBenchmark) {
    BenchReport report = two_points();
    report.points[0].summary.failed = 1;
    report.points[0].summary.errors["http 429"] = 1;
    const auto json = parse_json(report_json(report));
    ASSERT_TRUE(json.ok()) << json.status().message();
    const Json& result = json->find("results")->items()[0];
    for (const char* name : {"date",
                             "backend",
                             "model_id",
                             "num_prompts",
                             "request_rate",
                             "burstiness",
                             "max_concurrency",
                             "duration",
                             "completed",
                             "failed",
                             "total_input_tokens",
                             "total_output_tokens",
                             "request_throughput",
                             "request_goodput",
                             "output_throughput",
                             "total_token_throughput",
                             "mean_ttft_ms",
                             "median_ttft_ms",
                             "std_ttft_ms",
                             "p99_ttft_ms",
                             "mean_tpot_ms",
                             "p99_tpot_ms",
                             "mean_itl_ms",
                             "p99_itl_ms",
                             "mean_e2el_ms",
                             "p99_e2el_ms"})
        EXPECT_NE(result.find(name), nullptr) << name;
    EXPECT_EQ(*result.find("request_rate"), Json("inf"));
    EXPECT_EQ(result.find("errors")->find("http 429")->as_int64(), 1);
    EXPECT_DOUBLE_EQ(json->find("machine")->find("read_bytes_per_s")->as_double(), 10e9);
    EXPECT_EQ(json->find("mixed"), nullptr);
}

TEST(BenchReport, CsvHasOneLineAPointAndQuotesWhatMustBe) {
    const std::string csv = report_csv(two_points());
    EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 3);
    EXPECT_THAT(csv, HasSubstr(",\"a<b>,\"\"c\"\"\","));
    const std::string header = csv.substr(0, csv.find('\n'));
    EXPECT_THAT(header, HasSubstr("p99_ttft_ms"));
}

TEST(BenchReport, HtmlIsOnePageThatNeedsNothingElse) {
    const std::string html = report_html(two_points());
    EXPECT_THAT(html, HasSubstr("<svg"));
    EXPECT_THAT(html, HasSubstr("a&lt;b&gt;,&quot;c&quot;"));
    EXPECT_THAT(html, Not(HasSubstr("<b>")));
    for (const char* outside : {"http", "<script", "src=", "@import", "url("})
        EXPECT_THAT(html, Not(HasSubstr(outside))) << outside;
}

TEST(BenchReport, SharesAreOfTheMeasuredBandwidthAndOnlyForOneRequest) {
    const BenchReport report = two_points();
    EXPECT_DOUBLE_EQ(*decode_bandwidth_share(report, report.points[0]), 0.5);
    EXPECT_FALSE(decode_bandwidth_share(report, report.points[1]).has_value());
    EXPECT_THAT(report_table(report), HasSubstr(" 0.50"));
}

TEST(BenchReport, ARunWithoutAnyAnswerStillHasEveryForm) {
    BenchReport report = two_points();
    for (BenchPoint& point : report.points)
        point.summary = {};
    report.mixed = MixedResult{};
    EXPECT_THAT(report_html(report), HasSubstr("All figures"));
    EXPECT_TRUE(parse_json(report_json(report)).ok());
    EXPECT_THAT(report_table(report), HasSubstr("p99 TTFT ratio: 0.00"));
}

}  // namespace
}  // namespace fathom
