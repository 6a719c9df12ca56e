#include "sim/replay/trace_file.h"

#include <zstd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace fathom {
namespace {

constexpr std::size_t kPartBytes = 64 << 10;
constexpr std::array<unsigned char, 4> kZstdMagic = {0x28, 0xb5, 0x2f, 0xfd};
constexpr int kWindowLogMax = 27;  // 128 MiB, the default of the zstd program

struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
};
struct FreeStream {
    void operator()(ZSTD_DStream* stream) const { ZSTD_freeDStream(stream); }
};

std::string errno_text() {
    return std::generic_category().message(errno);
}

class TraceLineFile : public LineFile {
  public:
    TraceLineFile(std::string path, std::int64_t line_bytes_max, std::FILE* file)
        : path_(std::move(path)), line_bytes_max_(line_bytes_max), file_(file), raw_(kPartBytes) {
        if (std::fseek(file, 0, SEEK_END) == 0) {
            total_ = std::max<std::int64_t>(0, std::ftell(file));
            std::rewind(file);
        }
    }

    Status start() {
        FATHOM_RETURN_IF_ERROR(read_raw());
        if (raw_end_ >= kZstdMagic.size() &&
            std::equal(
                kZstdMagic.begin(), kZstdMagic.end(), raw_.begin(),
                [](unsigned char a, char b) { return a == static_cast<unsigned char>(b); })) {
            stream_.reset(ZSTD_createDStream());
            if (stream_ == nullptr)
                return error(StatusCode::resource_exhausted, "{}: no memory to decompress", path_);
            ZSTD_DCtx_setParameter(stream_.get(), ZSTD_d_windowLogMax, kWindowLogMax);
            plain_.resize(kPartBytes);
        }
        return {};
    }

    Result<bool> next(std::string& line) override {
        line.clear();
        while (true) {
            const std::string_view rest = part_.substr(std::min(part_at_, part_.size()));
            const std::size_t end = rest.find('\n');
            const std::string_view piece = rest.substr(0, end);
            if (static_cast<std::int64_t>(line.size() + piece.size()) > line_bytes_max_)
                return invalid_argument("{}:{}: the line is longer than {} bytes", path_,
                                        line_number_ + 1, line_bytes_max_);
            line += piece;
            if (end != std::string_view::npos) {
                part_at_ += end + 1;
                ++line_number_;
                return true;
            }
            FATHOM_ASSIGN(const bool more, next_part());
            if (more) continue;
            if (line.empty()) return false;
            ++line_number_;
            return true;
        }
    }

    std::int64_t line_number() const override { return line_number_; }
    std::int64_t bytes_read() const override { return read_; }
    std::int64_t bytes_total() const override { return total_; }

  private:
    Status read_raw() {
        raw_at_ = 0;
        raw_end_ = std::fread(raw_.data(), 1, raw_.size(), file_.get());
        if (raw_end_ == 0 && std::ferror(file_.get()) != 0)
            return error(StatusCode::data_loss, "{}: cannot be read: {}", path_, errno_text());
        read_ += static_cast<std::int64_t>(raw_end_);
        return {};
    }

    // Makes part_ the next decoded bytes; false at the end.
    Result<bool> next_part() {
        part_at_ = 0;
        part_ = {};
        if (stream_ != nullptr) return inflate();
        if (raw_at_ == raw_end_) FATHOM_RETURN_IF_ERROR(read_raw());
        part_ = std::string_view(raw_.data() + raw_at_, raw_end_ - raw_at_);
        raw_at_ = raw_end_;
        return !part_.empty();
    }

    Result<bool> inflate() {
        while (true) {
            if (raw_at_ == raw_end_) FATHOM_RETURN_IF_ERROR(read_raw());
            const bool at_end = raw_end_ == 0;
            if (at_end && frame_done_) return false;
            ZSTD_inBuffer in{raw_.data(), raw_end_, raw_at_};
            ZSTD_outBuffer out{plain_.data(), plain_.size(), 0};
            const std::size_t left = ZSTD_decompressStream(stream_.get(), &out, &in);
            if (ZSTD_isError(left) != 0)
                return error(StatusCode::data_loss, "{}: damaged behind line {}: {}", path_,
                             line_number_, ZSTD_getErrorName(left));
            raw_at_ = in.pos;
            frame_done_ = left == 0;
            if (out.pos > 0) {
                part_ = std::string_view(plain_.data(), out.pos);
                return true;
            }
            if (at_end && !frame_done_)
                return error(StatusCode::data_loss, "{}: ends within its data, behind line {}",
                             path_, line_number_);
        }
    }

    std::string path_;
    std::int64_t line_bytes_max_;
    std::unique_ptr<std::FILE, CloseFile> file_;
    std::unique_ptr<ZSTD_DStream, FreeStream> stream_;  // absent: the file is plain
    std::vector<char> raw_, plain_;
    std::size_t raw_at_ = 0, raw_end_ = 0;
    bool frame_done_ = false;
    std::string_view part_;  // decoded bytes, within raw_ or plain_
    std::size_t part_at_ = 0;
    std::int64_t line_number_ = 0, read_ = 0, total_ = 0;
};

}  // namespace

Result<std::unique_ptr<LineFile>> LineFile::open(const std::string& path,
                                                 std::int64_t line_bytes_max) {
    std::FILE* const file = std::fopen(path.c_str(), "rb");
    if (file == nullptr)
        return error(StatusCode::not_found, "{}: cannot be opened: {}", path, errno_text());
    auto lines = std::make_unique<TraceLineFile>(path, line_bytes_max, file);
    FATHOM_RETURN_IF_ERROR(lines->start());
    return std::unique_ptr<LineFile>(std::move(lines));
}

}  // namespace fathom
