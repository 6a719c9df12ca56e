#include "gateway/kv_sharing.h"

#include "base/sha256.h"

namespace fathom {

std::string client_name(std::string_view key) {
    if (key.empty()) return {};
    Sha256 hash;
    hash.update(key);
    return hex_text(hash.finish());
}

Result<KvSharing> kv_sharing(const KvSharingOptions& options, std::string_view client,
                             std::optional<std::size_t> key, std::string_view asked) {
    KvSharing sharing;
    if (options.per_key && !client.empty()) sharing.group = client;
    const Sha256Digest secret = hmac_sha256(options.secret, "kvpool/group/1" + sharing.group);
    sharing.secret.assign(secret.begin(), secret.end());
    sharing.traffic_class = options.traffic_class;
    if (key && *key < options.key_classes.size()) sharing.traffic_class = options.key_classes[*key];
    if (asked.empty()) return sharing;
    const Result<TrafficClass> wanted = parse_traffic_class(asked.substr(0, 100));
    if (!wanted.ok() || (*wanted == TrafficClass::system && *wanted != sharing.traffic_class))
        return invalid_argument(
            "Invalid x-fathom-traffic-class \"{}\", expected agent, chatbot or ephemeral",
            asked.substr(0, 100));
    sharing.traffic_class = *wanted;
    return sharing;
}

}  // namespace fathom
