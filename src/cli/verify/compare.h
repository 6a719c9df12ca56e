// Comparing with golden data, and the tolerances (docs/verify.md gives their origin). A Check is
// one line of the report: what was compared, the worst error, its tolerance.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "kernels/numerics.h"

namespace fathom::verify {

struct Check {
    std::string what;
    double worst = 0;
    double tolerance = 0;
    bool pass = true;
    std::string note;  // e.g. "argmax 128 of 130", or why something was not compared
    bool skipped = false;
};

// How tight the end-to-end comparison of a case can be. In the real arithmetic a random tiny model
// may be chaotic: one flipped code selects other keys and everything after differs. The case's own
// measured noise tells.
enum class Sharpness { fp32, settled, chaotic };

// Compares logits rows of one tensor and, for the real mode's statistical bounds, pools rows by
// kind over a whole case.
class LogitsComparison {
  public:
    // tight_median: the case's own bound on the median row error (0: the general one).
    LogitsComparison(Sharpness sharpness, double tight_median)
        : sharpness_(sharpness), tight_median_(tight_median) {}

    // rows [n, vocab] ours beside golden; gaps [n] are the golden top-2 gaps, or empty; deviation
    // is the standard deviation of all golden logits of the sequence.
    Check compare(const std::string& what, const std::string& kind, std::span<const float> ours,
                  std::span<const float> golden, std::int64_t vocab, std::span<const float> gaps,
                  double deviation);
    // The pooled lines, one a kind (real mode only).
    std::vector<Check> pooled() const;

  private:
    struct Pool {
        std::vector<double> row_errors;  // rms / deviation
        std::int64_t argmax_equal = 0, decisive = 0, decisive_equal = 0;
    };
    Sharpness sharpness_;
    double tight_median_;
    std::map<std::string, Pool> pools_;
};

double standard_deviation(std::span<const float> values);
// rms(ours − golden) / rms(golden); −inf counts as equal where both have it and as an infinite
// error where one has.
double relative_rms(std::span<const float> ours, std::span<const float> golden);

}  // namespace fathom::verify
