// `fathom pool stat|verify|scrub|gc|drop|bench` as people use them: on pools that a process has
// open, on such as it left, and on directories that are none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>

#include "base/json.h"
#include "cli_process.h"
#include "pool/embedded_store.h"
#include "pool/segment.h"
#include "pool/shared_store.h"
#include "pool/testing/store_calls.h"

namespace fathom {
namespace {

namespace fs = std::filesystem;
using namespace testing;
using ::testing::HasSubstr;

constexpr std::int64_t kPayload = 10'000;
const std::vector<std::uint64_t> kNumbers = {0, 1, 2, 3, 4, 5, 6, 7};

class LateClock : public Clock {
  public:
    explicit LateClock(std::int64_t behind_ms) : behind_ms_(behind_ms) {}
    std::int64_t now_us() const override { return real_clock().now_us(); }
    std::int64_t wall_unix_ms() const override { return real_clock().wall_unix_ms() - behind_ms_; }

  private:
    const std::int64_t behind_ms_;
};

struct Ran {
    int status = 0;
    std::string out, err;
    Json json() const {
        const auto parsed = parse_json(out);
        EXPECT_TRUE(parsed.ok()) << out << err;
        return parsed.ok() ? *parsed : Json::object();
    }
    Json pool() const { return json().find("pools")->items().at(0); }
};

Ran run(std::vector<std::string> words) {
    words.insert(words.begin(), {FATHOM_PROGRAM, "pool"});
    Child child(std::move(words));
    Ran ran;
    ran.status = child.finish();
    ran.out = child.out();
    ran.err = child.err();
    return ran;
}

std::int64_t number(const Json& of, const char* name) {
    const Json* found = of.find(name);
    EXPECT_NE(found, nullptr) << name;
    return found == nullptr ? -1 : found->as_int64();
}

class PoolAdmin : public ::testing::Test {
  protected:
    PoolAdmin() {
        dir_ = fs::path(::testing::TempDir()) /
               ("pool_admin_" + std::to_string(::getpid()) + "_" +
                ::testing::UnitTest::GetInstance()->current_test_info()->name());
        fs::remove_all(dir_);
        fs::create_directories(dir_);
    }
    ~PoolAdmin() override { fs::remove_all(dir_); }

    std::unique_ptr<EmbeddedStore> open(const std::string& directory, bool encrypt = false,
                                        const Clock* clock = nullptr) {
        EmbeddedOptions options;
        options.directory = directory;
        options.payload_bytes = kPayload;
        options.capacity_bytes = std::int64_t{4} << 30;
        options.encrypt = encrypt;
        if (encrypt) {
            fs::create_directories(pool());
            options.keys = std::move(*KeyRing::open(pool() + "/keys", real_clock()));
        }
        options.clock = clock;
        auto store = EmbeddedStore::open(std::move(options));
        if (store.ok()) return std::move(*store);
        ADD_FAILURE() << store.status().to_string();
        return nullptr;
    }
    void write(const std::string& directory, std::uint8_t ns = 1, bool encrypt = false,
               const Clock* clock = nullptr) {
        const auto store = open(directory, encrypt, clock);
        for (const PutOutcome outcome : put_blocks(*store, kNumbers, {}, ns).blocks)
            EXPECT_EQ(outcome, PutOutcome::stored);
        store->close(kNever);
    }
    std::string pool() const { return (dir_ / "pool").string(); }
    std::vector<fs::path> segments() const {
        std::vector<fs::path> found;
        for (const auto& entry : fs::recursive_directory_iterator(pool() + "/seg"))
            if (entry.is_regular_file()) found.push_back(entry.path());
        return found;
    }
    static void flip(const fs::path& path, std::int64_t at) {
        std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
        file.seekg(at);
        const char byte = static_cast<char>(file.get() ^ 1);
        file.seekp(at);
        file.put(byte);
    }

