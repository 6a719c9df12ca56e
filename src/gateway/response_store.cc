#include "gateway/response_store.h"

#include <iterator>
#include <utility>

#include "base/check.h"

namespace fathom {

namespace {

Status not_stored(const std::string& id) {
    return error(StatusCode::not_found, "Response with id '{}' not found.", id.substr(0, 100));
}

void append(Json::Array& to, Json* from) {
    if (from == nullptr || !from->is_array()) return;
    to.insert(to.end(), std::make_move_iterator(from->items().begin()),
              std::make_move_iterator(from->items().end()));
}

Json* member(Json& object, std::string_view key) {
    if (!object.is_object()) return nullptr;
    for (auto& [name, value] : object.members()) {
        if (name == key) return &value;
    }
    return nullptr;
}

}  // namespace

std::size_t ResponseStore::response_bytes_max(std::string_view client,
                                              std::size_t other_bytes) const {
    const std::size_t taken = client.size() + other_bytes;
    const std::size_t most = options_.entries_max == 0 ? 0 : options_.bytes_max / 2;
    return taken < most ? most - taken : 0;
}

bool ResponseStore::put(std::string_view client, std::string id, StoredResponse response) {
    if (const auto same = entries_.find(id); same != entries_.end()) drop(same);
    const std::size_t other_bytes = response.body.size() + response.earlier.size();
    if (response.response.size() > response_bytes_max(client, other_bytes)) return false;
    const auto owner = clients_.try_emplace(std::string(client)).first;
    const std::size_t bytes = client.size() + other_bytes + response.response.size();
    Entry entry{.client = owner,
                .stored = std::make_shared<const StoredResponse>(std::move(response)),
                .bytes = bytes,
                .made_us = clock_.now_us(),
                .number = next_number_++};
    bytes_ += entry.bytes;
    owner->second.bytes += entry.bytes;
    owner->second.order.emplace(entry.number, id);
    order_.emplace(entry.number, id);
    entries_.emplace(std::move(id), std::move(entry));
    drop_old();
    make_room();
    return true;
}

Result<StoredResponsePtr> ResponseStore::find(std::string_view client, const std::string& id) {
    drop_old();
    const auto found = entries_.find(id);
    if (found == entries_.end() || found->second.client->first != client) return not_stored(id);
    return found->second.stored;
}

Status ResponseStore::erase(std::string_view client, const std::string& id) {
    FATHOM_RETURN_IF_ERROR(find(client, id).status());
    drop(entries_.find(id));
    return {};
}

void ResponseStore::drop(Entries::iterator entry) {
    const Clients::iterator owner = entry->second.client;
    bytes_ -= entry->second.bytes;
    owner->second.bytes -= entry->second.bytes;
    owner->second.order.erase(entry->second.number);
    if (owner->second.order.empty()) clients_.erase(owner);
    order_.erase(entry->second.number);
    entries_.erase(entry);
}

void ResponseStore::drop_old() {
    const std::int64_t now = clock_.now_us();
    while (!order_.empty()) {
        const auto oldest = entries_.find(order_.begin()->second);
        if (now - oldest->second.made_us < options_.life_us) return;
        drop(oldest);
    }
}

// The newest entry stays: it is what a client was just promised, and at most half of everything.
void ResponseStore::make_room() {
    const std::uint64_t newest = next_number_ - 1;
    while (entries_.size() > options_.entries_max || bytes_ > options_.bytes_max) {
        const bool by_number = entries_.size() > options_.entries_max;
        const auto holds = [by_number](const Client& client) {
            return by_number ? client.order.size() : client.bytes;
        };
        const Client* most = nullptr;
        for (const auto& [name, client] : clients_) {
            if (client.order.begin()->first == newest) continue;
            if (most == nullptr || holds(client) > holds(*most)) most = &client;
        }
        FATHOM_CHECK(most != nullptr, "the newest entry alone is over the limit");
        drop(entries_.find(most->order.begin()->second));
    }
}

Result<Json::Array> stored_items(const StoredResponse& stored) {
    Json items = Json::array();
    if (!stored.earlier.empty()) {
        FATHOM_ASSIGN(items, parse_json(stored.earlier));
    }
    FATHOM_ASSIGN(Json request, parse_json(stored.body));
    Json* input = member(request, "input");
    if (input != nullptr && input->is_string()) {
        items.push_back(Json::object(
            {{"type", Json("message")}, {"role", Json("user")}, {"content", std::move(*input)}}));
    }
    append(items.items(), input);
    FATHOM_ASSIGN(Json answer, parse_json(stored.response));
    append(items.items(), member(answer, "output"));
    return std::move(items.items());
}

}  // namespace fathom
