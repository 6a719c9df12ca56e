// The segments of a prompt under construction: text grows together, special tokens and images cut.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "recipe/prompt.h"

namespace fathom {

class PromptWriter {
  public:
    // The spellings must outlive the writer.
    explicit PromptWriter(const SpecialTokens& tokens) : tokens_(tokens) {}

    const SpecialTokens& tokens() const { return tokens_; }

    void special(std::string_view token) { segments_.push_back({true, std::string(token)}); }
    void text(std::string_view text);
    // What the model wrote: the grounding marks in it (<｜ref｜>, <｜box｜>, …) are the tokens it
    // wrote, not their spelling.
    void model_text(std::string_view text_and_marks);
    // Text with an image token at each of its images; image_numbers is parallel to content.images.
    void content(const MessageText& content, std::span<const std::size_t> image_numbers);
    std::vector<PromptSegment> take() { return std::move(segments_); }

  private:
    const SpecialTokens& tokens_;
    std::vector<PromptSegment> segments_;
};

}  // namespace fathom
