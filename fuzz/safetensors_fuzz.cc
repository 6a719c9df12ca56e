// A safetensors file image (length, header, data) and, of the same bytes, an index. Whatever is
// accepted must tile its data section exactly.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "model/safetensors.h"

namespace {

void check_file(std::string_view image) {
    if (image.size() < 8) return;
    std::uint64_t length = 0;
    for (std::size_t i = 8; i-- > 0;)
        length = length << 8 | static_cast<std::uint8_t>(image[i]);
    if (length > image.size() - 8) return;
    const std::string_view header = image.substr(8, static_cast<std::size_t>(length));
    const std::uint64_t data_bytes = image.size() - 8 - length;
    const auto tensors = fathom::parse_safetensors_header(header, data_bytes);
    if (!tensors.ok()) {
        if (tensors.status().message().empty()) std::abort();
        return;
    }
    std::uint64_t covered = 0;
    for (const auto& [name, info] : *tensors) {
        if (info.begin > info.end || info.end > data_bytes) std::abort();
        covered += info.end - info.begin;
        const fathom::TensorRef view{info.type, info.shape, nullptr, info.end - info.begin};
        const auto bytes =
            static_cast<std::uint64_t>(view.elements() * fathom::tensor_type_bytes(view.type));
        if (bytes != view.bytes) std::abort();
    }
    if (covered != data_bytes) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    check_file(text);
    (void)fathom::parse_safetensors_index(text);
    return 0;
}
