// Golden model cases, run the way a user runs them on a new machine: through `fathom verify`. Each
// test is one case in one numeric mode; the program's own report is the failure message.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "support.h"

namespace fathom {
namespace {

struct ProgramResult {
    int status = -1;
    std::string output;
};

// Runs the program with arguments that this file wrote.
ProgramResult run_verify_program(const std::string& arguments) {
    ProgramResult result;
    FILE* pipe =
        popen((std::string(FATHOM_PROGRAM) + " verify " + arguments + " 2>&1").c_str(), "r");
    if (pipe == nullptr) return result;
    std::array<char, 4096> buffer{};
    while (const std::size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe))
        result.output.append(buffer.data(), n);
    const int status = pclose(pipe);
    result.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return result;
}

struct CaseMode {
    const char* name;
    const char* mode;
};

class GoldenModel : public ::testing::TestWithParam<CaseMode> {};

TEST_P(GoldenModel, EveryTensorIsWithinItsTolerance) {
    const std::string dir = testing::shared_path(std::string("golden/model/") + GetParam().name);
    if (!std::filesystem::exists(dir)) GTEST_SKIP() << "needs shared data: " << dir;
    const ProgramResult result =
        run_verify_program(std::string("--mode ") + GetParam().mode + " " + dir);
    EXPECT_EQ(result.status, 0) << result.output;
    EXPECT_NE(result.output.find("pass:"), std::string::npos) << result.output;
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenModel,
                         ::testing::Values(CaseMode{"t1", "real"}, CaseMode{"t1full", "real"},
                                           CaseMode{"t1full", "fp32"}, CaseMode{"t2", "real"},
                                           CaseMode{"t2", "fp32"}, CaseMode{"t3", "real"},
                                           CaseMode{"t3", "fp32"}, CaseMode{"t4", "real"},
                                           CaseMode{"t4", "fp32"}, CaseMode{"t6", "fp32"}),
                         [](const auto& param) {
                             return std::string(param.param.name) + "_" + param.param.mode;
                         });

class ScratchCase : public ::testing::Test {
  protected:
    void SetUp() override {
        FATHOM_NEED_SHARED("golden/model/t2");
        dir_ = std::filesystem::temp_directory_path() /
               ("fathom_verify_" + std::to_string(::getpid()) + "_" +
                ::testing::UnitTest::GetInstance()->current_test_info()->name());
        std::filesystem::copy(testing::shared_path("golden/model/t2"), dir_,
                              std::filesystem::copy_options::recursive);
        for (const auto& entry : std::filesystem::directory_iterator(dir_))
            std::filesystem::permissions(entry, std::filesystem::perms::owner_all);
    }
    void TearDown() override {
        if (!dir_.empty()) std::filesystem::remove_all(dir_);
    }
    std::filesystem::path dir_;
};

TEST_F(ScratchCase, OneChangedLogitIsAMissWithStatusOne) {
    const std::filesystem::path expected = dir_ / "expected_fp32.safetensors";
    std::fstream file(expected, std::ios::in | std::ios::out | std::ios::binary);
    // Every float of the data section gets another sign: some logits are among them.
    std::uint64_t header = 0;
    file.read(reinterpret_cast<char*>(&header), sizeof(header));
    const auto size = static_cast<std::uint64_t>(std::filesystem::file_size(expected));
    for (std::uint64_t at = 8 + header + 3; at < size; at += 4000) {
        file.seekg(static_cast<std::streamoff>(at));
        const int byte = file.get();
        file.seekp(static_cast<std::streamoff>(at));
        file.put(static_cast<char>(byte ^ 0x80));
    }
    file.close();
    const ProgramResult result = run_verify_program("--mode fp32 " + dir_.string());
    EXPECT_EQ(result.status, 1) << result.output;
    EXPECT_NE(result.output.find("MISS"), std::string::npos) << result.output;
}

TEST_F(ScratchCase, DamagedInputsAreNamed) {
    const std::string sequence = R"({"name": "a", "ids": [3, 4], "prompt": 2)";
    const auto whole = [](const std::string& sequences, const std::string& runs) {
        return R"({"case": "t2", "checkpoint": ".", "sequences": [)" + sequences +
               R"(], "runs": [)" + runs + "]}";
    };
    const struct {
        std::string inputs, message;
    } cases[] = {
        {R"({"case": "t2", "checkpoint": "."})", "needs the arrays sequences and runs"},
        {whole(sequence + R"(, "lengths": [3]})", ""), "lengths: 3 is outside 1..2"},
        {whole(sequence + R"(, "chunks": [0]})", ""), "chunks: 0 is outside 1..32768"},
        {whole(sequence + R"(, "activations": 9})", ""), "activations: 9 is outside 0..2"},
        {whole(R"({"name": "a", "ids": [4294967296], "prompt": 1})", ""),
         "ids: expected integers of 32 bits, got 4294967296"},
        {whole(R"({"name": "a", "ids": [18446744073709551615], "prompt": 1})", ""),
         "expected integers of 32 bits"},
        {whole(sequence + "}", R"({"name": "r", "kind": "decode", "sequence": "b"})"),
         "no sequence is called b"},
        {whole(sequence + "}", R"({"name": "r", "kind": "decode", "sequence": "a", "prompt": 3})"),
         "prompt: 3 is outside 1..2"},
    };
    for (const auto& bad : cases) {
        std::ofstream(dir_ / "inputs.json") << bad.inputs;
        const ProgramResult result = run_verify_program(dir_.string());
        EXPECT_EQ(result.status, 1) << bad.message;
        EXPECT_NE(result.output.find(bad.message), std::string::npos) << result.output;
    }
}

TEST_F(ScratchCase, ATensorThatTheGoldenFileLacksIsAMiss) {
    // Sequence and run are known, but their results are stored under other names.
    std::ofstream(dir_ / "inputs.json") << R"({"case": "t2", "checkpoint": ".", "sequences": [
        {"name": "z", "ids": [3, 4, 5], "prompt": 3, "lengths": [2]}], "runs": [
        {"name": "z.greedy", "kind": "greedy", "sequence": "z", "prompt": 2, "steps": 2},
        {"name": "z.tail3", "kind": "tail", "sequence": "z", "prompt": 3, "rows": 3, "tokens": []}]})";
    const ProgramResult result = run_verify_program("--mode fp32 " + dir_.string());
    EXPECT_EQ(result.status, 1) << result.output;
    for (const char* name : {"z.exact.logits", "z.greedy.argmax", "z.tail3.logits"})
        EXPECT_NE(result.output.find(name), std::string::npos) << result.output;
}

TEST(Verify, AbsentFolderIsNamed) {
    const ProgramResult result = run_verify_program("/nonexistent/case");
    EXPECT_EQ(result.status, 1);
    EXPECT_NE(result.output.find("/nonexistent/case/inputs.json"), std::string::npos)
        << result.output;
}

}  // namespace
}  // namespace fathom
