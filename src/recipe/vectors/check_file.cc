#include "recipe/vectors/check_file.h"

#include <array>
#include <filesystem>
#include <sstream>
#include <utility>

#include "base/input_file.h"
#include "recipe/vectors/rows.h"

namespace fathom {
namespace {

using TokenizerPtr = std::shared_ptr<const Tokenizer>;

// A form of rows: the members that tell it, and its check. The first that fits is taken.
struct Form {
    std::array<std::string_view, 2> members;  // the second may be empty
    bool needs_tokenizer;
    RowOutcome (*check)(const Json&, const TokenizerPtr&);
};

template <RowOutcome (*kCheck)(const Json&)>
RowOutcome plain(const Json& row, const TokenizerPtr&) {
    return kCheck(row);
}

constexpr std::array<Form, 16> kForms = {{
    {{"feed", "protocol"}, false, plain<check_transcript>},
    {{"reference", "open"}, false, plain<check_profiles>},
    {{"kind", ""}, false, plain<check_image>},
    {{"context_limit", ""}, false, plain<check_limit>},
    {{"schema", "format_strict"}, false, plain<check_strict_schema>},
    {{"parsing", "chunkings"}, false, plain<check_parser>},
    {{"requests", "chunkings"}, false, plain<check_stream>},
    {{"groups", "protocols"}, true, check_token_stream},
    {{"groups", "per_group"}, true, check_decoded},
    {{"text", "per_token"}, true, check_token_text},
    {{"prompt", "ids"}, true, check_encoded},
    {{"conversation", "v41"}, false, plain<check_conversation>},
    {{"protocol", "expect"}, false, plain<check_accepted_request>},
    {{"protocol", "error"}, false, plain<check_refused_request>},
    {{"finish_first", "error"}, true, check_token_fault},
    {{"error", ""}, true, check_encoding_fault},
}};

Result<TokenizerPtr> tokenizer_beside(const std::string& path) {
    const std::filesystem::path file = std::filesystem::path(path).parent_path() / "tokenizer.json";
    std::error_code fault;
    if (!std::filesystem::exists(file, fault)) return TokenizerPtr();
    return Tokenizer::load(file.string());
}

}  // namespace

RowOutcome check_row(const Json& row, const TokenizerPtr& tokenizer) {
    for (const Form& form : kForms) {
        if (!row_has(row, form.members[0])) continue;
        if (!form.members[1].empty() && !row_has(row, form.members[1])) continue;
        if (form.needs_tokenizer && tokenizer == nullptr)
            return RowOutcome::skip("no tokenizer.json lies beside the file, and none is named");
        return form.check(row, tokenizer);
    }
    return RowOutcome::of("a row of no known form");
}

std::int64_t FileReport::rows() const {
    std::int64_t count = passed + static_cast<std::int64_t>(failures.size());
    for (const auto& [reason, rows] : skipped)
        count += rows;
    return count;
}

Result<FileReport> check_file(const std::string& path, const FileCheck& check) {
    FATHOM_ASSIGN(std::string text, read_input_file(path));
    std::istringstream file(std::move(text));
    TokenizerPtr tokenizer = check.tokenizer;
    if (tokenizer == nullptr) {
        FATHOM_ASSIGN(tokenizer, tokenizer_beside(path));
    }
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);)
        lines.push_back(std::move(line));
    FileReport report;
    report.path = path;
    std::int64_t number = 0;
    for (const std::string& line : lines) {
        ++number;
        if (line.empty()) continue;
        const auto row = parse_json(line);
        RowOutcome outcome = row.ok() ? check_row(*row, tokenizer)
                                      : RowOutcome::of("not JSON: " + row.status().message());
        if (outcome.kind == RowOutcome::Kind::passed) {
            ++report.passed;
            if (outcome.status_only) ++report.status_only;
        }
        if (outcome.kind == RowOutcome::Kind::skipped) ++report.skipped[outcome.detail];
        if (outcome.kind == RowOutcome::Kind::failed)
            report.failures.push_back(
                {number, row.ok() ? row_text(*row, "id") : "", std::move(outcome.detail)});
        if (check.progress) check.progress(number, static_cast<std::int64_t>(lines.size()));
    }
    if (report.rows() == 0)
        return invalid_argument("{}: no rows, expected one JSON object a line", path);
    return report;
}

}  // namespace fathom
