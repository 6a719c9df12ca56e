// A rig over EcStore: all its devices are directories of one disk in memory.
#pragma once

#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "pool/ec_store.h"
#include "pool/testing/memory_file_layer.h"
#include "pool/testing/store_rig.h"

namespace fathom::testing {

inline std::vector<std::string> ec_directories(const std::string& prefix, int devices) {
    std::vector<std::string> directories;
    for (int i = 0; i < devices; ++i)
        directories.push_back(prefix + "/d" + std::to_string(i));
    return directories;
}

inline EcOptions ec_options(MemoryDisk& disk, EcShape shape, int devices,
                            std::int64_t payload_bytes, const Clock& clock,
                            MetricsRegistry& metrics) {
    EcOptions options;
    options.directories = ec_directories("/" + std::to_string(payload_bytes), devices);
    options.shape = shape;
    options.payload_bytes = payload_bytes;
    options.capacity_bytes = std::int64_t{4} << 30;
    options.device = [&disk] {
        EmbeddedOptions device;
        device.io_depth = 16;
        device.scrub_bytes_per_s = 0;
        device.files = disk.layer(96);
        return device;
    };
    options.work_bytes_per_s = 0;
    options.clock = &clock;
    options.metrics = &metrics;
    options.files = [&disk](int depth) -> Result<std::unique_ptr<FileLayer>> {
        return disk.layer(depth);
    };
    return options;
}

class EcRig : public StoreRig {
  public:
    explicit EcRig(EcShape shape) : shape_(shape) {
        clock_.advance_us(1'750'000'000'123'456);
        traits.durable = true;
    }

    Result<std::unique_ptr<BlockStore>> open(std::int64_t payload_bytes) override {
        FATHOM_ASSIGN(std::unique_ptr<EcStore> store,
                      EcStore::open(ec_options(disk_, shape_, shape_.shards(), payload_bytes,
                                               clock_, metrics_)));
        return std::unique_ptr<BlockStore>(std::move(store));
    }
    const Clock& clock() const override { return clock_; }
    bool advance_us(std::int64_t delta_us) override {
        clock_.advance_us(delta_us);
        return true;
    }
    std::optional<std::uint64_t> collisions(BlockStore&) override {
        std::uint64_t count = 0;
        for (int i = 0; i < shape_.shards(); ++i) {
            count +=
                metrics_
                    .counter("kvpool_corrupt_total", "Slots that were not the block looked for.",
                             {{"backend", "ec" + std::to_string(i)}, {"where", "collision"}})
                    .value();
        }
        return count;
    }

  private:
    const EcShape shape_;
    MemoryDisk disk_{1};
    ManualClock clock_;
    MetricsRegistry metrics_;
};

inline StoreKind ec_kind(EcShape shape) {
    return {"ec" + std::to_string(shape.k) + "p" + std::to_string(shape.m),
            [shape] { return std::make_unique<EcRig>(shape); }};
}

}  // namespace fathom::testing
