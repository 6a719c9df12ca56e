#include "policy/state_bytes.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/check.h"

namespace fathom {

namespace {

std::uint64_t header_word(std::string_view tag, std::uint32_t version) {
    FATHOM_CHECK(tag.size() == 4);
    std::uint64_t word = std::uint64_t{version} << 32;
    for (std::size_t i = 0; i < 4; ++i)
        word |= std::uint64_t{static_cast<std::uint8_t>(tag[i])} << (8 * i);
    return word;
}

}  // namespace

StateWriter::StateWriter(std::string_view tag, std::uint32_t version) {
    add(header_word(tag, version));
}

StateWriter& StateWriter::add(std::uint64_t word) {
    for (int i = 0; i < 8; ++i)
        bytes_.push_back(static_cast<std::uint8_t>(word >> (8 * i)));
    return *this;
}

StateWriter& StateWriter::add(double value) {
    return add(std::bit_cast<std::uint64_t>(value));
}

StateReader::StateReader(std::span<const std::uint8_t> bytes, std::string_view tag,
                         std::uint32_t version)
    : bytes_(bytes) {
    const std::uint64_t expected = header_word(tag, version);
    const std::uint64_t found = u64();
    if (ok() && found != expected) {
        fail(error(StatusCode::data_loss, "state \"{}\": begins with {:016x}, expected {:016x}",
                   tag, found, expected));
    }
}

std::uint64_t StateReader::u64() {
    if (!ok()) return 0;
    if (bytes_.size() - at_ < 8) {
        fail(error(StatusCode::data_loss, "state: ends at byte {}, expected more", bytes_.size()));
        return 0;
    }
    std::uint64_t word = 0;
    for (std::size_t i = 0; i < 8; ++i)
        word |= std::uint64_t{bytes_[at_ + i]} << (8 * i);
    at_ += 8;
    return word;
}

std::int64_t StateReader::in_range(std::int64_t low, std::int64_t high) {
    const std::int64_t value = i64();
    if (ok() && (value < low || value > high)) {
        fail(error(StatusCode::data_loss, "state: {} before byte {}, expected {} to {}", value, at_,
                   low, high));
    }
    return ok() ? value : low;
}

double StateReader::f64() {
    const auto value = std::bit_cast<double>(u64());
    if (!std::isfinite(value)) {
        fail(error(StatusCode::data_loss, "state: {} before byte {}, expected a finite number",
                   value, at_));
        return 0;
    }
    return value;
}

std::size_t StateReader::count(std::size_t limit) {
    const std::uint64_t value = u64();
    const std::size_t left = (bytes_.size() - at_) / 8;
    if (ok() && (value > limit || value > left)) {
        fail(error(StatusCode::data_loss, "state: {} elements before byte {}, at most {} expected",
                   value, at_, std::min(limit, left)));
    }
    return ok() ? static_cast<std::size_t>(value) : 0;
}

void StateReader::fail(Status status) {
    if (status_.ok()) status_ = std::move(status);
}

Status StateReader::finish() {
    if (ok() && at_ != bytes_.size()) {
        fail(error(StatusCode::data_loss, "state: {} bytes, expected {}", bytes_.size(), at_));
    }
    return status_;
}

}  // namespace fathom
