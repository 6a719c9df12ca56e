// What fuzzers of generated text share: options chosen by two bytes, and a text read in pieces that
// a seed chooses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"
#include "recipe/output_parser.h"

namespace fathom {

inline ParsingOptions options_of(std::uint8_t flags, std::uint8_t stops) {
    static const std::vector<std::string> kStops = {"STOP", "ST", "\n", "</think>",
                                                    "<｜",  "}",  "é",  ""};
    ParsingOptions options{.parse_tool_calls = (flags & 1) != 0,
                           .starts_in_tool_calls = (flags & 6) == 6,
                           .parse_json_output = (flags & 8) != 0,
                           .thinking_initial_stage = static_cast<ThinkingStage>(flags >> 4 & 3)};
    if ((flags & 0x40) != 0) {
        options.dsml_recovery = DsmlRecovery::orphan_invoke;
        options.tool_names = {"f", "get_weather"};
    }
    options.valid_arguments = (stops & 0x80) != 0;
    for (std::size_t i = 0; i < kStops.size(); ++i) {
        if ((stops >> i & 1) != 0) options.stop_sequences.push_back(kStops[i]);
    }
    return options;
}

// Compiled options are kept, as a server does for the answers of one request: they cost more than
// a short text.
inline std::shared_ptr<const OutputRules> rules_of(std::uint8_t flags, std::uint8_t stops) {
    constexpr std::size_t kMost = 512;
    static std::map<int, std::shared_ptr<const OutputRules>> kept;
    const int key = flags << 8 | stops;
    const auto found = kept.find(key);
    if (found != kept.end()) return found->second;
    if (kept.size() == kMost) kept.clear();
    return kept[key] = std::make_shared<const OutputRules>(options_of(flags, stops));
}

// Seed 0: whole.
inline OutputParser::Events parse_pieces(std::shared_ptr<const OutputRules> rules,
                                         std::string_view text, std::uint32_t cut_seed,
                                         bool at_characters) {
    OutputParser parser(std::move(rules));
    OutputParser::Events events;
    while (!text.empty()) {
        std::size_t size = text.size();
        if (cut_seed != 0) {
            cut_seed = cut_seed * 1664525 + 1013904223;
            size = 0;
            for (std::uint32_t left = 1 + (cut_seed >> 24) % 5; left > 0 && size < text.size();
                 --left) {
                const int step = utf8_sequence(text.substr(size));
                size += at_characters ? static_cast<std::size_t>(step < 0 ? -step : step) : 1;
            }
        }
        parser.push(TextChunk{.content = text.substr(0, size), .content_tokens = 1}, events);
        text.remove_prefix(size);
    }
    parser.end(events);
    FATHOM_CHECK(parser.finished());
    return events;
}

}  // namespace fathom
