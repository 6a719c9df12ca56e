// Names of computed KV: a 32-byte key stands for the 128 rows of a block, and for everything that
// decided their bits (kvpool.md 4). Keys form a chain, so equal keys mean equal beginnings:
//
//   K_0 = SHA-256("kvpool/root/1" || namespace id)            what all blocks of a request share
//   K_i = SHA-256("kvpool/blk/1" || K_{i−1} || u32le(i) || 128 × u32le(token) || extras_i), i from
//   1
//
// The namespace describes the store (layout, formats, arithmetic) and the request's salt; extras
// name what token ids do not say: image content, and whether the encoder windows were rebuilt by a
// replay in front of the block. Pure functions; a key never depends on process, machine or time.
//
// What is not in a key, because it does not reach stored rows: the prefill mode and tail (they
// decide the decoder half, whose windows are never shared), sampling, chunking, and whether a row
// was a prompt's or a decoded one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/block_key.h"
#include "base/ids.h"
#include "base/sha256.h"
#include "model/kv_cache.h"
#include "model/model.h"

namespace fathom {

// Fields of a namespace description, in the order of their tags. A field that is absent differs
// from one that is empty. kv_identity.h makes those that name a model; a store within one process
// has only one and does without.
enum class NamespaceTag : std::uint16_t {
    format = 1,
    model_id = 2,
    weights = 3,
    tokenizer = 4,
    chat_template = 5,
    adapter = 6,
    kv_layout = 7,
    kv_formats = 8,
    block_tokens = 9,
    numerics = 10,
    parallel_layout = 11,
    share_group = 12,
    cache_salt = 13,
    one_request = 14,  // never stored beyond it
    attention = 15,
};
struct NamespaceField {
    NamespaceTag tag{};
    std::string value;
};
// What a model's stored rows depend on beside its weights.
std::vector<NamespaceField> kv_namespace(const KvLayout& layout, const ModelOptions& options);

// `fields` ascend by tag; `secret` is the share group's, empty where nobody else can ask.
NamespaceId namespace_id(std::span<const NamespaceField> fields, std::string_view secret);
// Of the requests of a share group: what decides the model's rows (kv_namespace and kv_identity, in
// any order), the group, and the request's salt; empty ones are absent.
NamespaceId tenant_namespace(std::vector<NamespaceField> fields, std::string_view share_group,
                             std::string_view cache_salt, std::string_view secret);
BlockKey root_key(const NamespaceId& ns);  // K_0

// The tokens of a request as keys see them. Views; in_image and spans as in EngineRequest.
struct KeyedTokens {
    std::span<const TokenId> ids;
    std::span<const std::uint8_t> in_image;       // beside ids, shorter, or empty
    std::span<const EmbeddingSpan> embeddings;    // ascending
    std::span<const Sha256Digest> image_digests;  // beside embeddings, or empty
};

// Leading blocks that can be named: complete ones, up to the first span without a digest.
std::int64_t nameable_blocks(const KeyedTokens& tokens);

// K_index of block `index` (from 1, at most nameable_blocks). `replayed`: the windows in front of
// it were rebuilt there.
BlockKey next_key(const BlockKey& parent, const KeyedTokens& tokens, std::int64_t index,
                  bool replayed);

// The whole name of that block, `key` being its own: what a store holds it by.
BlockName block_name(const NamespaceId& ns, const BlockKey& parent, const BlockKey& key,
                     const KeyedTokens& tokens, std::int64_t index);

// The keys of one run, each computed once: `replays` are the positions where its windows were
// rebuilt (Anchors::replays).
class BlockChain {
  public:
    BlockChain(const BlockKey& root, std::vector<std::int64_t> replays)
        : replays_(std::move(replays)), keys_{root} {}

    const std::vector<std::int64_t>& replays() const { return replays_; }
    bool replayed_before(std::int64_t index) const;  // in front of block `index`, from 1
    // K_index. Tokens of earlier blocks must be what they were.
    const BlockKey& key(const KeyedTokens& tokens, std::int64_t index);

  private:
    std::vector<std::int64_t> replays_;
    std::vector<BlockKey> keys_;
};

}  // namespace fathom
