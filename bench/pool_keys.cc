#include "bench/pool_keys.h"

#include <vector>

#include "engine/block_key.h"

namespace fathom::bench {

void add_key_rows(Report& report) {
    constexpr std::int64_t kBlocks = 1000;
    constexpr int kRepeats = 20;
    std::vector<TokenId> ids(kBlocks * kPageTokens);
    for (std::size_t i = 0; i < ids.size(); ++i)
        ids[i] = static_cast<TokenId>(i * 2'654'435'761u % 129'280);
    const KeyedTokens tokens{.ids = ids, .in_image = {}, .embeddings = {}, .image_digests = {}};
    const NamespaceId ns = namespace_id({}, "secret");
    std::vector<BlockKey> keys(kBlocks + 1);
    keys[0] = root_key(ns);
    const double chain_s = best_seconds(kRepeats, [&] {
        for (std::int64_t i = 1; i <= kBlocks; ++i)
            keys[static_cast<std::size_t>(i)] =
                next_key(keys[static_cast<std::size_t>(i - 1)], tokens, i, false);
    });
    std::vector<BlockName> names(kBlocks + 1);
    const double mac_s = best_seconds(kRepeats, [&] {
        for (std::int64_t i = 1; i <= kBlocks; ++i)
            names[static_cast<std::size_t>(i)] = block_name(ns, keys[0], keys[1], tokens, i);
    });
    report.add("key.us_per_block", chain_s / kBlocks * 1e6, "us", 1.0);
    report.add("name.mac_us_per_block", mac_s / kBlocks * 1e6, "us");
}

}  // namespace fathom::bench
