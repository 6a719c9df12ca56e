// check_request (sequence.h): what add() refuses for its content.
#include <algorithm>
#include <cstddef>

#include "engine/sampler.h"
#include "engine/sequence.h"

namespace fathom {

namespace {

std::int64_t size_of(const std::vector<TokenId>& ids) {
    return static_cast<std::int64_t>(ids.size());
}

Status check_ids(const char* field, const std::vector<TokenId>& ids, const ModelConfig& model) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
        if (ids[i] < 0 || ids[i] >= model.vocab_size)
            return invalid_argument("{}[{}] is token {}; ids of this model are 0 to {}", field, i,
                                    ids[i], model.vocab_size - 1);
    }
    return {};
}

Status check_lengths(const EngineRequest& request, const ModelConfig& model, const PagePool& pool) {
    const std::int64_t prompt = size_of(request.prompt);
    if (prompt == 0) return invalid_argument("prompt is empty; it must hold at least one token");
    if (prompt >= model.max_positions)
        return invalid_argument(
            "prompt has {} tokens; it must have fewer than the model's {} positions", prompt,
            model.max_positions);
    if (request.max_tokens < 1)
        return invalid_argument("max_tokens is {}; it must be at least 1", request.max_tokens);
    const std::int64_t limit = output_limit(request, model);
    if (size_of(request.committed) > limit)
        return invalid_argument("committed has {} tokens; at most {} outputs are allowed",
                                request.committed.size(), limit);
    const std::int64_t rows = prompt + limit - 1;  // the last output is never run
    const std::int64_t pages = (rows + kPageTokens - 1) / kPageTokens;
    if (pages > pool.total())
        return invalid_argument(
            "prompt of {} tokens and {} outputs need {} KV pages; the engine has {}", prompt, limit,
            pages, pool.total());
    return {};
}

Status check_branches(const EngineRequest& request) {
    if (request.branches.empty()) return {};
    if (request.branches.size() >= kChoicesMax)
        return invalid_argument("{} choices are asked for; at most {} are allowed",
                                request.branches.size() + 1, kChoicesMax);
    if (!request.committed.empty())
        return invalid_argument(
            "committed has {} tokens; a request of {} choices must begin with none",
            request.committed.size(), request.branches.size() + 1);
    return {};
}

Status check_prefill(const EngineRequest& request) {
    const bool has_tail =
        request.prefill == PrefillMode::tail || request.prefill == PrefillMode::masked;
    if (request.override_prefill && has_tail && request.tail_tokens < 1)
        return invalid_argument("tail_tokens is {}; prefill mode {} needs at least 1",
                                request.tail_tokens, prefill_mode_name(request.prefill));
    if (request.logits_begin < -1)
        return invalid_argument("logits_begin is {}; it must be -1 (off) or a position",
                                request.logits_begin);
    return {};
}

Status check_image(const EngineRequest& request) {
    const std::int64_t prompt = size_of(request.prompt);
    if (!request.in_image.empty() && request.in_image.size() != request.prompt.size())
        return invalid_argument(
            "in_image has {} entries; it must be empty or match the prompt's {}",
            request.in_image.size(), prompt);
    std::int64_t end = 0;
    for (std::size_t i = 0; i < request.embeddings.size(); ++i) {
        const EmbeddingSpan& span = request.embeddings[i];
        if (span.start < end || span.count < 1 || span.count > prompt - span.start)
            return invalid_argument(
                "embeddings[{}] covers {} rows from position {}; spans must ascend without overlap "
                "within the prompt's {} tokens",
                i, span.count, span.start, prompt);
        if (span.rows == nullptr) return invalid_argument("embeddings[{}] has no rows", i);
        end = span.start + span.count;
    }
    return {};
}

Status check_replays(const EngineRequest& request, const EngineConfig& config,
                     std::int64_t window) {
    if (!request.replays.has_value() || request.replays->empty()) return {};
    const PrefillMode mode = request.override_prefill ? request.prefill : config.prefill;
    if (mode == PrefillMode::exact || mode == PrefillMode::halo)
        return invalid_argument("replays has {} entries; prefill mode {} allows none",
                                request.replays->size(), prefill_mode_name(mode));
    const std::int64_t prompt = size_of(request.prompt);
    std::int64_t before = std::max(window, kPageTokens) - 1;
    for (std::size_t i = 0; i < request.replays->size(); ++i) {
        const std::int64_t at = (*request.replays)[i];
        if (at % kPageTokens != 0 || at <= before || at > prompt)
            return invalid_argument(
                "replays[{}] is {}; it must be a multiple of {} above {} and within the prompt's "
                "{} "
                "tokens",
                i, at, kPageTokens, before, prompt);
        before = at;
    }
    return {};
}

Status check_chunk_ends(const EngineRequest& request) {
    const std::int64_t prompt = size_of(request.prompt);
    std::int64_t before = 0;
    for (std::size_t i = 0; i < request.chunk_ends.size(); before = request.chunk_ends[i++])
        if (request.chunk_ends[i] <= before || request.chunk_ends[i] > prompt)
            return invalid_argument(
                "chunk_ends[{}] is {}; positions must ascend from 1 and lie within the prompt's {} "
                "tokens",
                i, request.chunk_ends[i], prompt);
    return {};
}

Status check_reuse(const EngineRequest& request, const EngineConfig& config,
                   const ModelConfig& model) {
    if (!request.image_digests.empty() && request.image_digests.size() != request.embeddings.size())
        return invalid_argument(
            "image_digests has {} entries; it must be empty or match the {} "
            "embedding spans",
            request.image_digests.size(), request.embeddings.size());
    if (request.cache_salt.size() > kCacheSaltMax)
        return invalid_argument("cache_salt has {} bytes; at most {} are allowed",
                                request.cache_salt.size(), kCacheSaltMax);
    return check_replays(request, config, model.window);
}

}  // namespace

Status check_request(const EngineRequest& request, const EngineConfig& config,
                     const ModelConfig& model, const PagePool& pool) {
    FATHOM_RETURN_IF_ERROR(check_lengths(request, model, pool));
    FATHOM_RETURN_IF_ERROR(check_ids("prompt", request.prompt, model));
    FATHOM_RETURN_IF_ERROR(check_ids("committed", request.committed, model));
    FATHOM_RETURN_IF_ERROR(check_ids("stop_tokens", request.stop_tokens, model));
    FATHOM_RETURN_IF_ERROR(validate_sampling(request.sampling, model.vocab_size));
    FATHOM_RETURN_IF_ERROR(check_branches(request));
    FATHOM_RETURN_IF_ERROR(check_prefill(request));
    FATHOM_RETURN_IF_ERROR(check_image(request));
    FATHOM_RETURN_IF_ERROR(check_chunk_ends(request));
    return check_reuse(request, config, model);
}

}  // namespace fathom
