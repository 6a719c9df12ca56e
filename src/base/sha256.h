// SHA-256 and HMAC-SHA-256 (OpenSSL does the work behind sha256.cc). For keys of stored blocks, and
// for whatever else must mean the same bytes to every process that reads it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace fathom {

using Sha256Digest = std::array<std::uint8_t, 32>;

// A digest in the making. Reusable: finish() begins anew, which is cheaper than another object. One
// thread.
class Sha256 {
  public:
    Sha256();
    ~Sha256();
    Sha256(const Sha256&) = delete;
    Sha256& operator=(const Sha256&) = delete;

    void update(std::span<const std::uint8_t> bytes);
    void update(std::string_view bytes);
    Sha256Digest finish();

  private:
    struct Context;
    std::unique_ptr<Context> context_;
};

Sha256Digest hmac_sha256(std::string_view secret, std::string_view message);

// Of a file's bytes, read once from beginning to end. Errors name the path.
Result<Sha256Digest> file_sha256(const std::string& path);

std::string hex_text(std::span<const std::uint8_t> bytes);  // lower case

}  // namespace fathom
