// One safetensors file, memory-mapped read-only: 8 bytes of header length, a JSON header
// {name: {dtype, shape, data_offsets}}, then the bytes. Every offset is 64-bit and verified against
// the file size before use: no overlap, no gap (strict), no arithmetic overflow, header at most 100
// MB. Tensors are views into the mapping and live as long as the file. Immutable after open; any
// thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace fathom {

enum class TensorType : std::uint8_t {
    f32,
    bf16,
    f16,
    f64,
    f8_e4m3,
    f8_e8m0,
    i8,
    u8,
    i16,
    i32,
    i64,
    boolean
};
const char* tensor_type_name(TensorType type);  // "F32", "F8_E4M3", …, as in the file
std::int64_t tensor_type_bytes(TensorType type);

struct TensorInfo {
    TensorType type = TensorType::f32;
    std::vector<std::int64_t> shape;
    std::uint64_t begin = 0, end = 0;  // bytes in the file, from its start
};

struct TensorRef {  // a tensor and where its bytes are
    TensorType type = TensorType::f32;
    std::vector<std::int64_t> shape;
    const std::uint8_t* data = nullptr;
    std::uint64_t bytes = 0;

    std::int64_t elements() const;
    std::string shape_text() const;  // "[512, 5120]"
};

// Parses a header's JSON text for a file with `data_bytes` bytes behind it. Split from open so that
// it can be fuzzed. Offsets in the result are relative to the data section.
Result<std::map<std::string, TensorInfo, std::less<>>> parse_safetensors_header(
    std::string_view header, std::uint64_t data_bytes);

class SafetensorsFile {
  public:
    static Result<std::unique_ptr<SafetensorsFile>> open(const std::string& path);
    ~SafetensorsFile();
    SafetensorsFile(const SafetensorsFile&) = delete;
    SafetensorsFile& operator=(const SafetensorsFile&) = delete;

    const std::string& path() const { return path_; }
    const std::map<std::string, TensorInfo, std::less<>>& tensors() const { return tensors_; }
    Result<TensorRef> tensor(std::string_view name) const;
    TensorRef view(const TensorInfo& info) const;  // info must be one of tensors()
    // Tells the kernel that this tensor is read in scattered rows, so that it reads nothing ahead.
    void advise_random(const TensorInfo& info) const;
    // Maps [begin, end), a part of the mapping, at once, which is cheaper than page by page.
    void read_pages(const std::uint8_t* begin, const std::uint8_t* end) const;
    // Gives back the memory of what was read so far; reading again reads the file (or its cache).
    void drop_pages() const;
    // Of the whole pages in [begin, end), a part of the mapping.
    void drop_pages(const std::uint8_t* begin, const std::uint8_t* end) const;

  private:
    SafetensorsFile() = default;
    std::string path_;
    const std::uint8_t* base_ = nullptr;
    std::uint64_t bytes_ = 0;
    std::map<std::string, TensorInfo, std::less<>> tensors_;
};

// The index of a sharded checkpoint (model.safetensors.index.json): which shard holds which tensor.
// Shard names are as written; whoever opens them must check that they are plain file names.
struct SafetensorsIndex {
    std::optional<std::uint64_t> total_size;  // metadata.total_size: bytes of all tensors
    std::map<std::string, std::string, std::less<>> weight_map;
};
Result<SafetensorsIndex> parse_safetensors_index(std::string_view text);
Result<SafetensorsIndex> read_safetensors_index(const std::string& path);

// Writes tensors in the same format, for generated models, tests and reports. Tensors are laid out
// from a multiple of 64 bytes on by falling element size, so that each is aligned. Names must be
// unique and dimensions not negative.
struct TensorToWrite {
    std::string name;
    TensorType type = TensorType::f32;
    std::vector<std::int64_t> shape;
    const void* data = nullptr;
};
// Where everything goes in such a file, for writers that make the bytes piece by piece.
struct SafetensorsLayout {
    struct Tensor {
        const TensorToWrite* tensor = nullptr;  // one of those given; its data is not read
        std::uint64_t begin = 0, bytes = 0;     // in the file
    };
    std::string head;             // the length and the header: the file's first bytes
    std::vector<Tensor> tensors;  // in file order, without gaps
    std::uint64_t file_bytes = 0;
};
SafetensorsLayout layout_safetensors(const std::vector<TensorToWrite>& tensors);
Status write_safetensors(const std::string& path, const std::vector<TensorToWrite>& tensors);

}  // namespace fathom
