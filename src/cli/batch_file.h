// The two files of a batch. The input has one JSON object a line; blank lines are skipped. The
// output has one JSON object for each of them, in the order of the input, each written whole and
// beginning with the "id" of its request, so that a batch that was cut off (killed, out of power)
// can go on: what stands in the output is done, and a torn last line is dropped.
//
// One thread. Lines are limited to kBatchLineBytesMax.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace fathom {

inline constexpr std::size_t kBatchLineBytesMax = std::size_t{64} << 20;

// The request's "id" member (a string or an integer), or the number of its line when it has none.
// A line that is no JSON object has its number as id too: its error must stand somewhere.
Json batch_id(const Result<Json>& line, std::int64_t line_number);

class BatchInput {
  public:
    static Result<std::unique_ptr<BatchInput>> open(const std::string& path);
    ~BatchInput();

    struct Line {
        std::int64_t number = 0;  // from 1, blank lines counted
        std::string text;
    };
    // The next line that is not blank; empty at the end. Errors: unreadable, or a line too long.
    Result<std::optional<Line>> next();
    // Lines that are not blank, for a progress bar; reads the file once through.
    static Result<std::int64_t> count(const std::string& path);

  private:
    BatchInput() = default;
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

class BatchOutput {
  public:
    // Opens for appending; creates the file, or drops a torn last line. A damaged line elsewhere is
    // data_loss. Only a regular file is read: a pipe or device has no earlier answers.
    static Result<std::unique_ptr<BatchOutput>> open(const std::string& path);
    ~BatchOutput();
    BatchOutput(const BatchOutput&) = delete;
    BatchOutput& operator=(const BatchOutput&) = delete;

    // Ids that were already there, in order.
    const std::vector<Json>& done() const { return done_; }
    // Appends text and a newline in one write.
    Status append(std::string_view text);
    Status sync();  // to the disk

  private:
    BatchOutput() = default;
    Status read_earlier_answers();

    std::string path_;
    int fd_ = -1;
    std::vector<Json> done_;
};

}  // namespace fathom
