#include <algorithm>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/json.h"
#include "bench/codec_benches.h"
#include "recipe/pretokenizer.h"
#include "recipe/tokenizer_file.h"

namespace fathom::bench {
namespace {

constexpr int kRounds = 9;

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

// The same patterns in groups, which PCRE2 runs.
std::vector<std::string> grouped(const std::vector<std::string>& patterns) {
    std::vector<std::string> result;
    for (const std::string& pattern : patterns)
        result.push_back("(?:" + pattern + ")");
    return result;
}

Json& member(Json& json, std::string_view key) {
    for (auto& [name, value] : json.members())
        if (name == key) return value;
    FATHOM_CHECK(false, key);
}

Result<std::shared_ptr<const Tokenizer>> regex_tokenizer(Json file) {
    for (Json& part : member(member(file, "pre_tokenizer"), "pretokenizers").items()) {
        if (part.find("pattern") == nullptr) continue;
        Json& regex = member(member(part, "pattern"), "Regex");
        regex = Json("(?:" + regex.as_string() + ")");
    }
    return Tokenizer::parse(file.dump(), "grouped");
}

std::size_t words_of(PreTokenizer::Splitter& splitter, std::string_view text) {
    splitter.start(text);
    std::size_t words = 0;
    for (;;) {
        const auto more = splitter.next_words();
        if (more.empty()) return words;
        words += more.size();
    }
}

// Sums the text's bytes by eights.
std::uint64_t read_all(std::string_view text) {
    std::uint64_t sum = 0;
    for (std::size_t at = 0; at + 8 <= text.size(); at += 8) {
        std::uint64_t eight = 0;
        std::memcpy(&eight, text.data() + at, sizeof(eight));
        sum += eight;
    }
    return sum;
}

// Text of a million tokens or a little more; `text` again and again.
std::string million_tokens(const Tokenizer& tokenizer, std::string_view text) {
    const auto ids = static_cast<double>(tokenizer.encode(text, false).size());
    const double bytes = 1.02e6 / ids * static_cast<double>(text.size());
    std::string result;
    while (static_cast<double>(result.size()) < bytes)
        result += text;
    // Whole lines, so that no character is cut.
    result.resize(std::min(result.find('\n', static_cast<std::size_t>(bytes)), result.size()));
    return result;
}

}  // namespace

Status bench_tokenizer(const std::string& path, std::string_view text, Report& report) {
    FATHOM_ASSIGN(const Json json, parse_json_file(path, {.bytes_max = 64 << 20}));
    FATHOM_ASSIGN(const TokenizerFile file, read_tokenizer_file(json, path));
    FATHOM_ASSIGN(const auto tokenizer, Tokenizer::load(path));
    FATHOM_ASSIGN(const auto regex, regex_tokenizer(json));
    FATHOM_ASSIGN(const PreTokenizer by_scanner, PreTokenizer::make(file.split_patterns, path));
    FATHOM_ASSIGN(const PreTokenizer by_regex,
                  PreTokenizer::make(grouped(file.split_patterns), path));
    PreTokenizer::Splitter scanner(by_scanner);
    PreTokenizer::Splitter pcre2(by_regex);
    FATHOM_CHECK(tokenizer->encode(text, false) == regex->encode(text, false));

    std::vector<double> split, split_ratio, encode, encode_ratio, read;
    std::uint64_t sink = 0;
    for (int round = 0; round < kRounds; ++round) {
        split.push_back(timed([&] { sink += words_of(scanner, text); }));
        split_ratio.push_back(timed([&] { sink += words_of(pcre2, text); }) / split.back());
        encode.push_back(timed([&] { sink += tokenizer->encode(text, false).size(); }));
        encode_ratio.push_back(timed([&] { sink += regex->encode(text, false).size(); }) /
                               encode.back());
        read.push_back(timed([&] { sink += read_all(text); }));
    }
    FATHOM_CHECK(sink != 0);
    const double megabytes = static_cast<double>(text.size()) / 1e6;
    const double read_rate = megabytes / median(read);
    report.add("tokenizer.mb_per_s", megabytes / median(encode), "MB/s", read_rate);
    report.add("tokenizer.split_mb_per_s", megabytes / median(split), "MB/s", read_rate);
    report.add("tokenizer.vs_pcre2", median(split_ratio), "x");
    report.add("tokenizer.whole_vs_pcre2", median(encode_ratio), "x");

    const std::string million = million_tokens(*tokenizer, text);
    std::size_t ids = 0;
    std::vector<double> seconds;
    for (int round = 0; round < 3; ++round)
        seconds.push_back(timed([&] { ids = tokenizer->encode(million, false).size(); }));
    FATHOM_CHECK(ids >= 1'000'000);
    report.add("tokenizer.1m_tokens_s", median(seconds), "s");
    report.add("tokenizer.bytes_per_token",
               static_cast<double>(million.size()) / static_cast<double>(ids), "bytes");
    return {};
}

}  // namespace fathom::bench
