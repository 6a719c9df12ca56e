// Configuration: plain structs with a table of fields. A program declares its options once; they
// can be set by a TOML file (table.key), by a flag (--table.key or the flag's own name) and nothing
// else. Precedence: flag, file, default. Unknown keys are refused and the nearest known one is
// named. Values are range-checked with messages that name key, value and limit. Single-threaded, at
// start.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace fathom {

class ConfigSchema {
  public:
    struct Origin {
        // value: as TOML writes it; origin: "default", "file PATH:LINE" or that of set_flag
        std::string key, value, origin;
    };

    // Each option binds a dotted key ("server.port") to a variable that holds its default. The
    // variable must outlive the schema. For numbers, [min, max] is inclusive and holds the default.
    void add(std::string key, std::string* target, std::string help, bool secret = false);
    void add(std::string key, bool* target, std::string help);
    void add(std::string key, std::int64_t* target, std::int64_t min, std::int64_t max,
             std::string help);
    void add(std::string key, double* target, double min, double max, std::string help);
    void add(std::string key, std::vector<std::string>* target, std::string help,
             bool secret = false);
    // One of a fixed set of words.
    void add_choice(std::string key, std::string* target, std::vector<std::string> choices,
                    std::string help);

    // Nothing is applied unless all of the text is right. Options set by a flag before keep their
    // value; of two files the later wins. `origin` is what messages call the text.
    Status load_file(const std::string& path);
    Status load_text(std::string_view toml, std::string_view origin);
    // A list flag replaces the file's list; repeated, it appends. An empty value sets a bool.
    // `origin` is what messages and effective() call it.
    Status set_flag(std::string_view key, std::string_view value, std::string_view origin = "flag");

    struct Option {
        std::string key, help, default_text, choices_or_range;
        bool is_bool = false;
    };
    std::vector<Option> options() const;    // in declaration order, for --help
    std::vector<Origin> effective() const;  // for `config dump`; secrets shown as "(set)"

  private:
    struct Entry;
    void add_entry(Entry entry);
    Entry* find(std::string_view key);
    Status unknown_key(std::string_view key, std::string_view origin) const;
    std::vector<std::shared_ptr<Entry>> entries_;
};

// The candidate with the smallest edit distance to `word`, or empty when none is close (distance
// more than a third of the word's length).
std::string nearest_word(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace fathom
