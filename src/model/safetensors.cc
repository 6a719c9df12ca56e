#include "model/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <simdjson.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <set>

#include "base/check.h"
#include "base/json.h"
#include "model/shown.h"

namespace fathom {
namespace {

namespace ondemand = simdjson::ondemand;

constexpr std::uint64_t kHeaderBytesMax = 100'000'000;
constexpr std::uint64_t kIndexBytesMax = 256'000'000;
constexpr std::size_t kNameBytesMax = 1024;
constexpr std::size_t kRankMax = 8;

struct TypeRow {
    TensorType type;
    const char* name;
    std::int64_t bytes;
};
constexpr std::array<TypeRow, 12> kTypes = {{
    {TensorType::f32, "F32", 4},
    {TensorType::bf16, "BF16", 2},
    {TensorType::f16, "F16", 2},
    {TensorType::f64, "F64", 8},
    {TensorType::f8_e4m3, "F8_E4M3", 1},
    {TensorType::f8_e8m0, "F8_E8M0", 1},
    {TensorType::i8, "I8", 1},
    {TensorType::u8, "U8", 1},
    {TensorType::i16, "I16", 2},
    {TensorType::i32, "I32", 4},
    {TensorType::i64, "I64", 8},
    {TensorType::boolean, "BOOL", 1},
}};

const TypeRow& type_row(TensorType type) {
    return kTypes.at(static_cast<std::size_t>(type));
}

std::string shape_to_text(const std::vector<std::int64_t>& shape) {
    return fmt::format("[{}]", fmt::join(shape, ", "));
}

Status json_error(std::string_view what, simdjson::error_code code) {
    return invalid_argument("{}: {}", what, simdjson::error_message(code));
}

// After the root was read to its end: is anything left?
bool at_end(ondemand::document& document) {
    return document.current_location().error() == simdjson::OUT_OF_BOUNDS;
}

// {"dtype": …, "shape": […], "data_offsets": [begin, end]}, nothing else.
struct HeaderEntry {
    TensorInfo info;
    bool has_type = false, has_shape = false, has_offsets = false;
};

Status read_type(std::string_view name, ondemand::value value, HeaderEntry& entry) {
    std::string_view text;
    if (value.get_string().get(text) != simdjson::SUCCESS)
        return invalid_argument("tensor {}: dtype must be a string", shown_name(name));
    for (const TypeRow& row : kTypes) {
        if (text == row.name) {
            entry.info.type = row.type;
            entry.has_type = true;
            return {};
        }
    }
    return invalid_argument("tensor {}: dtype {} is unknown", shown_name(name), shown_name(text));
}

// Reads an array of at most `count_max` non-negative integers.
Status read_integers(std::string_view name, const char* field, ondemand::value value,
                     std::size_t count_max, std::vector<std::uint64_t>& out) {
    ondemand::array array;
    if (value.get_array().get(array) != simdjson::SUCCESS)
        return invalid_argument("tensor {}: {} must be an array", shown_name(name), field);
    for (auto item : array) {
        std::uint64_t number = 0;
        if (item.get_uint64().get(number) != simdjson::SUCCESS)
            return invalid_argument("tensor {}: {} must hold non-negative 64-bit integers",
                                    shown_name(name), field);
        if (out.size() == count_max)
            return invalid_argument("tensor {}: {} has more than {} numbers", shown_name(name),
                                    field, count_max);
        out.push_back(number);
    }
    return {};
}

Status read_entry_field(std::string_view name, std::string_view key, ondemand::value value,
                        HeaderEntry& entry) {
    if (key == "dtype" && !entry.has_type) return read_type(name, value, entry);
    std::vector<std::uint64_t> numbers;
    if (key == "shape" && !entry.has_shape) {
        FATHOM_RETURN_IF_ERROR(read_integers(name, "shape", value, kRankMax, numbers));
        constexpr std::uint64_t kDimMax = std::uint64_t{1} << 48;
        for (std::uint64_t n : numbers) {
            if (n > kDimMax)
                return invalid_argument("tensor {}: dimension {} exceeds {}", shown_name(name), n,
                                        kDimMax);
            entry.info.shape.push_back(static_cast<std::int64_t>(n));
        }
        entry.has_shape = true;
        return {};
    }
    if (key == "data_offsets" && !entry.has_offsets) {
        FATHOM_RETURN_IF_ERROR(read_integers(name, "data_offsets", value, 2, numbers));
        if (numbers.size() != 2)
            return invalid_argument("tensor {}: data_offsets must hold 2 numbers, got {}",
                                    shown_name(name), numbers.size());
        entry.info.begin = numbers[0];
        entry.info.end = numbers[1];
        entry.has_offsets = true;
        return {};
    }
    return invalid_argument("tensor {}: field {} is unknown or given twice", shown_name(name),
                            shown_name(key));
}

// The byte count that dtype and shape imply must be the one that the offsets span.
Status check_entry(std::string_view name, const TensorInfo& info, std::uint64_t data_bytes) {
    if (info.begin > info.end)
        return invalid_argument("tensor {}: data_offsets [{}, {}] run backwards", shown_name(name),
                                info.begin, info.end);
    if (info.end > data_bytes)
        return error(StatusCode::data_loss,
                     "tensor {}: data_offsets [{}, {}] run past the data section of {} bytes; the "
                     "file is truncated or its offsets are wrong",
                     shown_name(name), info.begin, info.end, data_bytes);
    std::uint64_t bytes = static_cast<std::uint64_t>(tensor_type_bytes(info.type));
    for (std::int64_t n : info.shape) {
        if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(n), &bytes))
            return invalid_argument("tensor {}: shape {} overflows 64 bits", shown_name(name),
                                    shape_to_text(info.shape));
    }
    if (bytes != info.end - info.begin)
        return invalid_argument("tensor {}: {} {} needs {} bytes, data_offsets [{}, {}] span {}",
                                shown_name(name), tensor_type_name(info.type),
                                shape_to_text(info.shape), bytes, info.begin, info.end,
                                info.end - info.begin);
    return {};
}

