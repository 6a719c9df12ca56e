#include "cli/verify/case.h"

#include <cstring>
#include <filesystem>
#include <utility>

#include "base/formats.h"

namespace fathom::verify {

namespace {

template <typename Int>
Result<std::vector<Int>> int_list(const Json& object, std::string_view key,
                                  std::string_view where) {
    std::vector<Int> list;
    const Json* value = object.find(key);
    if (value == nullptr) return list;
    if (!value->is_array())
        return invalid_argument("{}.{}: expected an array, got {}", where, key, value->kind_name());
    for (const Json& item : value->items()) {
        if (item.kind() != Json::Kind::integer || !std::in_range<Int>(item.as_int64()))
            return invalid_argument("{}.{}: expected integers of {} bits, got {}", where, key,
                                    8 * sizeof(Int), item.dump());
        list.push_back(static_cast<Int>(item.as_int64()));
    }
    return list;
}

std::int64_t int_or(const Json& object, std::string_view key, std::int64_t fallback) {
    const Json* value = object.find(key);
    return value != nullptr && value->kind() == Json::Kind::integer ? value->as_int64() : fallback;
}

Result<GoldenSequence> read_sequence(const Json& json, const std::string& where) {
    GoldenSequence s;
    FATHOM_ASSIGN(s.name, json_string(json, "name", where));
    FATHOM_ASSIGN(s.ids, int_list<TokenId>(json, "ids", where));
    FATHOM_ASSIGN(s.prompt, json_int(json, "prompt", where));
    if (s.prompt < 1 || s.prompt > static_cast<std::int64_t>(s.ids.size()))
        return invalid_argument("{}.prompt: {} is outside 1..{}", where, s.prompt, s.ids.size());
    FATHOM_ASSIGN(s.lengths, int_list<std::int64_t>(json, "lengths", where));
    FATHOM_ASSIGN(s.chunks, int_list<std::int64_t>(json, "chunks", where));
    s.activations = int_or(json, "activations", 0);
    const auto check_range = [&](std::string_view key, std::int64_t value, std::int64_t low,
                                 std::int64_t high) -> Status {
        if (value >= low && value <= high) return {};
        return invalid_argument("{}.{}: {} is outside {}..{}", where, key, value, low, high);
    };
    for (const std::int64_t length : s.lengths)
        FATHOM_RETURN_IF_ERROR(check_range("lengths", length, 1, s.prompt));
    for (const std::int64_t chunk : s.chunks)
        FATHOM_RETURN_IF_ERROR(check_range("chunks", chunk, 1, 32768));
    FATHOM_RETURN_IF_ERROR(check_range("activations", s.activations, 0, s.prompt));
    FATHOM_ASSIGN(s.token_types, int_list<std::int32_t>(json, "token_types", where));
    if (const Json* images = json.find("images"); images != nullptr && images->is_array())
        for (const Json& image : images->items()) {
            GoldenSequence::Image span;
            span.start = int_or(image, "start", 0);
            FATHOM_ASSIGN(span.types, int_list<std::int32_t>(image, "types", where + ".images"));
            s.images.push_back(std::move(span));
        }
    return s;
}

Result<GoldenRun> read_run(const Json& json, const GoldenCase& c, const std::string& where) {
    GoldenRun run;
    FATHOM_ASSIGN(run.name, json_string(json, "name", where));
    FATHOM_ASSIGN(run.kind, json_string(json, "kind", where));
    FATHOM_ASSIGN(std::string sequence, json_string(json, "sequence", where));
    while (run.sequence < c.sequences.size() && c.sequences[run.sequence].name != sequence)
        ++run.sequence;
    if (run.sequence == c.sequences.size())
        return invalid_argument("{}.sequence: no sequence is called {}", where, sequence);
    const GoldenSequence& s = c.sequences[run.sequence];
    FATHOM_ASSIGN(run.tokens, int_list<TokenId>(json, "tokens", where));
    FATHOM_ASSIGN(run.prompt_ids, int_list<TokenId>(json, "ids", where));
    if (run.prompt_ids.empty()) {
        const std::int64_t prompt = int_or(json, "prompt", s.prompt);
        if (prompt < 1 || prompt > static_cast<std::int64_t>(s.ids.size()))
            return invalid_argument("{}.prompt: {} is outside 1..{}", where, prompt, s.ids.size());
        run.prompt_ids.assign(s.ids.begin(), s.ids.begin() + prompt);
    }
    run.hit = int_or(json, "hit", 0);
    run.rows = int_or(json, "rows", 0);
    run.steps = int_or(json, "steps", 0);
    const Json* activations = json.find("activations");
    run.activations = activations != nullptr && activations->is_bool() && activations->as_bool();
    return run;
}

}  // namespace

const char* mode_suffix(NumericMode mode) {
    return mode == NumericMode::fp32 ? "_fp32" : "";
}

bool GoldenCase::has_mode(NumericMode mode) const {
    return std::filesystem::exists(dir + "/expected" + mode_suffix(mode) + ".safetensors");
}

bool GoldenCase::greedy_is_stable(const std::string& run) const {
    if (!report) return false;
    const Json* node = report->find("runs");
    if (node != nullptr) node = node->find(run);
    if (node != nullptr) node = node->find("same_tokens_under_three_accumulation_orders");
    if (node == nullptr || !node->is_array()) return false;
    for (const Json& same : node->items())
        if (!same.is_bool() || !same.as_bool()) return false;
    return true;
}

Result<GoldenCase> load_case(const std::string& dir) {
    GoldenCase c;
    c.dir = dir;
    FATHOM_ASSIGN(Json inputs, parse_json_file(dir + "/inputs.json"));
    const std::string where = dir + "/inputs.json";
    FATHOM_ASSIGN(c.name, json_string(inputs, "case", where));
    FATHOM_ASSIGN(std::string checkpoint, json_string(inputs, "checkpoint", where));
    c.checkpoint_dir = dir + "/" + checkpoint;
    if (const Json* overrides = inputs.find("text_config_overrides");
        overrides != nullptr && overrides->is_object() && !overrides->members().empty())
        c.overrides = *overrides;
    const Json* sequences = inputs.find("sequences");
    const Json* runs = inputs.find("runs");
    if (sequences == nullptr || !sequences->is_array() || runs == nullptr || !runs->is_array())
        return invalid_argument("{}: needs the arrays sequences and runs", where);
    for (const Json& json : sequences->items()) {
        FATHOM_ASSIGN(GoldenSequence s, read_sequence(json, where + ": sequences"));
        c.sequences.push_back(std::move(s));
    }
    for (const Json& json : runs->items()) {
        FATHOM_ASSIGN(GoldenRun run, read_run(json, c, where + ": runs"));
        c.runs.push_back(std::move(run));
    }
    if (std::filesystem::exists(dir + "/report.json")) {
        FATHOM_ASSIGN(Json report, parse_json_file(dir + "/report.json"));
        c.report = std::move(report);
    }
    if (!c.has_mode(NumericMode::real) && !c.has_mode(NumericMode::fp32))
        return Status(StatusCode::not_found,
                      dir + ": neither expected.safetensors nor expected_fp32.safetensors");
    return c;
}

std::int64_t GoldenTensor::width() const {
    std::int64_t width = 1;
    for (std::size_t i = 1; i < shape.size(); ++i)
        width *= shape[i];
    return width;
}

namespace {

template <typename T>
T load_as(const std::uint8_t* data, std::size_t i) {
    T value;
    std::memcpy(&value, data + i * sizeof(T), sizeof(T));
    return value;
}

}  // namespace

std::optional<GoldenTensor> read_tensor(const SafetensorsFile& file, const std::string& name) {
    Result<TensorRef> ref = file.tensor(name);
    if (!ref.ok()) return std::nullopt;
    GoldenTensor tensor{.shape = ref->shape, .values = {}};
    const auto n = static_cast<std::size_t>(ref->elements());
    tensor.values.resize(n);
    for (std::size_t i = 0; i < n; ++i) {
        float& value = tensor.values[i];
        switch (ref->type) {
            case TensorType::f32:
                value = load_as<float>(ref->data, i);
                break;
            case TensorType::bf16:
                value = bf16_to_float(load_as<Bf16>(ref->data, i));
                break;
            case TensorType::i32:
                value = static_cast<float>(load_as<std::int32_t>(ref->data, i));
                break;
            case TensorType::i64:
                value = static_cast<float>(load_as<std::int64_t>(ref->data, i));
                break;
            case TensorType::u8:
                value = static_cast<float>(ref->data[i]);
                break;
            default:
                return std::nullopt;
        }
    }
    return tensor;
}

}  // namespace fathom::verify
