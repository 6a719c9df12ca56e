#include "cli/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <deque>

namespace fathom {
namespace {

bool reads_key(const CommandSpec& spec, const std::string& key) {
    const std::string table = key.substr(0, key.find('.'));
    return std::find(spec.tables.begin(), spec.tables.end(), table) != spec.tables.end();
}

// The spellings of one option: its aliases first, since those are what people type.
std::vector<std::string> flags_of(const CommandSpec& spec, const std::string& key) {
    std::vector<std::string> flags;
    for (const FlagAlias& alias : spec.aliases)
        if (alias.key == key) flags.push_back(alias.flag);
    flags.push_back("--" + key);
    return flags;
}

std::string join(const std::vector<std::string>& words, const char* separator) {
    return fmt::format("{}", fmt::join(words, separator));
}

struct Parsed {
    std::string config_path;
    bool help = false;
    std::vector<std::pair<std::string, std::string>> values;  // key, text; in schema order
    std::vector<std::string> rest;
};

// The one use of CLI11: words to key and text. Its exceptions end here.
Result<Parsed> split_words(std::vector<std::string> words, const ConfigSchema& schema,
                           const CommandSpec& spec) {
    CLI::App app;
    app.set_help_flag();
    app.allow_extras();
    Parsed parsed;
    app.add_flag("-h,--help", parsed.help);
    app.add_option("--config", parsed.config_path);

    struct Slot {
        std::string key;
        std::vector<std::string> texts;
        std::string flag_text;
    };
    std::deque<Slot> slots;  // addresses stay valid while growing
    for (const ConfigSchema::Option& option : schema.options()) {
        if (!reads_key(spec, option.key)) continue;
        Slot& slot = slots.emplace_back();
        slot.key = option.key;
        const std::string names = join(flags_of(spec, option.key), ",");
        if (option.is_bool)
            app.add_flag(names, slot.flag_text);
        else
            app.add_option(names, slot.texts)->allow_extra_args(false);
    }
    // CLI11 takes the next word for the value of "--key=": it gets a word in place of none.
    const std::string empty(1, '\1');
    for (std::string& word : words)
        if (word.starts_with("--") && word.find('=') == word.size() - 1) word += empty;
    try {
        std::reverse(words.begin(), words.end());  // CLI11 takes words from the back
        app.parse(std::move(words));
    } catch (const CLI::Error& failure) {
        return invalid_argument("{}", failure.what());
    }
    if (parsed.config_path == empty) return invalid_argument("--config: the path is empty");
    for (Slot& slot : slots) {
        if (slot.flag_text == empty)
            return invalid_argument("flag: {} must be true or false, got \"\"", slot.key);
        std::replace(slot.texts.begin(), slot.texts.end(), empty, std::string());
        if (!slot.flag_text.empty()) parsed.values.emplace_back(slot.key, slot.flag_text);
        for (std::string& text : slot.texts)
            parsed.values.emplace_back(slot.key, std::move(text));
    }
    parsed.rest = app.remaining();
    return parsed;
}

Status unknown_flag(const std::string& word, const ConfigSchema& schema, const CommandSpec& spec) {
    const std::string flag = word.substr(0, word.find('='));
    std::vector<std::string> known = {"--help", "--config"};
    for (const ConfigSchema::Option& option : schema.options()) {
        if (!reads_key(spec, option.key)) continue;
        for (std::string& name : flags_of(spec, option.key))
            known.push_back(std::move(name));
    }
    const std::string nearest = nearest_word(flag, known);
    return invalid_argument("unknown option \"{}\"{}", flag,
                            nearest.empty() ? "; --help lists the options"
                                            : fmt::format(", did you mean \"{}\"?", nearest));
}

}  // namespace

Result<CommandLine> parse_command_line(const std::vector<std::string>& args, ConfigSchema& schema,
                                       const CommandSpec& spec) {
    const auto mark = std::find(args.begin(), args.end(), "--");
    FATHOM_ASSIGN(Parsed parsed,
                  split_words(std::vector<std::string>(args.begin(), mark), schema, spec));
    CommandLine line;
    for (std::string& word : parsed.rest) {
        if (word.size() > 1 && word[0] == '-') return unknown_flag(word, schema, spec);
        line.positional.push_back(std::move(word));
    }
    if (mark != args.end()) line.positional.insert(line.positional.end(), mark + 1, args.end());
    if (parsed.help) {
        line.help = true;
        return line;
    }
    if (line.positional.size() > spec.positional_max)
        return invalid_argument("unexpected argument \"{}\"; usage: {}",
                                line.positional[spec.positional_max], spec.usage);
    if (!parsed.config_path.empty()) FATHOM_RETURN_IF_ERROR(schema.load_file(parsed.config_path));
    for (const auto& [key, text] : parsed.values)
        FATHOM_RETURN_IF_ERROR(schema.set_flag(key, text));
    return line;
}

std::string help_text(const ConfigSchema& schema, const CommandSpec& spec) {
    std::string text = fmt::format("usage: {}\n{}\n", spec.usage, spec.summary);
    std::string table;
    for (const ConfigSchema::Option& option : schema.options()) {
        if (!reads_key(spec, option.key)) continue;
        const std::string of_table = option.key.substr(0, option.key.find('.'));
        if (of_table != table) text += fmt::format("\n{}:\n", of_table);
        table = of_table;
        text += fmt::format("  {}\n      {}", join(flags_of(spec, option.key), ", "), option.help);
        if (!option.choices_or_range.empty()) text += fmt::format(" [{}]", option.choices_or_range);
        if (!option.default_text.empty())
            text += fmt::format(" (default: {})", option.default_text);
        text += "\n";
    }
    text += "\n  --config FILE\n      TOML file with the same keys; flags win over it\n";
    text += "  -h, --help\n      this text\n";
    return text;
}

}  // namespace fathom