Result<TensorInfo> read_entry(std::string_view name, ondemand::value value,
                              std::uint64_t data_bytes) {
    ondemand::object object;
    if (value.get_object().get(object) != simdjson::SUCCESS)
        return invalid_argument("tensor {}: expected an object", shown_name(name));
    HeaderEntry entry;
    for (auto field : object) {
        std::string_view key;
        if (auto code = field.unescaped_key().get(key)) return json_error("header", code);
        ondemand::value field_value;
        if (auto code = field.value().get(field_value)) return json_error("header", code);
        FATHOM_RETURN_IF_ERROR(read_entry_field(name, key, field_value, entry));
    }
    if (!entry.has_type || !entry.has_shape || !entry.has_offsets)
        return invalid_argument("tensor {}: dtype, shape and data_offsets are all required",
                                shown_name(name));
    FATHOM_RETURN_IF_ERROR(check_entry(name, entry.info, data_bytes));
    return entry.info;
}

Status check_metadata(ondemand::value value) {
    ondemand::object object;
    if (value.get_object().get(object) != simdjson::SUCCESS)
        return invalid_argument("__metadata__ must be an object");
    for (auto field : object) {
        std::string_view text;
        if (auto code = field.unescaped_key().get(text)) return json_error("header", code);
        if (field.value().get_string().get(text) != simdjson::SUCCESS)
            return invalid_argument("__metadata__ must map strings to strings");
    }
    return {};
}

using TensorMap = std::map<std::string, TensorInfo, std::less<>>;

// The tensors must tile the data section: no overlap, no gap, nothing left over.
Status check_tiling(const TensorMap& tensors, std::uint64_t data_bytes) {
    std::vector<const TensorMap::value_type*> order;
    order.reserve(tensors.size());
    for (const auto& item : tensors)
        order.push_back(&item);
    std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
        return std::pair(a->second.begin, a->second.end) <
               std::pair(b->second.begin, b->second.end);
    });
    std::uint64_t covered = 0;
    std::string_view previous;
    for (const auto* item : order) {
        const auto& [name, info] = *item;
        if (info.begin < covered)
            return invalid_argument(
                "tensor {}: data_offsets [{}, {}] overlap tensor {}, which ends at {}",
                shown_name(name), info.begin, info.end, shown_name(previous), covered);
        if (info.begin > covered)
            return invalid_argument("bytes [{}, {}) before tensor {} belong to no tensor", covered,
                                    info.begin, shown_name(name));
        covered = info.end;
        previous = name;
    }
    if (covered != data_bytes)
        return invalid_argument("the last {} of {} data bytes belong to no tensor",
                                data_bytes - covered, data_bytes);
    return {};
}

