// Checks and rules that lowering shares between the protocols (recipe.md 4.1). Statuses are
// invalid_argument with the reference's sentence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "recipe/protocols/fields.h"
#include "recipe/protocols/image_source.h"
#include "recipe/protocols/lower_options.h"
#include "recipe/protocols/lowered_request.h"

namespace fathom {

// ------------------------------------------------------------------------------------- messages

// Blocks of one content list, joined by an empty line (4.2). Images are placed where the dialect
// has them, else a text says that one was there.
class ContentBlocks {
  public:
    explicit ContentBlocks(Dialect dialect) : dialect_(dialect) {}
    void add_text(std::string_view text);
    void add_image(ImageSource source);  // in V4 the source is dropped

    MessageText text;
    std::vector<ImageSource> images;  // as many as text.images

  private:
    void begin_block();
    Dialect dialect_;
    bool has_blocks_ = false;
};

struct LoweredMessage {
    Message message;
    std::vector<ImageSource> images = {};  // as many as message.content.images
};

// Moves the messages into the conversation and their images into image_sources.
void place_messages(std::vector<LoweredMessage> messages, LoweredRequest& request);

// Without tools nothing is announced either: takes the tools out of system messages, and the
// messages that then say nothing.
void drop_announcements(std::vector<LoweredMessage>& messages);

// Whether some content has the letters "json", in any case.
bool mentions_json(const std::vector<LoweredMessage>& messages);

// In thinking mode every assistant message gets a reasoning, else none keeps it (2.8). `field` is
// what the protocol calls it.
Status settle_reasoning(std::vector<LoweredMessage>& messages, bool thinking,
                        MissingReasoning missing, std::string_view field);

// -------------------------------------------------------------------------------- mode and model

Result<Dialect> dialect_of_model(const std::string& model, const LowerOptions& options);

// A name of 4.1; "none" means no thinking. Or, in the profile `open`, a number (2.4).
struct RequestedEffort {
    bool off = false;
    ReasoningEffort effort = ReasoningEffort::high;
    std::optional<int> percent = {};  // 1..100
};
// Absent and null: none given. `name` is what the request calls it.
Result<std::optional<RequestedEffort>> read_effort(Json* value, std::string_view name,
                                                   Profile profile);
// The `thinking` object of Chat and Messages: enabled or adaptive, disabled; absent: not said.
Result<std::optional<bool>> read_thinking(Json* value, std::string_view expected);
// An explicit `enabled` decides, then the effort, then the default.
// The only fault is a number for a model that knows none.
Status settle_thinking(std::optional<bool> enabled, std::optional<RequestedEffort> effort,
                       const LowerOptions& options, LoweredRequest& request);

// ----------------------------------------------------------------------------------------- tools

struct FunctionFields {
    std::string name = {};
    std::optional<std::string> description = {};
    std::optional<Json> parameters = {};  // null counts as absent
    std::optional<bool> strict = {};
};
Result<FunctionFields> read_function(Fields& fields);

// `path` is where the name stands in the request, for messages: "tools[0].function.name".
Status check_tool_name(const std::string& name, std::string_view path);
// A schema of an object.
Status check_tool_schema(const Json& schema, const std::string& function);
// Checks name and schema; a strict schema is written anew (4.7).
Result<Tool> lower_function(FunctionFields function, std::string_view path);
// Names differ; strict and other tools are not mixed.
Status check_tools_together(const std::vector<Tool>& tools, bool strict_matters);

// A tool_choice before it meets the tools: a kind, or the name of one function.
struct RequestedChoice {
    ToolChoice kind = ToolChoice::automatic;
    std::optional<std::string> function = {};
};
// Leaves the tools that may be called. Without tools any choice but none is automatic.
Status settle_tool_choice(RequestedChoice choice, Conversation& conversation);

// ------------------------------------------------------------------------- response format, rest

// A json_schema answer format: the schema for the prompt is as it came, the one for generation is
// the strict one.
struct FormatSchema {
    Json schema;
    bool strict = false;
};
// Sets format and output constraint; tools win over a format, so they come first.
Status settle_schema_format(FormatSchema format, Conversation& conversation,
                            OutputConstraint& constraint);

// Checked as they come; used as 4.1 says.
struct Sampling {
    std::optional<float> temperature, top_p;
};
Status check_temperature(const Sampling& sampling);
Status check_top_p(const Sampling& sampling);
Status check_top_logprobs(std::optional<std::uint64_t> count);
Status check_stop_sequences(const std::vector<std::string>& stops, bool is_list);
std::int64_t max_tokens_bound(bool thinking, const LowerOptions& options);
Status check_max_tokens(std::optional<std::uint64_t> tokens, bool thinking,
                        const LowerOptions& options, std::string_view name = "max_tokens");

// What follows from the conversation: sampling, the constraint of tools, parsing options.
void settle_generation(const Sampling& sampling, const LowerOptions& options,
                       LoweredRequest& request);

}  // namespace fathom
