// The special tokens of prompts and answers, by their spelling. Their ids are looked up in the
// added vocabulary of the tokenizer in use (recipe.md 1.3); nothing here is an id.
#pragma once

#include <string>
#include <string_view>

namespace fathom {

inline constexpr std::string_view kBeginOfSentence = "<｜begin▁of▁sentence｜>";
inline constexpr std::string_view kEndOfSentence = "<｜end▁of▁sentence｜>";
inline constexpr std::string_view kSystemToken = "<｜System｜>";
inline constexpr std::string_view kUserToken = "<｜User｜>";
inline constexpr std::string_view kAssistantToken = "<｜Assistant｜>";
inline constexpr std::string_view kLatestReminderToken = "<｜latest_reminder｜>";
inline constexpr std::string_view kThinkBegin = "<think>";
inline constexpr std::string_view kThinkEnd = "</think>";
// Stands behind '<' or '</' in the markup of tool calls.
inline constexpr std::string_view kDsml = "｜DSML｜";
inline constexpr std::string_view kImageToken = "<｜image｜>";
// Around a text with a hole.
inline constexpr std::string_view kFillBegin = "<｜fim▁begin｜>";
inline constexpr std::string_view kFillHole = "<｜fim▁hole｜>";
inline constexpr std::string_view kFillEnd = "<｜fim▁end｜>";

// The spellings in use. A tokenizer file may spell some in another way; images do in practice
// (<｜deepseek_image｜>).
struct SpecialTokens {
    std::string begin_of_sentence = std::string(kBeginOfSentence);
    std::string end_of_sentence = std::string(kEndOfSentence);
    std::string system = std::string(kSystemToken);
    std::string user = std::string(kUserToken);
    std::string assistant = std::string(kAssistantToken);
    std::string latest_reminder = std::string(kLatestReminderToken);
    std::string think_begin = std::string(kThinkBegin);
    std::string think_end = std::string(kThinkEnd);
    std::string dsml = std::string(kDsml);
    std::string image = std::string(kImageToken);
    std::string fill_begin = std::string(kFillBegin);
    std::string fill_hole = std::string(kFillHole);
    std::string fill_end = std::string(kFillEnd);
};

}  // namespace fathom
