// A rig over EmbeddedStore on a disk in memory, and a folder of the real file system.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "pool/embedded_store.h"
#include "pool/testing/memory_file_layer.h"
#include "pool/testing/store_rig.h"

namespace fathom::testing {

// A folder that is gone afterwards.
class TemporaryFolder {
  public:
    TemporaryFolder() : path_(std::filesystem::temp_directory_path() / "fathom_pool_XXXXXX") {
        FATHOM_CHECK(::mkdtemp(path_.data()) != nullptr);
    }
    ~TemporaryFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    const std::string& path() const { return path_; }

  private:
    std::string path_;
};

class EmbeddedRig : public StoreRig {
  public:
    explicit EmbeddedRig(bool encrypt = false) : encrypt_(encrypt) {
        clock_.advance_us(1'750'000'000'123'456);
        traits.durable = true;
    }

    Result<std::unique_ptr<BlockStore>> open(std::int64_t payload_bytes) override {
        EmbeddedOptions options;
        options.directory = "/" + std::to_string(payload_bytes);
        options.files = disk_.layer(96);
        options.payload_bytes = payload_bytes;
        options.capacity_bytes = std::int64_t{4} << 30;
        options.io_depth = 16;
        options.clock = &clock_;
        options.metrics = &metrics_;
        options.encrypt = encrypt_;
        if (encrypt_) {
            FATHOM_ASSIGN(options.keys, KeyRing::open(keys_.path(), clock_));
        }
        FATHOM_ASSIGN(std::unique_ptr<EmbeddedStore> store,
                      EmbeddedStore::open(std::move(options)));
        return std::unique_ptr<BlockStore>(std::move(store));
    }
    const Clock& clock() const override { return clock_; }
    bool advance_us(std::int64_t delta_us) override {
        clock_.advance_us(delta_us);
        return true;
    }
    std::optional<std::uint64_t> collisions(BlockStore&) override {
        return metrics_
            .counter("kvpool_corrupt_total", "Slots that were not the block looked for.",
                     {{"backend", "embedded"}, {"where", "collision"}})
            .value();
    }

  private:
    const bool encrypt_;
    const TemporaryFolder keys_;
    MemoryDisk disk_{1};
    ManualClock clock_;
    MetricsRegistry metrics_;
};

inline StoreKind embedded_kind() {
    return {"embedded", [] { return std::make_unique<EmbeddedRig>(); }};
}

inline StoreKind encrypted_kind() {
    return {"encrypted", [] { return std::make_unique<EmbeddedRig>(true); }};
}

}  // namespace fathom::testing
