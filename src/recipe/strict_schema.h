// Schemas of tools and answer formats that were declared `strict` (recipe.md 4.7): a small part of
// JSON Schema, in which every property is required and no other is allowed.
//
// A node is what its `type` says (an object, an array, a scalar, or a list of scalar types), else
// the alternatives of `anyOf`, else a `$ref`, whose target is not looked at. Keys that do not
// belong to the node's kind are dropped, `$defs` and `definitions` among them; null counts as
// absent.
#pragma once

#include "base/json.h"
#include "base/result.h"

namespace fathom {

// The parameters of a strict tool, written anew: known keys in a fixed order, objects closed, all
// properties required. null stands for an object without properties. invalid_argument with the
// message for the client.
Result<Json> normalize_strict_parameters(const Json& schema);

// The schema of a strict answer format, written anew for the output constraint; the prompt shows it
// as it came.
Result<Json> normalize_strict_format(const Json& schema);

}  // namespace fathom
