// The trained tiny model behaves as its own training code does: held-out prompts, answered greedily
// by `fathom generate`, against the recorded outputs. Near ties flip a few free texts; structured
// answers must all agree.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "base/json.h"
#include "support.h"

namespace fathom {
namespace {

std::vector<Json> read_lines(const std::string& path) {
    std::vector<Json> rows;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        Result<Json> row = parse_json(line);
        EXPECT_TRUE(row.ok()) << path << ": " << row.status().message();
        if (row.ok()) rows.push_back(std::move(*row));
    }
    return rows;
}

TEST(Transcripts, TinyModelAnswersAsItsTrainingCodeDid) {
    FATHOM_NEED_SHARED("tiny/transcripts.jsonl");
    const std::vector<Json> recorded = read_lines(testing::shared_path("tiny/transcripts.jsonl"));
    const std::filesystem::path dir = std::filesystem::temp_directory_path() /
                                      ("fathom_transcripts_" + std::to_string(::getpid()));
    std::filesystem::create_directories(dir);
    {
        std::ofstream in(dir / "in.jsonl");
        for (std::size_t i = 0; i < recorded.size(); ++i) {
            Json request = Json::object();
            request.set("id", std::to_string(i));
            request.set("prompt", *recorded[i].find("prompt"));
            request.set("temperature", 0);
            request.set("max_tokens", 300);
            in << request.dump() << "\n";
        }
    }
    const std::string command = std::string(FATHOM_PROGRAM) + " generate --model " +
                                testing::source_path("models/tiny") + " -i " +
                                (dir / "in.jsonl").string() + " -o " +
                                (dir / "out.jsonl").string() + " 2>/dev/null";
    ASSERT_EQ(std::system(command.c_str()), 0);
    const std::vector<Json> answers = read_lines((dir / "out.jsonl").string());
    std::filesystem::remove_all(dir);
    ASSERT_EQ(answers.size(), recorded.size());

    const std::set<std::string> free_kinds = {"story", "lookup", "sum"};
    const std::string eos = "<｜end▁of▁sentence｜>";
    std::size_t equal = 0;
    for (std::size_t i = 0; i < recorded.size(); ++i) {
        std::string wanted = recorded[i].find("output")->as_string();
        if (wanted.ends_with(eos)) wanted.resize(wanted.size() - eos.size());
        const bool same = answers[i].find("text")->as_string() == wanted;
        equal += same ? 1 : 0;
        const std::string kind = recorded[i].find("kind")->as_string();
        const bool free = free_kinds.contains(kind.substr(0, kind.find('+')));
        EXPECT_TRUE(same || free) << kind << " " << i << ": " << answers[i].dump();
    }
    EXPECT_GE(equal, 70u) << "of " << recorded.size();
}

}  // namespace
}  // namespace fathom
