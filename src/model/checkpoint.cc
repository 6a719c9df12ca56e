#include "model/checkpoint.h"

#include <fmt/format.h>

#include <cstring>
#include <filesystem>
#include <set>

#include "base/check.h"
#include "model/engram.h"
#include "model/shown.h"

namespace fathom {
namespace {

constexpr const char* kConfigName = "config.json";
constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr const char* kSingleName = "model.safetensors";
constexpr std::size_t kConfigBytesMax = std::size_t{1} << 20;
constexpr std::size_t kProblemsMax = 64;
// Misaligned tensors are copied into memory; a checkpoint that is misaligned throughout should be
// rewritten instead.
constexpr std::uint64_t kCopiedBytesMax = std::uint64_t{8} << 30;

// The name that the rest of the program uses.
std::string_view canonical(std::string_view name) {
    constexpr std::string_view kPrefix = "model.";
    if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
    return name;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
    return fmt::format("[{}]", fmt::join(shape, ", "));
}

// A shard is a file of the directory itself; nothing an index says may lead elsewhere.
bool is_plain_file_name(std::string_view name) {
    return !name.empty() && name.size() <= 255 && name != "." && name != ".." &&
           name.find('/') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

// What was found wrong: every message up to a limit, and the status of the first.
class Findings {
  public:
    void add(const Status& status) {
        if (count_++ == 0) first_ = status;
        if (messages_.size() < kProblemsMax) messages_.push_back(status.message());
    }
    template <typename... Args>
    void add(StatusCode code, fmt::format_string<Args...> format, Args&&... args) {
        add(error(code, format, std::forward<Args>(args)...));
    }
    bool empty() const { return count_ == 0; }
    const std::vector<std::string>& messages() const { return messages_; }
    Status status() const {
        if (count_ <= 1) return first_;
        return error(first_.code(), "{} (and {} more)", first_.message(), count_ - 1);
    }

  private:
    Status first_;
    std::vector<std::string> messages_;
    std::uint64_t count_ = 0;
};

}  // namespace

// The steps of Checkpoint::open.
class CheckpointOpener {
  public:
    CheckpointOpener(const std::string& dir, const CheckpointOptions& options)
        : checkpoint_(new Checkpoint()), options_(options) {
        checkpoint_->dir_ = dir;
    }

    Result<std::shared_ptr<const Checkpoint>> open() {
        const Status status = open_all();
        if (options_.problems != nullptr && options_.problems->empty()) {
            *options_.problems = findings_.messages();
            if (!status.ok() && findings_.empty()) options_.problems->push_back(status.message());
        }
        FATHOM_RETURN_IF_ERROR(status);
        return std::shared_ptr<const Checkpoint>(std::move(checkpoint_));
    }

  private:
    // Each step needs the one before it to have found nothing.
    Status open_all() {
        FATHOM_RETURN_IF_ERROR(read_config());
        FATHOM_RETURN_IF_ERROR(read_index());
        open_shards();
        if (!findings_.empty()) return findings_.status();
        locate_tensors();
        if (!findings_.empty()) return findings_.status();
        check_inventory();
        check_total_size();
        if (!findings_.empty()) return findings_.status();
        return settle_memory();
    }

    std::string path(std::string_view name) const {
        return (std::filesystem::path(checkpoint_->dir_) / name).string();
    }

    Status read_config() {
        std::error_code ignored;
        if (!std::filesystem::is_directory(checkpoint_->dir_, ignored))
            return error(StatusCode::not_found, "checkpoint {} is not a directory",
                         checkpoint_->dir_);
        const std::string file = path(kConfigName);
        if (!std::filesystem::exists(file, ignored))
            return error(StatusCode::not_found, "{} does not exist", file);
        JsonLimits limits;
        limits.bytes_max = kConfigBytesMax;
        FATHOM_ASSIGN(const Json root, parse_json_file(file, limits));
        std::vector<std::string> problems;
        auto config = parse_model_config(root, options_.config_overrides, &problems);
        if (!config.ok()) {
            if (options_.problems != nullptr) {
                for (const std::string& problem : problems)
                    options_.problems->push_back(fmt::format("{}: {}", file, problem));
            }
            return config.status().with_context(file);
        }
        checkpoint_->config_ = std::move(*config);
        // The hash columns must fill the tables that the inventory is about to describe.
        const auto hashes = make_engram_hashes(checkpoint_->config_);
        if (!hashes.ok()) return hashes.status().with_context(file);
        return {};
    }

