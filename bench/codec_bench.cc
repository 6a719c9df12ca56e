// The codec: text to ids, ids to events and payloads, and streams to sockets.
//
//   codec_bench [--json] [--tokenizer FILE] [--text FILE]
//
// FILE of --tokenizer is a tokenizer.json, by default the tiny model's; the text is made (see
// codec_text.h) or read. Rows:
//
//   tokenizer.mb_per_s        text encoded; the limit is a read of the same text
//   tokenizer.split_mb_per_s  pre-tokenization alone
//   tokenizer.vs_pcre2        pre-tokenization by PCRE2's JIT, over that by the scanner
//   tokenizer.whole_vs_pcre2  the same for all of encoding
//   tokenizer.1m_tokens_s     a text of 1,000,000 tokens or a little more
//   parser.us_per_token       answers as a stream gives them, id by id, to events: text, and calls;
//   parser.chat.us_per_token  with the payloads of Chat Completions
//   render.mb_per_s           a long conversation to segments; the limit is a copy of its text
//   sse.events_per_cpu_s      1,000 streams of the real server on one processor, a scripted engine
//                             behind it: events for each second of CPU time of this process, all
//                             its threads; the limit is a server that only writes those bytes, by
//                             as many calls
//   sse.vs_socket             the ratio of the two, in turns
#include <fmt/core.h>

#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

#include "bench/codec_benches.h"
#include "bench/codec_text.h"
#include "bench/report.h"

namespace fathom {
namespace {

constexpr std::size_t kTextBytes = 6 << 20;

struct Options {
    std::string tokenizer = FATHOM_SOURCE_DIR "/models/tiny/tokenizer.json";
    std::string text;  // a path; empty: made
    bool json = false;
};

Result<Options> parse_options(int argc, char** argv) {
    Options options;
    for (int i = 1; i < argc; ++i) {
        const std::string_view word = argv[i];
        std::string* value = word == "--tokenizer" ? &options.tokenizer
                             : word == "--text"    ? &options.text
                                                   : nullptr;
        if (word == "--json") {
            options.json = true;
        } else if (value != nullptr && i + 1 < argc) {
            *value = argv[++i];
        } else {
            return invalid_argument(
                "\"{}\" is not known: codec_bench [--json] [--tokenizer FILE] [--text FILE]", word);
        }
    }
    return options;
}

Result<std::string> read_text(const std::string& path) {
    if (path.empty()) return bench::mixed_text(FATHOM_SOURCE_DIR, kTextBytes);
    std::ifstream in(path, std::ios::binary);
    std::ostringstream text;
    text << in.rdbuf();
    if (!in || text.str().size() < 4096) {
        return invalid_argument("{}: cannot be read, or has less than 4096 bytes", path);
    }
    return text.str();
}

Status run(const Options& options) {
    FATHOM_ASSIGN(const std::string text, read_text(options.text));
    FATHOM_ASSIGN(const auto tokenizer, Tokenizer::load(options.tokenizer));
    bench::Report report("codec");
    FATHOM_RETURN_IF_ERROR(bench::bench_tokenizer(options.tokenizer, text, report));
    bench::bench_parser(tokenizer, text, report);
    bench::bench_render(text, report);
    FATHOM_RETURN_IF_ERROR(bench::bench_sse(report));
    fmt::print("{}", report.table());
    if (options.json) fmt::print("{}\n", report.json());
    return {};
}

}  // namespace
}  // namespace fathom

int main(int argc, char** argv) {
    const auto options = fathom::parse_options(argc, argv);
    const fathom::Status status = options.ok() ? fathom::run(*options) : options.status();
    if (status.ok()) return 0;
    fmt::print(stderr, "codec_bench: {}\n", status.message());
    return 2;
}
