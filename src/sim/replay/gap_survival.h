// How long until a block is used again, measured on a trace that ends: a life table. A use of a
// block begins a gap; the next use ends it, the end of the scope hides what would have come
// (censoring). Gaps are counted in classes of equal width on a logarithmic axis, four to a
// doubling, each weighted by its block. From the counts follows S(t), the share of gaps longer than
// t (the actuarial estimate: those hidden within a class count half in it).
//
// Under refresh on access a block is found if and only if its gap is at most the TTL, so 1 − S(TTL)
// is about the hit rate of that TTL on traffic that does not end. One thread.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/replay/trace.h"

namespace fathom {

class GapSurvival {
  public:
    void add(const TraceRequest& request);
    void end();  // of the last scope; before the figures are asked for

    // The share of gaps longer than t, from 1 to 0. Beyond the last gap seen it is what it is
    // there.
    double survival(double seconds) const;
    // The exponent of S(t) ~ t^-a between two times that the trace reaches: what a tail would go on
    // with if it kept to a power law. 0 when nothing was seen there.
    double exponent(double from_s, double to_s) const;
    double longest_s() const { return longest_s_; }  // gap that ended
    std::int64_t gaps() const { return ended_count_; }

  private:
    struct Class {
        double ended = 0, hidden = 0;
    };
    void count(std::int64_t gap_us, bool is_hidden);
    void end_scope();

    std::vector<Class> classes_;
    std::vector<std::int64_t> last_us_;  // a block's last use; -1: none in this scope
    std::int64_t now_us_ = 0, ended_count_ = 0;
    double longest_s_ = 0;
};

}  // namespace fathom
