// How long a request's KV should live where it is stored (kvpool.md 6): agents come back within
// days, chats within a week, prefixes that an operator approved stay while they are used, and what
// is ephemeral is gone within the hour.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace fathom {

enum class TrafficClass : std::uint8_t { agent, chatbot, system, ephemeral };
inline constexpr int kTrafficClasses = 4;
std::string_view traffic_class_name(TrafficClass traffic_class);
Result<TrafficClass> parse_traffic_class(std::string_view name);

}  // namespace fathom
