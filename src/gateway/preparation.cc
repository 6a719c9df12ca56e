#include "gateway/preparation.h"

#include <optional>
#include <utility>

namespace fathom {

namespace {

std::size_t bytes_of(const StoredResponse& stored) {
    return stored.response.size() + stored.body.size() + stored.earlier.size();
}

}  // namespace

void Preparation::run(Reading reading) {
    run(std::make_shared<const Reading>(std::move(reading)), nullptr);
}

void Preparation::run(std::shared_ptr<const Reading> reading, StoredResponsePtr earlier) {
    const std::size_t bytes = reading->body_bytes + (earlier ? bytes_of(*earlier) : 0);
    Executor& lane = bytes < kLargeBytes ? ordinary_ : large_;
    lane.post([this, reading = std::move(reading), earlier = std::move(earlier)]() mutable {
        std::optional<std::string> named;
        reading->read([&](const std::string& id) -> Result<Json::Array> {
            if (earlier) return stored_items(*earlier);
            named = id;
            return error(StatusCode::unavailable, "Response with id '{}' is not at hand.", id);
        });
        network_.post([this, reading = std::move(reading), named = std::move(named)] {
            if (!named) return reading->done({});
            const Result<StoredResponsePtr> found = store_.find(reading->client, *named);
            if (!found.ok()) return reading->done(found.status());
            run(reading, *found);
        });
    });
}

}  // namespace fathom