    Status read_index() {
        const std::string file = path(kIndexName);
        std::error_code ignored;
        if (!std::filesystem::exists(file, ignored)) {
            if (!std::filesystem::exists(path(kSingleName), ignored))
                return error(StatusCode::not_found, "{} has neither {} nor {}", checkpoint_->dir_,
                             kIndexName, kSingleName);
            shard_names_.emplace_back(kSingleName);
            return {};
        }
        FATHOM_ASSIGN(SafetensorsIndex index, read_safetensors_index(file));
        has_index_ = true;
        total_size_ = index.total_size;
        std::set<std::string_view> names;
        for (const auto& [tensor, shard] : index.weight_map) {
            if (!is_plain_file_name(shard))
                return invalid_argument("{}: tensor {} names shard {}, which is no plain file name",
                                        file, shown_name(tensor), shown_name(shard));
            names.insert(shard);
        }
        shard_names_.assign(names.begin(), names.end());
        for (std::size_t i = 0; i < shard_names_.size(); ++i)
            shard_number_[shard_names_[i]] = i;
        for (const auto& [tensor, shard] : index.weight_map) {
            const auto [place, fresh] =
                placed_.emplace(canonical(tensor), shard_number_.find(shard)->second);
            if (!fresh)
                return invalid_argument(
                    "{}: tensor {} is named twice, with and without the prefix \"model.\"", file,
                    shown_name(place->first));
        }
        return {};
    }

    void open_shards() {
        for (const std::string& name : shard_names_) {
            auto file = SafetensorsFile::open(path(name));
            if (file.ok()) {
                checkpoint_->shards_.push_back(std::move(*file));
            } else if (file.status().code() == StatusCode::not_found && has_index_) {
                findings_.add(StatusCode::not_found,
                              "{}: names shard {}, which does not exist in {}", path(kIndexName),
                              name, checkpoint_->dir_);
            } else {
                findings_.add(file.status());
            }
        }
    }

    // Shards and index must agree on which tensor lies where.
    void locate_tensors() {
        for (std::size_t i = 0; i < checkpoint_->shards_.size(); ++i) {
            const SafetensorsFile& shard = *checkpoint_->shards_[i];
            for (const auto& [raw_name, info] : shard.tensors()) {
                const std::string_view name = canonical(raw_name);
                const auto place = placed_.find(name);
                if (has_index_ && place == placed_.end()) {
                    findings_.add(StatusCode::invalid_argument, "{}: tensor {} is not in the index",
                                  shard.path(), shown_name(raw_name));
                } else if (has_index_ && place->second != i) {
                    findings_.add(StatusCode::invalid_argument,
                                  "{}: tensor {} belongs into shard {} by the index", shard.path(),
                                  shown_name(raw_name), shard_names_[place->second]);
                } else if (!found_.emplace(name, Found{i, &info, false}).second) {
                    findings_.add(StatusCode::invalid_argument,
                                  "{}: tensor {} is given twice, with and without the prefix "
                                  "\"model.\"",
                                  shard.path(), shown_name(name));
                }
            }
        }
        for (const auto& [name, shard] : placed_) {
            if (!found_.contains(name))
                findings_.add(StatusCode::data_loss,
                              "{}: names tensor {} in shard {}, which has no such tensor",
                              path(kIndexName), shown_name(name), shard_names_[shard]);
        }
    }

    void check_inventory() {
        for_each_expected_tensor(checkpoint_->config_, [this](const ExpectedTensor& expected) {
            const auto found = found_.find(expected.name);
            if (found == found_.end()) {
                findings_.add(StatusCode::not_found, "{}: tensor {} is missing, expected {} {}",
                              checkpoint_->dir_, expected.name, tensor_type_name(expected.type),
                              shape_text(expected.shape));
                return;
            }
            found->second.expected = true;
            const TensorInfo& info = *found->second.info;
            const std::string& file = checkpoint_->shards_[found->second.shard]->path();
            if (info.type != expected.type)
                findings_.add(StatusCode::invalid_argument,
                              "{}: tensor {} has dtype {}, expected {}", file, expected.name,
                              tensor_type_name(info.type), tensor_type_name(expected.type));
            else if (info.shape != expected.shape)
                findings_.add(StatusCode::invalid_argument,
                              "{}: tensor {} has shape {}, expected {}", file, expected.name,
                              shape_text(info.shape), shape_text(expected.shape));
        });
        for (const auto& [name, found] : found_) {
            if (found.expected) continue;
            if (is_ignored_tensor(name))
                ++checkpoint_->summary_.ignored;
            else
                findings_.add(StatusCode::invalid_argument,
                              "{}: tensor {} is foreign, no part of this config has it",
                              checkpoint_->shards_[found.shard]->path(), shown_name(name));
        }
    }

    void check_total_size() {
        if (!total_size_.has_value()) return;
        std::uint64_t bytes = 0;  // cannot overflow: the files are mapped at once
        for (const auto& [name, found] : found_)
            bytes += found.info->end - found.info->begin;
        if (bytes != *total_size_)
            findings_.add(StatusCode::data_loss,
                          "{}: metadata.total_size = {}, the tensors have {} bytes",
                          path(kIndexName), *total_size_, bytes);
    }

