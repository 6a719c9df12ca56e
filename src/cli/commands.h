// The subcommands of the program `fathom`: one function and one file each. A command gets the words
// after its name and returns the exit status:
//
//   0    done                      2    the command line or a configuration file is wrong
//   1    failed, reason on stderr  130  interrupted by the user, state left whole
//
// Results go to stdout, everything else (errors, progress, logs) to stderr, so that output can be
// piped.
#pragma once

#include <string>
#include <vector>

namespace fathom {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitInterrupted = 130;

int run_inspect(const std::vector<std::string>& args);
int run_verify(const std::vector<std::string>& args);
int run_generate(const std::vector<std::string>& args);
int run_chat(const std::vector<std::string>& args);
int run_serve(const std::vector<std::string>& args);
int run_pack(const std::vector<std::string>& args);
int run_bench(const std::vector<std::string>& args);
int run_make_model(const std::vector<std::string>& args);
int run_calibrate(const std::vector<std::string>& args);
int run_pool(const std::vector<std::string>& args);
int run_sim(const std::vector<std::string>& args);
int run_recipe(const std::vector<std::string>& args);
int run_config(const std::vector<std::string>& args);

}  // namespace fathom
