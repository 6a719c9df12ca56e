#include "recipe/prompt.h"

#include <span>
#include <utility>

namespace fathom {
namespace {

int effort_percent(ReasoningEffort effort) {
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

std::string effort_text(const Conversation& conversation) {
    if (!conversation.thinking) return {};
    return fmt::format(
        "Reasoning Effort: {} (range 1-100, the higher the value, the more thorough the "
        "reasoning)\n\n",
        effort_percent(conversation.effort));
}

bool is_prefix(const Message& message) {
    return message.role == Role::assistant && message.prefix;
}

Status check_prefix_is_last(std::span<const Message> messages) {
    for (std::size_t i = 0; i + 1 < messages.size(); ++i) {
        if (is_prefix(messages[i])) {
            return invalid_argument(
                "messages[{}].prefix: only the last message can be continued, got true on message "
                "{} of {}",
                i, i + 1, messages.size());
        }
    }
    return {};
}

class PromptWriter {
  public:
    void special(std::string_view token) { segments_.push_back({true, std::string(token)}); }
    void text(std::string_view text) {
        if (text.empty()) return;
        if (segments_.empty() || segments_.back().special) segments_.push_back({});
        segments_.back().text += text;
    }
    // What the model wrote: the grounding marks in it are the tokens it wrote, not their spelling.
    // The reference does so for <｜ref｜> and <｜box｜> (golden rows chat/special_13, special_14
    // and special_all_tools); the other six are of the same kind.
    void model_text(std::string_view text_and_marks) {
        static const AddedTokenIndex kMarks(std::vector<AddedToken>{
            {.id = 0, .content = "<｜ref｜>"},
            {.id = 0, .content = "<｜/ref｜>"},
            {.id = 0, .content = "<｜box｜>"},
            {.id = 0, .content = "<｜/box｜>"},
            {.id = 0, .content = "<｜point｜>"},
            {.id = 0, .content = "<｜/point｜>"},
            {.id = 0, .content = "<｜polygon｜>"},
            {.id = 0, .content = "<｜/polygon｜>"},
        });
        std::size_t done = 0;
        while (const auto mark = kMarks.find(text_and_marks, done)) {
            text(text_and_marks.substr(done, mark->begin - done));
            special(text_and_marks.substr(mark->begin, mark->end - mark->begin));
            done = mark->end;
        }
        text(text_and_marks.substr(done));
    }
    std::vector<PromptSegment> take() { return std::move(segments_); }

  private:
    std::vector<PromptSegment> segments_;
};

void render_assistant(const Message& message, bool first, bool thinking, PromptWriter& out) {
    out.special(kAssistantToken);
    // A prefix message keeps its reasoning, except where it opens the prompt (2.11).
    if (is_prefix(message) && thinking && !first) {
        out.special(kThinkBegin);
        out.model_text(message.reasoning_content.value_or(""));
        if (message.content.empty()) return;  // its thinking is to be continued
    }
    out.special(kThinkEnd);
    out.model_text(message.content.text);
    if (!is_prefix(message)) out.special(kEndOfSentence);
}

}  // namespace

Result<std::vector<PromptSegment>> render_prompt(const Conversation& conversation) {
    const std::vector<Message>& messages = conversation.messages;
    FATHOM_RETURN_IF_ERROR(check_prefix_is_last(messages));

    PromptWriter out;
    out.special(kBeginOfSentence);
    if (!messages.empty()) {
        const std::string effort = effort_text(conversation);
        if (!effort.empty() || messages[0].role == Role::system) out.special(kSystemToken);
        out.text(effort);
    }
    for (std::size_t i = 0; i < messages.size(); ++i) {
        const Message& message = messages[i];
        switch (message.role) {
            case Role::system:
                if (i > 0) out.special(kSystemToken);
                out.text(message.content.text);
                break;
            case Role::user:
                // Consecutive user messages are one turn, also where they are empty.
                if (i > 0 && messages[i - 1].role == Role::user) {
                    out.text("\n\n");
                } else {
                    out.special(kUserToken);
                }
                out.text(message.content.text);
                break;
            case Role::assistant:
                render_assistant(message, i == 0, conversation.thinking, out);
                break;
            case Role::tool:
            case Role::latest_reminder:
                return invalid_argument("messages[{}]: tool and reminder messages have no form", i);
        }
    }
    if (messages.empty() || !is_prefix(messages.back())) {
        out.special(kAssistantToken);
        out.special(conversation.thinking ? kThinkBegin : kThinkEnd);
    }
    return out.take();
}

std::string prompt_text(const std::vector<PromptSegment>& segments) {
    std::string text;
    for (const PromptSegment& segment : segments)
        text += segment.text;
    return text;
}

Result<std::vector<TokenId>> encode_prompt(const std::vector<PromptSegment>& segments,
                                           const Tokenizer& tokenizer) {
    std::vector<TokenId> ids;
    for (const PromptSegment& segment : segments) {
        if (segment.special) {
            const std::optional<TokenId> id = tokenizer.added_id(segment.text);
            if (!id) {
                return invalid_argument("special token \"{}\" is not in the added vocabulary",
                                        segment.text);
            }
            ids.push_back(*id);
            continue;
        }
        const std::vector<TokenId> words = tokenizer.encode(segment.text, false);
        ids.insert(ids.end(), words.begin(), words.end());
    }
    return ids;
}

}  // namespace fathom
