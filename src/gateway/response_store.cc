#include "gateway/response_store.h"

#include <iterator>
#include <utility>

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

void ResponseStore::put(std::string_view client, std::string id, StoredResponse response) {
    if (const auto same = entries_.find(id); same != entries_.end()) drop(same);
    Entry entry{.client = std::string(client),
                .stored = std::move(response),
                .made_us = clock_.now_us(),
                .number = next_number_++};
    if (entry.bytes() > options_.bytes_max) return;
    bytes_ += entry.bytes();
    order_.emplace(entry.number, id);
    entries_.emplace(std::move(id), std::move(entry));
    drop_old();
}

Result<const StoredResponse*> ResponseStore::find(std::string_view client, const std::string& id) {
    drop_old();
    const auto found = entries_.find(id);
    if (found == entries_.end() || found->second.client != client) return not_stored(id);
    return &found->second.stored;
}

Status ResponseStore::erase(std::string_view client, const std::string& id) {
    FATHOM_RETURN_IF_ERROR(find(client, id).status());
    drop(entries_.find(id));
    return {};
}

void ResponseStore::drop(Entries::iterator entry) {
    bytes_ -= entry->second.bytes();
    order_.erase(entry->second.number);
    entries_.erase(entry);
}

void ResponseStore::drop_old() {
    const std::int64_t now = clock_.now_us();
    while (!order_.empty()) {
        const auto oldest = entries_.find(order_.begin()->second);
        const bool too_old = now - oldest->second.made_us >= options_.life_us;
        if (!too_old && entries_.size() <= options_.entries_max && bytes_ <= options_.bytes_max)
            return;
        drop(oldest);
    }
}

Result<Json::Array> stored_items(const StoredResponse& stored) {
    FATHOM_ASSIGN(Json items, parse_json(stored.items));
    return std::move(items.items());
}

Result<StoredResponse> make_stored_response(std::string_view body, Json::Array earlier,
                                            std::string response) {
    Json items = Json::array(std::move(earlier));
    FATHOM_ASSIGN(Json request, parse_json(body));
    Json* input = member(request, "input");
    if (input != nullptr && input->is_string()) {
        items.push_back(Json::object(
            {{"type", Json("message")}, {"role", Json("user")}, {"content", std::move(*input)}}));
    }
    append(items.items(), input);
    FATHOM_ASSIGN(Json answer, parse_json(response));
    append(items.items(), member(answer, "output"));
    return StoredResponse{.response = std::move(response), .items = items.dump()};
}

}  // namespace fathom
