// Routed tokens of made-up traffic, for tests and benchmarks. Experts have a popularity that is
// log-normal; a token takes `top` different ones, drawn by it; `alike` tokens of one sequence take
// the same (κ of serving.md 2.3.1).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/random.h"

namespace fathom::testing {

class ExpertTraffic {
  public:
    ExpertTraffic(std::int64_t experts, double sigma, std::uint64_t seed) : random_(seed) {
        for (std::int64_t e = 0; e < experts; ++e)
            popularity_.push_back(std::exp(sigma * random_.next_normal()));
        rebuild();
    }

    // Popularities change by a log-normal factor each.
    void drift(double sigma) {
        for (double& p : popularity_)
            p *= std::exp(sigma * random_.next_normal());
        rebuild();
    }

    // Each of twelve topics (experts by their number modulo 12) becomes popular by a log-normal
    // factor, in place of those of the last choice.
    void choose_topics(double sigma) {
        if (steady_.empty()) steady_ = popularity_;
        std::vector<double> factors;
        for (int t = 0; t < kTopics; ++t)
            factors.push_back(std::exp(sigma * random_.next_normal()));
        for (std::size_t e = 0; e < popularity_.size(); ++e)
            popularity_[e] = steady_[e] * factors[e % kTopics];
        rebuild();
    }

    // Expert sets of `tokens` tokens, `top` after each other.
    void draw(std::int64_t tokens, std::int64_t top, std::int64_t alike,
              std::vector<std::int32_t>& out) {
        out.clear();
        for (std::int64_t t = 0; t < tokens; ++t) {
            if (t % alike == 0) {
                set_.clear();
                while (static_cast<std::int64_t>(set_.size()) < top) {
                    const std::int32_t e = draw_one();
                    if (std::find(set_.begin(), set_.end(), e) == set_.end()) set_.push_back(e);
                }
            }
            out.insert(out.end(), set_.begin(), set_.end());
        }
    }

    RandomStream& random() { return random_; }
    const std::vector<double>& popularity() const { return popularity_; }

  private:
    static constexpr std::size_t kBuckets = 8192;
    static constexpr int kTopics = 12;

    // Inverse of the cumulative popularity, found from a table of beginnings.
    void rebuild() {
        cumulative_.assign(1, 0);
        for (const double p : popularity_)
            cumulative_.push_back(cumulative_.back() + p);
        first_.clear();
        std::size_t e = 0;
        for (std::size_t b = 0; b < kBuckets; ++b) {
            const double u = cumulative_.back() * static_cast<double>(b) / kBuckets;
            while (cumulative_[e + 1] <= u)
                ++e;
            first_.push_back(static_cast<std::int32_t>(e));
        }
    }
    std::int32_t draw_one() {
        // Two draws of 32 bits from one number.
        if (spare_bits_ == 0) {
            bits_ = random_.next_u64();
            spare_bits_ = 2;
        }
        const double u = static_cast<double>(bits_ & 0xffff'ffff) * 0x1p-32;
        bits_ >>= 32;
        --spare_bits_;
        auto e = static_cast<std::size_t>(
            first_[static_cast<std::size_t>(u * static_cast<double>(kBuckets))]);
        while (cumulative_[e + 1] <= u * cumulative_.back() && e + 1 < popularity_.size())
            ++e;
        return static_cast<std::int32_t>(e);
    }

    RandomStream random_;
    std::vector<double> popularity_, cumulative_, steady_;
    std::vector<std::int32_t> first_, set_;
    std::uint64_t bits_ = 0;
    int spare_bits_ = 0;
};

}  // namespace fathom::testing
