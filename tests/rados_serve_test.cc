// `fathom serve` with its pool in a cluster.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "base/json.h"
#include "gateway_process.h"
#include "rados_rig.h"

namespace fathom::testing {
namespace {

using ::testing::HasSubstr;

class RadosServer : public ::testing::Test {
  protected:
    void SetUp() override {
        secret_ = std::filesystem::path(::testing::TempDir()) /
                  ("rados_secret_" + std::to_string(::getpid()));
        std::ofstream(secret_) << std::string(32, 's');
        std::filesystem::permissions(secret_, std::filesystem::perms(0600));
    }
    void TearDown() override { std::filesystem::remove(secret_); }

    std::vector<std::string> flags() const {
        return {"--pool.store",
                "rados",
                "--pool.rados_conf",
                shared_cluster()->conf(),
                "--pool.rados_pool",
                CephCluster::kSmallPool,
                "--pool.rados_index_pool",
                CephCluster::kIndexPool,
                "--pool.rados_namespace",
                namespace_,
                "--pool.secret_file",
                secret_.string(),
                "--pool.find_ms",
                "5000",
                "--pool.load_ms",
                "5000",
                "--engine.cost_model",  // this model computes faster than a busy cluster reads
                "rows"};
    }

    const std::string namespace_ = new_rados_namespace();
    std::filesystem::path secret_;
};

std::string body() {
    std::string prompt;
    for (int i = 0; i < 60; ++i)
        prompt += "Day " + std::to_string(i) + " comes after the day before. ";
    return R"({"model":"tiny","prompt":")" + prompt + R"(","temperature":0,"max_tokens":8})";
}

std::int64_t cached_tokens(const ServeProcess& server) {
    const auto answer = server.ask(http_post("/v1/completions", body()));
    EXPECT_EQ(answer.status, 200) << answer.body;
    const auto json = parse_json(answer.body);
    if (answer.status != 200 || !json.ok()) return -1;
    const Json* details = json->find("usage")->find("prompt_tokens_details");
    return details == nullptr ? 0 : details->find("cached_tokens")->as_int64();
}

TEST_F(RadosServer, AnotherServerFindsWhatTheFirstComputed) {
    {
        ServeProcess server(flags());
        EXPECT_EQ(cached_tokens(server), 0);
        kill(server.child().pid(), SIGTERM);
        EXPECT_EQ(server.child().finish(), 0) << server.child().err();
    }
    ServeProcess first(flags()), second(flags());
    EXPECT_GE(cached_tokens(first), 128);
    EXPECT_GE(cached_tokens(second), 128);
    EXPECT_GT(second.metric("kvpool_hit_tokens_total"), 0);
    kill(second.child().pid(), SIGTERM);
    EXPECT_EQ(second.child().finish(), 0) << second.child().err();
}

TEST_F(RadosServer, WhatCannotBeOpenedSaysWhy) {
    const auto refused = [&](const std::vector<std::string>& more) {
        std::vector<std::string> words = {
            FATHOM_PROGRAM, "serve", "--model", source_path("models/tiny"), "--port", "0"};
        for (const auto& list : {flags(), more})
            words.insert(words.end(), list.begin(), list.end());
        Child child(words);
        EXPECT_EQ(child.finish(), 1);
        return child.err();
    };
    EXPECT_THAT(refused({"--pool.secret_file", ""}), HasSubstr("needs pool.secret_file"));
    EXPECT_THAT(refused({"--pool.secret_file", "/nowhere/secret"}), HasSubstr("/dev/urandom"));
    EXPECT_THAT(refused({"--pool", "/tmp/x"}), HasSubstr("in a directory or in a cluster"));
    EXPECT_THAT(refused({"--pool.encrypt"}), HasSubstr("give pool.key_dir"));
}

}  // namespace
}  // namespace fathom::testing
