// Tool declarations of Responses requests (recipe.md 4.5): functions, namespaces of functions,
// apply_patch, and the search for tools that the client runs. The same form stands in the request's
// `tools` and in the results of a search.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "recipe/conversation.h"
#include "recipe/protocols/lower_common.h"
#include "recipe/protocols/lower_options.h"
#include "recipe/protocols/responses_events.h"

namespace fathom {

// The name by which the model calls a function of a namespace.
std::string namespace_member_name(std::string_view space, std::string_view local, Dialect dialect);

struct ResponsesTools {
    std::vector<Tool> tools;
    Json repeated = Json::array();   // as the response repeats the declarations
    Json functions = Json::array();  // every function, in the form of a search's result
    std::map<std::string, NamespaceTool> namespace_tools;
    std::vector<std::string> custom_tools;
    bool tool_search = false;
};

// Reads declarations of one request, list after list: names are made unique over all of them.
class ResponsesToolReader {
  public:
    ResponsesToolReader(Dialect dialect, ServerTools server_tools)
        : dialect_(dialect), server_tools_(server_tools) {}

    // `path` names the list in errors: "tools", "input[2].tools".
    Result<ResponsesTools> read(Json::Array& declarations, std::string_view path);

  private:
    Status read_one(Json& declaration, const std::string& path, ResponsesTools& out);
    Status read_function_tool(Fields& fields, const std::string& path, ResponsesTools& out);
    Status read_namespace(Fields& fields, const std::string& path, ResponsesTools& out);
    Status read_member(Json& member, const std::string& path, const FunctionFields& space,
                       Json& repeated, ResponsesTools& out);
    Status read_custom(Fields& fields, ResponsesTools& out);
    Status read_tool_search(Fields& fields, const std::string& path, ResponsesTools& out);
    std::string unused_name(const std::string& name);

    Dialect dialect_;
    ServerTools server_tools_;
    std::set<std::string> member_names_;
    std::map<std::string, int> next_suffix_;
    std::size_t description_bytes_ = 0;  // that namespaces add to their members
};

}  // namespace fathom
