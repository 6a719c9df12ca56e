// What the subcommands on a pool's directory share: a command line with one DIR, a progress line
// that an interrupt ends, and the pools in a directory that several processes share.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/json.h"
#include "base/result.h"
#include "cli/interrupts.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "pool/embedded_store.h"
#include "pool/pool_files.h"
#include "pool/pool_survey.h"

namespace fathom {

// Progress on a terminal, and an end at Ctrl-C. One thread.
class Watch {
  public:
    // For work on what is called so; another name begins another line.
    SurveyProgress progress(std::string what);
    bool interrupted() const { return interrupts_.pending(); }
    // Before anything is printed.
    void clear() { line_.reset(); }

  private:
    Interrupts interrupts_;
    std::unique_ptr<Progress> line_;
    std::int64_t total_ = -1;
};

struct PoolCommand {
    std::string name;  // "stat"
    CommandSpec spec;
    std::function<void(ConfigSchema&)> bind;
    // Prints its report to stdout and returns the exit status.
    std::function<Result<int>(const std::string& directory, Watch& watch)> run;
};
int run_pool_command(const std::vector<std::string>& args, const PoolCommand& command);

Result<std::unique_ptr<PoolReader>> make_pool_reader();
// Those of pool_directories; an error when there is none.
Result<std::vector<std::string>> pools_in(PoolReader& reader, const std::string& directory);

// Null when the directory is not there.
Result<std::unique_ptr<KeyRing>> keys_in(const std::string& key_dir);
// A pool under its lock, with blocks of the size that its POOL says and rid of what is marked as
// dropped; it is not evicted from unless a capacity is given. When another process has it the error
// is unavailable and says who, and what to do instead.
struct OfflineOptions {
    std::int64_t capacity_bytes = 0;     // 0: no limit
    std::unique_ptr<KeyRing> keys = {};  // null: those in `keys` of the shared directory
    MetricsRegistry* metrics = nullptr;
};
Result<std::unique_ptr<EmbeddedStore>> open_offline(PoolReader& reader,
                                                    const std::string& directory,
                                                    OfflineOptions options);
// Waits for one answer of a store, `begin` being given what takes it; `look` runs ten times a
// second. cancelled at an interrupt.
Status await(Watch& watch, const std::function<void(std::function<void(Status)>)>& begin,
             const std::function<void()>& look = {});
Result<PoolUsage> usage_of(EmbeddedStore& store, Watch& watch);

std::string time_text(std::int64_t unix_ms);  // UTC, "2026-11-30 09:17"; "-" for 0
Json strings_json(const std::vector<std::string>& lines);

}  // namespace fathom
