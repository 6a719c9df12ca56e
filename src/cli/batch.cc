#include "cli/batch.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <deque>
#include <set>

#include "base/check.h"
#include "base/output_file.h"
#include "base/queue.h"
#include "cli/batch_file.h"
#include "cli/progress.h"
#include "cli/requests.h"
#include "gateway/completion_events.h"
#include "recipe/protocols/logprobs_json.h"

namespace fathom {
namespace {

constexpr std::int64_t kPollUs = 50'000;

struct Answer {
    std::int64_t number = 0;        // counts started requests
    std::vector<AnswerText> texts;  // by choice
    GenerationResult result;
};
using AnswerQueue = BoundedQueue<Answer>;

// Gathers one answer. The queue holds a whole window, and each request answers once: it never is
// full.
class AnswerObserver : public GenerationObserver {
  public:
    AnswerObserver(std::shared_ptr<AnswerQueue> queue, std::int64_t number, std::int64_t choices)
        : queue_(std::move(queue)) {
        answer_.number = number;
        answer_.texts.resize(static_cast<std::size_t>(choices));
    }
    void on_events(const OutputParser::Events& events) override {
        for (const OutputEvent& event : events)
            answer_.texts[static_cast<std::size_t>(event.choice)].add(event);
    }
    void on_finish(const GenerationResult& result) override {
        answer_.result = result;
        FATHOM_CHECK(queue_->try_push(std::move(answer_)), "an answer beyond the window");
    }

  private:
    const std::shared_ptr<AnswerQueue> queue_;
    Answer answer_;
};

std::string error_line(const Json& id, const Status& status) {
    std::string text;
    JsonWriter(text)
        .begin_object()
        .key("id")
        .value(id)
        .key("error")
        .begin_object()
        .key("code")
        .value(status_code_name(status.code()))
        .key("message")
        .value(status.message())
        .end_object()
        .end_object();
    return text;
}

// How log probabilities are written; -1: none.
struct Logprobs {
    std::int64_t count = -1;
    bool processed = false;
    bool chat = false;
    std::shared_ptr<const Tokenizer> tokenizer = nullptr;
};

void write_all_logprobs(JsonWriter& json, const Logprobs& logprobs, const AnswerText& text) {
    if (!logprobs.chat)
        return write_completion_logprobs(json, logprobs.tokenizer, text.content_logprobs,
                                         logprobs.count > 0);
    json.begin_object();
    write_logprobs(json.key("content"), *logprobs.tokenizer, text.content_logprobs);
    if (!text.reasoning_logprobs.empty())
        write_logprobs(json.key("reasoning_content"), *logprobs.tokenizer, text.reasoning_logprobs);
    json.end_object();
}

void write_choice(JsonWriter& json, const Logprobs& logprobs, const AnswerText& text,
                  GenerationFinish finish) {
    json.key("text").value(text.content).key("reasoning");
    if (text.reasoning.empty())
        json.null();
    else
        json.value(text.reasoning);
    if (!text.calls.empty()) {
        json.key("tool_calls").begin_array();
        for (const AnswerText::Call& call : text.calls) {
            json.begin_object().key("name").value(call.name);
            json.key("arguments").value(call.arguments).end_object();
        }
        json.end_array();
    }
    if (logprobs.count >= 0) {
        write_all_logprobs(json.key("logprobs"), logprobs, text);
        json.key("logprobs_mode").value(logprobs.processed ? "processed" : "raw");
    }
    json.key("finish_reason").value(generation_finish_name(finish));
}

std::string answer_line(const Json& id, const Logprobs& logprobs, const Answer& answer) {
    const Usage& usage = answer.result.usage;
    std::string text;
    JsonWriter json(text);
    json.begin_object().key("id").value(id);
    if (answer.texts.size() == 1) {
        write_choice(json, logprobs, answer.texts[0], answer.result.finish);
    } else {
        json.key("choices").begin_array();
        for (std::size_t i = 0; i < answer.texts.size(); ++i) {
            json.begin_object().key("index").value(static_cast<std::int64_t>(i));
            write_choice(json, logprobs, answer.texts[i], answer.result.choices[i].finish);
            json.end_object();
        }
        json.end_array();
    }
    json.key("usage").begin_object();
    json.key("prompt_tokens").value(usage.prompt_tokens);
    json.key("completion_tokens").value(usage.completion_tokens);
    json.key("total_tokens").value(usage.prompt_tokens + usage.completion_tokens);
    json.key("cached_tokens").value(usage.cached_tokens);
    json.end_object().end_object();
    return text;
}

std::int64_t lines_to_show(const std::string& path) {
    struct stat facts {};
    // Counting reads the file through, which a pipe allows only once.
    if (!Progress::visible() || stat(path.c_str(), &facts) != 0 || !S_ISREG(facts.st_mode))
        return 0;
    const Result<std::int64_t> lines = BatchInput::count(path);
    return lines.ok() ? *lines : 0;
}

class Batch {
  public:
    Batch(const Settings& settings, Stack& stack, Interrupts& interrupts, BatchInput& input,
          BatchOutput& output)
        : settings_(settings),
          model_name_(stack.model_name),
          interrupts_(interrupts),
          input_(input),
          output_(output),
          window_max_(static_cast<std::size_t>(std::min(2 * settings.stack.engine.sequences_max,
                                                        settings.stack.engine.waiting_max))),
          answers_(std::make_shared<AnswerQueue>(window_max_)),
          owners_(stack, owner_options(stack)),
          progress_("generate", lines_to_show(settings.generate.input), real_clock()) {}

