#include "model/packed_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <vector>

#include "base/check.h"
#include "base/huge_memory.h"
#include "base/json.h"
#include "base/output_file.h"
#include "base/sha256.h"
#include "model/shown.h"
#include "model/weights.h"

namespace fathom {

namespace {

constexpr const char* kAbout = "packed";
constexpr std::int64_t kAboutBytes = 4096;
constexpr std::int64_t kAlignment = 64;

struct Image {
    WeightSlot slot;
    std::int64_t bytes = 0;
};

// Every weight that the back end has an image of, in load order.
std::vector<Image> images_of(const Checkpoint& checkpoint, const Backend& backend) {
    std::vector<Image> images;
    const auto add = [&](const WeightSlot& slot) {
        const WeightSources from = sources_of(checkpoint, slot);
        images.push_back({slot, slot.gate_up ? backend.gate_up_image_bytes(from.source, from.up)
                                             : backend.image_bytes(from.source)});
    };
    for (int layer = 0; layer < checkpoint.config().layers; ++layer)
        for_each_weight(checkpoint.config(), layer, nullptr, add);
    for_each_weight(nullptr, add);
    return images;
}

Status check_has_images(const std::vector<Image>& images, const Backend& backend) {
    for (const Image& image : images) {
        if (image.bytes == 0)
            return error(StatusCode::unsupported,
                         "{}: the {} kernels have no packed form for it; a packed file holds "
                         "quantised and bf16 weights of the x86 kernels",
                         image.slot.name, backend.name());
    }
    return {};
}

Result<std::string> about_text(const Checkpoint& checkpoint, const Backend& backend) {
    FATHOM_ASSIGN(const std::string digest, checkpoint_digest(checkpoint));
    Json about = Json::object();
    about.set("layout", backend.image_layout());
    about.set("checkpoint", digest);
    std::string text = about.dump();
    text.resize(kAboutBytes, ' ');
    return text;
}

Status check_about(const SafetensorsFile& file, const Checkpoint& checkpoint,
                   const Backend& backend) {
    FATHOM_ASSIGN(const TensorRef tensor, file.tensor(kAbout));
    if (tensor.bytes != kAboutBytes)
        return error(StatusCode::data_loss, "{}: tensor {} has {} bytes, expected {}", file.path(),
                     kAbout, tensor.bytes, kAboutBytes);
    FATHOM_ASSIGN(const Json about,
                  parse_json({reinterpret_cast<const char*>(tensor.data), tensor.bytes}));
    FATHOM_ASSIGN(const std::string layout, json_string(about, "layout", file.path()));
    FATHOM_ASSIGN(const std::string digest, json_string(about, "checkpoint", file.path()));
    if (layout != backend.image_layout())
        return invalid_argument("{}: its layout is {}, the {} kernels read {}; pack it again",
                                file.path(), shown_name(layout), backend.name(),
                                backend.image_layout());
    FATHOM_ASSIGN(const std::string expected, checkpoint_digest(checkpoint));
    if (digest != expected)
        return invalid_argument(
            "{}: it was packed from the checkpoint with digest {}, but that of {} is {}; pack it "
            "again",
            file.path(), shown_name(digest), checkpoint.dir(), expected);
    return {};
}

// The images of a file being written, one at a time.
class Writer {
  public:
    Writer(std::string path, std::FILE* file) : path_(std::move(path)), file_(file) {}
    ~Writer() {
        if (file_ != nullptr) std::fclose(file_);
        std::error_code ignored;
        std::filesystem::remove(partial(path_), ignored);
    }
    Writer(const Writer&) = delete;
    Writer& operator=(const Writer&) = delete;
    static std::string partial(const std::string& path) { return path + ".partial"; }

    Status write(std::span<const std::byte> bytes) {
        if (std::fwrite(bytes.data(), 1, bytes.size(), file_) == bytes.size()) return {};
        return failed();
    }
    Status finish() {
        const bool good = std::fclose(std::exchange(file_, nullptr)) == 0;
        std::error_code code;
        if (good) std::filesystem::rename(partial(path_), path_, code);
        return good && !code ? Status() : failed();
    }

