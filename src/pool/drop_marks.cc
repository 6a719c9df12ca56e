#include "pool/drop_marks.h"

#include <filesystem>
#include <future>
#include <limits>
#include <optional>
#include <span>
#include <utility>

namespace fathom {

namespace {

constexpr std::size_t kNamespaceDigits = 64, kNumberDigits = 16;
constexpr Deadline kNever{std::numeric_limits<std::int64_t>::max()};
constexpr std::size_t kNameChars = kNamespaceDigits + 2 * (1 + kNumberDigits);

std::optional<std::uint64_t> hex_number(std::string_view digits) {
    std::uint64_t value = 0;
    for (const char c : digits) {
        const bool digit = c >= '0' && c <= '9';
        if (!digit && !(c >= 'a' && c <= 'f')) return std::nullopt;
        value = value << 4 | static_cast<std::uint64_t>(digit ? c - '0' : c - 'a' + 10);
    }
    return value;
}

std::filesystem::path full_path(const std::string& directory) {
    std::error_code failed;
    std::filesystem::path path = std::filesystem::absolute(directory, failed).lexically_normal();
    if (failed) path = directory;
    return path.has_filename() ? path : path.parent_path();
}

std::optional<DropMark> parse(const std::string& name) {
    if (name.size() != kNameChars || name[kNamespaceDigits] != '.' ||
        name[kNamespaceDigits + 1 + kNumberDigits] != '.')
        return std::nullopt;
    const std::string_view text = name;
    DropMark mark;
    mark.name = name;
    for (std::size_t i = 0; i < mark.ns.bytes.size(); ++i) {
        const auto byte = hex_number(text.substr(2 * i, 2));
        if (!byte) return std::nullopt;
        mark.ns.bytes[i] = static_cast<std::uint8_t>(*byte);
    }
    const auto since = hex_number(text.substr(kNamespaceDigits + 1, kNumberDigits));
    if (!since || *since > std::uint64_t{1} << 60) return std::nullopt;
    mark.since_unix_ms = static_cast<std::int64_t>(*since);
    return mark;
}

}  // namespace

std::string pool_name(const std::string& directory, const std::string& pool_directory) {
    if (pool_directory == directory) return "root";
    return "peers." + pool_directory.substr(pool_directory.rfind('/') + 1);
}

std::vector<std::string> shared_directories_of(const std::string& pool_directory) {
    const std::filesystem::path path = full_path(pool_directory), above = path.parent_path();
    std::vector<std::string> found = {path.string()};
    if (above.filename() == "peers") found.push_back(above.parent_path().string());
    return found;
}

Result<std::vector<DropMark>> list_drop_marks(FileLayer& files, const std::string& directory) {
    std::vector<DropMark> marks;
    const auto names = files.list(directory + "/drops");
    if (!names.ok() && names.status().code() == StatusCode::not_found) return marks;
    if (!names.ok()) return names.status();
    for (const FileName& name : *names) {
        auto mark = name.directory ? parse(name.name) : std::nullopt;
        if (!mark) continue;
        const auto rid = files.list(directory + "/drops/" + name.name);
        if (!rid.ok() && rid.status().code() == StatusCode::not_found) continue;
        if (!rid.ok()) return rid.status();
        for (const FileName& pool : *rid)
            mark->rid.insert(pool.name);
        marks.push_back(std::move(*mark));
    }
    return marks;
}

Result<std::string> make_drop_mark(PoolReader& reader, const std::string& directory,
                                   const NamespaceId& ns, std::int64_t unix_ms,
                                   std::uint64_t random) {
    FileLayer& files = reader.files();
    const std::string name = fmt::format("{}.{:016x}.{:016x}", hex_text(ns.bytes), unix_ms, random);
    FATHOM_RETURN_IF_ERROR(files.make_directory(directory + "/drops"));
    FATHOM_RETURN_IF_ERROR(files.make_directory(directory + "/drops/" + name));
    for (const std::string& path : {directory, directory + "/drops"}) {
        FATHOM_ASSIGN(const int file, files.open(path, OpenMode::directory));
        const std::int64_t synced = reader.perform({.kind = IoKind::sync, .file = file});
        files.close(file);
        if (synced < 0)
            return error(StatusCode::unavailable, "{}: cannot be synced (errno {})", path, -synced);
    }
    return name;
}

Status acknowledge_drop(FileLayer& files, const std::string& directory, const std::string& mark,
                        const std::string& pool) {
    const std::string path = directory + "/drops/" + mark + "/" + pool;
    const auto there = files.open(path, OpenMode::reading);
    const auto file = there.ok() ? there : files.open(path, OpenMode::create);
    if (!file.ok()) return file.status();
    files.close(*file);
    return {};
}

Status remove_drop_mark(PoolReader& reader, const std::string& directory, const DropMark& mark) {
    const std::string path = directory + "/drops/" + mark.name;
    for (const std::string& pool : mark.rid)
        (void)reader.perform({.kind = IoKind::unlink, .path = path + "/" + pool});
    return reader.files().remove_directory(path);
}

// The store's thread answers, and runs as long as the store is there.
Status drop_and_wait(EmbeddedStore& pool, const NamespaceId& ns) {
    const auto answer = std::make_shared<std::promise<Status>>();
    std::future<Status> future = answer->get_future();
    (void)pool.drop_namespace(ns, kNever,
                              [answer](Status status) { answer->set_value(std::move(status)); });
    return future.get();
}

namespace {

Status obey(EmbeddedStore& pool, const std::string& at, const std::string& directory,
            FileLayer& files) {
    FATHOM_ASSIGN(const std::vector<DropMark> marks, list_drop_marks(files, directory));
    const std::string name = pool_name(directory, at);
    for (const DropMark& mark : marks) {
        if (mark.rid.contains(name)) continue;
        const Status dropped = drop_and_wait(pool, mark.ns);
        if (!dropped.ok()) return dropped.with_context(at + ": a dropped namespace is still in it");
        const Status said = acknowledge_drop(files, directory, mark.name, name);
        if (!said.ok() && said.code() != StatusCode::not_found) return said;
    }
    return {};
}

}  // namespace

Result<std::unique_ptr<EmbeddedStore>> open_rid_of_drops(EmbeddedOptions options,
                                                         FileLayer& files) {
    const std::vector<std::string> directories = shared_directories_of(options.directory);
    FATHOM_ASSIGN(auto pool, EmbeddedStore::open(std::move(options)));
    for (const std::string& directory : directories)
        FATHOM_RETURN_IF_ERROR(obey(*pool, directories[0], directory, files));
    return pool;
}

}  // namespace fathom
