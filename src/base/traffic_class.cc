#include "base/traffic_class.h"

#include <array>
#include <cstddef>

namespace fathom {

namespace {

constexpr std::array<std::string_view, kTrafficClasses> kNames = {"agent", "chatbot", "system",
                                                                  "ephemeral"};

}  // namespace

std::string_view traffic_class_name(TrafficClass traffic_class) {
    return kNames[static_cast<std::size_t>(traffic_class)];
}

Result<TrafficClass> parse_traffic_class(std::string_view name) {
    for (std::size_t i = 0; i < kNames.size(); ++i) {
        if (kNames[i] == name) return static_cast<TrafficClass>(i);
    }
    return invalid_argument("traffic class '{}' is none of agent, chatbot, system, ephemeral",
                            name);
}

}  // namespace fathom
