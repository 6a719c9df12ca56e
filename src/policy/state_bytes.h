// A policy's state as bytes, so that a standby can take over and a test can start from any state:
// little-endian 64-bit words behind a tag and a version. Reading checks everything before it is
// used; after the first error a reader gives zeros, and status() tells what was wrong.
//
//   StateWriter out("PFIL", 1);  out.add(n).add(x);  out.take()
//   StateReader in(bytes, "PFIL", 1);  n = in.count(limit);  x = in.f64();  return in.finish();
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace fathom {

class StateWriter {
  public:
    StateWriter(std::string_view tag, std::uint32_t version);  // a tag has four characters
    StateWriter& add(std::uint64_t word);
    StateWriter& add(std::int64_t value) { return add(static_cast<std::uint64_t>(value)); }
    StateWriter& add(std::int32_t value) { return add(static_cast<std::int64_t>(value)); }
    StateWriter& add(bool value) { return add(std::uint64_t{value ? 1U : 0U}); }
    StateWriter& add(double value);
    std::vector<std::uint8_t> take() { return std::move(bytes_); }

  private:
    std::vector<std::uint8_t> bytes_;
};

class StateReader {
  public:
    StateReader(std::span<const std::uint8_t> bytes, std::string_view tag, std::uint32_t version);
    std::uint64_t u64();
    std::int64_t i64() { return static_cast<std::int64_t>(u64()); }
    // Within [low, high], or an error.
    std::int64_t in_range(std::int64_t low, std::int64_t high);
    bool flag() { return in_range(0, 1) != 0; }
    double f64();  // finite, or an error
    // How many elements of at least one word follow; an error above `limit` or what can follow.
    std::size_t count(std::size_t limit);
    void fail(Status status);  // what the caller found; the first one stays
    bool ok() const { return status_.ok(); }
    Status finish();  // also an error when bytes are left

  private:
    std::span<const std::uint8_t> bytes_;
    std::size_t at_ = 0;
    Status status_;
};

}  // namespace fathom
