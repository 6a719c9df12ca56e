#include "gateway/client/url.h"

#include <algorithm>
#include <charconv>

namespace fathom {

std::string HttpUrl::authority() const {
    const bool is_v6 = host.find(':') != std::string::npos;
    return (is_v6 ? "[" + host + "]" : host) + ":" + port;
}

Result<HttpUrl> parse_http_url(std::string_view text) {
    constexpr std::string_view kScheme = "http://";
    if (!text.starts_with(kScheme))
        return invalid_argument("\"{}\": expected an address that begins with http://", text);
    const bool is_plain = std::all_of(text.begin(), text.end(), [](unsigned char c) {
        return c > ' ' && c < 0x7f && c != '@' && c != '?' && c != '#';
    });
    if (!is_plain)
        return invalid_argument(
            "\"{}\": expected http://HOST[:PORT][/PATH] without user, query or blanks", text);
    const std::string_view rest = text.substr(kScheme.size());
    const std::string_view authority = rest.substr(0, rest.find('/'));
    HttpUrl url;
    url.prefix = std::string(rest.substr(authority.size()));
    while (url.prefix.ends_with('/'))
        url.prefix.pop_back();
    std::string_view port;
    if (authority.starts_with('[')) {
        const std::size_t end = authority.find(']');
        if (end == std::string_view::npos)
            return invalid_argument("\"{}\": the bracket of the address is not closed", text);
        url.host = std::string(authority.substr(1, end - 1));
        port = authority.substr(end + 1);
    } else {
        const std::size_t colon = std::min(authority.find(':'), authority.size());
        url.host = std::string(authority.substr(0, colon));
        port = authority.substr(colon);
    }
    if (url.host.empty()) return invalid_argument("\"{}\": the host is missing", text);
    url.port = "80";
    if (port.empty()) return url;
    unsigned number = 0;
    const auto [end, failed] = std::from_chars(port.data() + 1, port.data() + port.size(), number);
    if (port[0] != ':' || failed != std::errc() || end != port.data() + port.size() ||
        number == 0 || number > 65'535)
        return invalid_argument("\"{}\": expected a port from 1 to 65535, got \"{}\"", text,
                                port.substr(std::min<std::size_t>(1, port.size())));
    url.port = std::to_string(number);
    return url;
}

}  // namespace fathom
