#include "cli/bench/workload.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "base/input_file.h"
#include "base/random.h"

namespace fathom {
namespace {

constexpr std::int64_t kTokensMax = 16 << 20;
constexpr std::int64_t kBytesPerToken = 4;  // where there is no tokenizer
constexpr std::size_t kTokensLeast = 4;     // shorter turns are left out, as other benchmarks do

// The purposes of one seed never share numbers.
enum Stream : std::uint64_t { kShuffle = 1, kLengths, kPrompts, kArrivals };
RandomStream stream_of(std::uint64_t seed, Stream stream) {
    return RandomStream(seed * 8 + stream);
}

std::size_t token_count(std::string_view text, const DatasetOptions& options) {
    if (options.tokenizer != nullptr) return options.tokenizer->encode(text, false).size();
    return (text.size() + kBytesPerToken - 1) / kBytesPerToken;
}

// A member that must be a non-negative integer where it is given.
Result<std::int64_t> token_field(const Json& object, std::string_view key, std::int64_t otherwise,
                                 std::string_view where) {
    const Json* value = object.find(key);
    if (value == nullptr || value->is_null()) return otherwise;
    if (value->kind() != Json::Kind::integer || value->as_int64() < 1 ||
        value->as_int64() > kTokensMax)
        return invalid_argument("{}: {}: expected an integer from 1 to {}, got {}", where, key,
                                kTokensMax,
                                value->is_number() ? value->dump() : value->kind_name());
    return value->as_int64();
}

Result<std::vector<TokenId>> read_ids(const Json& list, std::string_view where) {
    std::vector<TokenId> ids;
    for (std::size_t i = 0; i < list.items().size(); ++i) {
        const Json& item = list.items()[i];
        if (item.kind() != Json::Kind::integer || item.as_int64() < 0 ||
            item.as_int64() > INT32_MAX)
            return invalid_argument("{}: prompt[{}]: expected a token id, got {}", where, i,
                                    item.is_number() ? item.dump() : item.kind_name());
        ids.push_back(static_cast<TokenId>(item.as_int64()));
    }
    return ids;
}

Status check_messages(const Json& messages, std::string_view where) {
    if (!messages.is_array() || messages.items().empty())
        return invalid_argument("{}: messages: expected a list that is not empty, got {}", where,
                                messages.kind_name());
    for (std::size_t i = 0; i < messages.items().size(); ++i) {
        const Json& message = messages.items()[i];
        for (const char* key : {"role", "content"}) {
            const Json* value = message.is_object() ? message.find(key) : nullptr;
            if (value == nullptr || !value->is_string())
                return invalid_argument("{}: messages[{}].{}: expected a string, got {}", where, i,
                                        key, value == nullptr ? "nothing" : value->kind_name());
        }
    }
    return {};
}

Result<LoadRequest> read_line(const Json& line, std::string_view where,
                              const DatasetOptions& options) {
    if (!line.is_object())
        return invalid_argument("{}: expected an object, got {}", where, line.kind_name());
    LoadRequest request;
    FATHOM_ASSIGN(const std::int64_t fallback,
                  token_field(line, "output_tokens", options.output_tokens, where));
    FATHOM_ASSIGN(request.max_tokens, token_field(line, "max_tokens", fallback, where));
    const Json* prompt = line.find("prompt");
    if (const Json* messages = line.find("messages"); messages != nullptr) {
        if (prompt != nullptr)
            return invalid_argument("{}: has both prompt and messages, expected one", where);
        FATHOM_RETURN_IF_ERROR(check_messages(*messages, where));
        request.messages = *messages;
        return request;
    }
    if (prompt == nullptr) return invalid_argument("{}: has neither prompt nor messages", where);
    if (prompt->is_array()) {
        FATHOM_ASSIGN(request.ids, read_ids(*prompt, where));
    } else if (prompt->is_string()) {
        request.text = prompt->as_string();
    } else {
        return invalid_argument("{}: prompt: expected a string or a list of token ids, got {}",
                                where, prompt->kind_name());
    }
    if (request.text.empty() && request.ids.empty())
        return invalid_argument("{}: prompt: is empty", where);
    return request;
}

// Fisher-Yates by the seed, then as many as wanted, from the beginning again where they run out.
void choose(std::vector<LoadRequest>& requests, const DatasetOptions& options, bool shuffled) {
    RandomStream random = stream_of(options.seed, kShuffle);
    for (std::size_t i = requests.size(); shuffled && i > 1; --i)
        std::swap(requests[i - 1], requests[random.next_below(i)]);
    if (options.count == 0) return;
    const auto wanted = static_cast<std::size_t>(options.count);
    const std::size_t given = requests.size();
    if (wanted < given) requests.resize(wanted);
    for (std::size_t i = given; i < wanted; ++i)
        requests.push_back(requests[i - given]);
}

std::int64_t random_length(std::int64_t mean, double spread, RandomStream& random) {
    const auto low = std::max<std::int64_t>(
        1, static_cast<std::int64_t>(static_cast<double>(mean) * (1 - spread)));
    const auto high =
        std::max(low, static_cast<std::int64_t>(static_cast<double>(mean) * (1 + spread)));
    return low +
           static_cast<std::int64_t>(random.next_below(static_cast<std::uint64_t>(high - low + 1)));
}

// Short common words, each one token in the vocabularies of today.
constexpr const char* kWords[] = {" the", " of",  " and", " to",   " in",   " is",  " it",
                                  " for", " on",  " as",  " with", " that", " by",  " at",
                                  " be",  " not", " or",  " from", " this", " one", " can"};

std::vector<LoadRequest> random_requests(const DatasetOptions& options) {
    RandomStream lengths = stream_of(options.seed, kLengths);
    RandomStream tokens = stream_of(options.seed, kPrompts);
    std::vector<TokenId> ids;
    if (options.tokenizer != nullptr) {
        std::set<TokenId> special;
        for (const AddedToken& token : options.tokenizer->added_tokens())
            special.insert(token.id);
        for (TokenId id = 0; id < options.tokenizer->vocab_size(); ++id)
            if (!special.contains(id) && !options.tokenizer->bytes(id).empty()) ids.push_back(id);
    }
    std::vector<LoadRequest> requests(static_cast<std::size_t>(options.count));
    for (LoadRequest& request : requests) {
        const std::int64_t length = random_length(options.input_tokens, options.spread, lengths);
        request.max_tokens = random_length(options.output_tokens, options.spread, lengths);
        for (std::int64_t i = 0; i < length; ++i) {
            if (!ids.empty())
                request.ids.push_back(ids[tokens.next_below(ids.size())]);
            else
                request.text += kWords[tokens.next_below(std::size(kWords))];
        }
    }
    return requests;
}

// Marsaglia and Tsang, "A simple method for generating gamma variables" (2000); below shape 1 by
// the usual power of a uniform.
double gamma(double shape, RandomStream& random) {
    if (shape < 1) return gamma(shape + 1, random) * std::pow(1 - random.next_uniform(), 1 / shape);
    const double d = shape - 1.0 / 3;
    const double c = 1 / std::sqrt(9 * d);
    while (true) {
        const double x = random.next_normal();
        const double v = std::pow(1 + c * x, 3);
        if (v <= 0) continue;
        const double u = 1 - random.next_uniform();
        if (std::log(u) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v;
    }
}

}  // namespace

Result<std::vector<LoadRequest>> read_sharegpt(const Json& root, std::string_view where,
                                               const DatasetOptions& options) {
    if (!root.is_array())
        return invalid_argument("{}: expected a list of conversations, got {}", where,
                                root.kind_name());
    std::vector<LoadRequest> requests;
    for (std::size_t i = 0; i < root.items().size(); ++i) {
        const Json& entry = root.items()[i];
        const Json* turns = entry.is_object() ? entry.find("conversations") : nullptr;
        if (turns == nullptr || !turns->is_array())
            return invalid_argument("{}: [{}].conversations: expected a list, got {}", where, i,
                                    turns == nullptr ? "nothing" : turns->kind_name());
        if (turns->items().size() < 2) continue;
        std::string_view texts[2];
        for (std::size_t t = 0; t < 2; ++t) {
            const Json& turn = turns->items()[t];
            const Json* value = turn.is_object() ? turn.find("value") : nullptr;
            if (value == nullptr || !value->is_string())
                return invalid_argument(
                    "{}: [{}].conversations[{}].value: expected a string, got {}", where, i, t,
                    value == nullptr ? "nothing" : value->kind_name());
            texts[t] = value->as_string();
        }
        const std::size_t input = token_count(texts[0], options);
        const std::size_t output = token_count(texts[1], options);
        if (input < kTokensLeast || output < kTokensLeast ||
            input > static_cast<std::size_t>(options.prompt_tokens_max) ||
            input + output > static_cast<std::size_t>(options.total_tokens_max))
            continue;
        requests.push_back({.text = std::string(texts[0]),
                            .ids = {},
                            .messages = {},
                            .max_tokens = static_cast<std::int64_t>(output)});
    }
    return requests;
}

Result<std::vector<LoadRequest>> read_jsonl(std::string_view text, std::string_view where,
                                            const DatasetOptions& options) {
    std::vector<LoadRequest> requests;
    for (std::size_t number = 1; !text.empty(); ++number) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        std::string_view line = text.substr(0, end);
        text.remove_prefix(std::min(text.size(), end + 1));
        if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
        const std::string at = fmt::format("{}:{}", where, number);
        const Result<Json> json = parse_json(line);
        if (!json.ok()) return json.status().with_context(at);
        FATHOM_ASSIGN(LoadRequest request, read_line(*json, at, options));
        requests.push_back(std::move(request));
    }
    return requests;
}

Result<std::vector<LoadRequest>> make_workload(const DatasetOptions& options) {
    constexpr std::string_view kShareGpt = "sharegpt:", kJsonl = "jsonl:";
    const std::string& dataset = options.dataset;
    if (dataset == "random") return random_requests(options);
    const bool is_sharegpt = dataset.starts_with(kShareGpt);
    if (!is_sharegpt && !dataset.starts_with(kJsonl))
        return invalid_argument("dataset \"{}\": expected sharegpt:FILE, jsonl:FILE or random",
                                dataset);
    const std::string path = dataset.substr((is_sharegpt ? kShareGpt : kJsonl).size());
    FATHOM_ASSIGN(const std::string text, read_input_file(path));
    std::vector<LoadRequest> requests;
    if (is_sharegpt) {
        const Result<Json> root =
            parse_json(text, {.bytes_max = static_cast<std::size_t>(kInputFileBytesMax)});
        if (!root.ok()) return root.status().with_context(path);
        FATHOM_ASSIGN(requests, read_sharegpt(*root, path, options));
    } else {
        FATHOM_ASSIGN(requests, read_jsonl(text, path, options));
    }
    if (requests.empty()) return invalid_argument("{}: holds no request that can be sent", path);
    choose(requests, options, is_sharegpt);
    return requests;
}

std::vector<std::int64_t> arrival_times_us(std::int64_t count, double rate, double burstiness,
                                           std::uint64_t seed) {
    RandomStream random = stream_of(seed, kArrivals);
    std::vector<std::int64_t> times;
    double at_s = 0;
    for (std::int64_t i = 0; i < count; ++i) {
        times.push_back(static_cast<std::int64_t>(at_s * 1e6));
        at_s += gamma(burstiness, random) / (burstiness * rate);
    }
    return times;
}

}  // namespace fathom