  private:
    Status failed() const {
        return error(StatusCode::resource_exhausted, "{} could not be written in full: {}", path_,
                     std::strerror(errno));
    }
    std::string path_;
    std::FILE* file_;
};

// The file that is to be written: links are followed. Only a packed file may be replaced.
Result<std::string> replaceable(const std::string& output) {
    FATHOM_RETURN_IF_ERROR(check_output_path(output));
    std::error_code failed;
    const std::filesystem::path real = std::filesystem::canonical(output, failed);
    if (failed) return output;  // absent
    if (std::filesystem::is_regular_file(real)) {
        const auto old = SafetensorsFile::open(real.string());
        if (old.ok() && (*old)->tensor(kAbout).ok()) return real.string();
    }
    return invalid_argument("{} is there and is no packed file; it is not replaced", output);
}

// Empty, and this process's alone until it is closed.
Result<std::FILE*> open_partial(const std::string& path) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return invalid_argument("{} cannot be written: {}", path, std::strerror(errno));
    if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
        ::close(fd);
        return error(StatusCode::unavailable, "{} is being written by another process", path);
    }
    std::FILE* const file = ::ftruncate(fd, 0) == 0 ? ::fdopen(fd, "wb") : nullptr;
    if (file != nullptr) return file;
    ::close(fd);
    return invalid_argument("{} cannot be written: {}", path, std::strerror(errno));
}

Status write_images(Writer& writer, const std::vector<Image>& images, const Checkpoint& checkpoint,
                    Backend& backend, std::int64_t total, const PackProgress& progress) {
    std::int64_t done = 0;
    for (std::size_t i = 0; i < images.size(); ++i) {
        const WeightSlot& slot = images[i].slot;
        const WeightSources from = sources_of(checkpoint, slot);
        if (slot.gate_up) {
            const auto packed = backend.pack_gate_up(from.source, from.up);
            FATHOM_RETURN_IF_ERROR(writer.write(packed->image()));
        } else {
            const auto packed = backend.pack(from.source);
            FATHOM_RETURN_IF_ERROR(writer.write(packed->image()));
        }
        done += images[i].bytes;
        constexpr std::size_t kDropEvery = 64;
        if (i % kDropEvery == 0) checkpoint.drop_pages();
        if (progress.on_progress && !progress.on_progress(done, total))
            return error(StatusCode::cancelled, "packing was stopped");
    }
    return {};
}

}  // namespace

Result<std::string> checkpoint_digest(const Checkpoint& checkpoint) {
    constexpr std::size_t kSampledTensors = 4096;
    constexpr std::uint64_t kSampleBytes = 64;
    FATHOM_ASSIGN(const Json config, parse_json_file(checkpoint.dir() + "/config.json"));
    Sha256 hash;
    hash.update(config.dump());
    const auto& tensors = checkpoint.tensors();
    const std::size_t step = tensors.size() / kSampledTensors + 1;
    std::size_t number = 0;
    for (const auto& [name, tensor] : tensors) {
        hash.update(
            fmt::format("\n{} {} {}", name, tensor_type_name(tensor.type), tensor.shape_text()));
        if (number++ % step != 0) continue;
        for (const std::uint64_t at : {std::uint64_t{0}, tensor.bytes / 2}) {
            const std::uint64_t count = std::min(kSampleBytes, tensor.bytes - at);
            hash.update(std::span(tensor.data + at, count));
        }
    }
    return hex_text(hash.finish());
}

