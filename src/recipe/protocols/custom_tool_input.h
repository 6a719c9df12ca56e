// The input of a custom tool, decoded while it streams (recipe.md 4.5). The model calls such a tool
// like a function with one parameter, {"input": "…"}; the client sees the text of that string.
// Arguments of another form pass as they are. One owner.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace fathom {

class CustomToolInput {
  public:
    // What more of the arguments adds to the input, may be nothing. What the end of the arguments
    // leaves over (the beginning of the form, half an escape) is dropped.
    std::string push(std::string_view arguments);

  private:
    enum class State : std::uint8_t { opening, text, closed, verbatim };
    void open(std::string& out);
    void decode(std::string& out);
    static std::size_t decode_escape(std::string_view text, std::string& out);

    State state_ = State::opening;
    std::string held_;  // opening: all so far; text: half an escape
};

}  // namespace fathom
