// HTTP request parsing: whatever the bytes and however they are cut, the parser neither crashes nor
// grows beyond its limits, and both cuts give the same requests. The first byte chooses the cut.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "gateway/http/request_parser.h"

namespace fathom {
namespace {

constexpr HttpLimits kLimits = {.header_bytes_max = 2048, .body_bytes_max = 1024};

struct Seen {
    std::vector<std::string> requests;  // method, target, headers and body of each, joined
    int error_status = 0;

    bool operator==(const Seen&) const = default;
};

std::string joined(const HttpRequest& request) {
    std::string all = request.method + " " + request.target + "\n";
    for (const auto& [name, value] : request.headers)
        all += name + ": " + value + "\n";
    return all + request.body;
}

Seen parse(std::string_view stream, std::size_t piece) {
    Seen seen;
    HttpRequestParser parser(kLimits);
    std::string buffer;
    while (!stream.empty() && seen.error_status == 0) {
        const std::size_t size = std::min(piece, stream.size());
        buffer += stream.substr(0, size);
        stream.remove_prefix(size);
        while (!buffer.empty()) {
            const std::size_t used = parser.feed(buffer);
            FATHOM_CHECK(used <= buffer.size());
            buffer.erase(0, used);
            if (parser.state() == HttpRequestParser::State::complete) {
                const HttpRequest request = parser.take();
                FATHOM_CHECK(request.body.size() <= kLimits.body_bytes_max);
                seen.requests.push_back(joined(request));
                parser = HttpRequestParser(kLimits);
                continue;
            }
            if (parser.state() == HttpRequestParser::State::failed) {
                seen.error_status = parser.error_status();
                FATHOM_CHECK(!parser.error_message().empty());
                break;
            }
            if (used == 0) break;
        }
        // What the parser leaves must be bounded, or a connection's buffer would not be.
        FATHOM_CHECK(seen.error_status != 0 || buffer.size() <= kLimits.header_bytes_max + piece);
    }
    return seen;
}

}  // namespace
}  // namespace fathom

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    const std::string_view stream(reinterpret_cast<const char*>(data) + 1, size - 1);
    const fathom::Seen whole = fathom::parse(stream, stream.size() + 1);
    const fathom::Seen cut = fathom::parse(stream, std::size_t{data[0]} % 37 + 1);
    // A limit may be met earlier or later in a cut stream; faultless streams must agree in full.
    const std::size_t common = std::min(whole.requests.size(), cut.requests.size());
    for (std::size_t i = 0; i < common; ++i)
        FATHOM_CHECK(whole.requests[i] == cut.requests[i]);
    if (whole.error_status == 0 && cut.error_status == 0) FATHOM_CHECK(whole == cut);
    return 0;
}
