#include "recipe/orphan_invoke.h"

#include <algorithm>
#include <utility>

#include "base/json.h"

namespace fathom {

namespace {

constexpr std::string_view kBar = "｜";

// The sound spelling is the first.
std::vector<std::string> spellings_of(std::string_view dsml) {
    std::string_view word = dsml;
    while (word.starts_with(kBar))
        word.remove_prefix(kBar.size());
    while (word.ends_with(kBar))
        word.remove_suffix(kBar.size());
    const std::string bar(kBar), bare(word);
    std::vector<std::string> all = {std::string(dsml)};
    for (std::string other : {bare + bar, bar + bar + bare + bar + bar})
        if (other != dsml) all.push_back(std::move(other));
    return all;
}

}  // namespace

OrphanRules::OrphanRules(std::string_view dsml, const std::vector<std::string>& tool_names) {
    bool sound = true;
    for (const std::string& spelling : spellings_of(dsml)) {
        for (const char* space : {"", " "}) {
            const std::string open = "<" + spelling + space, close = "</" + spelling + space;
            in_block.emplace_back(Tag::invoke, open + "invoke name=\"");
            in_call.emplace_back(Tag::parameter, open + "parameter name=\"");
            in_call.emplace_back(Tag::invoke_end, close + "invoke>");
            in_value.emplace_back(Tag::parameter_end, close + "parameter>");
            if (!sound) outside.push_back(in_block.back());
            for (const char* block : {"tool_calls>", "toolcalls>", "calls>"}) {
                if (!sound) outside.emplace_back(Tag::block, open + block);
                behind_call.emplace_back(Tag::block_end, close + block);
            }
        }
        sound = false;
    }
    for (const std::string& spelling : spellings_of(dsml))
        in_value.emplace_back(Tag::any_end, "</" + spelling);
    in_tag = {{Tag::text_value, "\" string=\"true\">"}, {Tag::json_value, "\" string=\"false\">"}};
    for (const std::string& name : tool_names) {
        if (!name.empty()) tools.insert(name);
        longest_name = std::max(longest_name, name.size());
    }
}

OrphanRules::Found OrphanRules::find(std::string_view text, const Spellings& tags) {
    bool unknown = false;
    for (const auto& [tag, spelling] : tags) {
        if (text.starts_with(spelling) && !unknown) return {tag, spelling.size()};
        if (text.size() < spelling.size() && spelling.starts_with(text)) unknown = true;
    }
    return {unknown ? Tag::unknown : Tag::none, 0};
}

void OrphanScanner::begin(std::uint64_t at) {
    found_.reset();
    start_ = cursor_ = at;
    place_ = Place::outside;
    behind_call_ = false;
}

OrphanScanner::Element OrphanScanner::take() {
    Element taken = *std::exchange(found_, std::nullopt);
    begin(taken.end);
    behind_call_ = !taken.name.empty();
    return taken;
}

void OrphanScanner::scan(std::string_view text, std::uint64_t text_begin) {
    begin_ = text_begin;
    while (!found_) {
        const std::uint64_t limit = start_ + kOrphanBytesMax - begin_;
        const bool is_cut = text.size() >= limit;
        if (step(is_cut ? text.substr(0, limit) : text)) continue;
        if (!is_cut) return;
        reject(place_ == Place::name ? mark_ : cursor_);
    }
}

bool OrphanScanner::step(std::string_view text) {
    switch (place_) {
        case Place::outside:
            return read_outside(text);
        case Place::block:
            return read_block(text);
        case Place::name:
            return read_name(text);
        case Place::call:
            return read_call(text);
        case Place::parameter_name:
            return read_parameter_name(text);
        case Place::tag:
            return read_tag(text);
        case Place::value:
            return read_value(text);
    }
    return false;
}

// What was taken for an element is content. Reading goes on at `resume`.
bool OrphanScanner::reject(std::uint64_t resume) {
    start_ = cursor_ = resume;
    place_ = Place::outside;
    behind_call_ = false;
    return true;
}

void OrphanScanner::enter(Place place, std::size_t bytes) {
    place_ = place;
    cursor_ += bytes;
    mark_ = cursor_;
}

bool OrphanScanner::read_outside(std::string_view text) {
    while (cursor_ - begin_ < text.size()) {
        const std::string_view left = rest(text);
        if (left[0] == '\n') {
            ++cursor_;
            continue;
        }
        if (left[0] != '<') {
            const std::size_t plain = std::min(left.find_first_of("<\n"), left.size());
            return reject(cursor_ + plain);
        }
        const auto [tag, size] = OrphanRules::find(left, rules_->outside);
        element_ = {.begin = start_};
        if (tag == Tag::invoke) return enter(Place::name, size), true;
        if (tag == Tag::block) return enter(Place::block, size), true;
        if (behind_call_) {
            const auto [end, end_size] = OrphanRules::find(left, rules_->behind_call);
            if (end == Tag::block_end) {
                element_.end = cursor_ + end_size;
                found_ = std::move(element_);
                return true;
            }
            if (end == Tag::unknown) return false;
        }
        if (tag == Tag::unknown) return false;
        return reject(cursor_ + 1);
    }
    return false;
}

// White space between tags; false where it goes up to the end.
bool OrphanScanner::skip_space(std::string_view text) {
    const std::size_t space = rest(text).find_first_not_of(" \t\r\n");
    cursor_ += std::min(space, rest(text).size());
    return space != std::string_view::npos;
}

bool OrphanScanner::read_block(std::string_view text) {
    if (!skip_space(text)) return false;
    const auto [tag, size] = OrphanRules::find(rest(text), rules_->in_block);
    if (tag == Tag::unknown) return false;
    if (tag == Tag::none) return reject(cursor_);
    return enter(Place::name, size), true;
}

bool OrphanScanner::read_name(std::string_view text) {
    const std::string_view left = rest(text);
    const std::size_t quote = left.find('"');
    if (quote == std::string_view::npos) {
        cursor_ += left.size();
        return cursor_ - mark_ > rules_->longest_name && reject(mark_);
    }
    const std::uint64_t end = cursor_ + quote;
    const std::string_view name = text.substr(mark_ - begin_, end - mark_);
    if (!rules_->tools.contains(name)) return reject(mark_);
    if (quote + 1 == left.size()) {
        cursor_ = end;
        return false;
    }
    if (left[quote + 1] != '>') return reject(mark_);
    element_.name = name;
    cursor_ = end;
    return enter(Place::call, 2), true;
}

bool OrphanScanner::read_call(std::string_view text) {
    if (!skip_space(text)) return false;
    const auto [tag, size] = OrphanRules::find(rest(text), rules_->in_call);
    if (tag == Tag::unknown) return false;
    if (tag == Tag::none) return reject(cursor_);
    if (tag == Tag::parameter) return enter(Place::parameter_name, size), true;
    cursor_ += size;
    return complete();
}

bool OrphanScanner::read_parameter_name(std::string_view text) {
    const std::size_t end = rest(text).find_first_of("\"<>\n");
    cursor_ += std::min(end, rest(text).size());
    if (end == std::string_view::npos) return false;
    if (rest(text)[0] != '"') return reject(cursor_);
    element_.arguments += element_.arguments.empty() ? "{" : ", ";
    append_json_string(element_.arguments, text.substr(mark_ - begin_, cursor_ - mark_));
    element_.arguments += ": ";
    return enter(Place::tag, 0), true;
}

bool OrphanScanner::read_tag(std::string_view text) {
    const auto [tag, size] = OrphanRules::find(rest(text), rules_->in_tag);
    if (tag == Tag::unknown) return false;
    if (tag == Tag::none) return reject(cursor_);
    json_value_ = tag == Tag::json_value;
    return enter(Place::value, size), true;
}

bool OrphanScanner::read_value(std::string_view text) {
    while (true) {
        const std::size_t tag_begin = rest(text).find('<');
        cursor_ += std::min(tag_begin, rest(text).size());
        if (tag_begin == std::string_view::npos) return false;
        const auto [tag, size] = OrphanRules::find(rest(text), rules_->in_value);
        if (tag == Tag::unknown) return false;
        if (tag == Tag::any_end) return reject(cursor_);
        if (tag == Tag::none) {
            ++cursor_;
            continue;
        }
        if (!add_value(text.substr(mark_ - begin_, cursor_ - mark_))) return reject(cursor_);
        return enter(Place::call, size), true;
    }
}

// False for a value that claims to be JSON and is not.
bool OrphanScanner::add_value(std::string_view value) {
    if (json_value_) {
        element_.arguments += value;
        return parse_json(value).ok();
    }
    append_json_string(element_.arguments, value);
    return true;
}

bool OrphanScanner::complete() {
    element_.arguments += element_.arguments.empty() ? "{}" : "}";
    if (!parse_json(element_.arguments).ok()) return reject(cursor_);
    element_.end = cursor_;
    found_ = std::move(element_);
    return true;
}

}  // namespace fathom
