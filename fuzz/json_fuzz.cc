// parse_json on any bytes: it never crashes, and what it accepts is a tree that survives a dump.
// The second parser must agree with the first, whatever the text.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/json.h"

using fathom::Json;
using fathom::JsonLimits;
using fathom::parse_json;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const JsonLimits limits{.bytes_max = 1 << 20, .depth_max = 64};
    const auto json = parse_json(text, limits);

    // A large integer beside the text leads it through the parser for those.
    std::string beside = "[18446744073709551616,";
    beside += text;
    beside += "]";
    const auto again = parse_json(beside, {.bytes_max = 2 << 20, .depth_max = 65});
    if (!json.ok()) {
        FATHOM_CHECK(!json.status().message().empty());
        return 0;
    }
    // Boost.JSON refuses exponents of ten digits even where the number is just zero.
    const bool absurd = again.status().message().find("range of a double") != std::string::npos;
    FATHOM_CHECK(again.ok() || absurd, again.status().message());
    FATHOM_CHECK(absurd || again->items().at(1) == *json, "the two parsers differ");

    const std::string dumped = json->dump();
    const auto back = parse_json(dumped, limits);
    FATHOM_CHECK(back.ok(), dumped);
    FATHOM_CHECK(*back == *json, dumped);
    FATHOM_CHECK(back->dump() == dumped, dumped);
    return 0;
}
