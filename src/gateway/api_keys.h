// The keys of a server. Immutable; any thread. A key is never logged and never part of a message.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace fathom {

// The key that a request carries: that of "Authorization: Bearer KEY", else the header x-api-key.
// Empty: none.
std::string_view request_key(std::string_view authorization, std::string_view x_api_key);

class ApiKeys {
  public:
    // Keys are what a header can carry: 1 to 4096 visible ASCII characters. The message names the
    // position of a bad key, not its text.
    static Result<ApiKeys> create(std::vector<std::string> keys);

    bool required() const { return !keys_.empty(); }
    // Whether this is one of the keys. Takes the same time for every wrong key of a length.
    bool accepts(std::string_view key) const { return place(key).has_value(); }
    // Its place among them.
    std::optional<std::size_t> place(std::string_view key) const;

  private:
    explicit ApiKeys(std::vector<std::string> keys) : keys_(std::move(keys)) {}
    std::vector<std::string> keys_;
};

}  // namespace fathom
