// The subcommands that look after a pool's directory (docs/kv_pool.md, Administration). Arguments
// are the words behind the name; exit status as in cli/commands.h.
#pragma once

#include <string>
#include <vector>

namespace fathom {

int run_pool_stat(const std::vector<std::string>& args);
int run_pool_verify(const std::vector<std::string>& args);
int run_pool_scrub(const std::vector<std::string>& args);
int run_pool_gc(const std::vector<std::string>& args);
int run_pool_drop(const std::vector<std::string>& args);
int run_pool_bench(const std::vector<std::string>& args);

}  // namespace fathom
