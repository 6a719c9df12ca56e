// The answer of a server as the load client reads it: HTTP framing, then server-sent events. Any
// bytes give an answer or an error, and the same however they are cut.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "gateway/client/completion_stream.h"
#include "gateway/client/response_parser.h"

namespace {

using fathom::HttpResponseParser;

struct Read {
    bool complete = false;
    int status = 0;
    std::string body;
};

Read read(std::string_view bytes, std::size_t piece) {
    HttpResponseParser parser;
    std::string pending;
    Read result;
    const auto has_head = [&] {
        return parser.state() == HttpResponseParser::State::body ||
               parser.state() == HttpResponseParser::State::complete;
    };
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
        pending += bytes.substr(at, piece);
        const std::size_t used = parser.feed(pending);
        FATHOM_CHECK(used <= pending.size());
        pending.erase(0, used);
        if (has_head()) result.body += parser.take_body();
    }
    parser.feed_end();
    result.complete = parser.state() == HttpResponseParser::State::complete;
    FATHOM_CHECK(result.complete || parser.state() == HttpResponseParser::State::failed);
    FATHOM_CHECK(result.complete || !parser.error_message().empty());
    if (result.complete) result.status = parser.status();
    return result;
}

// Events with text and whether the stream is sound.
std::size_t count_events(std::string_view body, std::size_t piece, bool& sound) {
    fathom::CompletionStream stream(1 << 16);
    std::size_t events = 0;
    sound = true;
    for (std::size_t at = 0; at < body.size() && sound; at += piece) {
        stream.feed(body.substr(at, piece));
        while (true) {
            const auto event = stream.next();
            sound = event.ok();
            if (!sound || !*event) break;
            ++events;
        }
    }
    return events;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 2) return 0;
    const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
    const std::size_t piece = 1 + data[0] % 64;
    const Read whole = read(bytes, bytes.size());
    const Read cut = read(bytes, piece);
    FATHOM_CHECK(whole.complete == cut.complete);
    if (whole.complete) FATHOM_CHECK(whole.status == cut.status && whole.body == cut.body);
    for (const std::string_view body : {bytes, std::string_view(whole.body)}) {
        bool whole_sound = true, cut_sound = true;
        const std::size_t events = count_events(body, body.size() + 1, whole_sound);
        FATHOM_CHECK(count_events(body, piece, cut_sound) == events);
        FATHOM_CHECK(whole_sound == cut_sound);
    }
    return 0;
}