    Result<BatchReport> run() {
        FATHOM_RETURN_IF_ERROR(skip_done());
        while (true) {
            if (interrupts_.take() > 0) stop();
            FATHOM_RETURN_IF_ERROR(fill_window());
            if (window_.empty()) break;
            if (std::optional<Answer> answer = answers_->pop(kPollUs)) settle(*answer);
            FATHOM_RETURN_IF_ERROR(write_settled());
            progress_.update(report_.skipped + report_.answered,
                             fmt::format("{} tokens", report_.output_tokens));
        }
        FATHOM_RETURN_IF_ERROR(output_.sync());
        return report_;
    }

  private:
    struct Entry {
        Json id;
        Logprobs logprobs;
        std::shared_ptr<RequestOwner> owner;  // null once settled
        std::string line;                     // empty: not settled, or cancelled
    };

    OwnerOptions owner_options(const Stack& stack) const {
        OwnerOptions options = stack.owner_options();
        // An owner counts until its last call has returned, when its answer may be here already and
        // the next request started: two owners a place at most.
        options.in_flight_max = 2 * window_max_;
        // A batch may wait for its turn as long as the requests before it take.
        options.not_started_us = std::int64_t{7} * 86'400 * 1'000'000;
        return options;
    }

    // The output must be the beginning of this input's answers.
    Status skip_done() {
        for (const Json& id : output_.done()) {
            FATHOM_ASSIGN(const std::optional<BatchInput::Line> line, input_.next());
            if (!line)
                return invalid_argument("{}: has more answers than {} has requests",
                                        settings_.generate.output, settings_.generate.input);
            const Json expected = batch_id(parse_json(line->text), line->number);
            if (expected != id)
                return invalid_argument(
                    "{}: answer {} has id {}, but line {} of {} has id {}: this output belongs to "
                    "another input",
                    settings_.generate.output, report_.skipped + 1, id.dump(), line->number,
                    settings_.generate.input, expected.dump());
            ids_.insert(id.dump());
            ++report_.skipped;
        }
        return {};
    }

    Status fill_window() {
        while (!input_ended_ && window_.size() < window_max_) {
            FATHOM_ASSIGN(const std::optional<BatchInput::Line> line, input_.next());
            if (line)
                start(*line);
            else
                input_ended_ = true;
        }
        return {};
    }

