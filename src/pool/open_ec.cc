#include "pool/open_ec.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "pool/key_ring.h"
#include "pool/secret_file.h"

namespace fathom {

namespace {

constexpr std::string_view kSecret = "the pool's secret";

bool is_there(const std::string& path) {
    return ::access(path.c_str(), F_OK) == 0;
}

// Two devices in one place are one device, and lost together.
Status check_apart(const std::vector<std::string>& directories) {
    std::vector<std::filesystem::path> places;
    for (const std::string& directory : directories) {
        std::error_code failed;
        std::filesystem::path place = std::filesystem::weakly_canonical(directory, failed);
        if (failed) place = std::filesystem::absolute(directory, failed).lexically_normal();
        if (!place.has_filename()) place = place.parent_path();
        for (std::size_t i = 0; i < places.size(); ++i) {
            const auto within = [](const std::filesystem::path& a, const std::filesystem::path& b) {
                return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).second == b.end();
            };
            if (place == places[i])
                return invalid_argument(
                    "pool.dirs: \"{}\" and \"{}\" are one directory; name one on each disk",
                    directories[i], directory);
            if (within(place, places[i]) || within(places[i], place))
                return invalid_argument(
                    "pool.dirs: \"{}\" and \"{}\" lie one in the other; name one on each disk",
                    directories[i], directory);
        }
        places.push_back(std::move(place));
    }
    return {};
}

// Only a new set gets its directories made: one that is missing later is a disk that is not
// mounted.
Status make_directories(const std::vector<std::string>& directories) {
    const auto begun = [](const std::string& directory) { return is_there(directory + "/SET"); };
    if (std::any_of(directories.begin(), directories.end(), begun)) return {};
    for (const std::string& directory : directories) {
        std::error_code failed;
        std::filesystem::create_directories(directory, failed);
        if (failed) {
            return invalid_argument("pool.dirs \"{}\": {}; name a directory that can be written",
                                    directory, failed.message());
        }
    }
    return {};
}

// Of the directories that are there; every one of them has it afterwards.
Result<std::string> shared_secret(const std::vector<std::string>& directories) {
    std::string first;
    for (const std::string& directory : directories)
        if (first.empty() && is_there(directory + "/SECRET")) first = directory + "/SECRET";
    for (const std::string& directory : directories) {
        const std::string path = directory + "/SECRET";
        if (!is_there(directory) || is_there(path)) continue;
        if (first.empty()) {
            FATHOM_RETURN_IF_ERROR(make_secret_file(path, kSecret));
            first = path;
            continue;
        }
        // A device that cannot be written may be lost; the pool says so when it is opened.
        (void)copy_secret_file(first, path, kSecret);
    }
    if (first.empty())
        return error(StatusCode::unavailable,
                     "pool.dirs: none of the {} directories is there; are the disks mounted?",
                     directories.size());
    return read_secret_file(first, kSecret);
}

}  // namespace

std::vector<EmbeddedStore*> OpenedEc::parts() const {
    std::vector<EmbeddedStore*> open;
    for (std::size_t i = 0; i < store->devices(); ++i)
        if (EmbeddedStore* part = store->device(i); part != nullptr) open.push_back(part);
    return open;
}

Result<OpenedEc> open_ec(const OpenPoolOptions& options, std::int64_t free_bytes,
                         const Clock& clock, MetricsRegistry& metrics) {
    if (options.store == "rados" || !options.directory.empty() || options.directories.empty() ||
        options.ec.empty())
        return invalid_argument(
            "a pool is in pool.dir, or in pool.dirs with pool.ec, or in a cluster");
    if (options.encrypt && options.key_directory.empty()) {
        return invalid_argument(
            "pool.encrypt with pool.dirs needs pool.key_dir: keys that lie on one of the devices "
            "would be lost with it");
    }
    EcOptions ec;
    auto shape = parse_ec_shape(options.ec);
    if (!shape.ok()) return shape.status().with_context("pool.ec");
    FATHOM_RETURN_IF_ERROR(check_apart(options.directories));
    FATHOM_RETURN_IF_ERROR(make_directories(options.directories));
    OpenedEc opened;
    FATHOM_ASSIGN(opened.secret, options.secret_file.empty()
                                     ? shared_secret(options.directories)
                                     : read_or_make_secret(options.secret_file));
    ec.shape = *shape;
    ec.directories = options.directories;
    ec.payload_bytes = options.payload_bytes;
    ec.capacity_bytes = options.capacity_bytes > 0 ? options.capacity_bytes : free_bytes;
    ec.clock = &clock;
    ec.metrics = &metrics;
    ec.encrypt = options.encrypt;
    if (const std::string keys = options.key_directory; !keys.empty())
        ec.keys = [keys, &clock] { return KeyRing::open(keys, clock); };
    FATHOM_ASSIGN(opened.store, EcStore::open(std::move(ec)));
    return opened;
}

}  // namespace fathom