Status parse_header_entries(ondemand::document& document, std::uint64_t data_bytes,
                            TensorMap& tensors) {
    ondemand::object root;
    if (auto code = document.get_object().get(root))
        return json_error("header is not a JSON object", code);
    bool has_metadata = false;
    for (auto field : root) {
        std::string_view key;
        if (auto code = field.unescaped_key().get(key)) return json_error("header", code);
        ondemand::value value;
        if (auto code = field.value().get(value)) return json_error("header", code);
        if (key == "__metadata__") {
            if (has_metadata) return invalid_argument("__metadata__ is given twice");
            has_metadata = true;
            FATHOM_RETURN_IF_ERROR(check_metadata(value));
            continue;
        }
        if (key.empty() || key.size() > kNameBytesMax)
            return invalid_argument("tensor name {} has {} bytes, expected 1 to {}",
                                    shown_name(key), key.size(), kNameBytesMax);
        std::string name(key);
        if (tensors.contains(name))
            return invalid_argument("tensor {} is given twice", shown_name(name));
        FATHOM_ASSIGN(TensorInfo info, read_entry(name, value, data_bytes));
        tensors.emplace(std::move(name), std::move(info));
    }
    if (!at_end(document)) return invalid_argument("header has text after its JSON object");
    return {};
}

// -------------------------------------------------------------------------------------- mapping

struct Mapping {
    const std::uint8_t* base = nullptr;
    std::uint64_t bytes = 0;
};

Result<Mapping> map_file(const std::string& path) {
    // Not blocking, so that a pipe of this name is refused below instead of waited for.
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        if (errno == ENOENT || errno == ENOTDIR)
            return error(StatusCode::not_found, "{} does not exist", path);
        return invalid_argument("{} cannot be opened: {}", path, std::strerror(errno));
    }
    struct stat info {};
    if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        ::close(fd);
        return invalid_argument("{} is not a regular file", path);
    }
    Mapping mapping;
    mapping.bytes = static_cast<std::uint64_t>(info.st_size);
    if (mapping.bytes != 0) {
        void* base = ::mmap(nullptr, mapping.bytes, PROT_READ, MAP_SHARED, fd, 0);
        const int code = errno;
        if (base == MAP_FAILED) {
            ::close(fd);
            return error(StatusCode::resource_exhausted, "{} ({} bytes) cannot be mapped: {}", path,
                         mapping.bytes, std::strerror(code));
        }
        mapping.base = static_cast<const std::uint8_t*>(base);
    }
    ::close(fd);
    return mapping;
}

void unmap(const Mapping& mapping) {
    if (mapping.base != nullptr) ::munmap(const_cast<std::uint8_t*>(mapping.base), mapping.bytes);
}

// ---------------------------------------------------------------------------------------- index

Status read_index_metadata(ondemand::value value, SafetensorsIndex& index) {
    ondemand::object metadata;
    if (value.get_object().get(metadata) != simdjson::SUCCESS)
        return invalid_argument("metadata must be an object");
    for (auto field : metadata) {
        std::string_view key;
        if (auto code = field.unescaped_key().get(key)) return json_error("metadata", code);
        if (key != "total_size") continue;
        std::uint64_t size = 0;
        if (field.value().get_uint64().get(size) != simdjson::SUCCESS)
            return invalid_argument("metadata.total_size must be a non-negative integer");
        index.total_size = size;
    }
    return {};
}

Status read_weight_map(ondemand::value value, SafetensorsIndex& index) {
    ondemand::object weights;
    if (value.get_object().get(weights) != simdjson::SUCCESS)
        return invalid_argument("weight_map must be an object");
    for (auto field : weights) {
        std::string_view key, file;
        if (auto code = field.unescaped_key().get(key)) return json_error("weight_map", code);
        std::string name(key);
        if (name.empty() || name.size() > kNameBytesMax)
            return invalid_argument("tensor name {} has {} bytes, expected 1 to {}",
                                    shown_name(name), name.size(), kNameBytesMax);
        if (field.value().get_string().get(file) != simdjson::SUCCESS)
            return invalid_argument("weight_map.{}: expected the name of a shard",
                                    shown_name(name));
        if (!index.weight_map.emplace(std::move(name), std::string(file)).second)
            return invalid_argument("weight_map names tensor {} twice", shown_name(key));
    }
    return {};
}

}  // namespace

const char* tensor_type_name(TensorType type) {
    return type_row(type).name;
}

std::int64_t tensor_type_bytes(TensorType type) {
    return type_row(type).bytes;
}

std::int64_t TensorRef::elements() const {
    std::int64_t count = 1;
    for (std::int64_t n : shape)
        count *= n;
    return count;
}

std::string TensorRef::shape_text() const {
    return shape_to_text(shape);
}

