#include "recipe/official_prompt.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "recipe/prompt_texts.h"
#include "recipe/prompt_writer.h"
#include "recipe/spaced_json.h"
#include "recipe/tool_prompt.h"

namespace fathom {
namespace {

// The scripts are Python: its numbers, and an empty line in calls without parameters.
ToolMarkup official_markup(Dialect dialect) {
    ToolMarkup markup = tool_markup(dialect);
    markup.json = Dialect::v41;
    markup.empty_line_for_none = true;
    return markup;
}

std::string_view task_token(OfficialTask task) {
    switch (task) {
        case OfficialTask::none:
            break;
        case OfficialTask::action:
            return "<｜action｜>";
        case OfficialTask::query:
            return "<｜query｜>";
        case OfficialTask::authority:
            return "<｜authority｜>";
        case OfficialTask::domain:
            return "<｜domain｜>";
        case OfficialTask::title:
            return "<｜title｜>";
        case OfficialTask::read_url:
            return "<｜read_url｜>";
    }
    return {};
}

// V4.1's script also reads arguments that are a JSON string with JSON in it.
std::vector<ToolCall> unwrapped(std::vector<ToolCall> calls) {
    for (ToolCall& call : calls) {
        const Result<Json> outer = parse_json(call.arguments);
        if (outer.ok() && outer->is_string() && parse_json(outer->as_string()).ok())
            call.arguments = outer->as_string();
    }
    return calls;
}

// A text or a tool result within a turn.
struct Block {
    const OfficialMessage* message;
    std::size_t first_image;  // its number in the conversation
};

// Messages that make one turn of the prompt: user and tool messages in succession, or one other.
struct OfficialTurn {
    OfficialRole role;
    std::vector<Block> blocks;
    OfficialTask task;

    const OfficialMessage& message() const { return *blocks.front().message; }
};

std::vector<OfficialTurn> turns_of(const std::vector<OfficialMessage>& messages) {
    std::vector<OfficialTurn> turns;
    std::size_t images = 0;
    for (const OfficialMessage& message : messages) {
        const bool tool = message.role == OfficialRole::tool;
        const OfficialRole role = tool ? OfficialRole::user : message.role;
        const bool joins = role == OfficialRole::user && !turns.empty() &&
                           turns.back().role == role && turns.back().task == OfficialTask::none;
        if (!joins) turns.push_back({role, {}, OfficialTask::none});
        turns.back().blocks.push_back({&message, images});
        turns.back().task = message.task;
        images += message.content.images.size();
    }
    return turns;
}

// Within a turn results take the order of the calls that came last; texts keep their places.
void sort_results(std::vector<OfficialTurn>& turns) {
    std::map<std::string_view, std::size_t> order;
    for (OfficialTurn& turn : turns) {
        if (turn.role == OfficialRole::assistant && !turn.message().tool_calls.empty()) {
            order.clear();
            for (std::size_t i = 0; i < turn.message().tool_calls.size(); ++i)
                order[turn.message().tool_calls[i].id] = i;
        }
        std::vector<Block> results;
        for (const Block& block : turn.blocks)
            if (block.message->role == OfficialRole::tool) results.push_back(block);
        const auto position = [&](const Block& block) {
            const auto found = order.find(block.message->tool_call_id);
            return found == order.end() ? 0 : found->second;
        };
        std::stable_sort(results.begin(), results.end(),
                         [&](const Block& a, const Block& b) { return position(a) < position(b); });
        auto next = results.begin();
        for (Block& block : turn.blocks)
            if (block.message->role == OfficialRole::tool) block = *next++;
    }
}

class OfficialRenderer {
  public:
    OfficialRenderer(const OfficialConversation& conversation, const RenderOptions& options)
        : conversation_(conversation),
          options_(options),
          markup_(official_markup(options.dialect)),
          turns_(turns_of(conversation.messages)),
          out_(options.tokens) {
        sort_results(turns_);
        drops_ = conversation.thinking && conversation.drop_thinking &&
                 std::all_of(conversation.messages.begin(), conversation.messages.end(),
                             [](const OfficialMessage& message) { return message.tools.empty(); });
        if (drops_) drop_developer_turns();
        last_user_turn_ = last_user_turn();
    }

    std::vector<PromptSegment> render() {
        out_.special(options_.tokens.begin_of_sentence);
        write_start();
        for (std::size_t i = 0; i < turns_.size(); ++i) {
            write_turn(i);
            write_transition(i);
        }
        return out_.take();
    }

  private:
    bool is_v4() const { return options_.dialect == Dialect::v4; }

    // Messages of these roles open the turn of the assistant.
    bool is_user_turn(std::size_t index) const {
        const OfficialRole role = turns_[index].role;
        return role == OfficialRole::user || role == OfficialRole::developer ||
               (role == OfficialRole::system && index > 0 && !is_v4());
    }

    // The index of the last such turn; -1 where there is none.
    std::ptrdiff_t last_user_turn() const {
        auto index = static_cast<std::ptrdiff_t>(turns_.size()) - 1;
        while (index >= 0 && !is_user_turn(static_cast<std::size_t>(index)))
            --index;
        return index;
    }