    fs::path dir_;
};

TEST_F(PoolAdmin, LooksBesideAServerAndLeavesChangesToIt) {
    const auto store = open(pool());
    put_blocks(*store, kNumbers, {}, 1);
    put_blocks(*store, {1, 2}, {.traffic_class = TrafficClass::ephemeral}, 2);
    const std::string me = "process " + std::to_string(::getpid());
    const Ran stat = run({"stat", pool(), "--json"});
    EXPECT_EQ(stat.status, 0) << stat.err;
    const Json of = stat.pool();
    EXPECT_EQ(of.find("held_by")->as_string(), me);
    EXPECT_EQ(number(*of.find("total"), "blocks"), 10);
    EXPECT_EQ(number(*of.find("total"), "unsealed"), 2);
    EXPECT_EQ(number(*of.find("classes")->find("ephemeral"), "blocks"), 2);
    const Json ns = of.find("namespaces")->items().at(0);
    EXPECT_EQ(ns.find("namespace")->as_string(), "0101010101010101");
    EXPECT_EQ(number(ns, "blocks"), 8);
    EXPECT_THAT(run({"stat", pool()}).out, HasSubstr("held by " + me));
    const Ran verify = run({"verify", pool(), "--json"});
    EXPECT_EQ(verify.status, 0) << verify.err;
    EXPECT_EQ(number(verify.pool(), "blocks"), 10);
    for (const std::vector<std::string>& words :
         {std::vector<std::string>{"scrub", pool()}, {"gc", pool()}}) {
        const Ran refused = run(words);
        EXPECT_EQ(refused.status, 1) << words[0];
        EXPECT_THAT(refused.err, HasSubstr(me + " has it open, nothing was changed"));
    }
    EXPECT_EQ(get_blocks(*store, kNumbers).result.leading_hits, kNumbers.size());
}

TEST_F(PoolAdmin, VerifyNamesABadSlotAndScrubForgetsItForGood) {
    write(pool());
    EXPECT_EQ(run({"verify", pool(), "--mib-per-s", "100"}).status, 0);
    const SlotGeometry geometry = *slot_geometry(kPayload);
    flip(segments().at(0), geometry.slot_offset(3) + 5000);
    const Ran bad = run({"verify", pool(), "--json"});
    EXPECT_EQ(bad.status, 1);
    EXPECT_EQ(number(bad.pool(), "bad_blocks"), 1);
    const Json slot = bad.pool().find("bad")->items().at(0);
    EXPECT_EQ(number(slot, "slot"), 3);
    EXPECT_EQ(slot.find("fault")->as_string(), "page");
    EXPECT_EQ(slot.find("file")->as_string(), segments().at(0).string());
    const Ran scrub = run({"scrub", pool(), "--json"});
    EXPECT_EQ(scrub.status, 0) << scrub.err;
    EXPECT_EQ(number(scrub.pool(), "blocks"), 8);
    EXPECT_EQ(number(scrub.pool(), "forgotten_blocks"), 1);
    EXPECT_EQ(run({"verify", pool()}).status, 0);
    const auto store = open(pool());
    EXPECT_EQ(get_block(*store, 3), GetStatus::miss);
    EXPECT_EQ(get_block(*store, 4), GetStatus::hit);
    EXPECT_FALSE(blocks_exist(*store, {3}).at(0));
}

TEST_F(PoolAdmin, GcRemovesWhatIsExpiredFromEveryPoolThatNobodyHasOpen) {
    const LateClock late(std::int64_t{10} * 86'400'000);
    write(pool(), 1, false, &late);
    fs::create_directories(pool() + "/peers");
    write(pool() + "/peers/a", 1, false, &late);
    const auto peer = open(pool() + "/peers/b");
    put_blocks(*peer, kNumbers);
    EXPECT_EQ(number(*run({"stat", pool(), "--json"}).pool().find("total"), "expired"), 1);
    const Ran gc = run({"gc", pool(), "--json"});
    EXPECT_EQ(gc.status, 0) << gc.err;
    const Json report = gc.json();
    ASSERT_EQ(report.find("pools")->items().size(), 2u);
    for (const Json& of : report.find("pools")->items()) {
        EXPECT_EQ(number(of, "removed_segments"), 1);
        EXPECT_EQ(number(of, "segments"), 0);
    }
    EXPECT_THAT(gc.err, HasSubstr("peers/b"));
    EXPECT_EQ(get_blocks(*peer, kNumbers).result.leading_hits, kNumbers.size());
    EXPECT_EQ(run({"gc", pool(), "--capacity-mib", "1"}).status, 1);
}

TEST_F(PoolAdmin, DropErasesATenantEverywhereWithItsKey) {
    write(pool(), 1, true);
    write(pool(), 2, true);
    fs::create_directories(pool() + "/peers");
    write(pool() + "/peers/a", 1, true);
    const auto key = [&](std::uint8_t ns) {
        return pool() + "/keys/" + hex_text(block_name(0, ns).ns.bytes) + ".key";
    };
    const Ran opened = run({"verify", pool(), "--json"});
    EXPECT_EQ(number(opened.pool(), "opened"), 16) << opened.err;
    const Ran drop = run({"drop", pool(), "--namespace", "0101010101010101", "--json"});
    EXPECT_EQ(drop.status, 0) << drop.err;
    EXPECT_EQ(number(drop.json(), "dropped_blocks"), 16);
    EXPECT_EQ(number(drop.json(), "left_blocks"), 0);
    EXPECT_FALSE(fs::exists(key(1)));
    EXPECT_TRUE(fs::exists(key(2)));
    EXPECT_EQ(run({"verify", pool()}).status, 0);
    const auto store = open(pool(), true);
    EXPECT_EQ(get_blocks(*store, kNumbers, true, 2).result.leading_hits, kNumbers.size());
    EXPECT_EQ(get_block(*store, 3, 1), GetStatus::miss);
}

// One that looks at marks answers, beside pools whose process has ended.
TEST_F(PoolAdmin, DropIsAnsweredByProcessesThatShareThePool) {
    SharedOptions options;
    options.make_embedded = [this] {
        EmbeddedOptions embedded;
        embedded.directory = pool();
        embedded.payload_bytes = kPayload;
        embedded.capacity_bytes = std::int64_t{4} << 30;
        return Result<EmbeddedOptions>(std::move(embedded));
    };
    options.look_us = 1'000;
    const auto first = *SharedStore::open(options), second = *SharedStore::open(options);
    put_blocks(*first, kNumbers, {}, 1);
    put_blocks(*second, kNumbers, {}, 2);
    put_blocks(*second, {20}, {}, 1);
    write(pool() + "/peers/gone", 1);
    const Ran drop = run({"drop", pool(), "--namespace", "0101010101010101", "--json"});
    EXPECT_EQ(drop.status, 0) << drop.out << drop.err;
    EXPECT_EQ(number(drop.json(), "dropped_blocks"), 17);
    EXPECT_EQ(number(drop.json(), "left_blocks"), 0);
    EXPECT_TRUE(drop.json().find("waiting")->items().empty());
    EXPECT_TRUE(fs::is_empty(pool() + "/drops"));
    for (const auto& store : {first.get(), second.get()}) {
        EXPECT_EQ(get_block(*store, 3, 1), GetStatus::miss);
        EXPECT_EQ(get_block(*store, 20, 1), GetStatus::miss);
    }
    EXPECT_EQ(get_blocks(*second, kNumbers, true, 2).result.leading_hits, kNumbers.size());
    put_blocks(*first, {3}, {}, 1);
    EXPECT_EQ(get_block(*first, 3, 1), GetStatus::hit);  // what is new is not meant
}

TEST_F(PoolAdmin, DropSaysWhoHasNotAnsweredAndIsFinishedByWhoOpensThePoolNext) {
    const std::vector<std::string> words = {
        "drop", pool(), "--namespace", "0101010101010101", "--timeout-s", "0"};
    write(pool());
    write(pool(), 2);
    fs::create_directories(pool() + "/peers");
    auto held = open(pool() + "/peers/a");
    put_blocks(*held, kNumbers);
    put_blocks(*held, kNumbers, {}, 2);
    std::vector<std::string> as_json = words;
    as_json.emplace_back("--json");
    const Ran drop = run(as_json);
    EXPECT_EQ(drop.status, 1) << drop.err;
    EXPECT_EQ(number(drop.json(), "dropped_blocks"), 8);
    EXPECT_EQ(number(drop.json(), "left_blocks"), 8);
    ASSERT_EQ(drop.json().find("waiting")->items().size(), 1U);
    const Json waiting = drop.json().find("waiting")->items().at(0);
    EXPECT_EQ(waiting.find("directory")->as_string(), pool() + "/peers/a");
    EXPECT_THAT(waiting.find("waits_for")->as_string(),
                HasSubstr("process " + std::to_string(::getpid()) + " has it open"));
    EXPECT_THAT(run(words).out, HasSubstr("not yet dropped from " + pool() + "/peers/a"));
    EXPECT_EQ(get_blocks(*held, kNumbers).result.leading_hits, kNumbers.size());
    held.reset();
    // Which command opens it makes no difference, nor by what name.
    EXPECT_EQ(run({"gc", pool() + "/peers/a/"}).status, 0);
    held = open(pool() + "/peers/a");
    EXPECT_EQ(get_block(*held, 3, 1), GetStatus::miss);
    EXPECT_EQ(get_blocks(*held, kNumbers, true, 2).result.leading_hits, kNumbers.size());
    held.reset();
    EXPECT_EQ(run(words).status, 0);
    const Ran refused = run({"drop", pool() + "/peers/a", "--namespace", "0101010101010101"});
    EXPECT_EQ(refused.status, 2);
    EXPECT_THAT(refused.err, HasSubstr("is one of the pools in " + pool()));
}

TEST_F(PoolAdmin, DropWantsToKnowWhoAndChangesNothingOtherwise) {
    write(pool());
    std::ofstream(dir_ / "key") << "alpha\n";
    const auto refused = [&](std::vector<std::string> words) {
        words.insert(words.begin(), {"drop", pool()});
        const Ran ran = run(words);
        EXPECT_EQ(ran.status, 2) << ran.out;
        return ran.err;
    };
    EXPECT_THAT(refused({}), HasSubstr("which tenant?"));
    EXPECT_THAT(refused({"--namespace", "01"}), HasSubstr("expected 16 or 64 hex digits"));
    EXPECT_THAT(refused({"--namespace", "01010101010101zz"}), HasSubstr("16 or 64 hex digits"));
    EXPECT_THAT(refused({"--namespace", "01010101010101AB"}),
                HasSubstr("16 or 64 hex digits in lower case"));
    EXPECT_THAT(refused({"--key-file", (dir_ / "key").string()}),
                HasSubstr("--model DIR is missing"));
    EXPECT_THAT(refused({"--key-file", (dir_ / "key").string(), "--model", "x", "--namespace",
                         "0101010101010101"}),
                HasSubstr("--namespace and --key-file both name one"));
    EXPECT_THAT(refused({"--model", "x", "--namespace", "0101010101010101"}),
                HasSubstr("--model goes with --key-file"));
    EXPECT_THAT(refused({"--namespace", "0101010101010101", "--key-dir", "/nope"}),
                HasSubstr("/nope"));
    EXPECT_EQ(run({"drop", pool(), "--namespace", "0909090909090909"}).status, 0);
    EXPECT_EQ(get_blocks(*open(pool()), kNumbers).result.leading_hits, kNumbers.size());
}

// What is no pool, or not wholly one, is said with its path; nothing crashes and nothing is made.
TEST_F(PoolAdmin, HostileDirectoriesAreRefusedByName) {
    write(pool());
    const fs::path segment = segments().at(0);
    struct Case {
        const char* what;
        std::function<void(const std::string& at)> make;
        const char* said;
    };
    const std::vector<Case> cases = {
        {"absent", [](const std::string&) {}, "cannot be listed"},
        {"empty", [](const std::string& at) { fs::create_directory(at); }, "is no pool"},
        {"file", [](const std::string& at) { std::ofstream(at) << "x"; }, "cannot be listed"},
        {"POOL cut short",
         [&](const std::string& at) {
             fs::copy(pool(), at, fs::copy_options::recursive);
             fs::resize_file(at + "/POOL", 100);
         },
         "POOL"},
        {"POOL of noise",
         [&](const std::string& at) {
             fs::create_directory(at);
             std::ofstream(at + "/POOL") << std::string(8192, 'x');
         },
         "POOL"},
        {"POOL a directory", [](const std::string& at) { fs::create_directories(at + "/POOL"); },
         "is no pool"},
        {"seg a file",
         [&](const std::string& at) {
             fs::copy(pool(), at, fs::copy_options::recursive);
             fs::remove_all(at + "/seg");
             std::ofstream(at + "/seg") << "x";
         },
         "seg"},
        {"dangling link", [&](const std::string& at) { fs::create_symlink(dir_ / "nowhere", at); },
         "is a link to"},
    };
    int number_of_case = 0;
    for (const Case& each : cases) {
        SCOPED_TRACE(each.what);
        const std::string at = (dir_ / std::to_string(number_of_case++)).string();
        each.make(at);
        for (const std::vector<std::string>& words :
             {std::vector<std::string>{"stat", at},
              {"verify", at},
              {"scrub", at},
              {"gc", at},
              {"drop", at, "--namespace", "0101010101010101"}}) {
            const Ran ran = run(words);
            EXPECT_EQ(ran.status, 1) << words[0] << ran.out << ran.err;
            EXPECT_THAT(ran.err, HasSubstr(at)) << words[0];
            EXPECT_THAT(ran.err, HasSubstr(each.said)) << words[0];
        }
    }
    EXPECT_FALSE(fs::exists(dir_ / "0"));
    EXPECT_FALSE(fs::exists(dir_ / "nowhere"));
    for (const char* command : {"stat", "verify", "scrub", "gc"}) {
        const Ran ran = run({command, ""});
        EXPECT_EQ(ran.status, 2) << command;
        EXPECT_THAT(ran.err, HasSubstr("the name of the directory is empty")) << command;
    }
    const Ran bench = run({"bench", (dir_ / "0").string()});
    EXPECT_EQ(bench.status, 2);
    EXPECT_THAT(bench.err, HasSubstr("name a directory"));
}

// A copy of a pool that is being written is what a server that is killed leaves.
TEST_F(PoolAdmin, VerifyTellsCutSegmentsFromEmptyOnesAndFromThoseBeingWritten) {
    const auto store = open(pool());
    put_blocks(*store, kNumbers);
    const std::string cut = (dir_ / "cut").string();
    fs::copy(pool(), cut, fs::copy_options::recursive);
    const Ran live = run({"verify", pool()}), killed = run({"verify", cut});
    EXPECT_EQ(live.status, 0) << live.out;
    EXPECT_EQ(killed.status, 0) << killed.out;
    EXPECT_THAT(live.out, HasSubstr("1 of the segments are open, being written: they hold 8"));
    EXPECT_THAT(killed.out, HasSubstr("1 of the segments are open, cut: they hold 8"));
    // Cut in the middle of the fourth slot, and a file without its header.
    for (const auto& entry : fs::recursive_directory_iterator(cut + "/seg"))
        if (entry.is_regular_file() && fs::file_size(entry) > 0)
            fs::resize_file(entry, slot_geometry(kPayload)->slot_offset(3) + 100);
    fs::create_directories(cut + "/seg/agent/1700000000");
    std::ofstream(cut + "/seg/agent/1700000000/00000000000000aa.seg");
    const Json report = run({"verify", cut, "--json"}).pool();
    EXPECT_EQ(number(report, "open_segments"), 1);
    EXPECT_EQ(number(report, "open_blocks"), 3);
    EXPECT_EQ(number(report, "blocks"), 3);
    EXPECT_EQ(number(report, "bad_blocks"), 0);
    EXPECT_EQ(number(report, "unbegun_segments"), 1);
    EXPECT_TRUE(report.find("held_by")->is_null());
}

// A server forgets a bad copy and stores the block anew; the bad one stays where it is.
TEST_F(PoolAdmin, ABadCopyOfABlockThatWasStoredAnewIsNotBad) {
    write(pool());
    const SlotGeometry geometry = *slot_geometry(kPayload);
    const fs::path segment = segments().at(0);
    flip(segment, geometry.slot_offset(2) + 5000);
    flip(segment, geometry.slot_offset(5) + 5000);
    {
        const auto store = open(pool());
        EXPECT_EQ(get_block(*store, 2), GetStatus::corrupt);
        EXPECT_EQ(put_block(*store, 2), PutOutcome::stored);
        store->close(kNever);
    }
    const Ran verify = run({"verify", pool(), "--json"});
    EXPECT_EQ(verify.status, 1);
    EXPECT_EQ(number(verify.pool(), "bad_blocks"), 1);
    EXPECT_EQ(number(verify.pool(), "replaced_blocks"), 1);
    EXPECT_EQ(number(verify.pool().find("bad")->items().at(0), "slot"), 5);
    EXPECT_EQ(number(run({"scrub", pool(), "--json"}).pool(), "forgotten_blocks"), 1);
    const Ran after = run({"verify", pool()});
    EXPECT_EQ(after.status, 0);
    EXPECT_THAT(after.out, HasSubstr("1 damaged copies are of blocks that were stored anew"));
    // The later copy is the one that counts.
    for (const fs::path& path : segments())
        if (path != segment) flip(path, geometry.slot_offset(0) + 5000);
    EXPECT_EQ(number(run({"verify", pool(), "--json"}).pool(), "bad_blocks"), 1);
}

TEST_F(PoolAdmin, AReplayDoesNotWriteOverItsTrace) {
    const std::string trace = (dir_ / "trace.jsonl").string();
    std::ofstream(trace) << "{}\n";
    for (const char* flag : {"--csv", "--svg"}) {
        const Ran refused = run({"replay", trace, flag, (dir_ / "." / "trace.jsonl").string()});
        EXPECT_EQ(refused.status, 2) << flag;
        EXPECT_THAT(refused.err, HasSubstr("would be written over, but it is read"));
    }
    EXPECT_EQ(fs::file_size(trace), 3u);
    const std::string out = (dir_ / "out").string();
    EXPECT_THAT(run({"replay", trace, "--csv", out, "--svg", out}).err,
                HasSubstr("is named for two outputs"));
}

TEST_F(PoolAdmin, ForeignAndTruncatedSegmentsAreSaidAndNotUsed) {
    write(pool());
    const std::string other = (dir_ / "other").string();
    write(other);
    const fs::path segment = segments().at(0);
    fs::path foreign;
    for (const auto& entry : fs::recursive_directory_iterator(other + "/seg"))
        if (entry.is_regular_file()) foreign = entry.path();
    fs::copy_file(foreign, segment.parent_path() / "00000000000000aa.seg");
    fs::copy_file(segment, segment.parent_path() / "00000000000000ab.seg");
    fs::copy_file(segment, segment.parent_path() / "00000000000000ac.seg");
    fs::resize_file(segment.parent_path() / "00000000000000ac.seg", 1000);
    const Ran stat = run({"stat", pool(), "--json"});
    EXPECT_EQ(stat.status, 0) << stat.err;
    EXPECT_EQ(number(*stat.pool().find("total"), "blocks"), 8);
    EXPECT_EQ(stat.pool().find("strange")->items().size(), 3u);
    const Ran verify = run({"verify", pool()});
    EXPECT_EQ(verify.status, 1);
    EXPECT_THAT(verify.out, HasSubstr("00000000000000aa.seg: it is of another pool"));
    // Cut off in the middle of its slots: those that are gone are bad.
    fs::resize_file(segment, slot_geometry(kPayload)->slot_offset(4));
    EXPECT_EQ(number(run({"verify", pool(), "--json"}).pool(), "bad_blocks"), 4);
}

}  // namespace
}  // namespace fathom
