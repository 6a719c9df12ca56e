#include "recipe/prompt_writer.h"

#include "base/check.h"
#include "recipe/added_tokens.h"

namespace fathom {

void PromptWriter::text(std::string_view text) {
    if (text.empty()) return;
    if (segments_.empty() || segments_.back().special) segments_.push_back({});
    segments_.back().text += text;
}

// The reference does so for <｜ref｜> and <｜box｜> (golden rows chat/special_13, special_14 and
// special_all_tools); the other six are of the same kind.
void PromptWriter::model_text(std::string_view text_and_marks) {
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

void PromptWriter::content(const MessageText& content, std::span<const std::size_t> image_numbers) {
    FATHOM_CHECK(content.images.size() == image_numbers.size());
    std::size_t done = 0;
    for (std::size_t i = 0; i < image_numbers.size(); ++i) {
        const std::size_t offset = content.images[i];
        FATHOM_CHECK(done <= offset && offset <= content.text.size(), "image offset");
        text(std::string_view(content.text).substr(done, offset - done));
        segments_.push_back({true, tokens_.image, image_numbers[i]});
        done = offset;
    }
    text(std::string_view(content.text).substr(done));
}

}  // namespace fathom