Result<TensorMap> parse_safetensors_header(std::string_view header, std::uint64_t data_bytes) {
    if (header.size() > kHeaderBytesMax)
        return invalid_argument("header of {} bytes exceeds the limit of {}", header.size(),
                                kHeaderBytesMax);
    // On demand, not a tree: a hostile header costs a small multiple of its own size, and names
    // given twice are seen.
    const simdjson::padded_string padded(header);
    ondemand::parser parser;
    ondemand::document document;
    if (auto code = parser.iterate(padded).get(document)) return json_error("header", code);
    TensorMap tensors;
    FATHOM_RETURN_IF_ERROR(parse_header_entries(document, data_bytes, tensors));
    FATHOM_RETURN_IF_ERROR(check_tiling(tensors, data_bytes));
    return tensors;
}

Result<SafetensorsIndex> parse_safetensors_index(std::string_view text) {
    if (text.size() > kIndexBytesMax)
        return invalid_argument("index of {} bytes exceeds the limit of {}", text.size(),
                                kIndexBytesMax);
    const simdjson::padded_string padded(text);
    ondemand::parser parser;
    ondemand::document document;
    if (auto code = parser.iterate(padded).get(document)) return json_error("index", code);
    ondemand::object root;
    if (auto code = document.get_object().get(root))
        return json_error("index is not a JSON object", code);
    SafetensorsIndex index;
    bool has_metadata = false, has_map = false;
    for (auto field : root) {
        std::string_view key;
        if (auto code = field.unescaped_key().get(key)) return json_error("index", code);
        ondemand::value value;
        if (auto code = field.value().get(value)) return json_error("index", code);
        bool* const seen = key == "metadata"     ? &has_metadata
                           : key == "weight_map" ? &has_map
                                                 : nullptr;
        if (seen == nullptr) continue;
        if (*seen) return invalid_argument("{} is given twice", key);
        *seen = true;
        FATHOM_RETURN_IF_ERROR(seen == &has_map ? read_weight_map(value, index)
                                                : read_index_metadata(value, index));
    }
    if (!at_end(document)) return invalid_argument("index has text after its JSON object");
    if (!has_map) return invalid_argument("weight_map is missing");
    return index;
}

Result<SafetensorsIndex> read_safetensors_index(const std::string& path) {
    FATHOM_ASSIGN(const Mapping mapping, map_file(path));
    auto index = parse_safetensors_index(
        {reinterpret_cast<const char*>(mapping.base), static_cast<std::size_t>(mapping.bytes)});
    unmap(mapping);
    if (!index.ok()) return index.status().with_context(path);
    return index;
}

Result<std::unique_ptr<SafetensorsFile>> SafetensorsFile::open(const std::string& path) {
    FATHOM_ASSIGN(const Mapping mapping, map_file(path));
    std::unique_ptr<SafetensorsFile> file(new SafetensorsFile());
    file->path_ = path;
    file->base_ = mapping.base;
    file->bytes_ = mapping.bytes;
    if (file->bytes_ < 8)
        return error(StatusCode::data_loss, "{}: {} bytes, too short for the 8-byte header length",
                     path, file->bytes_);
    std::uint64_t header_bytes = 0;
    for (int i = 7; i >= 0; --i)
        header_bytes = header_bytes << 8 | file->base_[i];
    if (header_bytes > kHeaderBytesMax)
        return invalid_argument("{}: header length {} exceeds the limit of {}", path, header_bytes,
                                kHeaderBytesMax);
    if (header_bytes > file->bytes_ - 8)
        return error(StatusCode::data_loss, "{}: header length {} runs past the file's {} bytes",
                     path, header_bytes, file->bytes_);
    const std::string_view header(reinterpret_cast<const char*>(file->base_) + 8,
                                  static_cast<std::size_t>(header_bytes));
    const std::uint64_t data_begin = 8 + header_bytes;
    auto tensors = parse_safetensors_header(header, file->bytes_ - data_begin);
    if (!tensors.ok()) return tensors.status().with_context(path);
    file->tensors_ = std::move(*tensors);
    for (auto& [name, info] : file->tensors_) {
        info.begin += data_begin;
        info.end += data_begin;
    }
    return file;
}

SafetensorsFile::~SafetensorsFile() {
    unmap({base_, bytes_});
}

TensorRef SafetensorsFile::view(const TensorInfo& info) const {
    return {info.type, info.shape, base_ + info.begin, info.end - info.begin};
}

Result<TensorRef> SafetensorsFile::tensor(std::string_view name) const {
    const auto found = tensors_.find(name);
    if (found == tensors_.end())
        return error(StatusCode::not_found, "{} has no tensor {}", path_, shown_name(name));
    return view(found->second);
}

