#include "cli/sim/run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "base/json.h"
#include "cli/commands.h"
#include "cli/sim/figures.h"
#include "cli/sim/fleet_order.h"
#include "cli/sim/fleet_report.h"
#include "cli/sim/fleet_settings.h"
#include "cli/sim/plan.h"
#include "cli/sim/row_assumptions.h"
#include "cli/sim/sweep.h"
#include "cli/test_folder.h"
#include "sim/fleet/fleet.h"

namespace fathom {
namespace {

using ::testing::HasSubstr;

FleetResult small_run() {
    auto preset = fleet_preset("one-box");
    EXPECT_TRUE(preset.ok());
    preset->duration_s = 30;
    preset->warmup_s = 5;
    auto result = run_fleet(*preset);
    EXPECT_TRUE(result.ok());
    return std::move(*result);
}

TEST(FleetReport, JsonHasTheFiguresAndALedgerOfAllCardTime) {
    const FleetResult result = small_run();
    const auto json = parse_json(fleet_json(result));
    ASSERT_TRUE(json.ok());
    EXPECT_EQ(json->find("preset")->as_string(), "one-box");
    for (const char* side : {"prefill", "decode"}) {
        double sum = 0;
        for (const auto& [name, share] :
             json->find("card_time")->find(side)->find("shares")->members())
            sum += share.as_double();
        EXPECT_NEAR(sum, 1, 1e-9) << side;
    }
}

TEST(FleetReport, HtmlStandsAloneAndSaysWhatIsAssumed) {
    const std::string html = fleet_html(small_run());
    EXPECT_EQ(html.find("<script"), std::string::npos);
    EXPECT_EQ(html.find("src="), std::string::npos);
    EXPECT_NE(html.find("<td class=\"assumed\">"), std::string::npos);
    EXPECT_NE(html.find("<td class=\"measured\">"), std::string::npos);
    const auto count = [&](const char* text) {
        int found = 0;
        for (std::size_t at = html.find(text); at != std::string::npos;
             at = html.find(text, at + 1))
            ++found;
        return found;
    };
    EXPECT_EQ(count("<svg"), 9);
    EXPECT_EQ(count("http"), 9);  // the name of the language of each plot
}

TEST(FleetReport, CsvHasARowForEachInterval) {
    const FleetResult result = small_run();
    const std::string csv = fleet_csv(result);
    const auto rows = static_cast<std::size_t>(std::count(csv.begin(), csv.end(), '\n'));
    EXPECT_EQ(rows, result.series.size() + 1);
    EXPECT_GE(result.series.size(), 239U);
}

TEST(FleetReport, TellsOfExpertsOnlyWherePopularityIsAProcess) {
    auto config = fleet_preset("one-box");
    ASSERT_TRUE(config.ok());
    config->duration_s = 30;
    config->warmup_s = 5;
    const auto constant = run_fleet(*config);
    config->experts.is_process = true;
    config->experts.layers = 2;
    const auto process = run_fleet(*config);
    ASSERT_TRUE(constant.ok() && process.ok());
    for (const char* text : {"switches aborted", "moe_lb, realised"}) {
        EXPECT_EQ(fleet_table(*constant).find(text), std::string::npos) << text;
        EXPECT_EQ(fleet_html(*constant).find(text), std::string::npos) << text;
        EXPECT_NE(fleet_table(*process).find(text), std::string::npos) << text;
        EXPECT_NE(fleet_html(*process).find(text), std::string::npos) << text;
    }
    EXPECT_EQ(fleet_csv(*constant).find("moe_lb"), std::string::npos);
    EXPECT_NE(fleet_csv(*process).find(",prefill_moe_lb,decode_moe_lb\n"), std::string::npos);
    EXPECT_FALSE(parse_json(fleet_json(*constant))->find("experts") != nullptr);
    const auto json = parse_json(fleet_json(*process));
    EXPECT_GE(json->find("experts")->find("decode")->find("moe_lb")->as_double(), 1);
    EXPECT_NE(fleet_table(*process).find("drift 0.05 in 600 s"), std::string::npos);
}

TEST(FleetReport, TellsOfDraftsOnlyWhereTheyAreModelled) {
    auto config = fleet_preset("one-box");
    ASSERT_TRUE(config.ok());
    config->duration_s = 8;
    config->warmup_s = 2;
    config->decode.sequences_max = 16;
    const auto table = run_fleet(*config);
    config->decode.drafts.verification = Verification::budget;
    const auto budget = run_fleet(*config);
    ASSERT_TRUE(table.ok() && budget.ok());
    for (const char* text : {"accepted tokens", "steps of ranks"}) {
        EXPECT_EQ(fleet_table(*table).find(text), std::string::npos) << text;
        EXPECT_EQ(fleet_html(*table).find(text), std::string::npos) << text;
        EXPECT_NE(fleet_table(*budget).find(text), std::string::npos) << text;
        EXPECT_NE(fleet_html(*budget).find(text), std::string::npos) << text;
    }
    EXPECT_EQ(fleet_csv(*table).find("draft_rows"), std::string::npos);
    EXPECT_NE(fleet_csv(*budget).find(",draft_rows,draft_tokens\n"), std::string::npos);
    EXPECT_TRUE(parse_json(fleet_json(*table))->find("drafts") == nullptr);
    const auto json = parse_json(fleet_json(*budget));
    ASSERT_TRUE(json.ok());
    const Json* drafts = json->find("drafts");
    ASSERT_TRUE(drafts != nullptr);
    EXPECT_GE(drafts->find("rows")->as_double(), drafts->find("accepted_tokens")->as_double());
    double sum = 0;
    for (const auto& [name, share] : drafts->find("reasons")->members())
        sum += share.as_double();
    EXPECT_NEAR(sum, 1, 1e-9);
}

TEST(FleetSettings, ReadsAFileOverAPreset) {
    const auto preset = fleet_preset("16-cards");
    ASSERT_TRUE(preset.ok());
    FleetSettings settings(*preset);
    const Status loaded = settings.schema().load_text(
        "[decode]\nsequences_max = 32\nspeculation = [\"1:1:1\"]\n[chat]\nshare = 0.0\n", "t.toml");
    ASSERT_TRUE(loaded.ok()) << loaded.message();
    const auto config = settings.config();
    ASSERT_TRUE(config.ok());
    EXPECT_EQ(config->decode.sequences_max, 32);
    EXPECT_EQ(config->decode.speculation.size(), 1U);
    EXPECT_EQ(config->workload.sessions[1].share, 0);
    EXPECT_EQ(config->prefill.engines, preset->prefill.engines);
    EXPECT_EQ(config->prefill.policy.costs[3].k1_us, preset->prefill.policy.costs[3].k1_us);
}

struct Hostile {
    const char* toml;
    const char* message;
};
class HostileConfig : public testing::TestWithParam<Hostile> {};

TEST_P(HostileConfig, IsRefusedByFieldValueAndLimit) {
    const auto preset = fleet_preset("one-box");
    ASSERT_TRUE(preset.ok());
    FleetSettings settings(*preset);
    Status status = settings.schema().load_text(GetParam().toml, "t.toml");
    if (status.ok()) status = settings.config().status();
    EXPECT_NE(status.message().find(GetParam().message), std::string::npos) << status.message();
}

INSTANTIATE_TEST_SUITE_P(
    All, HostileConfig,
    testing::Values(
        Hostile{"[prefill]\nengines = 0\n", "prefill.engines is 0; the limits are 1..100000"},
        Hostile{"[prefill]\nengine = 4\n", "did you mean \"prefill.engines\"?"},
        Hostile{"[decode]\nsequences_max = 1.5\n", "decode.sequences_max must be an integer"},
        Hostile{"[prefill]\ntoken_us = nan\n", "prefill.token_us is not a number"},
        Hostile{"[experts]\nprocess = true\nper_token = 385\n",
                "experts.per_token: 385, expected at most experts.count, 384"},
        Hostile{"[experts]\nlink_part = 0.0\n", "experts.link_part is 0"},
        Hostile{"[prefill]\nmoe_lb = 0.5\n", "prefill.moe_lb is 0.5; the limits are 1..100"},
        Hostile{"[decode]\nspeculation = [\"16:2\"]\n",
                "decode.speculation: \"16:2\", expected SEQUENCES:ROWS:ACCEPTED"},
        Hostile{"[decode]\nspeculation = [\"16:2:1\", \"8:2:1\"]\n", "expected more than 16"},
        Hostile{"[sim]\nwarmup_s = 600.0\n", "sim.warmup_s: 600, expected less than"},
        Hostile{"[workload]\nsource = \"trace\"\n", "workload.trace: empty, expected a file"},
        Hostile{"[agent]\nshare = 0.0\n[chat]\nshare = 0.0\n", "there is no traffic"},
        Hostile{"[agent]\ncompact_tokens = 100.0\n", "agent.compacted_tokens: 16000, expected"},
        Hostile{"decode.verification = \"some\"\n", "decode.verification"},
        Hostile{"[decode]\ngroups = 512\nverification = \"budget\"\n", "expected at most 16384"},
        Hostile{"[drafts]\ncount = 17\n", "drafts.count is 17; the limits are 0..16"},
        Hostile{"[decode]\nranks = 64\nper_sequence = true\n",
                "64 decode cards, expected at most 8"},
        Hostile{"[prefill]\nengines = 100000\nranks = 1024\n", "cards, expected at most 1000000"},
        Hostile{"[sim]\nmeasured = [\"prefil\"]\n", "did you mean \"prefill\"?"},
        Hostile{"[sim]\nmeasured = [\"pool\"]\n", "expected of prefill, decode, workload"},
        Hostile{"[decode]\nspeculation = [\"1:1:1\", \"\"]\n",
                "decode.speculation: \"\", expected"},
        Hostile{"[decode]\nblocks_per_rank = 10\n", "decode.blocks_per_rank: 10, expected"}));

TEST(SimRun, RefusesFilesAndWordsThatItDoesNotKnow) {
    EXPECT_EQ(run_sim_run({"/nowhere/fleet.toml"}), kExitUsage);
    EXPECT_EQ(run_sim_run({"one-box", "--no-such-key"}), kExitUsage);
    EXPECT_EQ(run_sim_run({"one-box", "--html", "/nowhere/x.html"}), kExitUsage);
}

TEST(SimRun, WhatItReadsIsNotWrittenOver) {
    const std::string file = test_folder() + "fleet.toml", text = "sim.preset = \"one-box\"\n";
    std::ofstream(file) << text;
    const std::string same = test_folder() + "./fleet.toml", other = test_folder() + "x";
    const std::vector<std::string> brief = {"--duration", "2", "--sim.warmup_s", "1"};
    for (const std::vector<std::string>& words :
         std::vector<std::vector<std::string>>{{file, "--csv", file},
                                               {file, "--html", same},
                                               {"--config", file, "--csv", same},
                                               {"one-box", "--csv", other, "--html", other}}) {
        std::vector<std::string> all = words;
        all.insert(all.end(), brief.begin(), brief.end());
        EXPECT_EQ(run_sim_run(all), kExitUsage) << words.back();
    }
    EXPECT_EQ(run_sim_sweep({file, "--vary", "workload.load=0.3", "--csv", same}), kExitUsage);
    EXPECT_EQ(run_sim_plan({file, "--cards", "8", "--csv", same}), kExitUsage);
    std::ifstream in(file);
    std::string left;
    std::getline(in, left);
    EXPECT_EQ(left + "\n", text);
}

// Sequences that came before the warm-up and end behind it are work as well; under overload hardly
// any other ends.
TEST(FleetReport, WhatIsPaidForIsWhatWasServed) {
    const auto at_load = [](double load) {
        FleetConfig config = *fleet_preset("one-box");
        config.duration_s = 90;
        config.warmup_s = 45;
        config.workload.load = load;
        return *run_fleet(config);
    };
    const FleetResult usual = at_load(0.85), over = at_load(2);
    const auto output_s = [](const FleetResult& result) {
        return static_cast<double>(result.served.output_tokens) / result.measured_s;
    };
    // A decode card gives 26,000 tokens a second at most; there are four.
    EXPECT_GT(output_s(usual), 30'000);
    EXPECT_GT(output_s(over), output_s(usual));
    EXPECT_LT(output_s(over), 4 * 26'000);
    EXPECT_LT(over.revenue_per_card_hour(), 2 * usual.revenue_per_card_hour());
    FleetResult none = usual;
    none.served = {};
    EXPECT_NE(fleet_table(none).find("nothing was served"), std::string::npos);
    const auto json = parse_json(fleet_json(none));
    ASSERT_TRUE(json.ok());
    EXPECT_TRUE(json->find("cost_per_million_tokens")->is_null());
}

TEST(FleetReport, SourcesAreThoseOfTheValues) {
    FleetConfig config = *fleet_preset("16-cards");
    for (const Assumption& assumption : fleet_assumptions(config))
        EXPECT_EQ(assumption.source.find("configuration"), std::string::npos) << assumption.what;
    config.network.token_bytes = 5;
    config.money.hit_price = 1;
    config.workload.sessions[0].calls_max = 1;
    for (PrefillCost& cost : config.prefill.policy.costs)
        cost.k1_us = 1;
    config.decode.ranks = 1;
    std::size_t set = 0, warned = 0;
    for (const Assumption& assumption : fleet_assumptions(config)) {
        set += assumption.source == "set by the configuration" ? 1 : 0;
        warned += assumption.value.find("are not derived") != std::string::npos ? 1 : 0;
        EXPECT_FALSE(assumption.is_measured) << assumption.what;
    }
    EXPECT_GE(set, 4U);
    EXPECT_EQ(warned, 1U);
    config.measured = {"decode", "workload"};
    for (const Assumption& assumption : fleet_assumptions(config))
        EXPECT_EQ(assumption.is_measured,
                  assumption.what.starts_with("decode") || assumption.what == "traffic")
            << assumption.what;
}

TEST(SimSweep, ReadsListsAndRanges) {
    const auto list = parse_sweep_axis("decode.rule=joint,split");
    ASSERT_TRUE(list.ok());
    EXPECT_EQ(list->key, "decode.rule");
    EXPECT_EQ(list->values, (std::vector<std::string>{"joint", "split"}));
    const auto range = parse_sweep_axis("workload.load=0.5..0.9..0.2");
    ASSERT_TRUE(range.ok());
    EXPECT_EQ(range->values, (std::vector<std::string>{"0.5", "0.7", "0.9"}));
    for (const char* wrong :
         {"workload.load", "=1", "a=", "a=1,,2", "a=1..2..0", "a=2..1..1", "a=0..1..1e-9"})
        EXPECT_FALSE(parse_sweep_axis(wrong).ok()) << wrong;
    EXPECT_EQ(run_sim_sweep({"one-box"}), kExitUsage);
    EXPECT_EQ(run_sim_sweep({"one-box", "--vary", "no.key=1"}), kExitUsage);
}

std::string sweep_output(std::vector<std::string> words) {
    testing::internal::CaptureStdout();
    words.insert(words.begin(), {"one-box", "--duration", "4", "--sim.warmup_s", "1"});
    EXPECT_EQ(run_sim_sweep(words), kExitOk);
    return testing::internal::GetCapturedStdout();
}

TEST(SimSweep, ListsWhatItsRowsAssume) {
    const std::vector<std::string> words = {"--vary", "decode.verification=table,all", "--set",
                                            "load=0.1"};
    EXPECT_THAT(sweep_output(words), HasSubstr("with a step of 10 ms), only of "
                                               "decode.verification=all\n"));
    std::vector<std::string> as_json = words;
    as_json.push_back("--json");
    const auto json = parse_json(sweep_output(as_json));
    ASSERT_TRUE(json.ok());
    int drafts = 0, everywhere = 0;
    for (const Json& one : json->find("assumptions")->items()) {
        const Json* const rows = one.find("rows");
        everywhere += rows == nullptr ? 1 : 0;
        if (one.find("what")->as_string() != "decode, drafting") continue;
        ++drafts;
        ASSERT_NE(rows, nullptr);
        EXPECT_EQ(rows->dump(), "[1]");
    }
    EXPECT_EQ(drafts, 1);
    EXPECT_GT(everywhere, 3);
}

TEST(SimSweep, TellsAssumptionsOfPresetsApart) {
    std::vector<FleetConfig> rows = {*fleet_preset("one-box"), *fleet_preset("16-cards")};
    const auto both = row_assumptions(rows);
    std::size_t apart = 0, made = 0;
    for (const RowAssumption& one : both) {
        apart += one.rows.size() == 1 ? 1 : 0;
        made += one.rows.size();
    }
    EXPECT_GT(apart, 0U);
    EXPECT_EQ(made, fleet_assumptions(rows[0]).size() + fleet_assumptions(rows[1]).size());
    rows[1] = rows[0];
    EXPECT_THAT(row_assumptions_text(rows, std::vector<std::string>{"a", "b"}),
                testing::Not(HasSubstr("only of")));
    rows.assign(20, rows[0]);
    std::vector<std::string> names;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        rows[i].decode.drafts.verification = Verification::all;
        rows[i].decode.drafts.path_us = static_cast<double>(i);
        names.push_back("row " + std::to_string(i));
    }
    EXPECT_THAT(row_assumptions_text(rows, names), HasSubstr("12 more values; --json has them"));
}

TEST(SimSweep, KnowsFamiliarNamesAndNoDrafts) {
    EXPECT_THAT(sweep_output({"--vary", "load=0.1", "--vary", "decode.speculation=none,0:2:1.5"}),
                HasSubstr("workload.load  decode.speculation"));
    EXPECT_EQ(run_sim_sweep({"one-box", "--vary", "load=0.1", "--vary", "workload.load=0.2"}),
              kExitUsage);
}

TEST(SimFigures, ThatRoundToZeroHaveNoSign) {
    EXPECT_EQ(signed_text(-0.04, 1), "0.0");
    EXPECT_EQ(signed_text(0, 0), "0");
    EXPECT_EQ(signed_text(-1.26, 1), "-1.3");
    EXPECT_EQ(signed_text(0.05001, 1), "+0.1");
}

TEST(SimRun, TwoNamesOfOneOutputAreRefused) {
    const std::string folder = test_folder();
    const std::vector<std::string> outputs = {folder + "same.csv", folder + "./same.csv"};
    EXPECT_THAT(check_sim_outputs(outputs, {}).message(), HasSubstr("is named for two outputs"));
    testing::internal::CaptureStderr();
    EXPECT_EQ(run_sim_run({"one-box", "--csv", outputs[0], "--html", outputs[1]}), kExitUsage);
    EXPECT_EQ(
        run_sim_sweep({"one-box", "--vary", "load=0.1", "--csv", outputs[0], "--svg", outputs[1]}),
        kExitUsage);
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("sweep: " + outputs[1]));
}

TEST(SimSweep, WritesRowsAndPlots) {
    const std::string csv = test_folder() + "sweep.csv", svg = test_folder() + "sweep.svg";
    ASSERT_EQ(run_sim_sweep({"one-box", "--duration", "10", "--sim.warmup_s", "2", "--vary",
                             "workload.load=0.3,0.6", "--vary", "pool.enabled=true,false", "--csv",
                             csv, "--svg", svg}),
              kExitOk);
    const auto lines = [](const std::string& path, const std::string& text) {
        std::ifstream in(path);
        std::string line;
        int found = 0;
        while (std::getline(in, line))
            found += line.find(text) != std::string::npos ? 1 : 0;
        return found;
    };
    EXPECT_EQ(lines(csv, ","), 5);
    EXPECT_EQ(lines(svg, "<polyline"), 10);  // two lines in each of five plots
}

TEST(SimPlan, TellsWhatFitsAndRefusesWhatDoesNot) {
    const std::string csv = test_folder() + "plan.csv";
    const std::vector<std::string> words = {
        "one-box", "--cards",           "8", "--plan.seconds",    "20", "--plan.warmup_s",
        "10",      "--plan.candidates", "1", "--plan.prefill_ep", "4",  "--plan.decode_ep",
        "4"};
    std::vector<std::string> with_file = words;
    with_file.insert(with_file.end(), {"--csv", csv});
    ASSERT_EQ(run_sim_plan(with_file), kExitOk);
    std::ifstream in(csv);
    std::string header, best;
    std::getline(in, header);
    std::getline(in, best);
    EXPECT_EQ(best.rfind("split,1 x EP4 + 1 x EP4,4,1,4,1,", 0), 0U) << best;
    EXPECT_EQ(run_sim_plan({"one-box", "--cards", "1"}), kExitUsage);
    EXPECT_EQ(run_sim_plan({"one-box", "--plan.decode_ep", "many"}), kExitUsage);
    std::vector<std::string> small = words;
    small.insert(small.end(), {"--hardware.card_gb", "40"});
    EXPECT_EQ(run_sim_plan(small), kExitFailed);
    std::vector<std::string> unreachable = words;
    unreachable.insert(unreachable.end(), {"--slo.tpot_ms", "0.01"});
    EXPECT_EQ(run_sim_plan(unreachable), kExitFailed);
}

std::string write_trace(const std::string& name, const std::string& lines) {
    const std::string path = test_folder() + name;
    std::ofstream(path) << lines;
    return path;
}

std::vector<std::string> plan_of_trace(const std::string& path) {
    return {"one-box", "--cards",           "8",     "--plan.seconds",    "20", "--plan.warmup_s",
            "10",      "--plan.candidates", "1",     "--plan.prefill_ep", "4",  "--plan.decode_ep",
            "4",       "--workload.source", "trace", "--workload.trace",  path};
}

TEST(SimPlan, FindsTheRateOfATraceInCopiesOfIt) {
    std::string lines;
    for (int i = 0; i < 60; ++i)
        lines += "{\"timestamp\": " + std::to_string(i * 500) +
                 ", \"input_length\": 4096, \"output_length\": 40, \"hash_ids\": [1, 2, 3, 4, " +
                 std::to_string(10 + 4 * i) + ", " + std::to_string(11 + 4 * i) + ", " +
                 std::to_string(12 + 4 * i) + ", " + std::to_string(13 + 4 * i) + "]}\n";
    std::vector<std::string> words = plan_of_trace(write_trace("plan_trace.jsonl", lines));
    const std::string csv = test_folder() + "plan_trace.csv";
    words.insert(words.end(), {"--csv", csv});
    ASSERT_EQ(run_sim_plan(words), kExitOk);
    std::ifstream in(csv);
    std::string header, best;
    std::getline(in, header);
    std::getline(in, best);
    ASSERT_EQ(best.rfind("split,1 x EP4 + 1 x EP4,4,1,4,1,", 0), 0U) << best;
    // A copy brings two requests a second; the fleet bears several, and not more than its bound.
    const auto field = [&](int index) {
        std::size_t at = 0;
        for (int i = 0; i < index; ++i)
            at = best.find(',', at) + 1;
        return std::stod(best.substr(at));
    };
    EXPECT_GT(field(7), 4) << best;
    EXPECT_LT(field(7), 1.1 * field(6)) << best;
}

TEST(SimPlan, SaysWhatToDoWithATraceOfSeveralSuites) {
    const auto line = [](const char* suite) {
        return std::string("{\"suite\": \"") + suite +
               "\", \"session\": \"s\", \"t_us\": 0, \"in_bytes\": 512, \"out_bytes\": 4, "
               "\"hash_ids\": [1]}\n";
    };
    const std::string path = write_trace("suites.jsonl", line("a") + line("b"));
    testing::internal::CaptureStderr();
    EXPECT_EQ(run_sim_plan(plan_of_trace(path)), kExitFailed);
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("suites.jsonl has several suites, each with times of its own, and a fleet "
                        "needs one; take the lines with one value of \"suite\""),
              std::string::npos)
        << said;
}

}  // namespace
}  // namespace fathom
