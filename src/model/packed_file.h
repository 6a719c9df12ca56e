// A packed file: every weight of a checkpoint as the bytes that a back end computes with, so that a
// start maps them instead of packing them again (cpu-kernels.md section 5). `fathom pack` writes
// it.
//
// It is a safetensors file of U8 tensors, named like WeightSlot::name, each beginning on a multiple
// of 64, and one more, `packed`, with JSON text: the back end's layout and the digest of the
// checkpoint. open() refuses a file of another layout or checkpoint, or with a weight missing,
// foreign or of another size, so that a file of other
// weights does not answer. The digest samples the checkpoint and images have no checksum, as the
// checkpoint has none: changes of a few tensors between the samples and damaged disks are not seen.
// The checkpoint stays needed for norms, embedding and Engram tables. What is mapped costs no time
// at start and can be evicted; what is copied is read faster.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "kernels/ops.h"
#include "model/checkpoint.h"
#include "model/safetensors.h"

namespace fathom {

// SHA-256, in hex, of config.json, of every tensor's name, dtype and shape, and of samples from
// tensors spread over the whole: it tells checkpoints apart without reading them.
Result<std::string> checkpoint_digest(const Checkpoint& checkpoint);

class PackedFile {
  public:
    // not_found, data_loss (damaged) or invalid_argument (of another checkpoint or layout).
    static Result<std::shared_ptr<PackedFile>> open(const std::string& path,
                                                    const Checkpoint& checkpoint,
                                                    const Backend& backend);
    // Copies all images into memory in huge pages, on all threads of the pool, and no longer holds
    // the file's. Files lie in pages of 4 KiB, through which kernels read more slowly: on a virtual
    // machine at a fifth of the speed. resource_exhausted when there is no such memory.
    Status copy_to_memory(ComputePool& pool);
    // One of the weights that open() found complete.
    std::span<const std::byte> image(std::string_view name) const;
    std::int64_t bytes() const { return bytes_; }
    const std::string& path() const { return file_->path(); }

  private:
    PackedFile() = default;
    std::unique_ptr<SafetensorsFile> file_;
    const std::uint8_t *begin_ = nullptr, *end_ = nullptr;  // of the images in the file's mapping
    std::shared_ptr<const std::byte> memory_;               // a copy of them, or null
    std::int64_t bytes_ = 0;
};

struct PackProgress {
    // Called now and then with bytes written and in all; false stops the work (Status cancelled).
    std::function<bool(std::int64_t done, std::int64_t total)> on_progress;
};
// Writes `path` by way of `path`.partial; memory of one weight at a time. An older file is replaced
// only when it is a packed one, a link to it stays. unsupported when the back end has no images;
// resource_exhausted when the disk is too small; unavailable while another process writes the file.
Status write_packed_file(const std::string& path, const Checkpoint& checkpoint, Backend& backend,
                         const PackProgress& progress = {});

}  // namespace fathom
