// Whether a JSON value is a JSON Schema (recipe.md 4.1): keywords have values of their types,
// patterns compile, references lead to something inside the schema. Draft 2020-12 and, where
// `$schema` names them, the drafts before it. Nothing is fetched. Linear in the schema, times the
// logarithm of the size of its objects.
#pragma once

#include "base/json.h"
#include "base/result.h"

namespace fathom {

// invalid_argument says what is wrong, in the words of the reference's validator for common faults.
Status check_json_schema(const Json& schema);

}  // namespace fathom
