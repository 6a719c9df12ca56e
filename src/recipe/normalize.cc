#include "recipe/normalize.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

namespace fathom {
namespace {

std::vector<Turn> numbered_turns(const std::vector<Message>& messages) {
    std::vector<Turn> turns;
    turns.reserve(messages.size() + 1);
    std::size_t images = 0;
    for (const Message& message : messages) {
        Turn& turn = turns.emplace_back(Turn{message, {}});
        for (std::size_t i = 0; i < message.content.images.size(); ++i)
            turn.image_numbers.push_back(images++);
    }
    return turns;
}

void append_content(Turn& to, const Turn& from, std::string_view joiner) {
    to.message.content.append(joiner);
    to.message.content.append(from.message.content);
    to.image_numbers.insert(to.image_numbers.end(), from.image_numbers.begin(),
                            from.image_numbers.end());
}

// V4 leaves out what is empty; V4.1 joins it too.
void join_content(Turn& to, const Turn& from, Dialect dialect) {
    const bool leave_out_empty = dialect == Dialect::v4;
    if (leave_out_empty && from.message.content.empty()) return;
    const bool first = leave_out_empty && to.message.content.empty();
    append_content(to, from, first ? "" : "\n\n");
}

// V4 has one system message, at the front.
std::vector<Turn> systems_to_front(std::vector<Turn> turns) {
    std::vector<Turn> result;
    result.reserve(turns.size() + 1);
    Turn system{{.role = Role::system}, {}};
    bool found = false;
    for (const Turn& turn : turns) {
        if (turn.message.role != Role::system) continue;
        found = true;
        join_content(system, turn, Dialect::v4);
    }
    if (found) result.push_back(std::move(system));
    for (Turn& turn : turns) {
        if (turn.message.role != Role::system) result.push_back(std::move(turn));
    }
    return result;
}

std::vector<Turn> merge_neighbours(std::vector<Turn> turns, Dialect dialect) {
    std::vector<Turn> result;
    result.reserve(turns.size() + 1);
    for (Turn& turn : turns) {
        const bool same = !result.empty() && result.back().message.role == turn.message.role;
        if (same && turn.message.role == Role::user) {
            join_content(result.back(), turn, dialect);
        } else if (same && turn.message.role == Role::latest_reminder && dialect == Dialect::v41) {
            continue;  // of reminders in succession the first is kept
        } else {
            result.push_back(std::move(turn));
        }
    }
    return result;
}

using CallOrder = std::map<std::string_view, std::size_t>;

// Sorts the tool messages among `run` into the order of their calls; the user messages between
// them stay where they are.
void sort_results_of_run(std::vector<Turn*>& results, const CallOrder& order) {
    if (results.size() < 2 || order.empty()) return;
    std::vector<Turn> sorted;
    sorted.reserve(results.size());
    for (Turn* result : results)
        sorted.push_back(std::move(*result));
    const auto position = [&](const Turn& turn) {
        const auto found = order.find(turn.message.tool_call_id);
        return found == order.end() ? 0 : found->second;
    };
    std::stable_sort(sorted.begin(), sorted.end(),
                     [&](const Turn& a, const Turn& b) { return position(a) < position(b); });
    for (std::size_t i = 0; i < results.size(); ++i)
        *results[i] = std::move(sorted[i]);
}

void sort_results_by_calls(std::vector<Turn>& turns) {
    CallOrder order;  // of the last assistant message that has calls
    std::vector<Turn*> results;
    for (Turn& turn : turns) {
        if (turn.message.role == Role::tool) results.push_back(&turn);
        if (turn.message.role == Role::tool || turn.message.role == Role::user) continue;
        sort_results_of_run(results, order);
        results.clear();
        if (turn.message.tool_calls.empty()) continue;
        order.clear();
        for (std::size_t i = 0; i < turn.message.tool_calls.size(); ++i)
            order[turn.message.tool_calls[i].id] = i;
    }
    sort_results_of_run(results, order);
}

// V4 sorts the calls of a message by id, and so many of the results that follow it at once.
void sort_calls_and_results_by_id(std::vector<Turn>& turns) {
    for (std::size_t i = 0; i < turns.size(); ++i) {
        std::vector<ToolCall>& calls = turns[i].message.tool_calls;
        if (calls.empty()) continue;
        std::stable_sort(calls.begin(), calls.end(),
                         [](const ToolCall& a, const ToolCall& b) { return a.id < b.id; });
        const auto begin = turns.begin() + static_cast<std::ptrdiff_t>(i) + 1;
        auto end = begin;
        while (end != turns.end() && end->message.role == Role::tool &&
               end - begin < static_cast<std::ptrdiff_t>(calls.size()))
            ++end;
        std::stable_sort(begin, end, [](const Turn& a, const Turn& b) {
            return a.message.tool_call_id < b.message.tool_call_id;
        });
    }
}

}  // namespace

bool has_prompt_header(const Conversation& conversation) {
    const ResponseFormatKind format = conversation.response_format.kind;
    return conversation.has_tools() || format == ResponseFormatKind::json_object ||
           format == ResponseFormatKind::json_schema;
}

std::vector<Turn> normalize_messages(const Conversation& conversation, Dialect dialect) {
    std::vector<Turn> turns = numbered_turns(conversation.messages);
    if (dialect == Dialect::v4) turns = systems_to_front(std::move(turns));
    turns = merge_neighbours(std::move(turns), dialect);
    if (dialect == Dialect::v4) {
        sort_calls_and_results_by_id(turns);
    } else {
        sort_results_by_calls(turns);
    }
    if (has_prompt_header(conversation) &&
        (turns.empty() || turns.front().message.role != Role::system))
        turns.insert(turns.begin(), Turn{{.role = Role::system}, {}});
    return turns;
}

}  // namespace fathom
