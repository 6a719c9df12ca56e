// Reads the JSON-lines files of the shared data. A line that does not parse fails the test at hand.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/json.h"

namespace fathom::testing {

inline std::vector<Json> read_json_lines(const std::string& path) {
    std::vector<Json> rows;
    std::ifstream file(path);
    EXPECT_TRUE(file.good()) << path;
    for (std::string line; std::getline(file, line);) {
        auto row = parse_json(line);
        EXPECT_TRUE(row.ok()) << path << ":" << rows.size() + 1 << ": " << row.status().message();
        if (row.ok()) rows.push_back(*std::move(row));
    }
    return rows;
}

inline std::vector<TokenId> token_ids(const Json& array) {
    std::vector<TokenId> ids;
    for (const Json& id : array.items())
        ids.push_back(static_cast<TokenId>(id.as_int64()));
    return ids;
}

// The string member, or `fallback` where it is absent or null.
inline std::string text_of(const Json& object, std::string_view key, std::string fallback = {}) {
    const Json* member = object.find(key);
    return member != nullptr && member->is_string() ? member->as_string() : fallback;
}

inline bool flag_of(const Json& object, std::string_view key, bool fallback = false) {
    const Json* member = object.find(key);
    return member != nullptr && member->is_bool() ? member->as_bool() : fallback;
}

}  // namespace fathom::testing
