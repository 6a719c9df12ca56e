// Files of recorded results, one JSON object a line, against this library. What a row is follows
// from its members (golden/recipe/README.md of the specification,
// tests/data/transcripts/README.md), so a file may hold rows of several forms.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "recipe/tokenizer.h"
#include "recipe/vectors/row_checks.h"

namespace fathom {

// Without a tokenizer, rows of ids are skipped. Rows of no known form fail.
RowOutcome check_row(const Json& row, const std::shared_ptr<const Tokenizer>& tokenizer);

struct RowFailure {
    std::int64_t line = 0;  // from 1
    std::string id;         // of the row, if it has one
    std::string difference;
};

struct FileReport {
    std::string path;
    std::int64_t passed = 0;
    std::int64_t status_only = 0;  // of passed: errors whose words are not compared
    std::vector<RowFailure> failures;
    std::map<std::string, std::int64_t> skipped;  // rows by reason

    std::int64_t rows() const;
};

struct FileCheck {
    std::shared_ptr<const Tokenizer> tokenizer;  // absent: tokenizer.json beside the file, if any
    std::function<void(std::int64_t rows, std::int64_t total)> progress;  // after each row, if set
};

// Errors: a file that cannot be read, or has no rows. A line that is no JSON fails as a row.
Result<FileReport> check_file(const std::string& path, const FileCheck& check);

}  // namespace fathom
