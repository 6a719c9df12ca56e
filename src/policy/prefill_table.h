// The time of a prefill slice as a table over its context and its tokens, for machines whose times
// no coefficients fit (serving.md 2.1.3). Between the measured points it is bilinear, and it never
// falls with either: a cell is half way between the largest time at no more of both and the
// smallest at no less of both, so that noise cannot make more work look cheaper.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace fathom {

class PrefillTable {
  public:
    struct Point {
        std::int64_t context = 0, tokens = 0;
        double time_us = 0;
    };
    // Any points, also several at a place and none at others; at least two different numbers of
    // tokens, and times that are finite and not negative.
    static Result<PrefillTable> fit(std::span<const Point> points);
    // As stored: strictly increasing axes from at least 0 and 1, times a row of tokens a context.
    // Refused where a time falls along an axis.
    static Result<PrefillTable> make(std::vector<std::int64_t> contexts,
                                     std::vector<std::int64_t> tokens,
                                     std::vector<double> times_us);

    // tokens >= 0, of any number: beyond the last column as several slices one after another.
    // Contexts outside the table count as its first and last.
    double work_us(std::int64_t tokens, std::int64_t context) const;

    friend bool operator==(const PrefillTable&, const PrefillTable&) = default;
    const std::vector<std::int64_t>& contexts() const { return contexts_; }
    const std::vector<std::int64_t>& tokens() const { return tokens_; }
    const std::vector<double>& times_us() const { return times_us_; }

  private:
    double slice_us(std::int64_t tokens, std::int64_t context) const;

    std::vector<std::int64_t> contexts_, tokens_;
    std::vector<double> times_us_;
};

}  // namespace fathom
