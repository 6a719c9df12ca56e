// Responses that later requests may name by `previous_response_id` (OpenAI Responses). Bounded in
// number, bytes and age; the oldest go first. What it holds is lost with the process.
//
// An entry belongs to the client that made it: another client does not find it. One owner thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/json.h"
#include "base/result.h"

namespace fathom {

struct ResponseStoreOptions {
    std::size_t entries_max = 1000;
    std::size_t bytes_max = std::size_t{64} << 20;  // of all texts
    std::int64_t life_us = std::int64_t{3600} * 1'000'000;
};

struct StoredResponse {
    std::string response;  // the response object, JSON
    // JSON list: the items it was asked with, those of earlier responses included, and its output.
    std::string items;
};

class ResponseStore {
  public:
    ResponseStore(const ResponseStoreOptions& options, const Clock& clock)
        : options_(options), clock_(clock) {}

    // One that is larger than everything the store may hold is not kept.
    void put(std::string_view client, std::string id, StoredResponse response);
    // not_found: none of this client, no longer, or never. The pointer holds until the next put or
    // erase.
    Result<const StoredResponse*> find(std::string_view client, const std::string& id);
    Status erase(std::string_view client, const std::string& id);

    std::size_t size() const { return entries_.size(); }
    std::size_t bytes() const { return bytes_; }

  private:
    struct Entry {
        std::string client;
        StoredResponse stored;
        std::int64_t made_us = 0;
        std::uint64_t number = 0;

        std::size_t bytes() const {
            return client.size() + stored.response.size() + stored.items.size();
        }
    };
    using Entries = std::map<std::string, Entry, std::less<>>;

    void drop(Entries::iterator entry);
    void drop_old();

    const ResponseStoreOptions options_;
    const Clock& clock_;
    Entries entries_;                             // by id
    std::map<std::uint64_t, std::string> order_;  // by age
    std::uint64_t next_number_ = 0;
    std::size_t bytes_ = 0;
};

// The items of a stored response, for lower_responses_request.
Result<Json::Array> stored_items(const StoredResponse& stored);

// What to store of a request body and the finished response object; `earlier` are the items that
// stood in front of the body's input.
Result<StoredResponse> make_stored_response(std::string_view body, Json::Array earlier,
                                            std::string response);

}  // namespace fathom
