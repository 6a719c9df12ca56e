#include "recipe/prompt_texts.h"

#include <fmt/format.h>

namespace fathom {
namespace {

constexpr std::string_view kAbsoluteMaximumEffort =
    R"(Reasoning Effort: Absolute maximum with no shortcuts permitted.
You MUST be very thorough in your thinking and comprehensively decompose the problem to resolve the root cause, rigorously stress-testing your logic against all potential paths, edge cases, and adversarial scenarios.
Explicitly write out your entire deliberation process, documenting every intermediate step, considered alternative, and rejected hypothesis to ensure absolutely no assumption is left unchecked.

)";
constexpr std::string_view kBeyondMaximumEffort =
    R"(Reasoning Effort: Beyond maximum — exhaustive, relentless, and uncompromising.
You MUST reason with the utmost depth and rigor, leaving absolutely nothing to chance: exhaustively decompose the problem into its most fundamental components, trace every causal chain to its root, and resolve the underlying cause rather than any surface symptom.
Do not stop reasoning until you have independently verified the solution from multiple angles and are certain that no assumption remains unchecked and no error remains undiscovered.

)";

int percent_of(ReasoningEffort effort) {
    switch (effort) {
        case ReasoningEffort::low:
            return 50;
        case ReasoningEffort::max:
            return 100;
        case ReasoningEffort::none:
        case ReasoningEffort::high:
        case ReasoningEffort::xhigh:
            break;
    }
    return 75;
}

std::string_view effort_text_v4(ReasoningEffort effort, EffortDialect dialect) {
    if (dialect == EffortDialect::v4_original)
        return effort == ReasoningEffort::max ? kAbsoluteMaximumEffort : "";
    switch (effort) {
        case ReasoningEffort::low:
            return {};
        case ReasoningEffort::max:
            return kBeyondMaximumEffort;
        case ReasoningEffort::none:
        case ReasoningEffort::high:
        case ReasoningEffort::xhigh:
            break;
    }
    return kAbsoluteMaximumEffort;
}

}  // namespace

std::string effort_text(bool thinking, ReasoningEffort effort, std::optional<int> percent,
                        const RenderOptions& options) {
    if (!thinking) return {};
    if (options.dialect == Dialect::v4)
        return std::string(effort_text_v4(effort, options.effort_dialect));
    return fmt::format(
        "Reasoning Effort: {} (range 1-100, the higher the value, the more thorough the "
        "reasoning)\n\n",
        percent.value_or(percent_of(effort)));
}

}  // namespace fathom
