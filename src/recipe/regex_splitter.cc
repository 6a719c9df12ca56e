#include "recipe/regex_splitter.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "base/check.h"

namespace fathom {
namespace {

constexpr std::size_t kPatternBytesMax = 4096;
// The release's patterns spend at most one step a character on a run of white space, which ends in
// one step more than the run is long; everything else is constant a match.
constexpr std::uint32_t kMatchLimit = 400'000'000;
constexpr std::size_t kJitStackBytesMin = 32 << 10;
constexpr std::size_t kJitStackBytesMax = 1 << 20;

// Rewrites a pattern so that PCRE2 gives it the meaning it has in Oniguruma, or says why it cannot.
class PatternTranslator {
  public:
    explicit PatternTranslator(std::string_view pattern) : pattern_(pattern) {}

    Result<std::string> translate() {
        while (at_ < pattern_.size()) {
            FATHOM_RETURN_IF_ERROR(in_class_ ? class_item() : outside_item());
        }
        return std::move(out_);
    }

  private:
    bool starts_with(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
    void copy(std::size_t count) {
        out_.append(pattern_, at_, count);
        at_ += count;
    }
    Status refuse(std::string_view what) const {
        return invalid_argument("{} at byte {} of \"{}\" is not supported", what, at_, pattern_);
    }

    Status escape() {
        if (at_ + 1 >= pattern_.size()) return refuse("a final backslash");
        const char c = pattern_[at_ + 1];
        if (c == 's' || c == 'S') {
            if (in_class_ && c == 'S') return refuse("\\S inside a character class");
            if (in_class_) {
                out_ += kWhiteSpaceClass;
            } else {
                out_ += (c == 's' ? "[" : "[^") + std::string(kWhiteSpaceClass) + "]";
            }
            at_ += 2;
            return {};
        }
        const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        const bool digit = c >= '0' && c <= '9';
        const bool known = std::string_view("pPdDrnt").find(c) != std::string_view::npos;
        const bool ascii = static_cast<unsigned char>(c) < 0x80;
        if (!ascii || digit || (letter && !known)) {
            return refuse("the escape \\" + std::string(1, c));
        }
        copy(2);
        return {};
    }

    Status class_item() {
        const char c = pattern_[at_];
        if (c == '\\') return escape();
        if (c == '[') return refuse("a set inside a character class");
        if (starts_with("&&")) return refuse("the set operator &&");
        if (c == ']') in_class_ = false;
        copy(1);
        return {};
    }

    Status outside_item() {
        const char c = pattern_[at_];
        if (c == '\\') return escape();
        if (c == '^' || c == '$') return refuse("a line anchor");
        if (starts_with("}+")) return refuse("}+");
        if (starts_with("(*")) return refuse("(*");
        if (starts_with("(?")) {
            for (const std::string_view group : {"(?:", "(?=", "(?!"}) {
                if (starts_with(group)) {
                    copy(group.size());
                    return {};
                }
            }
            return refuse("this kind of group");
        }
        if (c == '[') {
            copy(starts_with("[^") ? 2 : 1);
            if (starts_with("]")) return refuse("] as the first member of a character class");
            in_class_ = true;
            return {};
        }
        copy(1);
        return {};
    }

    std::string_view pattern_;
    std::size_t at_ = 0;
    bool in_class_ = false;
    std::string out_;
};

std::string pcre2_message(int code) {
    std::array<unsigned char, 256> text{};
    pcre2_get_error_message(code, text.data(), text.size());
    return reinterpret_cast<const char*>(text.data());
}

}  // namespace

struct RegexPattern {
    explicit RegexPattern(pcre2_code* compiled) : code(compiled) {}
    ~RegexPattern() { pcre2_code_free(code); }
    RegexPattern(const RegexPattern&) = delete;
    RegexPattern& operator=(const RegexPattern&) = delete;

