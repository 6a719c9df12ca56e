#include "recipe/output_rules.h"

#include <algorithm>
#include <utility>

namespace fathom {

namespace {

OutputPattern text_pattern(std::string text) {
    return {.kind = OutputPattern::Kind::text, .text = std::move(text)};
}

OutputPattern after_newlines(std::string text) {
    return {.kind = OutputPattern::Kind::text_after_newlines, .text = std::move(text)};
}

}  // namespace

OutputRules::OutputRules(const ParsingOptions& options)
    : thinking_(options.thinking_initial_stage != ThinkingStage::none),
      valid_arguments_(options.valid_arguments),
      stops_after_tokens_(std::max<std::int64_t>(options.stops_after_tokens, 0)),
      silent_ids_(options.silent_ids) {
    if (stops_after_tokens_ > 0) {
        add_content_stages(options, false);
        std::move(stages_.begin(), stages_.begin() + kContentStages, before_stops_.begin());
    }
    add_content_stages(options, true);
    if (options.parse_tool_calls || options.starts_in_tool_calls) add_tool_stages(options);
    if (options.dsml_recovery == DsmlRecovery::orphan_invoke && options.parse_tool_calls &&
        !options.parse_json_output)
        orphans_.emplace(options.dsml, options.tool_names);
    switch (options.thinking_initial_stage) {
        case ThinkingStage::none:
            first_stage_ = Stage::common_lead;
            break;
        case ThinkingStage::reasoning_start:
            first_stage_ = Stage::reasoning_lead;
            break;
        case ThinkingStage::reasoning_continuation:
            first_stage_ = Stage::reasoning;
            break;
        case ThinkingStage::content_continuation:
            first_stage_ = Stage::common;
            break;
    }
    if (options.starts_in_tool_calls) first_stage_ = Stage::tool_calls;
}

void OutputRules::add_stage(Stage stage, Unmatched unmatched, std::vector<Branch> branches) {
    std::vector<OutputPattern> patterns;
    for (const Branch& branch : branches)
        patterns.push_back(branch.pattern);
    stages_[static_cast<std::size_t>(stage)] = {.unmatched = unmatched,
                                                .branches = std::move(branches),
                                                .patterns = OutputPatterns(patterns)};
}

void OutputRules::add_content_stages(const ParsingOptions& options, bool with_stops) {
    std::vector<Branch> stops;
    for (const std::string& stop : options.stop_sequences) {
        if (with_stops && !stop.empty())
            stops.push_back({text_pattern(stop), Action::stop, Stage::done, stop});
    }
    std::vector<Branch> tools;
    if (options.parse_tool_calls) {
        tools.push_back({after_newlines("<" + options.dsml), Action::skip, Stage::tool_calls});
    }
    const auto leading = [](Stage again) {
        return Branch{{.kind = OutputPattern::Kind::leading_newline}, Action::skip_newline, again};
    };
    const Branch stray_end{text_pattern(options.thinking_end), Action::skip, Stage::common};
    const Branch thinking_end{after_newlines(options.thinking_end), Action::skip,
                              Stage::common_lead};

    std::vector<Branch> common = stops;
    if (options.parse_json_output) {
        common = {{text_pattern("```json\n"), Action::skip, Stage::json},
                  {text_pattern("```\n"), Action::skip, Stage::json},
                  {text_pattern("{"), Action::content, Stage::json, "{"},
                  {text_pattern("["), Action::content, Stage::json, "["}};
    }
    common.insert(common.end(), tools.begin(), tools.end());
    std::vector<Branch> common_lead = common;
    common_lead.push_back(leading(Stage::common_lead));
    common.push_back(stray_end);
    common_lead.push_back(stray_end);
    const Unmatched shown = options.parse_json_output ? Unmatched::space : Unmatched::content;
    add_stage(Stage::common, shown, std::move(common));
    add_stage(Stage::common_lead, shown, std::move(common_lead));

    std::vector<Branch> json = std::move(stops);
    json.push_back({text_pattern("\n```"), Action::skip, Stage::json_end});
    add_stage(Stage::json, Unmatched::content, std::move(json));
    add_stage(Stage::json_end, Unmatched::space, tools);

    std::vector<Branch> reasoning_lead = tools;
    reasoning_lead.push_back(leading(Stage::reasoning_lead));
    reasoning_lead.push_back(thinking_end);
    std::vector<Branch> reasoning = std::move(tools);
    reasoning.push_back(thinking_end);
    add_stage(Stage::reasoning_lead, Unmatched::reasoning, std::move(reasoning_lead));
    add_stage(Stage::reasoning, Unmatched::reasoning, std::move(reasoning));
}

void OutputRules::add_tool_stages(const ParsingOptions& options) {
    const std::string close = "</" + options.dsml;
    const auto skip = [](std::string pattern, Stage next) {
        return Branch{text_pattern(std::move(pattern)), Action::skip, next};
    };
    add_stage(Stage::tool_calls, Unmatched::skip,
              {skip("invoke name=\"", Stage::tool_name), skip(close + "tool_calls>", Stage::done),
               skip(close + " calls>", Stage::done)});
    add_stage(Stage::tool_name, Unmatched::name,
              {{text_pattern("\""), Action::tool_name, Stage::arguments_first}});
    if (options.valid_arguments) {
        add_valid_parameter_stages(close);
    } else {
        add_parameter_stages(close);
    }
}

void OutputRules::add_parameter_stages(const std::string& close) {
    const auto label = [](std::string pattern, std::string text, Stage next) {
        return Branch{text_pattern(std::move(pattern)), Action::arguments, next, std::move(text)};
    };
    const auto skip = [](std::string pattern, Stage next) {
        return Branch{text_pattern(std::move(pattern)), Action::skip, next};
    };
    add_stage(Stage::arguments_first, Unmatched::skip,
              {label("parameter name=", "{", Stage::parameter_name),
               label(close, "{}", Stage::tool_calls)});
    add_stage(Stage::arguments, Unmatched::skip,
              {label("parameter name=", ", ", Stage::parameter_name),
               label(close, "}", Stage::tool_calls)});
    add_stage(Stage::parameter_name, Unmatched::raw, {label(" ", ": ", Stage::parameter_type)});
    add_stage(Stage::parameter_type, Unmatched::skip,
              {label("true\">", "\"", Stage::string_value), skip("false\">", Stage::raw_value)});
    add_stage(Stage::string_value, Unmatched::escaped, {label(close, "\"", Stage::arguments)});
    add_stage(Stage::raw_value, Unmatched::raw, {skip(close, Stage::arguments)});
}

// The same, but a parameter begins to be shown only when its kind is known.
void OutputRules::add_valid_parameter_stages(const std::string& close) {
    const auto branch = [](std::string pattern, Action action, Stage next, std::string text = "") {
        return Branch{text_pattern(std::move(pattern)), action, next, std::move(text)};
    };
    const std::string begin = "parameter name=";
    add_stage(Stage::arguments_first, Unmatched::skip,
              {branch(begin, Action::begin_parameter, Stage::parameter_name, "{"),
               branch(close, Action::arguments, Stage::tool_calls, "{}")});
    add_stage(Stage::arguments, Unmatched::skip,
              {branch(begin, Action::begin_parameter, Stage::parameter_name, ", "),
               branch(close, Action::arguments, Stage::tool_calls, "}")});
    add_stage(Stage::parameter_name, Unmatched::collect,
              {branch("true\">", Action::text_parameter, Stage::string_value),
               branch("false\">", Action::json_parameter, Stage::raw_value),
               branch(close, Action::untyped_parameter, Stage::arguments)});
    add_stage(Stage::string_value, Unmatched::escaped,
              {branch(close, Action::arguments, Stage::arguments, "\"")});
    add_stage(Stage::raw_value, Unmatched::collect,
              {branch(close, Action::json_value, Stage::arguments)});
}

}  // namespace fathom
