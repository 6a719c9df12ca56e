#include <algorithm>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "bench/codec_benches.h"
#include "recipe/output_parser.h"
#include "recipe/prompt.h"
#include "recipe/protocols/chat_events.h"

namespace fathom::bench {
namespace {

constexpr int kRounds = 9;
constexpr std::size_t kAnswerBytes = 24 << 10;  // some thousand tokens

// The first `bytes` of the text, to the end of a line.
std::string_view head(std::string_view text, std::size_t bytes) {
    return text.substr(0, std::min(text.find('\n', bytes), text.size()));
}

// Reasoning, then content, from the same text; "<" would be looked at more closely.
std::string plain_answer(std::string_view text) {
    return std::string(head(text, kAnswerBytes)) + "</think>\n" +
           std::string(head(text.substr(text.size() / 2), kAnswerBytes));
}

// Calls whose arguments are the text, line by line, as strings and as JSON.
std::string calls_answer(std::string_view text) {
    std::string answer = "I shall look.</think>\n\n<｜DSML｜tool_calls>\n";
    for (std::string_view rest = head(text, 2 * kAnswerBytes); !rest.empty();) {
        const std::string_view lines = head(rest, 512);
        rest.remove_prefix(std::min(lines.size() + 1, rest.size()));
        answer +=
            "<｜DSML｜invoke name=\"write_file\">\n<｜DSML｜parameter name=\"text\" "
            "string=\"true\">";
        answer += lines;
        answer +=
            "</｜DSML｜parameter>\n<｜DSML｜parameter name=\"lines\" string=\"false\">[1, 2, 3]"
            "</｜DSML｜parameter>\n</｜DSML｜invoke>\n";
    }
    return answer + "</｜DSML｜tool_calls>";
}

struct Parse {
    double seconds = 0;
    std::size_t events = 0;
};

// One answer, id by id, as a stream gives it; with its payloads if asked for.
Parse parse(const std::vector<TokenId>& ids, const std::shared_ptr<const Tokenizer>& tokenizer,
            bool with_payloads) {
    Parse result;
    result.seconds = timed([&] {
        OutputParser parser({.parse_tool_calls = true,
                             .thinking_initial_stage = ThinkingStage::reasoning_start,
                             .stop_sequences = {"\n\nHuman:"}},
                            tokenizer);
        const auto builder = make_chat_answer({.id = "chatcmpl-1",
                                               .model = "deepseek",
                                               .stream = true,
                                               .thinking = ThinkingStage::reasoning_start,
                                               .call_ids = random_call_ids(1)},
                                              {});
        OutputParser::Events events;
        std::vector<StreamPayload> payloads;
        const auto take = [&] {
            result.events += events.size();
            if (with_payloads)
                for (const OutputEvent& event : events)
                    builder->add(event, payloads);
            events.clear();
            payloads.clear();
        };
        for (const TokenId& id : ids) {
            FATHOM_CHECK(parser.push(TokenChunk{.ids = {&id, 1}}, events).ok());
            take();
        }
        parser.end(events);
        take();
    });
    return result;
}

}  // namespace

void bench_parser(const std::shared_ptr<const Tokenizer>& tokenizer, std::string_view text,
                  Report& report) {
    const std::vector<TokenId> plain = tokenizer->encode(plain_answer(text), true);
    const std::vector<TokenId> calls = tokenizer->encode(calls_answer(text), true);
    const auto us_per_token = [&](const std::vector<TokenId>& ids, bool with_payloads) {
        double best = 1e9;
        for (int round = 0; round < kRounds; ++round) {
            const Parse parsed = parse(ids, tokenizer, with_payloads);
            FATHOM_CHECK(parsed.events > 0);
            best = std::min(best, parsed.seconds);
        }
        return best * 1e6 / static_cast<double>(ids.size());
    };
    report.add("parser.us_per_token", us_per_token(plain, false), "us");
    report.add("parser.calls.us_per_token", us_per_token(calls, false), "us");
    report.add("parser.chat.us_per_token", us_per_token(plain, true), "us");
    report.add("parser.chat.calls.us_per_token", us_per_token(calls, true), "us");
}

// A long conversation to its segments, beside a copy of its text.
void bench_render(std::string_view text, Report& report) {
    constexpr std::size_t kMessageBytes = 2048;
    Conversation conversation;
    conversation.thinking = true;
    for (bool from_user = true; !text.empty(); from_user = !from_user) {
        const std::string_view content = head(text, kMessageBytes);
        text.remove_prefix(std::min(content.size() + 1, text.size()));
        Message message;
        message.role = from_user ? Role::user : Role::assistant;
        message.content = std::string(content);
        conversation.messages.push_back(std::move(message));
    }
    std::size_t bytes = 0;
    for (const Message& message : conversation.messages)
        bytes += message.content.text.size();
    double best = 1e9;
    double best_copy = 1e9;
    std::string copy(bytes, '\0');
    for (int round = 0; round < kRounds; ++round) {
        best = std::min(best, timed([&] { FATHOM_CHECK(render_prompt(conversation).ok()); }));
        best_copy = std::min(best_copy, timed([&] {
                                 char* to = copy.data();
                                 for (const Message& message : conversation.messages) {
                                     const std::string& from = message.content.text;
                                     std::memcpy(to, from.data(), from.size());
                                     to += from.size();
                                 }
                             }));
    }
    const double megabytes = static_cast<double>(bytes) / 1e6;
    report.add("render.mb_per_s", megabytes / best, "MB/s", megabytes / best_copy);
}

}  // namespace fathom::bench
