#include "model/random_checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string_view>

#include "base/compute_pool.h"
#include "base/formats.h"
#include "model/inventory.h"
#include "model/memory_plan.h"
#include "model/safetensors.h"

namespace fathom {
namespace {

namespace fs = std::filesystem;

// ------------------------------------------------------------------------------------- randomness

std::uint64_t mix(std::uint64_t x) {  // the finaliser of SplitMix64 (Steele et al., 2014)
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

// The 64-bit words of one tensor, by index.
class Words {
  public:
    Words(std::uint64_t seed, std::string_view name) : key_(mix(seed + kStep)) {
        for (const char c : name)
            key_ = mix(key_ + kStep + static_cast<std::uint8_t>(c));
    }
    std::uint64_t at(std::uint64_t index) const { return mix(key_ + index * kStep); }

  private:
    static constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15u;
    std::uint64_t key_;
};

// The middles of `count` equally likely slices of the normal distribution, ascending. Sums the
// density, which it steps by multiplications alone: no libm, so the bits are the same everywhere.
std::vector<float> normal_quantiles(int count) {
    constexpr int kSteps = 6 * 1024;  // six deviations in steps of 1/1024
    constexpr double kSquare = 1.0 / (1024.0 * 1024.0);
    constexpr double kHalf = kSquare / 2;
    // exp(-x) for these small x, to the last bit of a double
    constexpr double kRatio = 1 - kSquare + kSquare * kSquare / 2;
    double factor = 1 - kHalf + kHalf * kHalf / 2;
    double density = 1;
    std::vector<double> mass = {0};  // of [0, i/1024]
    for (int i = 0; i < kSteps; ++i) {
        const double next = density * factor;
        mass.push_back(mass.back() + (density + next) / 2);
        density = next;
        factor *= kRatio;
    }
    std::vector<float> quantiles(static_cast<std::size_t>(count));
    std::size_t at = 0;
    for (int i = count / 2; i < count; ++i) {
        const double wanted = (2.0 * i + 1 - count) / count * mass.back();
        while (mass[at + 1] < wanted)
            ++at;
        const double part = (wanted - mass[at]) / (mass[at + 1] - mass[at]);
        const auto value = static_cast<float>((static_cast<double>(at) + part) / 1024);
        quantiles[static_cast<std::size_t>(i)] = value;
        quantiles[static_cast<std::size_t>(count - 1 - i)] = -value;
    }
    return quantiles;
}

// ------------------------------------------------------------------------------------- statistics

struct Statistics {
    double mean = 0, deviation = 0;
};

// A matrix's deviation is a factor of (inputs)^-0.5; a vector's stands as it is.
struct Rule {
    std::string_view part;  // the first rule whose part is in the name holds
    double mean = 0, factor = 1;
    bool over_inputs = true;
};

constexpr Rule kRules[] = {
    {".attn.wq_a.", 0, 1.6},
    {".indexer.wq_b.", 0, 1.0},
    {".attn.wq_b.", 0, 0.95},
    {".indexer.wk.", 0, 1.0},
    {".compressor.wkv.", 0, 1.8},
    {".engram.wkv.", 0, 1.0},
    {".attn.wkv.", 0, 1.8},
    {".attn.wo_a.", 0, 1.6},
    {".attn.wo_b.", 0, 1.9},
    {".ffn.gate.weight", 0, 2.9},
    {".ffn.gate.bias", 0, 0.01, false},
    {".w1.", 0, 1.5},
    {".w3.", 0, 1.5},
    {".w2.", 0, 1.05},
    {".engram.embed.", 0, 0.05, false},
    {".engram.q_weight", 0.5, 0.05, false},
    {".engram.k_weight", 0.5, 0.05, false},
    {".attn_sink", 0, 1.0, false},
    {".hc_attn_fn", 0, 1.0},
    {".hc_ffn_fn", 0, 1.0},
    {"_scale", 0.3, 0.02, false},
    {"_base", 0, 0.3, false},
    {"markov_head.embed.", 0, 0.12, false},
    {"embed.weight", 0, 0.12, false},
    {"image_", 0, 0.12, false},
    {"head.weight", 0, 2.0},
    {".bias", 0, 0.02, false},
};

struct Norm {
    std::string_view part;
    double mean;
};
constexpr Norm kNorms[] = {{"attn_norm", 0.025}, {"ffn_norm", 0.2},        {"q_norm", 0.97},
                           {"kv_norm", 0.4},     {"compressor.norm", 0.6}, {"k_norm", 0.5}};

Statistics statistics_of(const ExpectedTensor& tensor) {
    const auto has = [&](std::string_view part) {
        return tensor.name.find(part) != std::string::npos;
    };
    if (has("norm.weight") || has("norm1.weight") || has("norm2.weight")) {
        for (const Norm& norm : kNorms)
            if (has(norm.part)) return {norm.mean, norm.mean / 10};
        return {1, 0.1};
    }
    // A byte of packed FP4 holds two inputs, a scale stands for 32.
    const int inputs_each = tensor.type == TensorType::i8        ? 2
                            : tensor.type == TensorType::f8_e8m0 ? 32
                                                                 : 1;
    const auto inputs = static_cast<double>(inputs_each * tensor.shape.back());
    for (const Rule& rule : kRules) {
        if (has(rule.part))
            return {rule.mean, rule.over_inputs ? rule.factor / std::sqrt(inputs) : rule.factor};
    }
    return {0, 1 / std::sqrt(inputs)};
}

// ------------------------------------------------------------------------------------------ bytes

// Codes of a quantised tensor have this deviation in units of their scale, about what a tile's or
// group's largest value leaves when it is scaled to the format's end.
constexpr double kFp8Deviation = 100;
constexpr double kFp4Deviation = 2;

struct Tables {
    std::vector<float> normal = normal_quantiles(1 << 16);
    std::uint8_t e4m3[256] = {};
    std::uint8_t e2m1[256] = {};

    Tables() {
        const std::vector<float> coarse = normal_quantiles(256);
        for (std::size_t i = 0; i < 256; ++i) {
            e4m3[i] = e4m3_from_float(coarse[i] * static_cast<float>(kFp8Deviation));
            e2m1[i] = e2m1_from_float(coarse[i] * static_cast<float>(kFp4Deviation));
        }
    }
};

// Makes any stretch of one tensor's bytes. Stretches begin at multiples of 8 bytes.
class TensorBytes {
  public:
    TensorBytes(const Tables& tables, const ExpectedTensor& tensor, std::uint64_t seed,
                double code_deviation)
        : tables_(tables), words_(seed, tensor.name), type_(tensor.type) {
        const Statistics statistics = statistics_of(tensor);
        is_mixing_base_ =
            tensor.name.find("hc_") != std::string::npos && tensor.name.ends_with("_base");
        is_attention_ = tensor.name.find("hc_attn") != std::string::npos;
        elements_ = 1;
        for (std::int64_t n : tensor.shape)
            elements_ *= n;
        if (type_ == TensorType::bf16 || type_ == TensorType::f32) {
            for (float& value : values_ = tables.normal)
                value = static_cast<float>(statistics.mean + statistics.deviation * value);
        }
        if (type_ == TensorType::f8_e8m0) set_scale(statistics.deviation / code_deviation);
    }

    void fill(std::uint64_t begin, std::span<std::uint8_t> out) const {
        switch (type_) {
            case TensorType::bf16:
                return fill_numbers<2>(begin / 2, out);
            case TensorType::f32:
                return fill_numbers<4>(begin / 4, out);
            case TensorType::i8:
                return fill_fp4(begin, out);
            default:
                return fill_bytes(begin, out);
        }
    }

  private:
    static constexpr float kAttentionPost = -3;  // a weight of 2·sigmoid(-3) = 0.095

    // Scales are 2^e or 2^(e+1), mixed so that their mean square is that of `scale`.
    void set_scale(double scale) {
        int exponent = 0;
        const double fraction = std::frexp(scale, &exponent);  // in [0.5, 1)
        const double share = (4 * fraction * fraction - 1) / 3;
        upper_ = static_cast<unsigned>(share * 256);
        low_byte_ = static_cast<std::uint8_t>(std::clamp(127 + exponent - 1, 1, 253));
    }

    std::uint8_t byte_of(std::uint8_t random) const {
        if (type_ == TensorType::f8_e8m0)
            return static_cast<std::uint8_t>(low_byte_ + (random < upper_ ? 1 : 0));
        return tables_.e4m3[random];
    }

    void fill_bytes(std::uint64_t begin, std::span<std::uint8_t> out) const {
        for (std::size_t i = 0; i < out.size(); i += 8) {
            std::uint64_t word = words_.at((begin + i) / 8);
            const std::size_t end = std::min(out.size(), i + 8);
            for (std::size_t j = i; j < end; ++j, word >>= 8)
                out[j] = byte_of(static_cast<std::uint8_t>(word));
        }
    }

    void fill_fp4(std::uint64_t begin, std::span<std::uint8_t> out) const {
        for (std::size_t i = 0; i < out.size(); i += 4) {
            std::uint64_t word = words_.at((begin + i) / 4);
            const std::size_t end = std::min(out.size(), i + 4);
            for (std::size_t j = i; j < end; ++j, word >>= 16)
                out[j] = static_cast<std::uint8_t>(tables_.e2m1[word & 0xff] |
                                                   tables_.e2m1[word >> 8 & 0xff] << 4);
        }
    }

    template <int kBytes>
    void fill_numbers(std::uint64_t first, std::span<std::uint8_t> out) const {
        const std::uint64_t count = out.size() / kBytes;
        for (std::uint64_t i = 0; i < count; ++i) {
            const std::uint64_t index = first + i;
            float value = values_[words_.at(index / 4) >> index % 4 * 16 & 0xffff];
            if (is_mixing_base_) value += mixing_bias(index);
            if constexpr (kBytes == 2) {
                const Bf16 rounded = bf16_from_float(value);
                std::memcpy(out.data() + i * 2, &rounded.bits, 2);
            } else {
                std::memcpy(out.data() + i * 4, &value, 4);
            }
        }
    }

    // Biases of a hyper-connection: pre at rest, streams that mostly keep to themselves, and little
    // of the attention's output. Random attention is close to a mean over the context, which all
    // rows share: at full weight it outgrows what tells tokens apart, and they all choose the same
    // experts. There are (2 + n)·n biases for n streams, the last n² a matrix (model.md 3.3).
    float mixing_bias(std::uint64_t index) const {
        std::uint64_t streams = 1;
        while ((2 + streams) * streams < static_cast<std::uint64_t>(elements_))
            ++streams;
        if (index < streams) return 0;
        if (index < 2 * streams) return is_attention_ ? kAttentionPost : 0;
        const std::uint64_t at = index - 2 * streams;
        return at / streams == at % streams ? 2.0f : 0.0f;
    }

    const Tables& tables_;
    Words words_;
    TensorType type_;
    bool is_mixing_base_ = false, is_attention_ = false;
    std::int64_t elements_ = 0;
    std::vector<float> values_;  // the normal table, scaled
    std::uint8_t low_byte_ = 127;
    unsigned upper_ = 0;
};

// ------------------------------------------------------------------------------------------ files

// Shards by what the release keeps apart: vision, embedding, each layer, head, each draft stage,
// each Engram module. The number sorts them in that order.
std::string shard_key(std::string_view name) {
    const auto number = [name](std::size_t at) {
        return std::atoi(std::string(name.substr(at, 6)).c_str());
    };
    if (name.starts_with("vision.") || name.starts_with("aligner.") || name.starts_with("image_"))
        return "0";
    if (name.starts_with("embed.")) return "1";
    if (name.starts_with("mtp.")) return fmt::format("4 {:06}", number(4));
    if (!name.starts_with("layers.")) return "3";
    const char* kind = name.find(".engram.") != std::string_view::npos ? "5" : "2";
    return fmt::format("{} {:06}", kind, number(7));
}

class File {
  public:
    explicit File(const fs::path& path)
        : fd_(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644)) {}
    ~File() {
        if (fd_ >= 0) ::close(fd_);
    }
    File(const File&) = delete;
    File& operator=(const File&) = delete;

    bool is_open() const { return fd_ >= 0; }
    // Any thread. 0, or errno.
    int write_at(std::uint64_t offset, std::span<const std::uint8_t> bytes) const {
        while (!bytes.empty()) {
            const ssize_t n = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
            if (n < 0 && errno == EINTR) continue;
            if (n <= 0) return n < 0 ? errno : EIO;
            bytes = bytes.subspan(static_cast<std::size_t>(n));
            offset += static_cast<std::uint64_t>(n);
        }
        return 0;
    }
    int close() {
        const int fd = std::exchange(fd_, -1);
        return ::close(fd) == 0 ? 0 : errno;
    }

  private:
    int fd_;
};

Status write_failed(const fs::path& path, int code) {
    const StatusCode kind = code == ENOSPC || code == EDQUOT ? StatusCode::resource_exhausted
                                                             : StatusCode::invalid_argument;
    return error(kind, "{} cannot be written: {}", path.string(), std::strerror(code));
}

std::span<const std::uint8_t> bytes_of(std::string_view text) {
    return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

Status write_text(const fs::path& path, std::string_view text) {
    File file(path);
    if (!file.is_open()) return write_failed(path, errno);
    if (const int code = file.write_at(0, bytes_of(text)); code != 0)
        return write_failed(path, code);
    if (const int code = file.close(); code != 0) return write_failed(path, code);
    return {};
}

using Shards = std::map<std::string, std::vector<TensorToWrite>>;

class Writer {
  public:
    Writer(fs::path dir, const RandomCheckpointOptions& options)
        : dir_(std::move(dir)), options_(options), pool_(std::max(1, options.threads)) {
        buffers_.resize(static_cast<std::size_t>(pool_.threads()) * 8,
                        std::vector<std::uint8_t>(kChunkBytes));
    }

    Status write(const Shards& shards, std::uint64_t total_bytes) {
        total_bytes_ = total_bytes;
        Json::Object weight_map;
        std::size_t number = 0;
        for (const auto& [key, tensors] : shards) {
            const std::string name =
                fmt::format("model-{:05}-of-{:05}.safetensors", ++number, shards.size());
            for (const TensorToWrite& tensor : tensors)
                weight_map.emplace_back(tensor.name, name);
            FATHOM_RETURN_IF_ERROR(write_shard(dir_ / name, tensors));
        }
        std::sort(weight_map.begin(), weight_map.end(),
                  [](const auto& a, const auto& b) { return a.first < b.first; });
        const Json index = Json::object({{"metadata", Json::object({{"total_size", total_bytes}})},
                                         {"weight_map", Json::object(std::move(weight_map))}});
        return write_text(dir_ / "model.safetensors.index.json", index.dump());
    }

  private:
    static constexpr std::uint64_t kChunkBytes = 1 << 20;

    struct Chunk {
        const TensorBytes* tensor = nullptr;
        std::uint64_t begin = 0, bytes = 0;  // in the tensor
        std::uint64_t offset = 0;            // in the file
    };

    Status write_shard(const fs::path& path, const std::vector<TensorToWrite>& tensors) {
        const SafetensorsLayout layout = layout_safetensors(tensors);
        File file(path);
        if (!file.is_open()) return write_failed(path, errno);
        if (const int code = file.write_at(0, bytes_of(layout.head)); code != 0)
            return write_failed(path, code);
        std::vector<std::unique_ptr<TensorBytes>> sources;  // of the chunks that wait
        std::vector<Chunk> chunks;
        for (const SafetensorsLayout::Tensor& entry : layout.tensors) {
            const TensorToWrite& tensor = *entry.tensor;
            sources.push_back(std::make_unique<TensorBytes>(
                tables_, ExpectedTensor{tensor.name, tensor.type, tensor.shape}, options_.seed,
                code_deviation(tensor, tensors)));
            for (std::uint64_t begin = 0; begin < entry.bytes; begin += kChunkBytes) {
                chunks.push_back({sources.back().get(), begin,
                                  std::min(kChunkBytes, entry.bytes - begin), entry.begin + begin});
                if (chunks.size() < buffers_.size()) continue;
                FATHOM_RETURN_IF_ERROR(write_chunks(file, path, chunks));
                chunks.clear();
                sources.erase(sources.begin(), sources.end() - 1);
            }
        }
        FATHOM_RETURN_IF_ERROR(write_chunks(file, path, chunks));
        if (const int code = file.close(); code != 0) return write_failed(path, code);
        return {};
    }

    // What the codes under a scale tensor look like.
    static double code_deviation(const TensorToWrite& tensor,
                                 const std::vector<TensorToWrite>& shard) {
        if (tensor.type != TensorType::f8_e8m0) return 1;
        const std::string weight =
            tensor.name.substr(0, tensor.name.size() - std::string_view("scale").size()) + "weight";
        const auto found = std::find_if(shard.begin(), shard.end(),
                                        [&](const auto& t) { return t.name == weight; });
        return found != shard.end() && found->type == TensorType::i8 ? kFp4Deviation
                                                                     : kFp8Deviation;
    }

    Status write_chunks(const File& file, const fs::path& path, const std::vector<Chunk>& chunks) {
        std::atomic<int> failure = 0;
        pool_.run(static_cast<std::int64_t>(chunks.size()), [&](std::int64_t i) {
            const Chunk& chunk = chunks[static_cast<std::size_t>(i)];
            const std::span<std::uint8_t> buffer(buffers_[static_cast<std::size_t>(i)].data(),
                                                 chunk.bytes);
            chunk.tensor->fill(chunk.begin, buffer);
            if (const int code = file.write_at(chunk.offset, buffer); code != 0) failure = code;
        });
        if (failure != 0) return write_failed(path, failure);
        for (const Chunk& chunk : chunks)
            done_bytes_ += chunk.bytes;
        if (options_.on_progress && !options_.on_progress(done_bytes_, total_bytes_))
            return error(StatusCode::cancelled, "interrupted after {} of {} bytes", done_bytes_,
                         total_bytes_);
        return {};
    }

    fs::path dir_;
    const RandomCheckpointOptions& options_;
    ComputePool pool_;
    Tables tables_;
    std::vector<std::vector<std::uint8_t>> buffers_;
    std::uint64_t done_bytes_ = 0, total_bytes_ = 0;
};

Status check_target(const fs::path& dir) {
    std::error_code failed;
    if (!fs::exists(dir, failed)) return {};
    if (!fs::is_directory(dir, failed))
        return invalid_argument("{} exists and is no folder", dir.string());
    if (!fs::is_empty(dir, failed) || failed)
        return invalid_argument("{} exists and is not empty; name a new folder", dir.string());
    return {};
}

Status check_room(const fs::path& parent, std::uint64_t bytes) {
    std::error_code failed;
    const fs::space_info space = fs::space(parent, failed);
    if (failed)
        return invalid_argument("{} cannot be written: {}", parent.string(), failed.message());
    if (space.available < bytes)
        return error(StatusCode::resource_exhausted, "{} has {} free, the checkpoint needs {}",
                     parent.string(), bytes_text(static_cast<std::int64_t>(space.available)),
                     bytes_text(static_cast<std::int64_t>(bytes)));
    return {};
}

}  // namespace

Status write_random_checkpoint(const std::string& dir, const Json& config,
                               const RandomCheckpointOptions& options) {
    FATHOM_ASSIGN(const ModelConfig parsed, parse_model_config(config));
    Shards shards;
    std::uint64_t total_bytes = 0;
    for_each_expected_tensor(parsed, [&](const ExpectedTensor& tensor) {
        auto bytes = static_cast<std::uint64_t>(tensor_type_bytes(tensor.type));
        for (std::int64_t n : tensor.shape)
            bytes *= static_cast<std::uint64_t>(n);
        total_bytes += bytes;
        shards[shard_key(tensor.name)].push_back(
            {.name = tensor.name, .type = tensor.type, .shape = tensor.shape, .data = nullptr});
    });

    const fs::path target = fs::absolute(fs::path(dir) / "").parent_path();
    FATHOM_RETURN_IF_ERROR(check_target(target));
    std::error_code failed;
    fs::create_directories(target.parent_path(), failed);
    constexpr std::uint64_t kOtherBytes = 64 << 20;  // headers, index, tokenizer
    FATHOM_RETURN_IF_ERROR(check_room(target.parent_path(), total_bytes + kOtherBytes));
    const fs::path partial = target.string() + ".partial";
    if (!fs::create_directory(partial, failed))
        return invalid_argument(
            "{} {}", partial.string(),
            failed ? "cannot be made: " + failed.message()
                   : "exists: another run is writing it, or one was killed; remove it then");
    const auto write_all = [&]() -> Status {
        FATHOM_RETURN_IF_ERROR(write_text(partial / "config.json", config.dump()));
        for (const auto& [name, content] : options.files)
            FATHOM_RETURN_IF_ERROR(write_text(partial / name, content));
        FATHOM_RETURN_IF_ERROR(Writer(partial, options).write(shards, total_bytes));
        std::error_code moved;
        fs::rename(partial, target, moved);
        if (moved)
            return invalid_argument("{} cannot be made: {}", target.string(), moved.message());
        return {};
    };
    const Status status = write_all();
    if (!status.ok()) fs::remove_all(partial, failed);
    return status;
}

}  // namespace fathom
