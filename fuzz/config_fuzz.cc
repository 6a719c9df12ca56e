// config.json in either spelling. An accepted config must give whole roles and an inventory whose
// sizes fit 63 bits.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/json.h"
#include "model/config.h"
#include "model/inventory.h"

namespace {

void check_roles(const fathom::ModelConfig& config) {
    if (static_cast<std::int64_t>(config.roles.size()) != config.layers) std::abort();
    for (std::int64_t layer = 0; layer < config.layers; ++layer) {
        const fathom::LayerRole& role = config.roles[static_cast<std::size_t>(layer)];
        if (role.ratio == 0) continue;
        for (int source : {role.kv_owner, role.index_source, role.index_k_owner}) {
            if (source < 0 || source > layer ||
                config.roles[static_cast<std::size_t>(source)].ratio != role.ratio)
                std::abort();
        }
    }
}

void check_inventory(const fathom::ModelConfig& config) {
    constexpr std::int64_t kTensorsChecked = 20000;  // more would only cost time
    if ((config.layers + config.draft_stages) * (config.experts + config.draft_experts) >
        kTensorsChecked)
        return;
    fathom::for_each_expected_tensor(config, [](const fathom::ExpectedTensor& tensor) {
        std::int64_t bytes = fathom::tensor_type_bytes(tensor.type);
        for (std::int64_t n : tensor.shape) {
            if (n <= 0 || __builtin_mul_overflow(bytes, n, &bytes)) std::abort();
        }
    });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const auto json =
        fathom::parse_json(std::string_view(reinterpret_cast<const char*>(data), size));
    if (!json.ok()) return 0;
    std::vector<std::string> problems;
    const auto config = fathom::parse_model_config(*json, nullptr, &problems);
    if (!config.ok()) {
        if (config.status().message().empty()) std::abort();
        return 0;
    }
    check_roles(*config);
    check_inventory(*config);
    return 0;
}
