#include "recipe/protocols/open_settings.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <utility>

namespace fathom {
namespace {

constexpr std::uint64_t kChoicesMax = 16;
constexpr std::size_t kLogitBiasMax = 1024;
constexpr std::size_t kAllowedTokensMax = 4096;
constexpr std::size_t kStopTokensMax = 16;
constexpr std::size_t kSaltBytesMax = 256;
constexpr std::int64_t kTokenIdMax = std::numeric_limits<std::int32_t>::max();

Status out_of_range(std::string_view key, const Json& value, std::string_view range) {
    return invalid_argument("Invalid {} value {}, the valid range of {} is {}", key, value.dump(),
                            key, range);
}

// Leaves `number` alone where the member is absent. `range` is how messages spell [low, high];
// written so that NaN fails.
Status read_number(Fields& body, std::string_view key, double low, double high,
                   std::string_view range, double& number) {
    const Json* member = body.present(key);
    if (member == nullptr) return {};
    if (!member->is_number()) return wrong_type_of(key, *member, "a number");
    // Ranges are those of 32-bit floats, as the reference checks what it knows.
    const double value = member->as_double();
    const auto narrow = static_cast<float>(std::clamp(value, -1e30, 1e30));
    if (!(narrow >= static_cast<float>(low) && narrow <= static_cast<float>(high)))
        return out_of_range(key, *member, range);
    number = std::clamp(value, low, high);
    return {};
}

Status read_integer(Fields& body, std::string_view key, std::int64_t low, std::string_view range,
                    std::int64_t& number) {
    const Json* member = body.present(key);
    if (member == nullptr) return {};
    if (!member->is_integer()) return wrong_type_of(key, *member, "an integer");
    const bool too_large = member->kind() == Json::Kind::unsigned_integer;
    if (too_large || member->as_int64() < low) return out_of_range(key, *member, range);
    number = member->as_int64();
    return {};
}

Result<std::int64_t> token_id(const Json& value, const std::string& place) {
    if (!value.is_integer()) return wrong_type_of(place, value, "a token id");
    const bool too_large = value.kind() == Json::Kind::unsigned_integer;
    if (too_large || value.as_int64() < 0 || value.as_int64() > kTokenIdMax)
        return invalid_argument("Invalid '{}': {} is not a token id in [0, 2^31)", place,
                                value.dump());
    return value.as_int64();
}

// A set: ascending, each id once.
Status read_token_ids(Fields& body, std::string_view key, std::size_t count_max,
                      std::vector<std::int64_t>& ids) {
    const Json* member = body.present(key);
    if (member == nullptr) return {};
    if (!member->is_array()) return wrong_type_of(key, *member, "a list of token ids");
    const Json::Array& items = member->items();
    if (items.empty() || items.size() > count_max)
        return invalid_argument("Invalid '{}': {} token ids, expected 1 to {}", key, items.size(),
                                count_max);
    for (std::size_t i = 0; i < items.size(); ++i) {
        FATHOM_ASSIGN(const std::int64_t id, token_id(items[i], fmt::format("{}[{}]", key, i)));
        ids.push_back(id);
    }
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    return {};
}

// {"token id": bias}
Status read_logit_bias(Fields& body, OpenSettings& open) {
    const Json* member = body.present("logit_bias");
    if (member == nullptr) return {};
    if (!member->is_object()) return wrong_type_of("logit_bias", *member, "a map");
    const Json::Object& biases = member->members();
    if (biases.size() > kLogitBiasMax)
        return invalid_argument("Invalid logit_bias: {} entries, at most {} are allowed",
                                biases.size(), kLogitBiasMax);
    for (const auto& [name, value] : biases) {
        std::int64_t id = -1;
        const char* end = name.data() + name.size();
        const auto [stop, fault] = std::from_chars(name.data(), end, id);
        if (fault != std::errc() || stop != end || id < 0 || id > kTokenIdMax)
            return invalid_argument(
                "Invalid logit_bias key {}: expected a token id in [0, 2^31) as a string",
                shown_value(Json(name)));
        if (!value.is_number())
            return wrong_type_of(fmt::format("logit_bias.{}", name), value, "a number");
        const double bias = value.as_double();
        if (!(bias >= -100 && bias <= 100))
            return invalid_argument(
                "Invalid logit_bias value {} of token {}, the valid range of logit_bias is "
                "[-100, 100]",
                value.dump(), id);
        open.logit_bias.emplace_back(id, bias);
    }
    std::sort(open.logit_bias.begin(), open.logit_bias.end());
    for (std::size_t i = 1; i < open.logit_bias.size(); ++i)
        if (open.logit_bias[i].first == open.logit_bias[i - 1].first)
            return invalid_argument("Invalid logit_bias: token {} is given twice",
                                    open.logit_bias[i].first);
    return {};
}

Result<std::optional<std::size_t>> read_name(Fields& body, std::string_view key,
                                             std::span<const std::string_view> names) {
    const Json* member = body.present(key);
    if (member == nullptr) return std::optional<std::size_t>();
    if (!member->is_string()) return wrong_type_of(key, *member, "a string");
    const auto found = std::find(names.begin(), names.end(), member->as_string());
    if (found == names.end())
        return invalid_argument("Invalid {} value {}, expected {}", key, shown_value(*member),
                                listed_names(names));
    return std::optional<std::size_t>(found - names.begin());
}

Status read_cache_settings(Fields& body, OpenSettings& open) {
    static constexpr std::array<std::string_view, 3> kReuse = {"any", "exact", "none"};
    FATHOM_ASSIGN(const auto reuse, read_name(body, "prefix_cache", kReuse));
    if (reuse) open.prefix_cache = kReuse[*reuse];
    const Json* salt = body.present("cache_salt");
    if (salt == nullptr) return {};
    if (!salt->is_string()) return wrong_type_of("cache_salt", *salt, "a string");
    open.cache_salt = salt->as_string();
    if (open.cache_salt.empty() || open.cache_salt.size() > kSaltBytesMax)
        return invalid_argument("Invalid 'cache_salt': expected 1 to {} bytes, got {}.",
                                kSaltBytesMax, open.cache_salt.size());
    return {};
}

Status read_logprob_settings(Fields& body, OpenSettings& open) {
    static constexpr std::array<std::string_view, 2> kModes = {"raw", "processed"};
    FATHOM_ASSIGN(const auto mode, read_name(body, "logprobs_mode", kModes));
    open.logprobs_processed = mode.value_or(0) == 1;
    if (body.present("prompt_logprobs") != nullptr)
        return invalid_argument(
            "`prompt_logprobs` is not supported: log probabilities are those of the answer");
    return {};
}

Status read_penalties(Fields& body, OpenSettings& open) {
    FATHOM_RETURN_IF_ERROR(
        read_number(body, "presence_penalty", -2, 2, "[-2, 2]", open.presence_penalty));
    FATHOM_RETURN_IF_ERROR(
        read_number(body, "frequency_penalty", -2, 2, "[-2, 2]", open.frequency_penalty));
    return read_number(body, "repetition_penalty", 0.01, 10, "[0.01, 10]", open.repetition_penalty);
}

}  // namespace

Status read_open_settings(Fields& body, LoweredRequest& request) {
    OpenSettings& open = request.open;
    FATHOM_RETURN_IF_ERROR(read_penalties(body, open));
    if (body.present("seed") != nullptr) {
        std::int64_t seed = 0;
        FATHOM_RETURN_IF_ERROR(read_integer(body, "seed", 0, "[0, 2^63)", seed));
        request.inference.seed = seed;
    }
    FATHOM_RETURN_IF_ERROR(read_integer(body, "top_k", -1, "[-1, 2^63)", open.top_k));
    open.top_k = std::max<std::int64_t>(open.top_k, 0);
    FATHOM_RETURN_IF_ERROR(read_number(body, "min_p", 0, 1, "[0, 1]", open.min_p));
    FATHOM_RETURN_IF_ERROR(read_logit_bias(body, open));
    FATHOM_RETURN_IF_ERROR(
        read_token_ids(body, "allowed_token_ids", kAllowedTokensMax, open.allowed_token_ids));
    FATHOM_RETURN_IF_ERROR(
        read_token_ids(body, "stop_token_ids", kStopTokensMax, open.stop_token_ids));
    FATHOM_RETURN_IF_ERROR(read_integer(body, "min_tokens", 0, "[0, 2^63)", open.min_tokens));
    if (const Json* ignore = body.present("ignore_eos")) {
        if (!ignore->is_bool()) return wrong_type_of("ignore_eos", *ignore, "a boolean");
        open.ignore_eos = ignore->as_bool();
    }
    FATHOM_RETURN_IF_ERROR(read_logprob_settings(body, open));
    return read_cache_settings(body, open);
}

Status check_choices(std::uint64_t choices, Profile profile) {
    if (choices == 1) return {};
    if (profile == Profile::reference)
        return invalid_argument("Invalid n value (currently only n = 1 is supported)");
    if (choices >= 1 && choices <= kChoicesMax) return {};
    return invalid_argument("Invalid n value, the valid range of n is [1, {}]", kChoicesMax);
}

Status read_stored_response(Fields& body, OpenSettings& open) {
    if (const Json* id = body.present("previous_response_id")) {
        if (!id->is_string()) return wrong_type_of("previous_response_id", *id, "a string");
        if (id->as_string().empty())
            return invalid_argument("Invalid 'previous_response_id': empty string.");
        open.previous_response_id = id->as_string();
    }
    if (const Json* store = body.present("store")) {
        if (!store->is_bool()) return wrong_type_of("store", *store, "a boolean");
        open.store = store->as_bool();
    }
    return {};
}

void repeat_open_settings(const OpenSettings& open, ResponsesEcho& echo) {
    echo.store = open.store;
    if (!open.previous_response_id.empty()) echo.previous_response_id = open.previous_response_id;
    echo.frequency_penalty = open.frequency_penalty;
    echo.presence_penalty = open.presence_penalty;
}

}  // namespace fathom
