#include "cli/batch_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

namespace fathom {
namespace {

Status file_error(const std::string& path, const char* what) {
    return error(errno == ENOENT ? StatusCode::not_found : StatusCode::unavailable, "{}: {}: {}",
                 path, what, std::strerror(errno));
}

bool blank(const std::string& text) {
    return text.find_first_not_of(" \t\r") == std::string::npos;
}

bool usable_id(const Json* id) {
    return id != nullptr && (id->is_string() || id->is_integer());
}

enum class LineEnd { newline, end_of_file, too_long, no_line };

// Reads one line without its newline; of a line over the limit only the beginning. (getline knows
// no limit.)
LineEnd read_line(std::streambuf& bytes, std::string& text) {
    text.clear();
    int c = bytes.sbumpc();
    if (c == std::char_traits<char>::eof()) return LineEnd::no_line;
    for (; c != std::char_traits<char>::eof(); c = bytes.sbumpc()) {
        if (c == '\n') return LineEnd::newline;
        if (text.size() >= kBatchLineBytesMax) return LineEnd::too_long;
        text.push_back(static_cast<char>(c));
    }
    return LineEnd::end_of_file;
}

Status line_too_long(const std::string& path, std::int64_t number) {
    return invalid_argument("{}:{}: a line of more than {} bytes", path, number,
                            kBatchLineBytesMax);
}

}  // namespace

Json batch_id(const Result<Json>& line, std::int64_t line_number) {
    const Json* id = line.ok() ? line->find("id") : nullptr;
    return usable_id(id) ? *id : Json(line_number);
}

struct BatchInput::Impl {
    std::string path;
    std::ifstream file;
    std::int64_t number = 0;
};

Result<std::unique_ptr<BatchInput>> BatchInput::open(const std::string& path) {
    struct stat facts {};
    if (stat(path.c_str(), &facts) != 0) return file_error(path, "cannot open");
    if (S_ISDIR(facts.st_mode)) return invalid_argument("{}: a directory, not a JSONL file", path);
    std::unique_ptr<BatchInput> input(new BatchInput);
    input->impl_ = std::make_unique<Impl>();
    input->impl_->path = path;
    input->impl_->file.open(path, std::ios::binary);
    if (!input->impl_->file) return file_error(path, "cannot open");
    return input;
}

BatchInput::~BatchInput() = default;

Result<std::optional<BatchInput::Line>> BatchInput::next() {
    Line line;
    for (;;) {
        const LineEnd end = read_line(*impl_->file.rdbuf(), line.text);
        if (end == LineEnd::no_line) return std::optional<Line>();
        line.number = ++impl_->number;
        if (end == LineEnd::too_long) return line_too_long(impl_->path, line.number);
        if (!blank(line.text)) return std::optional<Line>(std::move(line));
    }
}

Result<std::int64_t> BatchInput::count(const std::string& path) {
    FATHOM_ASSIGN(std::unique_ptr<BatchInput> input, open(path));
    for (std::int64_t lines = 0;; ++lines) {
        FATHOM_ASSIGN(const std::optional<Line> line, input->next());
        if (!line) return lines;
    }
}

Result<std::unique_ptr<BatchOutput>> BatchOutput::open(const std::string& path) {
    std::unique_ptr<BatchOutput> output(new BatchOutput);
    output->path_ = path;
    output->fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (output->fd_ < 0) return file_error(path, "cannot open for writing");

    struct stat facts {};
    if (fstat(output->fd_, &facts) != 0) return file_error(path, "cannot open for writing");
    if (flock(output->fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return error(StatusCode::unavailable, "{}: another batch is writing it", path);
    // A pipe or a device holds no answers of an earlier run, and may not end when read.
    if (S_ISREG(facts.st_mode)) FATHOM_RETURN_IF_ERROR(output->read_earlier_answers());
    return output;
}

Status BatchOutput::read_earlier_answers() {
    std::ifstream file(path_, std::ios::binary);
    std::int64_t good_bytes = 0;
    std::string text;
    for (std::int64_t number = 1;; ++number) {
        const LineEnd end = read_line(*file.rdbuf(), text);
        if (end == LineEnd::no_line) return {};
        if (end == LineEnd::too_long) return line_too_long(path_, number);
        const Result<Json> parsed = parse_json(text);
        if (end == LineEnd::newline && parsed.ok() && usable_id(parsed->find("id"))) {
            done_.push_back(*parsed->find("id"));
            good_bytes += static_cast<std::int64_t>(text.size()) + 1;
            continue;
        }
        // An answer and its newline are one write: what a kill leaves has no newline and begins as
        // an answer does. Anything else is somebody's file.
        constexpr std::string_view kBegin = "{\"id\":";
        const std::string_view head = std::string_view(text).substr(0, kBegin.size());
        if (end == LineEnd::newline || head != kBegin.substr(0, head.size()))
            return error(StatusCode::data_loss,
                         "{}:{}: not an answer of a batch; only the last line may be torn", path_,
                         number);
        if (ftruncate(fd_, good_bytes) != 0)
            return file_error(path_, "cannot drop the torn last line");
        return {};
    }
}

BatchOutput::~BatchOutput() {
    if (fd_ >= 0) close(fd_);
}

Status BatchOutput::append(std::string_view text) {
    std::string line(text);
    line.push_back('\n');
    for (std::string_view rest = line; !rest.empty();) {
        const ssize_t written = write(fd_, rest.data(), rest.size());
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return file_error(path_, "cannot write");
        rest.remove_prefix(static_cast<std::size_t>(written));
    }
    return {};
}

Status BatchOutput::sync() {
    // A pipe or a terminal cannot be synced, and need not be.
    if (fdatasync(fd_) != 0 && errno != EINVAL && errno != EROFS)
        return file_error(path_, "cannot sync");
    return {};
}

}  // namespace fathom
