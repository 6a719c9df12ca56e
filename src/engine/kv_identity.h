// What makes stored KV this model's and no other's: the fields of a namespace (block_key.h) that
// pages need once they outlive the process that made them (kvpool.md 4). Two engines that should
// share pages must agree in every one of them, and print the same namespace.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/block_key.h"
#include "model/config.h"

namespace fathom {

// Digests are text that is equal for equal things and different for others, e.g. hex of SHA-256.
struct ModelIdentity {
    std::string model_id;          // not the name it is served under, which may be reused
    std::string weights_digest;    // checkpoint_digest (model/packed_file.h)
    std::string tokenizer_digest;  // of tokenizer.json's bytes
    std::optional<std::string> chat_template_digest;
    std::optional<std::string> adapter_digest;
};

// Everything in `identity`, the parameters of attention and positions in `config`, and the parallel
// layout, which is "canonical": how ranks share the work does not reach stored rows.
std::vector<NamespaceField> kv_identity(const ModelIdentity& identity, const ModelConfig& config);

// One line for logs and for the metric that shows a namespace: "format=1 model_id=… …" in the order
// of tags. Salts and bytes that are not printable text are shown as the beginning of their digest.
std::string describe_namespace(std::span<const NamespaceField> fields);

// Computes names from fixed input and compares them with known ones, so that a process whose keys
// nobody else would find does not begin to write. internal when they differ.
Status check_block_names();

}  // namespace fathom
