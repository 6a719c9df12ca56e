// Responses that later requests may name by `previous_response_id` (OpenAI Responses). Bounded in
// number, bytes and age. What it holds is lost with the process.
//
// An entry belongs to the client that made it: another client does not find it. When the store is
// full, the oldest entry of the client that holds most goes, so nobody can push out what others
// keep while holding more than they do. One owner thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/json.h"
#include "base/result.h"

namespace fathom {

struct ResponseStoreOptions {
    std::size_t entries_max = 1000;
    std::size_t bytes_max = std::size_t{64} << 20;  // of all texts; of one entry half of it
    std::int64_t life_us = std::int64_t{3600} * 1'000'000;
};

struct StoredResponse {
    std::string response;      // the response object, JSON
    std::string body;          // the request that it answers
    std::string earlier = {};  // JSON list: items that stood in front of the body's input, if any
};
// Shared: who reads it on another thread may do so while the store drops it.
using StoredResponsePtr = std::shared_ptr<const StoredResponse>;

class ResponseStore {
  public:
    ResponseStore(const ResponseStoreOptions& options, const Clock& clock)
        : options_(options), clock_(clock) {}

    // How large a response may be, beside what else its entry holds; 0: nothing fits.
    std::size_t response_bytes_max(std::string_view client, std::size_t other_bytes) const;
    // False: larger than an entry may be, and not kept.
    bool put(std::string_view client, std::string id, StoredResponse response);
    // not_found: none of this client, no longer, or never.
    Result<StoredResponsePtr> find(std::string_view client, const std::string& id);
    Status erase(std::string_view client, const std::string& id);

    std::size_t size() const { return entries_.size(); }
    std::size_t bytes() const { return bytes_; }

  private:
    using Order = std::map<std::uint64_t, std::string>;  // ids by age
    struct Client {
        Order order;
        std::size_t bytes = 0;
    };
    using Clients = std::map<std::string, Client, std::less<>>;
    struct Entry {
        Clients::iterator client;
        StoredResponsePtr stored;
        std::size_t bytes = 0;
        std::int64_t made_us = 0;
        std::uint64_t number = 0;
    };
    using Entries = std::map<std::string, Entry, std::less<>>;

    void drop(Entries::iterator entry);
    void drop_old();
    void make_room();

    const ResponseStoreOptions options_;
    const Clock& clock_;
    Clients clients_;  // that have entries
    Entries entries_;  // by id
    Order order_;
    std::uint64_t next_number_ = 0;
    std::size_t bytes_ = 0;
};

// What a later request continues, for lower_responses_request: the items that stood in front of the
// request, those of its input, and the output of its response. Any thread.
Result<Json::Array> stored_items(const StoredResponse& stored);

}  // namespace fathom
