// The program: finds the command and hands it the rest of the line.
#include <fmt/core.h>

#include <cstdio>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include "base/config.h"
#include "cli/commands.h"

namespace fathom {
namespace {

struct Command {
    const char* name;
    const char* summary;
    int (*run)(const std::vector<std::string>& args);
};

constexpr Command kCommands[] = {
    {"serve", "answer the OpenAI-compatible HTTP API", run_serve},
    {"chat", "talk to a model in the terminal", run_chat},
    {"generate", "complete one prompt, or a JSONL file of requests", run_generate},
    {"inspect", "say what a checkpoint is and check it", run_inspect},
    {"verify", "compare this machine's results with reference results", run_verify},
    {"calibrate", "measure step times for the scheduler's cost model", run_calibrate},
    {"pack", "write a checkpoint's weights as the kernels read them", run_pack},
    {"bench", "measure a model in this process, or a server under load", run_bench},
    {"make-model", "write a made-up checkpoint to measure with", run_make_model},
    {"pool", "the KV pool: replay traces through models of it", run_pool},
    {"sim", "fleets in virtual time, and the policies that run them", run_sim},
    {"recipe", "render requests, tokenize texts, parse output, without a model", run_recipe},
    {"config", "print the effective configuration (config dump)", run_config},
};

void print_help() {
    fmt::print("usage: fathom COMMAND [options]\n\ncommands:\n");
    for (const Command& command : kCommands)
        fmt::print("  {:<10} {}\n", command.name, command.summary);
    fmt::print("  {:<10} {}\n  {:<10} {}\n", "help", "this text", "version",
               "the program's version");
    fmt::print("\n`fathom COMMAND --help` lists a command's options.\n");
}

int run_main(const std::vector<std::string>& words) {
    if (words.empty() || words[0] == "help" || words[0] == "--help" || words[0] == "-h") {
        print_help();
        return words.empty() ? kExitUsage : kExitOk;
    }
    if (words[0] == "version" || words[0] == "--version") {
        fmt::print("fathom {}\n", FATHOM_VERSION);
        return kExitOk;
    }
    std::vector<std::string> names = {"help", "version"};
    for (const Command& command : kCommands) {
        if (words[0] == command.name)
            return command.run(std::vector<std::string>(words.begin() + 1, words.end()));
        names.emplace_back(command.name);
    }
    const std::string nearest = nearest_word(words[0], names);
    fmt::print(stderr, "fathom: unknown command \"{}\"{}; `fathom help` lists them\n", words[0],
               nearest.empty() ? "" : fmt::format(", did you mean \"{}\"?", nearest));
    return kExitUsage;
}

}  // namespace
}  // namespace fathom

// Memory that is not there and output that cannot be written end any command with a sentence.
int main(int argc, char** argv) {
    int status = fathom::kExitFailed;
    try {
        status = fathom::run_main(std::vector<std::string>(argv + 1, argv + argc));
    } catch (const std::bad_alloc&) {
        std::fputs("fathom: out of memory\n", stderr);
        return fathom::kExitFailed;
    } catch (const std::system_error& failure) {
        std::fprintf(stderr, "fathom: %s\n", failure.what());
        return fathom::kExitFailed;
    }
    // Output that did not arrive is a failure, whatever the command thought.
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
    fmt::print(stderr, "fathom: standard output could not be written\n");
    return status == fathom::kExitOk ? fathom::kExitFailed : status;
}
