// How one kind of output is read, compiled once: the stages of the parser (recipe.md 3.3), the
// patterns that lead from one to the next, and what becomes of all other text. Immutable after
// construction, so any number of parsers share one, on any threads; each keeps only its own place
// (output_parser.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "recipe/orphan_invoke.h"
#include "recipe/output_matcher.h"
#include "recipe/parsing_options.h"

namespace fathom {

class OutputRules {
  public:
    enum class Stage : std::uint8_t {
        common_lead,  // content whose leading line feeds are dropped
        common,
        json,
        json_end,
        reasoning_lead,
        reasoning,  // the last of the stages outside of tool calls
        tool_calls,
        tool_name,
        arguments_first,  // no parameter yet
        arguments,
        parameter_name,
        parameter_type,
        string_value,
        raw_value,
        done,
    };
    // What becomes of bytes that belong to no match.
    enum class Unmatched : std::uint8_t {
        skip,
        content,
        space,
        reasoning,
        name,
        raw,
        escaped,
        collect,  // for a later match
    };
    // What a match does.
    enum class Action : std::uint8_t {
        skip,
        skip_newline,
        stop,
        content,
        arguments,
        tool_name,
        // With valid arguments:
        begin_parameter,
        text_parameter,     // its name is whole, and its value is a text
        json_parameter,     // …, and its value claims to be JSON
        json_value,         // that is whole
        untyped_parameter,  // one that does not say its kind, whole: its value is a text
    };
    struct Branch {
        OutputPattern pattern;
        Action action = Action::skip;
        Stage next = Stage::done;
        std::string label = {};  // text of the event, if the action gives one
    };
    struct StageRules {
        Unmatched unmatched = Unmatched::skip;
        std::vector<Branch> branches = {};
        OutputPatterns patterns = {};  // of the branches, in their order
    };

    explicit OutputRules(const ParsingOptions& options);

    // Outside of tool calls there are two sets: without stop sequences, for the time in which they
    // are just text, and with them.
    const StageRules& stage(Stage stage, bool with_stops) const {
        const auto index = static_cast<std::size_t>(stage);
        return with_stops || index >= kContentStages ? stages_[index] : before_stops_[index];
    }
    Stage first_stage() const { return first_stage_; }
    bool thinking() const { return thinking_; }
    bool valid_arguments() const { return valid_arguments_; }
    // Tokens of the output up to which stop sequences are just text; 0: they always act.
    std::int64_t stops_after_tokens() const { return stops_after_tokens_; }
    const std::vector<TokenId>& silent_ids() const { return silent_ids_; }
    // Null where no damaged calls are looked for: by default, without tools and in JSON mode.
    const OrphanRules* orphans() const { return orphans_ ? &*orphans_ : nullptr; }

  private:
    static constexpr std::size_t kStages = static_cast<std::size_t>(Stage::done) + 1;
    static constexpr std::size_t kContentStages = static_cast<std::size_t>(Stage::reasoning) + 1;

    void add_stage(Stage stage, Unmatched unmatched, std::vector<Branch> branches);
    void add_content_stages(const ParsingOptions& options, bool with_stops);
    void add_tool_stages(const ParsingOptions& options);
    void add_parameter_stages(const std::string& close);
    void add_valid_parameter_stages(const std::string& close);

    std::array<StageRules, kStages> stages_;
    std::array<StageRules, kContentStages> before_stops_;
    Stage first_stage_ = Stage::common_lead;
    bool thinking_;
    bool valid_arguments_;
    std::int64_t stops_after_tokens_;
    std::vector<TokenId> silent_ids_;
    std::optional<OrphanRules> orphans_ = {};
};

}  // namespace fathom
