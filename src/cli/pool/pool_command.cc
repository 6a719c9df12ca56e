#include "cli/pool/pool_command.h"

#include <fmt/core.h>

#include <unistd.h>

#include <ctime>
#include <limits>
#include <utility>

#include "base/clock.h"
#include "base/queue.h"
#include "cli/commands.h"
#include "pool/drop_marks.h"
#include "pool/open_pool.h"

namespace fathom {
namespace {

constexpr int kReadDepth = 32;
constexpr std::int64_t kNoLimitBytes = std::int64_t{1} << 60;
constexpr std::int64_t kLookUs = 100'000;

}  // namespace

SurveyProgress Watch::progress(std::string what) {
    line_.reset();
    return [this, what = std::move(what)](std::int64_t done, std::int64_t total) {
        if (line_ == nullptr || total != total_) {
            total_ = total;
            line_ = std::make_unique<Progress>(what, total, real_clock());
        }
        line_->update(done);
        return !interrupted();
    };
}

int run_pool_command(const std::vector<std::string>& args, const PoolCommand& command) {
    ConfigSchema schema;
    command.bind(schema);
    const auto refuse = [&](const Status& status, int exit_status) {
        fmt::print(stderr, "fathom pool {}: {}\n", command.name, status.message());
        return exit_status;
    };
    const Result<CommandLine> line = parse_command_line(args, schema, command.spec);
    if (!line.ok()) return refuse(line.status(), kExitUsage);
    if (line->help || line->positional.empty()) {
        fmt::print("{}", help_text(schema, command.spec));
        return line->help ? kExitOk : kExitUsage;
    }
    const Status named = check_pool_path(line->positional[0]);
    if (!named.ok())
        return refuse(named,
                      named.code() == StatusCode::invalid_argument ? kExitUsage : kExitFailed);
    Result<int> status = kExitOk;
    {
        Watch watch;  // its line is gone before errors are printed
        status = command.run(line->positional[0], watch);
    }
    if (status.ok()) return *status;
    switch (status.status().code()) {
        case StatusCode::cancelled:
            return refuse(status.status(), kExitInterrupted);
        case StatusCode::invalid_argument:
            return refuse(status.status(), kExitUsage);
        default:
            return refuse(status.status(), kExitFailed);
    }
}

Result<std::unique_ptr<PoolReader>> make_pool_reader() {
    FATHOM_ASSIGN(std::unique_ptr<FileLayer> files, make_file_layer(kReadDepth));
    return std::make_unique<PoolReader>(std::move(files));
}

Result<std::vector<std::string>> pools_in(PoolReader& reader, const std::string& directory) {
    FATHOM_ASSIGN(std::vector<std::string> found, pool_directories(reader.files(), directory));
    if (!found.empty()) return found;
    return error(StatusCode::not_found,
                 "{}: is no pool: it has no POOL file and no peers; name the directory that a "
                 "server's pool.dir names",
                 directory);
}

Result<std::unique_ptr<KeyRing>> keys_in(const std::string& key_dir) {
    if (::access(key_dir.c_str(), F_OK) != 0) return nullptr;
    return KeyRing::open(key_dir, real_clock());
}

Result<std::unique_ptr<EmbeddedStore>> open_offline(PoolReader& reader,
                                                    const std::string& directory,
                                                    OfflineOptions options) {
    const auto pool = reader.pool(directory);
    if (!pool.ok()) return pool.status();
    if (const std::string holder = pool_holder(directory); !holder.empty())
        return error(StatusCode::unavailable,
                     "{}: {} has it open, nothing was changed; a server looks after its pool by "
                     "itself, so leave it to that, or end it and try again",
                     directory, holder);
    EmbeddedOptions embedded;
    embedded.directory = directory;
    embedded.payload_bytes = pool->payload_bytes;
    embedded.capacity_bytes = options.capacity_bytes > 0 ? options.capacity_bytes : kNoLimitBytes;
    embedded.scrub_bytes_per_s = 0;
    embedded.keys = std::move(options.keys);
    for (const std::string& shared : shared_directories_of(directory)) {
        if (embedded.keys != nullptr) break;
        FATHOM_ASSIGN(embedded.keys, keys_in(shared + "/keys"));
    }
    embedded.metrics = options.metrics;
    return open_rid_of_drops(std::move(embedded), reader.files());
}

Status await(Watch& watch, const std::function<void(std::function<void(Status)>)>& begin,
             const std::function<void()>& look) {
    const auto answers = std::make_shared<BoundedQueue<Status>>(1);
    begin([answers](Status status) { (void)answers->try_push(std::move(status)); });
    for (;;) {
        if (std::optional<Status> answer = answers->pop(kLookUs)) return *answer;
        if (watch.interrupted())
            return Status(StatusCode::cancelled, "interrupted; what was done stays done");
        if (look) look();
    }
}

Result<PoolUsage> usage_of(EmbeddedStore& store, Watch& watch) {
    const auto found = std::make_shared<PoolUsage>();
    FATHOM_RETURN_IF_ERROR(await(watch, [&](std::function<void(Status)> done) {
        (void)store.usage({std::numeric_limits<std::int64_t>::max()},
                          [found, done = std::move(done)](PoolUsage usage, Status status) {
                              *found = std::move(usage);
                              done(std::move(status));
                          });
    }));
    return *found;
}

std::string time_text(std::int64_t unix_ms) {
    if (unix_ms == 0) return "-";
    const auto seconds = static_cast<std::time_t>(unix_ms / 1000);
    std::tm parts{};
    char text[32] = {};
    if (::gmtime_r(&seconds, &parts) == nullptr ||
        std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M", &parts) == 0)
        return "?";
    return text;
}

Json strings_json(const std::vector<std::string>& lines) {
    Json::Array items;
    for (const std::string& line : lines)
        items.emplace_back(line);
    return Json::array(std::move(items));
}

}  // namespace fathom