void SafetensorsFile::advise_random(const TensorInfo& info) const {
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    const std::uint64_t begin = info.begin / page * page;
    // Advice only: a kernel that refuses it costs speed, never correctness.
    ::madvise(const_cast<std::uint8_t*>(base_) + begin, info.end - begin, MADV_RANDOM);
}

void SafetensorsFile::read_pages(const std::uint8_t* begin, const std::uint8_t* end) const {
    const auto page = static_cast<std::ptrdiff_t>(::sysconf(_SC_PAGESIZE));
    const std::ptrdiff_t first = (begin - base_) / page * page;
    // Since Linux 5.14; without it pages come when they are touched.
    ::madvise(const_cast<std::uint8_t*>(base_) + first,
              static_cast<std::size_t>(end - base_ - first), MADV_POPULATE_READ);
}

void SafetensorsFile::drop_pages() const {
    drop_pages(base_, base_ + bytes_);
}

void SafetensorsFile::drop_pages(const std::uint8_t* begin, const std::uint8_t* end) const {
    const auto page = static_cast<std::ptrdiff_t>(::sysconf(_SC_PAGESIZE));
    const std::ptrdiff_t first = (begin - base_ + page - 1) / page * page;
    // The mapping's last page is whole, whatever the file's size.
    const std::ptrdiff_t last = end == base_ + bytes_ ? end - base_ : (end - base_) / page * page;
    if (first >= last) return;
    ::madvise(const_cast<std::uint8_t*>(base_) + first, static_cast<std::size_t>(last - first),
              MADV_DONTNEED);
}

// ---------------------------------------------------------------------------------------- writing

SafetensorsLayout layout_safetensors(const std::vector<TensorToWrite>& tensors) {
    SafetensorsLayout layout;
    for (const TensorToWrite& tensor : tensors)
        layout.tensors.push_back({.tensor = &tensor, .begin = 0, .bytes = 0});
    // Widest elements first keeps every tensor aligned to its element size.
    std::stable_sort(
        layout.tensors.begin(), layout.tensors.end(), [](const auto& a, const auto& b) {
            return tensor_type_bytes(a.tensor->type) > tensor_type_bytes(b.tensor->type);
        });
    std::string header;
    JsonWriter json(header);
    json.begin_object();
    std::uint64_t offset = 0;
    std::set<std::string_view> names;
    for (SafetensorsLayout::Tensor& entry : layout.tensors) {
        const TensorToWrite& tensor = *entry.tensor;
        FATHOM_CHECK(names.insert(tensor.name).second, tensor.name);
        entry.bytes = static_cast<std::uint64_t>(tensor_type_bytes(tensor.type));
        json.key(tensor.name).begin_object();
        json.key("dtype").value(tensor_type_name(tensor.type)).key("shape").begin_array();
        for (std::int64_t n : tensor.shape) {
            FATHOM_CHECK(n >= 0, tensor.name);
            entry.bytes *= static_cast<std::uint64_t>(n);
            json.value(n);
        }
        json.end_array().key("data_offsets").begin_array();
        json.value(offset).value(offset + entry.bytes).end_array().end_object();
        entry.begin = offset;
        offset += entry.bytes;
    }
    json.end_object();
    // The data begin on a cache line, so that tensors of whole lines can be used where they lie.
    constexpr std::size_t kLine = 64;
    header.resize((8 + header.size() + kLine - 1) / kLine * kLine - 8, ' ');
    for (std::size_t i = 0; i < 8; ++i)
        layout.head.push_back(static_cast<char>(std::uint64_t{header.size()} >> (8 * i) & 0xff));
    layout.head += header;
    for (SafetensorsLayout::Tensor& entry : layout.tensors)
        entry.begin += layout.head.size();
    layout.file_bytes = layout.head.size() + offset;
    return layout;
}

Status write_safetensors(const std::string& path, const std::vector<TensorToWrite>& tensors) {
    const SafetensorsLayout layout = layout_safetensors(tensors);
    std::FILE* const file = std::fopen(path.c_str(), "wb");
    if (file == nullptr)
        return invalid_argument("{} cannot be written: {}", path, std::strerror(errno));
    bool good = std::fwrite(layout.head.data(), 1, layout.head.size(), file) == layout.head.size();
    for (const SafetensorsLayout::Tensor& entry : layout.tensors)
        good = good && (entry.bytes == 0 ||
                        std::fwrite(entry.tensor->data, 1, entry.bytes, file) == entry.bytes);
    const int code = errno;
    if (std::fclose(file) != 0 || !good)
        return error(StatusCode::resource_exhausted, "{} could not be written in full: {}", path,
                     std::strerror(code));
    return {};
}

}  // namespace fathom
