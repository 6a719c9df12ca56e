#include "gateway/completion_events.h"

#include <algorithm>
#include <utility>

#include "recipe/detokenizer.h"
#include "recipe/protocols/logprobs_json.h"
#include "recipe/protocols/openai_parts.h"
#include "recipe/protocols/request_error.h"

namespace fathom {

namespace {

using Kind = OutputEvent::Kind;

std::int64_t characters_of(std::string_view text) {
    return std::count_if(text.begin(), text.end(),
                         [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

// The entries of one choice, and where the next token's text begins.
class Entries {
  public:
    explicit Entries(std::shared_ptr<const Tokenizer> tokenizer)
        : tokenizer_(tokenizer), text_(std::move(tokenizer)) {}

    void add(const std::vector<TokenLogprob>& logprobs) {
        for (const TokenLogprob& entry : logprobs) {
            entries_.push_back(entry);
            offsets_.push_back(characters_);
            characters_ += characters_of(text_.push(entry.id).text);
        }
    }
    void clear() {
        entries_.clear();
        offsets_.clear();
    }

    void write(JsonWriter& json, bool with_top) const {
        if (entries_.empty()) {
            json.null();
            return;
        }
        json.begin_object().key("tokens").begin_array();
        for (const TokenLogprob& entry : entries_)
            json.value(shown(entry.id));
        json.end_array().key("token_logprobs").begin_array();
        for (const TokenLogprob& entry : entries_)
            json.value(entry.logprob);
        json.end_array().key("top_logprobs");
        if (with_top) {
            json.begin_array();
            for (const TokenLogprob& entry : entries_)
                write_top(json, entry);
            json.end_array();
        } else {
            json.null();
        }
        json.key("text_offset").begin_array();
        for (const std::int64_t offset : offsets_)
            json.value(offset);
        json.end_array().end_object();
    }

  private:
    std::string shown(TokenId id) const { return shown_token(tokenizer_->bytes(id)); }

    void write_top(JsonWriter& json, const TokenLogprob& entry) const {
        std::vector<std::string> names;
        json.begin_object();
        for (const auto& [id, logprob] : entry.top) {
            std::string name = shown(id);
            if (std::find(names.begin(), names.end(), name) != names.end()) continue;
            json.key(name).value(logprob);
            names.push_back(std::move(name));
        }
        json.end_object();
    }

    std::shared_ptr<const Tokenizer> tokenizer_;
    Detokenizer text_;
    std::int64_t characters_ = 0;
    std::vector<TokenLogprob> entries_;
    std::vector<std::int64_t> offsets_;
};

class CompletionAnswer : public AnswerBuilder {
  public:
    CompletionAnswer(AnswerSettings settings, CompletionAnswerOptions options)
        : settings_(std::move(settings)), options_(options) {
        for (std::int64_t i = 0; i < options.choices; ++i)
            choices_.push_back({.entries = Entries(settings_.tokenizer)});
    }

    void add(const OutputEvent& event, std::vector<StreamPayload>& payloads) override {
        Choice& choice = choices_.at(static_cast<std::size_t>(event.choice));
        switch (event.kind) {
            case Kind::start:
                if (!started_) prompt_ = event.prompt;
                started_ = true;
                return;
            case Kind::content:
                choice.text += event.text;
                choice.entries.add(event.logprobs);
                break;
            case Kind::finish:
                choice.finish = event.finish;
                choice.ended = true;
                counts_.add(event);
                break;
            case Kind::reasoning:
            case Kind::tool_call:
            case Kind::arguments:
                return;  // raw output has none
        }
        if (!settings_.stream) return;
        payloads.push_back({.name = {}, .json = chunk(event.choice, choice)});
        choice.text.clear();
        choice.entries.clear();
    }

    void fail(const AnswerError& error, std::vector<StreamPayload>& payloads) override {
        payloads.push_back({.name = {}, .json = request_error_body(error.type, error.message)});
    }

    std::string answer() const override {
        std::string text;
        JsonWriter json(text);
        write_head(json);
        json.key("choices").begin_array();
        for (std::size_t i = 0; i < choices_.size(); ++i)
            write_choice(json, static_cast<std::int64_t>(i), choices_[i]);
        json.end_array();
        write_chat_usage(json.key("usage"), prompt_, counts_);
        write_fingerprint(json, prompt_);
        json.end_object();
        return text;
    }

  private:
    struct Choice {
        std::string text = {};  // not sent yet
        Entries entries;
        OutputFinish finish = OutputFinish::stop;
        bool ended = false;
    };

    void write_head(JsonWriter& json) const {
        json.begin_object().key("id").value(settings_.id).key("object").value("text_completion");
        json.key("created").value(settings_.created).key("model").value(settings_.model);
    }

    void write_choice(JsonWriter& json, std::int64_t index, const Choice& choice) const {
        json.begin_object().key("index").value(index).key("text").value(choice.text);
        choice.entries.write(json.key("logprobs"), options_.top_logprobs);
        json.key("finish_reason");
        if (choice.ended) {
            json.value(chat_finish_reason(choice.finish));
        } else {
            json.null();
        }
        json.end_object();
    }

    std::string chunk(std::int64_t index, const Choice& choice) const {
        std::string text;
        JsonWriter json(text);
        write_head(json);
        write_fingerprint(json, prompt_);
        json.key("choices").begin_array();
        write_choice(json, index, choice);
        json.end_array();
        if (counts_.ended == options_.choices) {
            write_chat_usage(json.key("usage"), prompt_, counts_);
        } else if (options_.include_usage) {
            json.key("usage").null();
        }
        json.end_object();
        return text;
    }

    AnswerSettings settings_;
    CompletionAnswerOptions options_;
    bool started_ = false;
    ReadyChunk prompt_;
    std::vector<Choice> choices_;
    AnswerCounts counts_;
};

}  // namespace

std::unique_ptr<AnswerBuilder> make_completion_answer(AnswerSettings settings,
                                                      CompletionAnswerOptions options) {
    return std::make_unique<CompletionAnswer>(std::move(settings), options);
}

void write_completion_logprobs(JsonWriter& json, std::shared_ptr<const Tokenizer> tokenizer,
                               const std::vector<TokenLogprob>& logprobs, bool with_top) {
    Entries entries(std::move(tokenizer));
    entries.add(logprobs);
    entries.write(json, with_top);
}

}  // namespace fathom