    void drop_developer_turns() {
        std::ptrdiff_t before = last_user_turn();
        std::erase_if(turns_, [&](const OfficialTurn& turn) {
            return before-- > 0 && turn.role == OfficialRole::developer;
        });
    }

    void write_start() {
        if (turns_.empty()) return;
        const std::string effort = effort_text(conversation_.thinking, conversation_.effort,
                                               conversation_.effort_percent, options_);
        const bool system = turns_.front().role == OfficialRole::system;
        if (!is_v4() && (system || !effort.empty())) out_.special(options_.tokens.system);
        out_.text(effort);
    }

    void write_turn(std::size_t index) {
        const OfficialTurn& turn = turns_[index];
        switch (turn.role) {
            case OfficialRole::system:
                if (index > 0 && !is_v4()) out_.special(options_.tokens.system);
                write_blocks(turn);
                write_tools_and_format(turn.message());
                return;
            case OfficialRole::developer:
                out_.special(options_.tokens.user);
                write_blocks(turn);
                write_tools_and_format(turn.message());
                return;
            case OfficialRole::user:
            case OfficialRole::tool:
                out_.special(options_.tokens.user);
                write_blocks(turn);
                return;
            case OfficialRole::latest_reminder:
                out_.special(options_.tokens.latest_reminder);
                write_blocks(turn);
                return;
            case OfficialRole::assistant:
                write_assistant(turn.message(), index);
                return;
        }
    }

    void write_blocks(const OfficialTurn& turn) {
        for (std::size_t i = 0; i < turn.blocks.size(); ++i) {
            const auto& [message, first_image] = turn.blocks[i];
            const bool result = message->role == OfficialRole::tool;
            if (i > 0) out_.text("\n\n");
            if (result) out_.text("<tool_result>");
            std::vector<std::size_t> numbers(message->content.images.size());
            for (std::size_t k = 0; k < numbers.size(); ++k)
                numbers[k] = first_image + k;
            out_.content(message->content, numbers);
            if (result) out_.text("</tool_result>");
        }
    }

    void write_tools_and_format(const OfficialMessage& message) {
        if (!message.tools.empty()) {
            std::string lines;
            for (const Json& tool : message.tools)
                lines += spaced_json(tool, markup_.json) + '\n';
            out_.text("\n\n");
            write_tool_prompt(lines, markup_, out_);
        }
        if (message.response_format) {
            out_.text("\n\n");
            out_.text(kSchemaFormatHeading);
            out_.text(spaced_json(*message.response_format, markup_.json));
        }
    }

    void write_assistant(const OfficialMessage& message, std::size_t index) {
        const bool after_task = index > 0 && turns_[index - 1].task != OfficialTask::none;
        if (conversation_.thinking && !after_task && thinks_at(index)) {
            out_.model_text(message.reasoning_content.value_or(""));
            out_.special(options_.tokens.think_end);
        }
        out_.model_text(message.content.text);
        if (!message.tool_calls.empty()) {
            out_.text("\n\n");
            write_tool_calls(is_v4() ? message.tool_calls : unwrapped(message.tool_calls), markup_,
                             out_);
        }
        if (!message.without_end) out_.special(options_.tokens.end_of_sentence);
    }

    bool thinks_at(std::size_t index) const {
        return !drops_ || static_cast<std::ptrdiff_t>(index) >= last_user_turn_;
    }

    // What a turn writes to be answered.
    void write_transition(std::size_t index) {
        if (index + 1 < turns_.size()) {
            const OfficialRole next = turns_[index + 1].role;
            if (next != OfficialRole::assistant && next != OfficialRole::latest_reminder) return;
        }
        const OfficialTask task = turns_[index].task;
        if (task != OfficialTask::none && task != OfficialTask::action) {
            out_.special(task_token(task));
            return;
        }
        if (task == OfficialTask::none && !is_user_turn(index)) return;
        const bool think =
            conversation_.thinking && (task == OfficialTask::action || thinks_at(index));
        out_.special(options_.tokens.assistant);
        out_.special(think ? options_.tokens.think_begin : options_.tokens.think_end);
        if (task == OfficialTask::action) out_.special(task_token(task));
    }

    const OfficialConversation& conversation_;
    const RenderOptions& options_;
    ToolMarkup markup_;
    std::vector<OfficialTurn> turns_;
    bool drops_ = false;
    std::ptrdiff_t last_user_turn_ = -1;
    PromptWriter out_;
};

}  // namespace

Result<std::vector<PromptSegment>> render_official_prompt(const OfficialConversation& conversation,
                                                          const RenderOptions& options) {
    for (std::size_t i = 0; i < conversation.messages.size(); ++i) {
        if (conversation.messages[i].role == OfficialRole::developer &&
            options.dialect == Dialect::v41)
            return invalid_argument("messages[{}].role: V4.1 has no role developer", i);
    }
    return OfficialRenderer(conversation, options).render();
}

}  // namespace fathom