Result<std::shared_ptr<PackedFile>> PackedFile::open(const std::string& path,
                                                     const Checkpoint& checkpoint,
                                                     const Backend& backend) {
    std::shared_ptr<PackedFile> packed(new PackedFile);
    FATHOM_ASSIGN(packed->file_, SafetensorsFile::open(path));
    FATHOM_RETURN_IF_ERROR(check_about(*packed->file_, checkpoint, backend));
    const std::vector<Image> images = images_of(checkpoint, backend);
    for (const Image& image : images) {
        const auto tensor = packed->file_->tensor(image.slot.name);
        if (!tensor.ok()) return error(StatusCode::data_loss, "{} lacks {}", path, image.slot.name);
        if (static_cast<std::int64_t>(tensor->bytes) != image.bytes)
            return error(StatusCode::data_loss, "{}: {} has {} bytes, expected {}", path,
                         image.slot.name, tensor->bytes, image.bytes);
        if (reinterpret_cast<std::uintptr_t>(tensor->data) % kAlignment != 0)
            return error(StatusCode::data_loss, "{}: {} does not begin on a multiple of {}", path,
                         image.slot.name, kAlignment);
        packed->bytes_ += image.bytes;
        const std::uint8_t* const end = tensor->data + tensor->bytes;
        if (packed->begin_ == nullptr || tensor->data < packed->begin_)
            packed->begin_ = tensor->data;
        if (packed->end_ == nullptr || end > packed->end_) packed->end_ = end;
    }
    if (packed->file_->tensors().size() != images.size() + 1)
        return error(StatusCode::data_loss, "{} has {} tensors, expected {}", path,
                     packed->file_->tensors().size(), images.size() + 1);
    return packed;
}

Status PackedFile::copy_to_memory(ComputePool& pool) {
    constexpr std::int64_t kPiece = std::int64_t{16} << 20;
    const std::int64_t size = end_ - begin_;
    const std::shared_ptr<std::byte> memory = map_huge_memory(size);
    if (memory == nullptr)
        return error(StatusCode::resource_exhausted, "{}: no memory for a copy of {} bytes", path(),
                     size);
    pool.run((size + kPiece - 1) / kPiece, [&](std::int64_t i) {
        const std::uint8_t* const from = begin_ + i * kPiece;
        const std::int64_t count = std::min(kPiece, size - i * kPiece);
        file_->read_pages(from, from + count);
        std::memcpy(memory.get() + i * kPiece, from, static_cast<std::size_t>(count));
        file_->drop_pages(from, from + count);
    });
    file_->drop_pages();
    memory_ = memory;
    return {};
}

std::span<const std::byte> PackedFile::image(std::string_view name) const {
    const auto tensor = file_->tensor(name);
    FATHOM_CHECK(tensor.ok(), name);
    const auto* data = reinterpret_cast<const std::byte*>(tensor->data);
    if (memory_ != nullptr) data = memory_.get() + (tensor->data - begin_);
    return {data, tensor->bytes};
}

Status write_packed_file(const std::string& output, const Checkpoint& checkpoint, Backend& backend,
                         const PackProgress& progress) {
    FATHOM_ASSIGN(const std::string path, replaceable(output));
    const std::vector<Image> images = images_of(checkpoint, backend);
    FATHOM_RETURN_IF_ERROR(check_has_images(images, backend));
    FATHOM_ASSIGN(const std::string about, about_text(checkpoint, backend));
    std::vector<TensorToWrite> tensors{
        {.name = kAbout, .type = TensorType::u8, .shape = {kAboutBytes}}};
    std::int64_t total = 0;
    for (const Image& image : images) {
        tensors.push_back(
            {.name = image.slot.name, .type = TensorType::u8, .shape = {image.bytes}});
        total += image.bytes;
    }
    const SafetensorsLayout layout = layout_safetensors(tensors);
    const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
    std::error_code code;
    const auto space = std::filesystem::space(folder, code);
    if (!code && space.available < layout.file_bytes)
        return error(StatusCode::resource_exhausted, "{}: {} bytes are needed and {} are free",
                     folder.string(), layout.file_bytes, space.available);
    FATHOM_ASSIGN(std::FILE* const file, open_partial(Writer::partial(path)));
    Writer writer(path, file);
    FATHOM_RETURN_IF_ERROR(writer.write(std::as_bytes(std::span(layout.head))));
    FATHOM_RETURN_IF_ERROR(writer.write(std::as_bytes(std::span(about))));
    FATHOM_RETURN_IF_ERROR(write_images(writer, images, checkpoint, backend, total, progress));
    return writer.finish();
}

}  // namespace fathom