    pcre2_code* code;
};

Result<std::shared_ptr<const RegexPattern>> compile_regex_pattern(std::string_view text) {
    if (text.size() > kPatternBytesMax) {
        return invalid_argument("the pattern has {} bytes, at most {} are allowed", text.size(),
                                kPatternBytesMax);
    }
    FATHOM_ASSIGN(const std::string translated, PatternTranslator(text).translate());
    int error_code = 0;
    std::size_t error_at = 0;
    pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
    FATHOM_CHECK(context != nullptr, "out of memory");
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pcre2_code* code =
        pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                      PCRE2_UTF | PCRE2_UCP, &error_code, &error_at, context);
    pcre2_compile_context_free(context);
    if (code == nullptr) {
        return invalid_argument("\"{}\" is not a valid regular expression: {}", text,
                                pcre2_message(error_code));
    }
    auto pattern = std::make_shared<const RegexPattern>(code);
    std::uint32_t matches_empty = 0;
    pcre2_pattern_info(code, PCRE2_INFO_MATCHEMPTY, &matches_empty);
    if (matches_empty != 0) {
        return invalid_argument("\"{}\" can match the empty string", text);
    }
    // Where the system allows no JIT (no writable code pages) the interpreter runs the pattern
    // with the same result.
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
    return pattern;
}

struct RegexSplitter::Matcher {
    Matcher()
        : context(pcre2_match_context_create(nullptr)),
          stack(pcre2_jit_stack_create(kJitStackBytesMin, kJitStackBytesMax, nullptr)),
          data(pcre2_match_data_create(1, nullptr)) {
        FATHOM_CHECK(context != nullptr && data != nullptr, "out of memory");
        pcre2_set_match_limit(context, kMatchLimit);
        // A null stack (a build without JIT) leaves the default.
        if (stack != nullptr) pcre2_jit_stack_assign(context, nullptr, stack);
    }
    ~Matcher() {
        pcre2_match_data_free(data);
        if (stack != nullptr) pcre2_jit_stack_free(stack);
        pcre2_match_context_free(context);
    }
    Matcher(const Matcher&) = delete;
    Matcher& operator=(const Matcher&) = delete;

    // Cuts one piece into matches and gaps, appended to `out`.
    void cut(const pcre2_code* code, std::string_view piece, std::vector<std::string_view>& out) {
        std::size_t done = 0;
        while (done < piece.size()) {
            const int rc = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(piece.data()),
                                       piece.size(), done, PCRE2_NO_UTF_CHECK, data, context);
            if (rc < 0) break;  // no match, or the match limit
            const std::size_t* range = pcre2_get_ovector_pointer(data);
            FATHOM_CHECK(range[0] >= done && range[1] > range[0] && range[1] <= piece.size());
            if (range[0] > done) out.push_back(piece.substr(done, range[0] - done));
            out.push_back(piece.substr(range[0], range[1] - range[0]));
            done = range[1];
        }
        if (done < piece.size()) out.push_back(piece.substr(done));
    }

    pcre2_match_context* context;
    pcre2_jit_stack* stack;
    pcre2_match_data* data;
};

RegexSplitter::RegexSplitter(std::span<const std::shared_ptr<const RegexPattern>> patterns)
    : patterns_(patterns), matcher_(std::make_unique<Matcher>()) {}

RegexSplitter::~RegexSplitter() = default;

void RegexSplitter::start(std::string_view text) {
    text_ = text;
}

std::span<const std::string_view> RegexSplitter::next_words() {
    pieces_.clear();
    if (text_.empty()) return pieces_;
    pieces_.push_back(std::exchange(text_, {}));
    for (const std::shared_ptr<const RegexPattern>& pattern : patterns_) {
        cut_.clear();
        for (const std::string_view piece : pieces_)
            matcher_->cut(pattern->code, piece, cut_);
        std::swap(pieces_, cut_);
    }
    return pieces_;
}

}  // namespace fathom