    // Makes the views: into the mapping, or of a copy where a number would be misaligned.
    Status settle_memory() {
        Checkpoint::Summary& summary = checkpoint_->summary_;
        summary.shards = checkpoint_->shards_.size();
        for (const auto& [name, found] : found_) {
            if (!found.expected) continue;
            const SafetensorsFile& shard = *checkpoint_->shards_[found.shard];
            TensorRef view = shard.view(*found.info);
            ++summary.tensors;
            summary.bytes += view.bytes;
            auto& [count, bytes] = summary.by_type[tensor_type_name(view.type)];
            ++count;
            bytes += view.bytes;
            const auto element = static_cast<std::uintptr_t>(tensor_type_bytes(view.type));
            if (reinterpret_cast<std::uintptr_t>(view.data) % element != 0) {
                summary.copied_bytes += view.bytes;
                if (summary.copied_bytes > kCopiedBytesMax)
                    return error(StatusCode::resource_exhausted,
                                 "{}: more than {} bytes of tensors are misaligned in their files "
                                 "(tensor {} is the last of them); write the shards anew with "
                                 "tensors sorted by falling element size",
                                 checkpoint_->dir_, kCopiedBytesMax, name);
                auto copy = std::make_unique<std::uint64_t[]>((view.bytes + 7) / 8);
                std::memcpy(copy.get(), view.data, view.bytes);
                view.data = reinterpret_cast<const std::uint8_t*>(copy.get());
                checkpoint_->copies_.push_back(std::move(copy));
            } else if (name.ends_with(".engram.embed.weight") ||
                       name.ends_with(".engram.embed.scale")) {
                shard.advise_random(*found.info);
            }
            checkpoint_->tensors_.emplace(name, std::move(view));
        }
        return {};
    }

    struct Found {
        std::size_t shard = 0;
        const TensorInfo* info = nullptr;
        bool expected = false;
    };

    std::unique_ptr<Checkpoint> checkpoint_;
    const CheckpointOptions& options_;
    Findings findings_;
    bool has_index_ = false;
    std::optional<std::uint64_t> total_size_;
    std::vector<std::string> shard_names_;
    std::map<std::string, std::size_t, std::less<>> shard_number_;
    std::map<std::string, std::size_t, std::less<>> placed_;  // by the index: name, shard
    std::map<std::string, Found, std::less<>> found_;         // in the shards
};

Result<std::shared_ptr<const Checkpoint>> Checkpoint::open(const std::string& dir,
                                                           const CheckpointOptions& options) {
    return CheckpointOpener(dir, options).open();
}

Checkpoint::~Checkpoint() = default;

bool Checkpoint::has(std::string_view name) const {
    return tensors_.contains(name);
}

TensorRef Checkpoint::tensor(std::string_view name) const {
    const auto found = tensors_.find(name);
    FATHOM_CHECK(found != tensors_.end(), name);
    return found->second;
}

WeightSource Checkpoint::weight(std::string_view name) const {
    const std::string base(name);
    const TensorRef codes = tensor(base + ".weight");
    FATHOM_CHECK(codes.shape.size() == 2, name);
    WeightSource source;
    source.out = codes.shape[0];
    source.in = codes.shape[1];
    source.codes = codes.data;
    switch (codes.type) {
        case TensorType::f8_e4m3:
            source.format = WeightFormat::fp8_block32;
            source.scales = tensor(base + ".scale").data;
            return source;
        case TensorType::i8:
            source.format = WeightFormat::fp4_row32;
            source.in *= 2;  // two codes a byte
            source.scales = tensor(base + ".scale").data;
            return source;
        case TensorType::f32:
            source.format = WeightFormat::f32;
            return source;
        default:
            FATHOM_CHECK(codes.type == TensorType::bf16, name);
            source.format = WeightFormat::bf16;
            return source;
    }
}

EngramTable Checkpoint::engram_table(int layer) const {
    const WeightSource source = weight(fmt::format("layers.{}.engram.embed", layer));
    return {source.format, source.out, source.in, source.codes, source.scales};
}

const Bf16* Checkpoint::bf16(std::string_view name) const {
    const TensorRef found = tensor(name);
    FATHOM_CHECK(found.type == TensorType::bf16, name);
    return reinterpret_cast<const Bf16*>(found.data);
}

const float* Checkpoint::f32(std::string_view name) const {
    const TensorRef found = tensor(name);
    FATHOM_CHECK(found.type == TensorType::f32, name);
    return reinterpret_cast<const float*>(found.data);
}

void Checkpoint::drop_pages() const {
    for (const auto& shard : shards_)
        shard->drop_pages();
}

}  // namespace fathom
