#include "recipe/prompt.h"

#include <span>
#include <utility>

#include "recipe/normalize.h"
#include "recipe/prompt_texts.h"
#include "recipe/prompt_writer.h"
#include "recipe/spaced_json.h"
#include "recipe/tool_prompt.h"

namespace fathom {
namespace {

constexpr std::string_view kJsonObjectFormatV4 =
    "You are a helpful assistant designed to output JSON.\n## Response Format:\n\nReply with JSON "
    "object ONLY.";

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

class Renderer {
  public:
    Renderer(const Conversation& conversation, const RenderOptions& options)
        : conversation_(conversation),
          options_(options),
          turns_(normalize_messages(conversation, options.dialect)),
          last_user_turn_(last_user_turn()),
          out_(options.tokens) {}

    std::vector<PromptSegment> render() {
        out_.special(tokens().begin_of_sentence);
        write_start();
        for (std::size_t i = 0; i < turns_.size(); ++i)
            write_turn(i);
        if (turns_.empty() || !is_prefix(turns_.back().message)) {
            out_.special(tokens().assistant);
            out_.special(conversation_.thinking ? tokens().think_begin : tokens().think_end);
        }
        if (conversation_.tool_choice == ToolChoice::required && !conversation_.tools.empty()) {
            out_.text("\n\n");
            write_tool_calls_begin(tool_markup(options_.dialect), out_);
        }
        return out_.take();
    }

  private:
    const SpecialTokens& tokens() const { return options_.tokens; }
    bool is_v4() const { return options_.dialect == Dialect::v4; }

    // What stands before the first message: the system token, which a first system message needs
    // too, and the effort.
    void write_start() {
        if (turns_.empty() && !is_v4()) return;
        const std::string effort = effort_text(conversation_.thinking, conversation_.effort,
                                               conversation_.effort_percent, options_);
        const bool system = !turns_.empty() && turns_.front().message.role == Role::system;
        if (!is_v4() && (system || !effort.empty())) out_.special(tokens().system);
        out_.text(effort);
    }

    void write_turn(std::size_t index) {
        const Turn& turn = turns_[index];
        switch (turn.message.role) {
            case Role::system:
                write_system(turn, index);
                return;
            case Role::user:
                write_joiner(index);
                out_.content(turn.message.content, turn.image_numbers);
                return;
            case Role::tool:
                write_joiner(index);
                out_.text("<tool_result>");
                out_.content(turn.message.content, turn.image_numbers);
                out_.text("</tool_result>");
                return;
            case Role::latest_reminder:
                out_.special(tokens().latest_reminder);
                out_.content(turn.message.content, turn.image_numbers);
                return;
            case Role::assistant:
                write_assistant(turn.message, index);
                return;
        }
    }

    // User and tool messages in succession are one turn of the user; in V4 a result ends what the
    // user said before it.
    void write_joiner(std::size_t index) {
        const Role role = turns_[index].message.role;
        const Role before = index == 0 ? Role::system : turns_[index - 1].message.role;
        const bool joined = before == Role::tool || (before == Role::user && role == Role::user) ||
                            (before == Role::user && role == Role::tool && !is_v4());
        if (joined) {
            out_.text("\n\n");
        } else {
            out_.special(tokens().user);
        }
    }

    void write_system(const Turn& turn, std::size_t index) {
        if (index > 0) out_.special(tokens().system);
        out_.content(turn.message.content, turn.image_numbers);
        if (index == 0) write_header();
        if (turn.message.tools.empty() || is_v4()) return;
        out_.text("\n\n### Updated Tool Schemas\n");
        for (const Tool& tool : turn.message.tools)
            out_.text("\n" + tool_schema_line(tool, options_.dialect));
    }

    void write_header() {
        if (conversation_.has_tools()) {
            out_.text("\n\n");
            write_tool_prompt(conversation_.tools, options_.dialect, out_);
        }
        const ResponseFormat& format = conversation_.response_format;
        if (format.kind == ResponseFormatKind::json_object) {
            out_.text("\n\n");
            if (is_v4()) {
                out_.text(kJsonObjectFormatV4);
            } else {
                out_.text(kSchemaFormatHeading);
                out_.text("{\"type\": \"json_object\"}");
            }
        } else if (format.kind == ResponseFormatKind::json_schema) {
            out_.text("\n\n");
            out_.text(kSchemaFormatHeading);
            out_.text(spaced_json(format.schema, options_.dialect));
        }
    }

    void write_assistant(const Message& message, std::size_t index) {
        out_.special(tokens().assistant);
        if (shows_reasoning(message, index)) {
            out_.special(tokens().think_begin);
            out_.model_text(message.reasoning_content.value_or(""));
            // Thinking that is to be continued is not closed.
            if (is_prefix(message) && conversation_.thinking && message.content.empty()) return;
        }
        out_.special(tokens().think_end);
        out_.model_text(message.content.text);
        if (!message.tool_calls.empty() || (is_v4() && message.empty_tool_calls)) {
            out_.text("\n\n");
            write_tool_calls(message.tool_calls, tool_markup(options_.dialect), out_);
        }
        if (!is_prefix(message)) out_.special(tokens().end_of_sentence);
    }

    bool shows_reasoning(const Message& message, std::size_t index) const {
        if (!is_prefix(message) && !keeps_reasoning(index)) return false;
        // V4 goes by what the message has, V4.1 by the mode; there the first message of a prompt
        // never shows any.
        if (is_v4()) return message.reasoning_content.has_value();
        return conversation_.thinking && index > 0;
    }

    bool keeps_reasoning(std::size_t index) const {
        if (conversation_.has_tools()) return true;
        switch (options_.history_reasoning) {
            case HistoryReasoning::drop_without_tools:
                return false;
            case HistoryReasoning::keep:
                return true;
            case HistoryReasoning::official:
                break;
        }
        return index >= last_user_turn_;
    }

    // Of the official rule: the last turn that is not the model's own. 0 where a message announces
    // tools, for then all reasoning stays.
    std::size_t last_user_turn() const {
        for (const Message& message : conversation_.messages)
            if (!message.tools.empty()) return 0;
        std::size_t last = 0;
        for (std::size_t i = 0; i < turns_.size(); ++i) {
            const Role role = turns_[i].message.role;
            const bool later_system = role == Role::system && i > 0 && !is_v4();
            if (role == Role::user || role == Role::tool || later_system) last = i;
        }
        return last;
    }

    const Conversation& conversation_;
    const RenderOptions& options_;
    const std::vector<Turn> turns_;
    const std::size_t last_user_turn_;
    PromptWriter out_;
};

}  // namespace

Result<std::vector<PromptSegment>> render_prompt(const Conversation& conversation,
                                                 const RenderOptions& options) {
    FATHOM_RETURN_IF_ERROR(check_prefix_is_last(conversation.messages));
    return Renderer(conversation, options).render();
}

std::vector<PromptSegment> render_completion_prompt(std::string_view prompt,
                                                    const std::optional<std::string>& suffix,
                                                    const SpecialTokens& tokens) {
    PromptWriter out(tokens);
    out.special(tokens.begin_of_sentence);
    if (suffix) out.special(tokens.fill_begin);
    out.text(prompt);
    if (suffix) {
        out.special(tokens.fill_hole);
        out.text(*suffix);
        out.special(tokens.fill_end);
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
                                           const Tokenizer& tokenizer, ContentSpecials specials) {
    if (specials == ContentSpecials::recognize)
        return tokenizer.encode(prompt_text(segments), true);
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
