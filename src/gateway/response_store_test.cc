#include "gateway/response_store.h"

#include <gtest/gtest.h>

namespace fathom {
namespace {

StoredResponse response_of(std::size_t bytes) {
    return {.response = std::string(bytes, 'r'), .items = "[]"};
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
    store_.put("c", "5", response_of(80));  // 13 + 83 bytes
    EXPECT_FALSE(has("3"));
    EXPECT_TRUE(has("4"));
    EXPECT_TRUE(has("5"));
    EXPECT_EQ(store_.bytes(), 96u);
    store_.put("c", "6", response_of(200));
    EXPECT_FALSE(has("6")) << "more than all there may be";
    EXPECT_EQ(store_.size(), 2u);
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
    const Json::Array earlier = {Json("before")};
    const std::string answer = R"({"id":"r","output":["answer"]})";
    const auto items = [&](const char* body) {
        return make_stored_response(body, earlier, answer)->items;
    };
    EXPECT_EQ(items(R"({"input":[1,2]})"), R"(["before",1,2,"answer"])");
    EXPECT_EQ(items(R"({"input":"hi"})"),
              R"(["before",{"type":"message","role":"user","content":"hi"},"answer"])");
    EXPECT_EQ(items(R"({"instructions":"x"})"), R"(["before","answer"])");
    const auto stored = make_stored_response(R"({"input":[1]})", {}, answer);
    EXPECT_EQ(stored->response, answer);
    EXPECT_EQ(stored_items(*stored)->size(), 2u);
}

}  // namespace
}  // namespace fathom
