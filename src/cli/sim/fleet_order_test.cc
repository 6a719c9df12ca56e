#include "cli/sim/fleet_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "base/json.h"
#include "cli/commands.h"
#include "cli/sim/figures.h"
#include "cli/sim/fleet_report.h"
#include "cli/sim/plan.h"
#include "cli/sim/run.h"
#include "cli/sim/sweep.h"
#include "cli/test_folder.h"
#include "sim/fleet/fleet.h"

namespace fathom {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Strings = std::vector<std::string>;

Result<FleetOrder> read(const Strings& words, const FleetOrderReader::Values& values = {}) {
    FleetOrderReader reader;
    reader.spec.tables = {"out"};
    reader.spec.aliases = {{"--json", "out.json"}};
    return reader.read(words, values);
}

std::string write_file(const std::string& name, const std::string& text) {
    const std::string path = test_folder() + name;
    std::ofstream(path) << text;
    return path;
}

// --- empty values are values, of the key that they stand with

struct EmptyValue {
    Strings words;
    bool is_json = false;    // a flag behind it is still one
    std::size_t points = 4;  // of speculation, as in the preset
    const char* message = "";
};

TEST(FleetOrder, AnEmptyValueSwallowsNoWord) {
    const std::vector<EmptyValue> cases = {
        {{"--set", "workload.trace=", "--json"}, true},
        {{"--set=workload.trace=", "--json"}, true},
        {{"--workload.trace=", "--json"}, true},
        {{"--workload.trace", "", "--json"}, true},
        {{"--set", "decode.speculation=", "--json"}, true, 0},
        {{"--decode.speculation=", "--json"}, true, 0},
        {{"--decode.speculation", "", "--json"}, true, 0},
        {{"--set", "decode.groups=", "--json"}, false, 0, "decode.groups must be an integer"},
        {{"--decode.groups=", "2"}, false, 0, "unexpected argument \"2\""},
        {{"--set", "pool.enabled="}, false, 0, "pool.enabled must be true or false"},
        {{"--pool.enabled="}, false, 0, "pool.enabled must be true or false"},
        {{"--config=", "x"}, false, 0, "--config: the path is empty"},
        {{"--set", "decode.groups"}, false, 0, "expected KEY=VALUE"},
        {{"--set", "=2"}, false, 0, "expected KEY=VALUE"},
        {{"--set"}, false, 0, "expected KEY=VALUE"},
        {{"--set", "decode.group=2"}, false, 0, "did you mean \"decode.groups\"?"},
        {{"--set", "sweep.csv=x"}, false, 0, "sweep.csv is not a key of this command"},
    };
    for (const EmptyValue& one : cases) {
        Strings words = {"one-box"};
        words.insert(words.end(), one.words.begin(), one.words.end());
        const auto order = read(words);
        const std::string shown = ::testing::PrintToString(one.words);
        ASSERT_EQ(order.ok(), std::string(one.message).empty()) << shown;
        if (!order.ok()) {
            EXPECT_THAT(order.status().message(), HasSubstr(one.message)) << shown;
            continue;
        }
        EXPECT_EQ(order->keys.run.json, one.is_json) << shown;
        EXPECT_EQ(order->config.decode.speculation.size(), one.points) << shown;
    }
}

TEST(FleetOrder, ASettingByAliasIsOneByKey) {
    const auto order = read({"one-box", "--load", "0.4", "--set", "load=0.5"});
    ASSERT_TRUE(order.ok()) << order.status().message();
    EXPECT_EQ(order->config.workload.load, 0.5);
}

// --- presets and files

TEST(FleetOrder, TwoPresetsAreRefusedUnlessTheyAreOne) {
    EXPECT_THAT(read({"one-box", "--preset", "64+64"}).status().message(),
                HasSubstr("two presets, one-box and --preset \"64+64\""));
    EXPECT_TRUE(read({"one-box", "--preset", "one-box"}).ok());
    const std::string file = write_file("preset.toml", "sim.preset = \"16-cards\"\n");
    const auto order = read({file, "--preset", "64+64"});  // a flag wins over a file
    ASSERT_TRUE(order.ok());
    EXPECT_EQ(order->config.preset, "64+64");
    EXPECT_EQ(order->config.decode.ranks, 64);
    EXPECT_THAT(order->config.derived, IsEmpty());
}

TEST(FleetOrder, OneFileServesAllCommands) {
    const std::string rest = "[out]\ncsv = \"\"\n[sweep]\nvary = [\"workload.load=1,2\"]\n[plan]\n";
    const auto order = read({write_file("all.toml", rest + "cards = 8\n")});
    ASSERT_TRUE(order.ok()) << order.status().message();
    EXPECT_EQ(order->keys.plan.cards, 8);
    const auto wrong = read({write_file("wrong.toml", rest + "card = 8\n")});
    EXPECT_THAT(wrong.status().message(), HasSubstr("did you mean \"plan.cards\"?"));
}

// --- what is changed, and by whom

TEST(FleetOrder, TellsEveryChangeWithItsSource) {
    const std::string file =
        write_file("changed.toml", "sim.preset = \"16-cards\"\n[money]\ncard_hour = 3.0\n");
    const auto order = read({file, "--load", "0.5", "--set", "sim.seed=9", "--duration", "600"},
                            {{"pool.enabled", "false"}});
    ASSERT_TRUE(order.ok()) << order.status().message();
    Strings said;
    for (const FleetChange& change : order->config.changes)
        said.push_back(change.key + " " + change.usual + " -> " + change.value + " by " +
                       change.source);
    EXPECT_THAT(said, ElementsAre("sim.seed 1 -> 9 by --set",
                                  "money.card_hour 2 -> 3 by file " + file + ":3",
                                  "pool.enabled true -> false by --vary",
                                  "workload.load 0.85 -> 0.5 by flag --workload.load"));
    const auto idle = read({"--set", "scaling.start_s=9", "--set", "drafts.count=3"});
    ASSERT_TRUE(idle.ok()) << idle.status().message();
    ASSERT_EQ(idle->config.changes.size(), 2u);
    EXPECT_EQ(idle->config.changes[0].source, "--set; without effect: scaling.enabled is false");
    EXPECT_EQ(idle->config.changes[1].source,
              "--set; without effect: decode.verification is table");
    const auto none = read({"16-cards"});
    ASSERT_TRUE(none.ok());
    EXPECT_THAT(none->config.changes, IsEmpty());
}

TEST(FleetReport, EveryFormTellsTheChanges) {
    FleetConfig config = *fleet_preset("one-box");
    config.duration_s = 4;
    config.warmup_s = 1;
    config.changes = {{"a.key", "\"<new>\"", "\"old\"", "file f.toml:3"}};
    const FleetResult result = *run_fleet(config);
    EXPECT_THAT(fleet_table(result), HasSubstr("a.key = \"<new>\" (was \"old\"; file f.toml:3)"));
    EXPECT_THAT(fleet_html(result), HasSubstr("<td>a.key</td><td>&quot;&lt;new&gt;&quot;</td>"
                                              "<td>&quot;old&quot;</td><td>file f.toml:3</td>"));
    const auto json = parse_json(fleet_json(result));
    ASSERT_TRUE(json.ok());
    const Json& change = json->find("changes")->items().at(0);
    EXPECT_EQ(change.find("preset_value")->as_string(), "\"old\"");
    EXPECT_EQ(change.find("source")->as_string(), "file f.toml:3");
}

// --- engines of other sizes

TEST(FleetOrder, EnginesOfOtherSizesAreDerivedAsAPlanDoes) {
    const auto order = read({"64+64", "--set", "decode.ranks=32", "--prefill.ranks", "8"});
    ASSERT_TRUE(order.ok()) << order.status().message();
    const FleetConfig& config = order->config;
    EXPECT_THAT(config.derived, ElementsAre("prefill", "decode"));
    FleetConfig planned = *fleet_preset("64+64");
    ASSERT_TRUE(set_prefill_ranks(planned, 8).ok());
    ASSERT_TRUE(set_decode_ranks(planned, 32).ok());
    EXPECT_EQ(config.prefill.blocks_per_rank, planned.prefill.blocks_per_rank);
    EXPECT_EQ(config.prefill.policy.costs[2].moe_balance,
              planned.prefill.policy.costs[2].moe_balance);
    EXPECT_EQ(config.decode.policy.cost.c0_us, planned.decode.policy.cost.c0_us);
    EXPECT_EQ(config.decode.policy.cost.moe_us, planned.decode.policy.cost.moe_us);
    const bool is_said =
        std::any_of(config.changes.begin(), config.changes.end(), [](const FleetChange& change) {
            return change.key == "decode.step_us" && change.source.starts_with("derived");
        });
    EXPECT_TRUE(is_said);
    const auto varied = read({"64+64"}, {{"decode.ranks", "32"}});
    ASSERT_TRUE(varied.ok());
    EXPECT_EQ(varied->config.decode.policy.cost.c0_us, planned.decode.policy.cost.c0_us);
}

TEST(FleetOrder, WhatIsGivenOrMeasuredIsNotDerived) {
    const double usual = fleet_preset("64+64")->decode.policy.cost.c0_us;
    for (const Strings& words :
         std::vector<Strings>{{"--decode.row_us", "9.5"}, {"--sim.measured", "decode"}}) {
        Strings all = {"64+64", "--decode.ranks", "32"};
        all.insert(all.end(), words.begin(), words.end());
        const auto order = read(all);
        ASSERT_TRUE(order.ok()) << order.status().message();
        EXPECT_THAT(order->config.derived, IsEmpty());
        EXPECT_EQ(order->config.decode.policy.cost.c0_us, usual);
    }
    const auto blocks =
        read({"64+64", "--decode.ranks", "32", "--decode.blocks_per_rank", "500000"});
    ASSERT_TRUE(blocks.ok());
    EXPECT_EQ(blocks->config.decode.blocks_per_rank, 500'000);
}

TEST(FleetOrder, WhatCannotBeDerivedSaysWhatToGive) {
    EXPECT_THAT(read({"one-box", "--decode.ranks", "1"}).status().message(),
                HasSubstr("314.0 GB of weights each, of hardware.card_gb 141"));
    EXPECT_THAT(read({"one-box", "--decode.ranks", "1", "--hardware.card_gb", "1e6",
                      "--hardware.read_gb_s", "0.001"})
                    .status()
                    .message(),
                HasSubstr("hardware.read_gb_s: 0.001"));
    const auto huge = read({"one-box", "--decode.ranks", "8", "--hardware.card_gb", "1e6",
                            "--network.token_bytes", "1"});
    ASSERT_TRUE(huge.ok()) << huge.status().message();
    EXPECT_EQ(huge->config.decode.blocks_per_rank, std::int64_t{1} << 32);
}

// --- figures that are not there

TEST(Figures, WhatIsNotThereIsNoZero) {
    const Figure none = percentile_of(LogHistogram(), 0.5);
    EXPECT_EQ(figure_cell(none, 5, 1), "    -");
    EXPECT_EQ(figure_csv(none), "");
    EXPECT_EQ(figure_json(none).dump(), "null");
    EXPECT_EQ(figure_cell(2.25, 6, 2), "  2.25");
    EXPECT_EQ(figure_csv(2.25), "2.25");
    EXPECT_EQ(share_of(0, 0), std::nullopt);
    EXPECT_EQ(share_of(1, 4), 0.25);
}

TEST(FleetReport, AFleetThatRejectsItsOnlyRequestHasNoFigures) {
    FleetConfig config = *fleet_preset("one-box");
    config.workload.source = WorkloadSource::trace;
    config.workload.trace = write_file(
        "giant.jsonl",
        "{\"timestamp\": 0, \"input_length\": 2000000, \"output_length\": 4, \"hash_ids\": [1]}\n");
    config.runs_out = true;
    config.warmup_s = 0;
    const FleetResult result = *run_fleet(config);
    EXPECT_EQ(result.totals.rejected, 1);
    EXPECT_EQ(result.rate, 1.0 / config.duration_s);
    const auto json = parse_json(fleet_json(result));
    ASSERT_TRUE(json.ok());
    EXPECT_TRUE(json->find("all")->find("ttft_ms")->find("p99")->is_null());
    EXPECT_TRUE(json->find("hit_share")->is_null());
    EXPECT_THAT(fleet_table(result), HasSubstr("all                0        -        -"));
}

TEST(FleetReport, NoiseBelowZeroIsExplained) {
    FleetResult result;
    result.config = *fleet_preset("one-box");
    EXPECT_EQ(fleet_table(result).find(kNoiseMeaning), std::string::npos);
    result.decode.total_ns = 100;
    result.decode.add(CardTime::noise, -1);
    EXPECT_THAT(fleet_table(result), HasSubstr(kNoiseMeaning));
}

TEST(FleetPool, AWholeLifeOfNoSecondsKeepsNothing) {
    const auto order = read({"one-box", "--duration", "10", "--sim.warmup_s", "2", "--set",
                             "pool.ttl_agent_s=0", "--set", "pool.ttl_chat_s=0"});
    ASSERT_TRUE(order.ok()) << order.status().message();
    const auto result = run_fleet(order->config);
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(result->totals.hit_tokens, 0);
    EXPECT_EQ(result->totals.pool_written_bytes, 0);
    EXPECT_THAT(result->violations, IsEmpty());
}

// --- being interrupted

TEST(FleetRun, EndsWhenItIsToldTo) {
    FleetConfig config = *fleet_preset("6500-cards");
    for (const int asked : {1, 500, 900}) {  // before, in the middle of setting up, behind it
        int calls = 0;
        const auto result =
            run_fleet(config, {.progress = [&](double, double) { return ++calls < asked; }});
        EXPECT_EQ(result.status().code(), StatusCode::cancelled);
        EXPECT_LT(calls, asked + 10);
    }
}

TEST(FleetRun, MemoryThatIsNotThereIsAStatus) {
    const auto failed = within_memory([]() -> Result<int> { throw std::bad_alloc(); });
    EXPECT_EQ(failed.status().code(), StatusCode::resource_exhausted);
}

// --- sweeps

TEST(SimSweep, JsonHasARowForEachValueAndAKeyIsVariedOnce) {
    testing::internal::CaptureStdout();
    const int status = run_sim_sweep({"one-box", "--duration", "4", "--sim.warmup_s", "1", "--vary",
                                      "decode.ranks=4,8", "--json"});
    const auto json = parse_json(testing::internal::GetCapturedStdout());
    ASSERT_EQ(status, kExitOk);
    ASSERT_TRUE(json.ok());
    const auto& rows = json->find("rows")->items();
    ASSERT_EQ(rows.size(), 2U);
    EXPECT_EQ(rows[1].find("values")->find("decode.ranks")->as_string(), "8");
    EXPECT_GT(rows[1].find("changes")->items().size(), rows[0].find("changes")->items().size());
    EXPECT_EQ(json->find("finished")->as_int64(), 2);
    EXPECT_EQ(run_sim_sweep({"one-box", "--vary", "workload.load=1", "--vary", "workload.load=2"}),
              kExitUsage);
    EXPECT_EQ(run_sim_sweep({"one-box", "--vary", "plan.cards=1,2"}), kExitUsage);
}

// --- plans

TEST(SimPlan, ABudgetAndCardsAreOneTooMany) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(run_sim_plan({"one-box", "--cards", "8", "--usd-hour", "9"}), kExitUsage);
    EXPECT_THAT(testing::internal::GetCapturedStderr(),
                HasSubstr("plan.cards: 8 and plan.usd_hour: 9, expected one of them"));
}

}  // namespace
}  // namespace fathom
