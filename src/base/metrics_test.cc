#include "base/metrics.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <thread>

namespace fathom {
namespace {

void fill(MetricsRegistry& registry) {
    registry.counter("fathom_tokens_total", "Tokens.", {{"kind", "prompt"}}).add(3);
    registry.counter("fathom_tokens_total", "Tokens.", {{"kind", "out\"put\n\\"}}).add();
    registry.gauge("fathom_sequences", "Sequences now.").set(2.5);
    Histogram& seconds =
        registry.histogram("fathom_step_seconds", "Time of a step.", {0.1, 1.0}, {{"rank", "0"}});
    seconds.observe(0.05);
    seconds.observe(0.5);
    seconds.observe(5);
}

TEST(Metrics, ExposesPrometheusText) {
    MetricsRegistry registry;
    fill(registry);
    EXPECT_EQ(registry.expose(),
              "# HELP fathom_sequences Sequences now.\n"
              "# TYPE fathom_sequences gauge\n"
              "fathom_sequences 2.5\n"
              "# HELP fathom_step_seconds Time of a step.\n"
              "# TYPE fathom_step_seconds histogram\n"
              "fathom_step_seconds_count{rank=\"0\"} 3\n"
              "fathom_step_seconds_sum{rank=\"0\"} 5.55\n"
              "fathom_step_seconds_bucket{rank=\"0\",le=\"0.1\"} 1\n"
              "fathom_step_seconds_bucket{rank=\"0\",le=\"1\"} 2\n"
              "fathom_step_seconds_bucket{rank=\"0\",le=\"+Inf\"} 3\n"
              "# HELP fathom_tokens_total Tokens.\n"
              "# TYPE fathom_tokens_total counter\n"
              "fathom_tokens_total{kind=\"out\\\"put\\n\\\\\"} 1\n"
              "fathom_tokens_total{kind=\"prompt\"} 3\n");
}

TEST(Metrics, PromtoolAcceptsThePage) {
    if (std::system("command -v promtool >/dev/null 2>&1") != 0)
        GTEST_SKIP() << "promtool is not installed";
    MetricsRegistry registry;
    fill(registry);
    std::FILE* tool = ::popen("promtool check metrics 2>&1", "w");
    ASSERT_NE(tool, nullptr);
    const std::string page = registry.expose();
    EXPECT_EQ(std::fwrite(page.data(), 1, page.size(), tool), page.size());
    EXPECT_EQ(::pclose(tool), 0);
}

TEST(Metrics, SameNameAndLabelsGiveTheSameObject) {
    MetricsRegistry registry;
    Counter& a = registry.counter("c_total", "C.", {{"x", "1"}, {"y", "2"}});
    EXPECT_EQ(&a, &registry.counter("c_total", "C.", {{"y", "2"}, {"x", "1"}}));
    EXPECT_NE(&a, &registry.counter("c_total", "C.", {{"x", "1"}}));
    Histogram& h = registry.histogram("h", "H.", {1, 2});
    EXPECT_EQ(&h, &registry.histogram("h", "H.", {1, 2}));
}

TEST(Metrics, CountsFromManyThreadsWhileScraped) {
    MetricsRegistry registry;
    std::array<std::thread, 4> threads;
    for (std::thread& thread : threads)
        thread = std::thread([&] {
            Histogram& histogram = registry.histogram("h", "H.", {1});
            for (int i = 0; i < 1000; ++i) {
                registry.counter("c_total", "C.").add();
                histogram.observe(i);
            }
        });
    for (int i = 0; i < 20; ++i)
        EXPECT_FALSE(registry.expose().empty() && i > 1000);
    for (std::thread& thread : threads)
        thread.join();
    EXPECT_EQ(registry.counter("c_total", "C.").value(), 4000u);
    EXPECT_NE(registry.expose().find("h_count 4000"), std::string::npos);
}

TEST(MetricsDeathTest, RefusesMistakesOfTheProgram) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    MetricsRegistry registry;
    registry.counter("c_total", "C.");
    EXPECT_DEATH(registry.gauge("c_total", "C."), "c_total");
    EXPECT_DEATH(registry.counter("bad name", "C."), "bad name");
    EXPECT_DEATH(registry.counter("no_help_total", ""), "no_help_total");
    EXPECT_DEATH(registry.histogram("h", "H.", {2, 1}), "CHECK");
}

}  // namespace
}  // namespace fathom
