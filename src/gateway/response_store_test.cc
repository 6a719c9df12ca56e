#include "gateway/response_store.h"

#include <gtest/gtest.h>

#include <string>

namespace fathom {
namespace {

StoredResponse response_of(std::size_t bytes) {
    return {.response = std::string(bytes, 'r'), .body = "{}"};
}

class ResponseStoreTest : public ::testing::Test {
  protected:
    bool has(const std::string& id, std::string_view client = "c") {
        return store_.find(client, id).ok();
    }
    ManualClock clock_;
    ResponseStore store_{{.entries_max = 3, .bytes_max = 100, .life_us = 1000}, clock_};
};

TEST_F(ResponseStoreTest, FindsWhatTheSameClientStored) {
    store_.put("c", "1", response_of(10));
    EXPECT_EQ((*store_.find("c", "1"))->response.size(), 10u);
    const Status other = store_.find("d", "1").status();
    EXPECT_EQ(other.code(), StatusCode::not_found);
    EXPECT_EQ(other.message(), "Response with id '1' not found.");
    EXPECT_FALSE(store_.erase("d", "1").ok());
    EXPECT_TRUE(store_.erase("c", "1").ok());
    EXPECT_FALSE(has("1"));
    EXPECT_EQ(store_.bytes(), 0u);
}

TEST_F(ResponseStoreTest, TheOldestGoFirst) {
    for (const char* id : {"1", "2", "3", "4"})
        store_.put("c", id, response_of(10));
    EXPECT_EQ(store_.size(), 3u);
    EXPECT_FALSE(has("1"));
    EXPECT_TRUE(has("2"));
    EXPECT_TRUE(store_.put("c", "5", response_of(47)));
    EXPECT_TRUE(store_.put("c", "6", response_of(37)));  // 13 + 50 + 40 bytes are too many
    EXPECT_FALSE(has("4"));
    EXPECT_TRUE(has("5"));
    EXPECT_TRUE(has("6"));
    EXPECT_EQ(store_.bytes(), 90u);
}

TEST_F(ResponseStoreTest, WhatTakesMoreThanHalfIsNotKeptAndSaysSo) {
    store_.put("c", "1", response_of(10));
    EXPECT_EQ(store_.response_bytes_max("c", 2), 47u);
    EXPECT_TRUE(store_.put("c", "2", response_of(47)));
    EXPECT_FALSE(store_.put("c", "3", response_of(48)));
    EXPECT_EQ(store_.response_bytes_max("c", 60), 0u);
    EXPECT_TRUE(has("1"));
    EXPECT_FALSE(has("3"));
    ResponseStore none({.entries_max = 0, .bytes_max = 100, .life_us = 1000}, clock_);
    EXPECT_FALSE(none.put("c", "1", response_of(1)));
}

TEST_F(ResponseStoreTest, AClientPushesOutItsOwnBeforeThoseOfOthersThatHoldLess) {
    store_.put("b", "b1", response_of(20));
    for (int i = 0; i < 20; ++i)
        store_.put("a", "a" + std::to_string(i), response_of(20));
    EXPECT_TRUE(has("b1", "b")) << "by number";
    EXPECT_TRUE(has("a19", "a"));
    EXPECT_FALSE(has("a17", "a"));
    for (int i = 20; i < 40; ++i)
        store_.put("a", "a" + std::to_string(i), response_of(47));
    EXPECT_TRUE(has("b1", "b")) << "by bytes";
    EXPECT_TRUE(has("a39", "a"));
    EXPECT_EQ(store_.size(), 2u);
    store_.put("b", "b2", response_of(47));
    EXPECT_FALSE(has("b1", "b")) << "75 bytes of b's against 50 of a's";
    EXPECT_TRUE(has("a39", "a"));
}

TEST_F(ResponseStoreTest, TheNewestStaysEvenWhereItsClientHoldsMost) {
    store_.put("b", "b1", response_of(27));
    store_.put("d", "d1", response_of(27));
    store_.put("a", "a1", response_of(47));
    EXPECT_TRUE(has("a1", "a"));
    EXPECT_EQ(store_.size(), 2u);
}

TEST_F(ResponseStoreTest, WhatIsReadOutlivesItsEntry) {
    store_.put("c", "1", response_of(10));
    const StoredResponsePtr read = *store_.find("c", "1");
    EXPECT_TRUE(store_.erase("c", "1").ok());
    EXPECT_EQ(read->response.size(), 10u);
}

TEST_F(ResponseStoreTest, ForgetsAfterItsLife) {
    store_.put("c", "1", response_of(1));
    clock_.advance_us(999);
    store_.put("c", "2", response_of(1));
    EXPECT_TRUE(has("1"));
    clock_.advance_us(1);
    EXPECT_FALSE(has("1"));
    EXPECT_TRUE(has("2"));
}

TEST_F(ResponseStoreTest, AnIdThatIsStoredAgainIsReplaced) {
    store_.put("c", "1", response_of(10));
    store_.put("c", "1", response_of(20));
    EXPECT_EQ(store_.size(), 1u);
    EXPECT_EQ(store_.bytes(), 23u);
}

TEST(StoredResponse, HoldsAllThatTheNextRequestContinues) {
    const std::string answer = R"({"id":"r","output":["answer"]})";
    const auto items = [&](const char* body, const char* earlier = R"(["before"])") {
        return Json::array(*stored_items({.response = answer, .body = body, .earlier = earlier}))
            .dump();
    };
    EXPECT_EQ(items(R"({"input":[1,2]})"), R"(["before",1,2,"answer"])");
    EXPECT_EQ(items(R"({"input":"hi"})"),
              R"(["before",{"type":"message","role":"user","content":"hi"},"answer"])");
    EXPECT_EQ(items(R"({"instructions":"x"})"), R"(["before","answer"])");
    EXPECT_EQ(items(R"({"input":[1]})", ""), R"([1,"answer"])");
}

}  // namespace
}  // namespace fathom
