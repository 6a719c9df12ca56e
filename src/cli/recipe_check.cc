#include "cli/recipe_check.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "base/clock.h"
#include "base/json.h"
#include "base/output_file.h"
#include "cli/progress.h"
#include "recipe/vectors/check_file.h"
#include "recipe/vectors/transcript.h"

namespace fathom {
namespace {

// Files as they are named; of a folder, its .jsonl files by name.
Result<std::vector<std::string>> files_of(const std::vector<std::string>& words) {
    std::vector<std::string> files;
    for (const std::string& word : words) {
        std::error_code fault;
        if (!std::filesystem::is_directory(word, fault)) {
            files.push_back(word);
            continue;
        }
        const std::size_t first = files.size();
        for (auto entry = std::filesystem::directory_iterator(word, fault);
             !fault && entry != std::filesystem::directory_iterator(); entry.increment(fault))
            if (entry->path().extension() == ".jsonl") files.push_back(entry->path().string());
        if (fault) return invalid_argument("{}: {}", word, fault.message());
        std::sort(files.begin() + static_cast<std::ptrdiff_t>(first), files.end());
    }
    if (files.empty()) return invalid_argument("check needs FILE.jsonl or a folder of them");
    return files;
}

Json report_json(const FileReport& report) {
    Json failures = Json::array();
    for (const RowFailure& failure : report.failures)
        failures.push_back(Json::object(
            {{"line", failure.line}, {"id", failure.id}, {"difference", failure.difference}}));
    Json skipped = Json::object();
    for (const auto& [reason, rows] : report.skipped)
        skipped.set(reason, rows);
    Json json = Json::object();
    json.set("file", report.path);
    json.set("rows", report.rows());
    json.set("passed", report.passed);
    json.set("passed_by_status_only", report.status_only);
    json.set("failed", static_cast<std::int64_t>(report.failures.size()));
    json.set("skipped", std::move(skipped));
    json.set("failures", std::move(failures));
    return json;
}

void print_report(const FileReport& report) {
    for (const RowFailure& failure : report.failures)
        fmt::print("{}:{}: {}\n  {}\n", report.path, failure.line, failure.id, failure.difference);
    fmt::print("{}: {} rows, {} passed, {} failed\n", report.path, report.rows(), report.passed,
               report.failures.size());
    if (report.status_only > 0)
        fmt::print("  {} passed by their status alone: their words are not recorded\n",
                   report.status_only);
    for (const auto& [reason, rows] : report.skipped)
        fmt::print("  {} skipped ({})\n", rows, reason);
}

Status update(const std::vector<std::string>& files) {
    for (const std::string& path : files) {
        FATHOM_RETURN_IF_ERROR(check_output_path(path));
        FATHOM_ASSIGN(const TranscriptUpdate changed, update_transcripts(path));
        for (const std::string& text : changed.changed)
            fmt::print("{}\n", text);
        if (!changed.changed.empty()) FATHOM_RETURN_IF_ERROR(write_output_file(path, changed.text));
        fmt::print("{}: {} transcripts changed\n", path, changed.changed.size());
    }
    return {};
}

}  // namespace

Status check_recipe_files(const std::vector<std::string>& words, const RecipeCheck& options) {
    FATHOM_ASSIGN(const std::vector<std::string> files, files_of(words));
    if (options.update) return update(files);
    FileCheck check;
    if (!options.tokenizer.empty()) {
        FATHOM_ASSIGN(check.tokenizer, Tokenizer::load(options.tokenizer));
    }
    Json reports = Json::array();
    std::int64_t failed = 0;
    for (const std::string& path : files) {
        std::optional<Progress> bar;
        check.progress = [&](std::int64_t rows, std::int64_t total) {
            if (!bar) bar.emplace(path, total, real_clock());
            bar->update(rows);
        };
        FATHOM_ASSIGN(const FileReport report, check_file(path, check));
        bar.reset();
        failed += static_cast<std::int64_t>(report.failures.size());
        if (options.json) {
            reports.push_back(report_json(report));
        } else {
            print_report(report);
        }
    }
    if (options.json)
        fmt::print("{}\n",
                   Json::object({{"files", std::move(reports)}, {"failed", failed}}).dump());
    if (failed == 0) return {};
    return invalid_argument("{} rows differ", failed);
}

}  // namespace fathom