    void start(const BatchInput::Line& line) {
        const Result<Json> body = parse_json(line.text);
        Entry& entry = window_.emplace_back();
        entry.id = batch_id(body, line.number);
        const Result<std::shared_ptr<RequestOwner>> owner = start_owner(body, entry.logprobs);
        if (owner.ok()) {
            entry.owner = *owner;
        } else {
            entry.line = error_line(entry.id, owner.status());
            ++report_.failed;
        }
    }

    Result<std::shared_ptr<RequestOwner>> start_owner(const Result<Json>& body,
                                                      Logprobs& logprobs) {
        if (!body.ok()) return body.status();
        if (!ids_.insert(window_.back().id.dump()).second)
            return invalid_argument("id {} stands on an earlier line too, expected one of its own",
                                    window_.back().id.dump());
        FATHOM_ASSIGN(PreparedRequest prepared,
                      prepare_request(*body, settings_, model_name_, owners_.registry()));
        const Json* messages = body->find("messages");
        logprobs = {.count = prepared.sampling.logprobs,
                    .processed = prepared.sampling.logprobs_processed,
                    .chat = messages != nullptr && !messages->is_null(),
                    .tokenizer = owners_.registry().tokenizer()};
        const std::int64_t choices = prepared.choices;
        const auto number = first_number_ + static_cast<std::int64_t>(window_.size()) - 1;
        return owners_.registry().start(
            std::move(prepared), std::make_shared<AnswerObserver>(answers_, number, choices));
    }

    void settle(const Answer& answer) {
        Entry& entry = window_[static_cast<std::size_t>(answer.number - first_number_)];
        entry.owner.reset();
        if (report_.interrupted && answer.result.finish == GenerationFinish::cancelled) return;
        report_.output_tokens += answer.result.usage.completion_tokens;
        if (answer.result.status.ok()) {
            entry.line = answer_line(entry.id, entry.logprobs, answer);
        } else {
            entry.line = error_line(entry.id, answer.result.status);
            ++report_.failed;
        }
    }

    // Writes answers from the front of the window. After an interrupt, what lies behind a cancelled
    // request is dropped with it: the output stays a beginning of the whole.
    Status write_settled() {
        while (!window_.empty() && window_.front().owner == nullptr) {
            if (window_.front().line.empty()) hole_ = true;
            if (!hole_) {
                FATHOM_RETURN_IF_ERROR(output_.append(window_.front().line));
                ++report_.answered;
            }
            window_.pop_front();
            ++first_number_;
        }
        return {};
    }

    void stop() {
        report_.interrupted = true;
        input_ended_ = true;
        for (Entry& entry : window_)
            if (entry.owner != nullptr) entry.owner->cancel();
    }

    const Settings& settings_;
    const std::string model_name_;
    Interrupts& interrupts_;
    BatchInput& input_;
    BatchOutput& output_;
    const std::size_t window_max_;
    std::shared_ptr<AnswerQueue> answers_;
    LocalOwners owners_;
    Progress progress_;
    std::deque<Entry> window_;   // in input order
    std::set<std::string> ids_;  // of all lines so far
    std::int64_t first_number_ = 0;
    bool input_ended_ = false;
    bool hole_ = false;
    BatchReport report_;
};

}  // namespace

Result<BatchReport> run_batch(const Settings& settings, Stack& stack, Interrupts& interrupts) {
    FATHOM_ASSIGN(const std::unique_ptr<BatchInput> input,
                  BatchInput::open(settings.generate.input));
    FATHOM_RETURN_IF_ERROR(
        check_output_is_no_input(settings.generate.output, std::array{settings.generate.input}));
    FATHOM_ASSIGN(const std::unique_ptr<BatchOutput> output,
                  BatchOutput::open(settings.generate.output));
    return Batch(settings, stack, interrupts, *input, *output).run();
}

}  // namespace fathom
