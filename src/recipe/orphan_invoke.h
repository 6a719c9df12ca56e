// Tool calls whose markup came out damaged (recipe.md 3.8). A call outside of a block is normally
// content. With DsmlRecovery::orphan_invoke an element
//
//   <DSML｜ invoke name="NAME">
//   <DSML｜ parameter name="P" string="true">text</DSML｜ parameter>
//   </DSML｜ invoke>
//
// is a call when it begins in a damaged spelling (the first bar missing, or both bars doubled; the
// sound one opens a block), NAME is a tool of the request, each parameter is closed, nothing but
// white space stands between them, and the arguments that result are JSON. Inside the element each
// spelling will do, and so it does for the tags of a block around it: a damaged opening tag right
// before the element, and a closing one right after it, go with it, as do the line feeds before
// them. All else stays content, to the byte: nothing is guessed.
//
// The scanner reads the content of one answer ahead of the parser. It holds back what may yet be an
// element, at most kOrphanBytesMax bytes; longer ones are content. Each byte is read once, but for
// the tags and names that new text may complete, so time is linear; and what is found does not
// depend on how the text was cut.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fathom {

inline constexpr std::size_t kOrphanBytesMax = std::size_t{64} << 10;

// Tags in all spellings and the names of the tools. Immutable.
class OrphanRules {
  public:
    // `dsml`: the sound spelling, such as ｜DSML｜.
    OrphanRules(std::string_view dsml, const std::vector<std::string>& tool_names);

    // What begins at some byte of a text.
    enum class Tag : std::uint8_t {
        none,
        unknown,  // more text is needed
        invoke,
        invoke_end,
        block,
        block_end,
        parameter,
        parameter_end,
        text_value,  // the rest of a parameter's tag, behind its name
        json_value,
        any_end,  // `</` and a spelling, whatever follows
    };
    struct Found {
        Tag tag = Tag::none;
        std::size_t size = 0;  // bytes of the tag
    };
    using Spellings = std::vector<std::pair<Tag, std::string>>;
    static Found find(std::string_view text, const Spellings& tags);

    // What may come in each place. No tag of a list begins with another one of it, but for any_end,
    // which is last.
    Spellings outside, behind_call, in_block, in_call, in_tag, in_value;
    std::set<std::string, std::less<>> tools;
    std::size_t longest_name = 0;
};

class OrphanScanner {
  public:
    // `rules` outlives the scanner. Positions count bytes of the whole output.
    explicit OrphanScanner(const OrphanRules& rules) : rules_(&rules) {}

    // The content begins here.
    void begin(std::uint64_t at);
    // Reads on, up to the end of an element or of the text. `text` is all that is known, from
    // `text_begin` on, which is settled() or before.
    void scan(std::string_view text, std::uint64_t text_begin);

    // A call, or the closing tag of a block (without a name).
    struct Element {
        std::uint64_t begin = 0, end = 0;
        std::string name = {};
        std::string arguments = {};  // a JSON object
    };
    // Until it is taken nothing more is read.
    const std::optional<Element>& found() const { return found_; }
    Element take();
    // All before it is content, but for what was taken: this is where an element may begin.
    std::uint64_t settled() const { return start_; }

  private:
    enum class Place : std::uint8_t { outside, block, name, call, parameter_name, tag, value };
    using Tag = OrphanRules::Tag;

    bool step(std::string_view text);  // false: needs more text
    bool read_outside(std::string_view text);
    bool read_block(std::string_view text);
    bool read_name(std::string_view text);
    bool read_call(std::string_view text);
    bool read_parameter_name(std::string_view text);
    bool read_tag(std::string_view text);
    bool read_value(std::string_view text);
    bool skip_space(std::string_view text);
    bool reject(std::uint64_t resume);
    void enter(Place place, std::size_t bytes);
    bool add_value(std::string_view value);
    bool complete();
    std::string_view rest(std::string_view text) const { return text.substr(cursor_ - begin_); }

    const OrphanRules* rules_;
    std::uint64_t begin_ = 0;   // of the text that is scanned
    std::uint64_t start_ = 0;   // of what may be an element, line feeds before it included
    std::uint64_t cursor_ = 0;  // read up to here
    std::uint64_t mark_ = 0;    // where the name or value began that is being read
    Place place_ = Place::outside;
    bool behind_call_ = false;  // nothing but line feeds since the latest call
    bool json_value_ = false;
    Element element_ = {};
    std::optional<Element> found_ = {};
};

}  // namespace fathom
